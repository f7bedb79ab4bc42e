package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/typedfold/fold/client"
)

// crowd is how many producers flood a stream, each with a client of its own, and floodBatches how many batches of 100 each
// has in flight: all that a producer and a session hold.
const (
	crowd        = 4
	floodBatches = 580
)

// flood is a crowd of producers under way.
type flood struct {
	producers []*client.Producer
	ended     chan error // one for each
	full      chan struct{}
}

// startFlood opens the producers, and returns when each has its window full and turned over.
func (s *side) startFlood(ctx context.Context, token string) (*flood, error) {
	f := &flood{ended: make(chan error, crowd), full: make(chan struct{}, crowd)}
	for range crowd {
		c, err := client.New(s.o.at.Stream)
		if err != nil {
			return f, err
		}
		p, err := c.OpenStream(ctx, s.addr, client.WithFencingToken(token))
		if err != nil {
			return f, err
		}
		f.producers = append(f.producers, p)
		go func() {
			f.ended <- pipeline(ctx, 1<<40, floodBatches, func(i int) *client.Ticket {
				if i == 2*floodBatches {
					f.full <- struct{}{}
				}
				return p.Submit(ctx, batch(perBatch)...)
			})
		}()
	}
	for range crowd {
		select {
		case <-f.full:
		case err := <-f.ended:
			return f, err
		}
	}
	return f, nil
}

// crowdOneShot times one-shots beside a flood.
func (s *side) crowdOneShot(ctx context.Context) (r result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := s.startFlood(ctx, "")
	if err == nil {
		took := make([]time.Duration, 0, s.o.fences)
		for len(took) < s.o.fences && err == nil {
			began := time.Now()
			_, err = s.c.Append(ctx, s.addr, client.Record{Body: body})
			took = append(took, time.Since(began))
		}
		r = times(took)
	}
	cancel()
	for _, p := range f.producers {
		<-f.ended
		_ = closeProducer(ctx, p) // it was cut short
	}
	return r, err
}

// crowdFence times fences that end a flood, one after the other.
func (s *side) crowdFence(ctx context.Context) (result, error) {
	var took []time.Duration
	installed := ""
	for i := range max(s.o.fences/5, 1) {
		token := fmt.Sprintf("gen-%d", i)
		f, err := s.startFlood(ctx, installed)
		if err != nil {
			return result{}, err
		}
		began := time.Now()
		if _, err := s.c.Fence(ctx, s.addr, token); err != nil {
			return result{}, err
		}
		took = append(took, time.Since(began))
		for range f.producers {
			if err := <-f.ended; !errors.Is(err, client.ErrFencedOut) {
				return result{}, fmt.Errorf("a producer was to be fenced out: %w", err)
			}
		}
		for _, p := range f.producers {
			if err := closeProducer(ctx, p); err != nil {
				return result{}, err
			}
		}
		installed = token
	}
	return times(took), nil
}
