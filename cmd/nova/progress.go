package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// progressAfter is how long a verb works before it says that it does, and how often it says so then.
const progressAfter = 2 * time.Second

// progress tells now and then how far a verb is.
type progress struct {
	to      io.Writer
	every   time.Duration
	records atomic.Uint64
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
				fmt.Fprintf(p.to, "nova: %s appended (%v)\n", records(p.records.Load()), time.Since(began).Round(time.Second))
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

func (p *progress) count(n uint64) { p.records.Add(n) }

// away tells now and then that a read has lost its server. It is used by one goroutine.
type away struct {
	to    io.Writer
	every time.Duration
	told  time.Time // when it was told last, or the server was lost; zero while it is there
}

func (a *away) retrying(err error, _ time.Duration) {
	now := time.Now()
	switch {
	case a.told.IsZero():
		a.told = now
	case now.Sub(a.told) >= a.every:
		a.told = now
		fmt.Fprintf(a.to, "nova: the read goes on when the server is back: %v\n", err)
	}
}

func (a *away) back() { a.told = time.Time{} }
