package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/typedfold/fold/client"
)

// closeProducer bounds the end of a producer.
func closeProducer(ctx context.Context, p *client.Producer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return p.Close(ctx)
}

// pipeline submits n batches with so many in flight, and waits for all.
func pipeline(ctx context.Context, n, flight int, submit func(i int) *client.Ticket) error {
	tickets := make([]*client.Ticket, min(flight, n))
	for i := range n + len(tickets) {
		at := i % len(tickets)
		if t := tickets[at]; t != nil {
			if _, err := t.Wait(ctx); err != nil {
				return err
			}
			tickets[at] = nil
		}
		if i < n {
			tickets[at] = submit(i)
		}
	}
	return nil
}

// appends runs a producer over n batches, a tenth of which come first and are not counted.
func (s *side) appends(ctx context.Context, n, per, flight int, submit func(p *client.Producer, i int) *client.Ticket) (result, error) {
	p, err := s.c.OpenStream(ctx, s.addr)
	if err != nil {
		return result{}, err
	}
	warm := n / 10
	err = pipeline(ctx, warm, flight, func(i int) *client.Ticket { return submit(p, i) })
	m := s.startMeter()
	if err == nil {
		err = pipeline(ctx, n, flight, func(i int) *client.Ticket { return submit(p, warm+i) })
	}
	r := m.done(n * per)
	if err = errors.Join(err, closeProducer(ctx, p)); err != nil {
		return result{}, err
	}
	return r, s.has(ctx, (n+warm)*per)
}

// has fails unless the stream has so many records.
func (s *side) has(ctx context.Context, want int) error {
	tail, err := s.c.Tail(ctx, s.addr)
	if err == nil && tail.SeqNum != uint64(want) {
		err = fmt.Errorf("the stream has %d records, not %d", tail.SeqNum, want)
	}
	return err
}

func (s *side) batches(ctx context.Context) (result, error) {
	return s.appends(ctx, s.o.records/perBatch, perBatch, s.o.window/perBatch, func(p *client.Producer, _ int) *client.Ticket {
		return p.Submit(ctx, batch(perBatch)...)
	})
}

func (s *side) match(ctx context.Context) (result, error) {
	return s.appends(ctx, s.o.records, 1, s.o.flight, func(p *client.Producer, i int) *client.Ticket {
		return p.SubmitMatch(ctx, uint64(i), client.Record{Body: body})
	})
}

func (s *side) producer(ctx context.Context) (r result, err error) {
	p, err := s.c.OpenStream(ctx, s.addr)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, closeProducer(ctx, p)) }()
	return s.each(func() error {
		_, err := p.Append(ctx, client.Record{Body: body})
		return err
	})
}

func (s *side) oneShot(ctx context.Context) (result, error) {
	return s.each(func() error {
		_, err := s.c.Append(ctx, s.addr, client.Record{Body: body})
		return err
	})
}

// emptyCall asks the server, over the same transport as a one-shot, for what it answers without doing anything.
func (s *side) emptyCall(ctx context.Context) (result, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport}
	return s.each(func() error {
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.o.at.Stream+"/grpc.health.v1.Health/Check", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/json")
		r, err := c.Do(q)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r.Body)
		if err = errors.Join(err, r.Body.Close()); err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("an empty call: %s", r.Status)
		}
		return err
	})
}

// fence installs one token after another while the producer of the token before appends at full rate, which ends that one.
func (s *side) fence(ctx context.Context) (result, error) {
	took := make([]time.Duration, 0, s.o.fences)
	installed := ""
	for i := range s.o.fences {
		token := fmt.Sprintf("gen-%d", i)
		d, err := s.fenceOut(ctx, installed, token)
		if err != nil {
			return result{}, fmt.Errorf("fence %d of %d: %w", i+1, s.o.fences, err)
		}
		took = append(took, d)
		installed = token
	}
	return times(took), nil
}

// fenceOut times the fence that ends a producer at full rate.
func (s *side) fenceOut(ctx context.Context, installed, next string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a fence that starves fails
	defer cancel()
	p, err := s.c.OpenStream(ctx, s.addr, client.WithFencingToken(installed))
	if err != nil {
		return 0, err
	}
	flight := s.o.window / perBatch
	full := make(chan struct{}) // the window was full, and has turned over once
	ended := make(chan error, 1)
	go func() {
		ended <- pipeline(ctx, 1<<40, flight, func(i int) *client.Ticket {
			if i == 3*flight {
				close(full)
			}
			return p.Submit(ctx, batch(perBatch)...)
		})
	}()
	select {
	case <-full:
	case err := <-ended:
		return 0, errors.Join(err, closeProducer(ctx, p))
	}
	began := time.Now()
	_, err = s.c.Fence(ctx, s.addr, next)
	took := time.Since(began)
	if err != nil {
		cancel()
	}
	if e := <-ended; !errors.Is(e, client.ErrFencedOut) {
		err = errors.Join(err, fmt.Errorf("the producer was to be fenced out: %w", e))
	}
	return took, errors.Join(err, closeProducer(ctx, p))
}
