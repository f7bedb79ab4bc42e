package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	routesv1 "github.com/typedfold/fold/examples/routes/gen/routes/v1"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
)

const (
	workers = 8
	// stable routes are updated and never deleted, so that requests for them must always succeed.
	stable = 100
)

// writer changes routes at a steady rate, as often as it was granted, and knows how many there are. The grants make
// what a run shows the same on a slow machine: how many updates a router misses does not depend on how long its
// restart takes.
type writer struct {
	w      routesv1fold.RouteWriter
	origin string // serves the stable routes
	routes int

	grants  chan struct{}
	granted int64

	written atomic.Int64 // updates since the seeding
	rows    atomic.Int64
	highest atomic.Uint64 // revision

	stop func()
	done chan struct{} // closed when the work has ended, with err
	err  error
}

func domain(i int) string { return fmt.Sprintf("d%06d.example.com", i) }

func (w *writer) route(i int) *routesv1.Route {
	r := &routesv1.Route{Tenant: fmt.Sprintf("t%02d", i%50), Domain: domain(i), Enabled: true, Origin: w.origin}
	if i >= stable {
		r.Origin = fmt.Sprintf("10.%d.%d.%d:8080", rand.IntN(256), rand.IntN(256), rand.IntN(256))
	}
	return r
}

// seed writes every route once.
func (w *writer) seed(ctx context.Context) error {
	return w.parallel(func(worker int) error {
		for i := worker; i < w.routes; i += workers {
			if err := w.put(ctx, i); err != nil {
				return err
			}
			w.rows.Add(1)
		}
		return nil
	})
}

// grant allows n updates more, and never blocks as long as all grants are within what start was told.
func (w *writer) grant(n int) {
	w.granted += int64(n)
	for range n {
		w.grants <- struct{}{}
	}
}

// start changes routes, at a rate and at most so often, until finish.
func (w *writer) start(ctx context.Context, rate, most int) {
	w.grants = make(chan struct{}, most)
	ctx, w.stop = context.WithCancel(ctx)
	w.done = make(chan struct{})
	interval := time.Second * workers / time.Duration(rate)
	go func() {
		defer close(w.done)
		w.err = w.parallel(func(worker int) error { return w.work(ctx, worker, interval) })
	}()
}

// finish stops after the writes that are under way. It does nothing more when called again, or before start.
func (w *writer) finish() error {
	if w.stop == nil {
		return nil
	}
	w.stop()
	<-w.done
	return w.err
}

// work changes this worker's share of the routes. Only it writes them, so it knows which exist.
func (w *writer) work(ctx context.Context, worker int, interval time.Duration) error {
	deleted := map[int]bool{}
	writes := context.WithoutCancel(ctx) // a write that is cut off may or may not be stored
	next := time.Now()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.grants:
		}
		i := worker + workers*rand.IntN((w.routes-worker+workers-1)/workers)
		var err error
		switch gone := deleted[i]; {
		case !gone && i >= stable && rand.IntN(10) == 0:
			deleted[i] = true
			w.rows.Add(-1)
			r := w.route(i)
			err = w.w.Delete(writes, routesv1fold.RouteKey{Tenant: r.GetTenant(), Domain: r.GetDomain()})
		default:
			if gone {
				delete(deleted, i)
				w.rows.Add(1)
			}
			err = w.put(writes, i)
		}
		if err != nil {
			return err
		}
		w.written.Add(1)
		if next = next.Add(interval); time.Since(next) > time.Second {
			next = time.Now() // it waited for a grant, or was too slow: that is not made up for
		}
		t.Reset(time.Until(next))
	}
}

func (w *writer) put(ctx context.Context, i int) error {
	rev, err := w.w.Put(ctx, w.route(i))
	if err != nil {
		return err
	}
	for {
		high := w.highest.Load()
		if rev.Seq() <= high || w.highest.CompareAndSwap(high, rev.Seq()) {
			return nil
		}
	}
}

func (w *writer) parallel(f func(worker int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for worker := range workers {
		wg.Go(func() { errs[worker] = f(worker) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
