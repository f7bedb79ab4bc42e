package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/pebblestore"

	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
	"github.com/typedfold/fold/examples/routes/router"
)

// message is one line of a router process's stdout.
type message struct {
	// Type is ready, progress, hydrated, holding, held or digest.
	Type string `json:"type"`
	// Address takes requests (ready).
	Address string `json:"address,omitempty"`
	// Resumed is the cursor that the store was opened with (ready).
	Resumed uint64 `json:"resumed,omitempty"`
	// Applied and Durable are the cursors of the last commit.
	Applied uint64 `json:"applied,omitempty"`
	Durable uint64 `json:"durable,omitempty"`
	// Updates counts those committed since the start, Replayed those of them that were not after Resumed, and Back the
	// commits whose cursor was before the one before.
	Updates  uint64 `json:"updates,omitempty"`
	Replayed uint64 `json:"replayed,omitempty"`
	Back     uint64 `json:"back,omitempty"`
	// First and Last are the revisions of the batch that is held (held).
	First uint64 `json:"first,omitempty"`
	Last  uint64 `json:"last,omitempty"`
	// Digest is over the whole fold, Rows the number of routes in it (digest).
	Digest string `json:"digest,omitempty"`
	Rows   uint64 `json:"rows,omitempty"`
}

// Commands are the lines of a router process's stdin; its end asks for an orderly shutdown.
const (
	commandHold   = "hold"   // stop in the middle of the next batch, and say so before (holding) and then (held)
	commandDigest = "digest" // answer with a digest
)

const progressEvery = 20 * time.Millisecond

// child is a router process.
type child struct {
	mu  sync.Mutex // guards out
	out *json.Encoder

	store            store.Store
	resumed          uint64
	hold             atomic.Bool
	applied, durable atomic.Uint64
	updates          atomic.Uint64
	replayed, back   atomic.Uint64
}

func (c *child) send(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Encode(m)
}

func (c *child) progress(kind string) message {
	// The store is asked: what is synced after the last apply, no apply tells.
	applied := c.applied.Load()
	durable := min(c.store.Durable().Revision(), applied)
	return message{Type: kind, Applied: applied, Durable: durable, Updates: c.updates.Load(),
		Replayed: c.replayed.Load(), Back: c.back.Load()}
}

// heldStore stops a commit half-way when it is asked to: the batch's hooks have returned, and nothing of it is in the
// store.
type heldStore struct {
	fold.Store
	c *child
}

func (s *heldStore) Apply(ctx context.Context, b *store.Batch, cursor fold.Cursor) error {
	if n := len(b.Updates); n > 0 && s.c.hold.Load() {
		held := s.c.progress("held")
		held.First, held.Last = b.Updates[0].Version.Rank(), b.Updates[n-1].Version.Rank()
		if err := s.c.send(held); err != nil {
			return err
		}
		<-ctx.Done() // the kill comes first
		return ctx.Err()
	}
	if err := s.Store.Apply(ctx, b, cursor); err != nil {
		return err
	}
	for i := range b.Updates {
		if b.Updates[i].Version.Rank() <= s.c.resumed {
			s.c.replayed.Add(1)
		}
	}
	s.c.updates.Add(uint64(len(b.Updates)))
	return nil
}

func runChild(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet(childCommand, flag.ContinueOnError)
	fs.SetOutput(stderr)
	server, dir := fs.String("server", "", "NATS URL"), fs.String("dir", "", "folder of the fold")
	verbose := fs.Bool("verbose", false, "log")
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if *verbose {
		log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	conn, err := natskv.Connect(ctx, natskv.ConnectOptions{URL: *server, Name: "demo-router"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Shutdown(context.WithoutCancel(ctx))) }()
	js, err := conn.JetStream()
	if err != nil {
		return err
	}
	bucket, err := natskv.Bind(ctx, js, router.Bucket, natskv.BucketConfig{})
	if err != nil {
		return err
	}
	c := &child{out: json.NewEncoder(stdout)}
	r, err := c.start(ctx, bucket, *dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	front := httpFront{h: r}
	if err := front.listen(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, front.srv.Close()) }()
	if err := c.send(message{Type: "ready", Address: front.addr, Resumed: c.resumed}); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { c.report(ctx, stop) })
	return c.obey(ctx, stdin, r)
}

func (c *child) start(ctx context.Context, bucket fold.Bucket, dir string, log *slog.Logger) (*router.Router, error) {
	s, err := pebblestore.Open(dir, pebblestore.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	c.store, c.resumed = s, s.Cursor().Revision()
	c.applied.Store(c.resumed)
	c.durable.Store(c.resumed)
	r, err := router.Start(ctx, bucket, &heldStore{Store: s, c: c}, fold.Options{
		Logger:    log,
		OnApplied: c.onApplied,
		// A failed write to stdout means that the parent is gone; report ends the process then.
		Events: fold.Events{Hydrated: func(fold.Cursor) { _ = c.send(c.progress("hydrated")) }},
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return r, nil
}

func (c *child) onApplied(a fold.Applied) {
	if a.Cursor.Revision() < c.applied.Load() || a.Durable.Revision() < c.durable.Load() {
		c.back.Add(1)
	}
	c.applied.Store(a.Cursor.Revision())
	c.durable.Store(a.Durable.Revision())
}

// report tells how far the fold is, until ctx ends or nobody listens.
func (c *child) report(ctx context.Context, stop func()) {
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	var last message
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		m := c.progress("progress")
		if m == last {
			continue
		}
		if c.send(m) != nil {
			stop()
			return
		}
		last = m
	}
}

// obey carries out the parent's commands until it closes stdin.
func (c *child) obey(ctx context.Context, stdin io.Reader, r *router.Router) error {
	lines := bufio.NewScanner(stdin)
	for lines.Scan() && ctx.Err() == nil {
		switch lines.Text() {
		case commandHold:
			c.hold.Store(true)
			if err := c.send(message{Type: "holding"}); err != nil {
				return err
			}
		case commandDigest:
			m, err := digest(ctx, r)
			if err != nil {
				return err
			}
			if err := c.send(m); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func digest(ctx context.Context, r *router.Router) (m message, err error) {
	snap, err := r.Fold().Snapshot()
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	d, err := snap.Digest(ctx)
	if err != nil {
		return m, err
	}
	rows, err := r.Routes().At(snap).Count(ctx, routesv1fold.RouteAll())
	if err != nil {
		return m, err
	}
	return message{Type: "digest", Applied: snap.Cursor().Revision(), Digest: d.String(), Rows: rows}, nil
}

// httpFront is a listener on a free port of the loopback.
type httpFront struct {
	h    http.Handler
	addr string
	srv  *http.Server
}

func (f *httpFront) listen() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f.addr = l.Addr().String()
	f.srv = &http.Server{Handler: f.h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = f.srv.Serve(l) }() // ends by Close; requests show any other end
	return nil
}
