package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const probeEvery = 10 * time.Millisecond

// prober sends requests for stable routes to one router.
type prober struct {
	served, failed atomic.Int64
	stop           func()
	wg             sync.WaitGroup
}

// begin sends one request, and then goes on until end. It may be called again after it, for another process at another
// address.
func (p *prober) begin(ctx context.Context, address string) {
	ctx, p.stop = context.WithCancel(ctx)
	p.send(ctx, address)
	p.wg.Go(func() {
		t := time.NewTicker(probeEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				p.send(ctx, address)
			}
		}
	})
}

func (p *prober) send(ctx context.Context, address string) {
	switch ok := probe(ctx, address); {
	case ok:
		p.served.Add(1)
	case ctx.Err() == nil:
		p.failed.Add(1)
	}
}

// end stops, and waits for the request that is under way.
func (p *prober) end() {
	if p.stop != nil {
		p.stop()
	}
	p.wg.Wait()
}

func probe(ctx context.Context, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return false
	}
	req.Host = domain(rand.IntN(stable))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close() == nil && err == nil && resp.StatusCode == http.StatusOK
}
