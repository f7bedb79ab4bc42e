package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/typedfold/fold/client"
)

// election chooses one worker at a time, on a stream of its own. Each record is a claim or a renewal; only the one that gets
// the number it asked for counts, so two workers that claim at once can't both win. No clocks are compared: a worker claims when it
// has seen no record for ttl of its own time.
//
// An election can be wrong for a while: a worker that was paused still takes itself for the owner. That is what the fencing
// token is for.
type election struct {
	c    *client.Client
	addr string
	name string
	ttl  time.Duration
}

// term is one ownership. Its number is unlike that of any other.
type term struct {
	e      *election
	number uint64 // of the claim
	next   uint64 // of the renewal that comes
}

// errLost is a term that another worker has ended, or that could not be renewed.
var errLost = errors.New("the term is lost")

// win waits until this worker is the owner.
func (e *election) win(ctx context.Context) (*term, error) {
	var seen client.Tail
	since, known := time.Now(), false
	for {
		tail, err := e.c.Tail(ctx, e.addr)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			known = false // whoever can't see the renewals may not count the time either
		case !known || tail != seen:
			seen, since, known = tail, time.Now(), true
		}
		if known && (seen.SeqNum == 0 || time.Since(since) >= e.ttl) {
			r, err := e.c.AppendMatch(ctx, e.addr, seen.SeqNum, client.Bodies([]byte("claim "+e.name))...)
			if err == nil {
				return &term{e: e, number: r.Start.SeqNum, next: r.End.SeqNum}, nil
			}
			known = false // somebody was faster, or nobody knows: look again
		}
		if !pause(ctx, e.ttl/5) {
			return nil, ctx.Err()
		}
	}
}

// hold renews the term until ctx ends, or the term does.
func (t *term) hold(ctx context.Context) error {
	for {
		if !pause(ctx, t.e.ttl/3) {
			return ctx.Err()
		}
		renewing, cancel := context.WithTimeout(ctx, t.e.ttl/2)
		r, err := t.e.c.AppendMatch(renewing, t.e.addr, t.next, client.Bodies([]byte("renew "+t.e.name))...)
		cancel()
		if err != nil {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		t.next = r.End.SeqNum
	}
}

// token is a fencing token that no other term has.
func (t *term) token() string { return fmt.Sprintf("term-%d", t.number) }

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
