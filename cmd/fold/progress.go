package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

// progressAfter is how long a verb works before it says that it does, and how often it says so then.
const progressAfter = 2 * time.Second

// progress tells now and then how far a verb is, for as long as it works.
type progress struct {
	to     io.Writer
	every  time.Duration
	doing  atomic.Pointer[string]
	listed atomic.Uint64 // keys of a bucket
	rows   atomic.Uint64 // of a store
	bytes  atomic.Int64  // that were moved
}

// start begins; the function that it returns ends it, after which nothing more is told.
func (p *progress) start() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	began := time.Now()
	wg.Go(func() {
		t := time.NewTicker(p.every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.tell(time.Since(began))
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

func (p *progress) now(what string) { p.doing.Store(&what) }

func (p *progress) tell(since time.Duration) {
	what := "working"
	if d := p.doing.Load(); d != nil {
		what = *d
	}
	if n := p.listed.Load(); n > 0 {
		what += fmt.Sprintf(", %d keys listed", n)
	}
	if n := p.rows.Load(); n > 0 {
		what += fmt.Sprintf(", %d rows read", n)
	}
	if n := p.bytes.Load(); n > 0 {
		what += fmt.Sprintf(", %d bytes moved", n)
	}
	fmt.Fprintf(p.to, "fold: %s (%v)\n", what, since.Round(time.Second))
}

// watchedBucket counts what is listed.
type watchedBucket struct {
	fold.Bucket
	p *progress
}

func (b watchedBucket) LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		b.p.now("listing the bucket")
		for k, err := range b.Bucket.LastVersions(ctx, scope) {
			if !kv.Reserved(k.Key) {
				b.p.listed.Add(1)
			}
			if !yield(k, err) {
				return
			}
		}
		b.p.now("comparing")
	}
}
