package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bareStream makes a JetStream stream of one subject, and gives its name, which is the subject too.
func (s *side) bareStream(ctx context.Context) (string, error) {
	name := strings.NewReplacer("://", "-", "/", "-").Replace(s.addr)
	storage := jetstream.FileStorage
	if s.o.memory {
		storage = jetstream.MemoryStorage
	}
	_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: storage, Replicas: 1})
	return name, err
}

func (s *side) bareAsync(ctx context.Context) (result, error) {
	return s.async(ctx, s.o.window, func(string, int) nats.Header { return nil })
}

func (s *side) bareMatch(ctx context.Context) (result, error) {
	return s.async(ctx, s.o.flight, func(_ string, i int) nats.Header {
		return nats.Header{jetstream.ExpectedLastSeqHeader: {fmt.Sprint(i)}}
	})
}

// async publishes with so many messages in flight. header is that of message i, from 0.
func (s *side) async(ctx context.Context, window int, header func(name string, i int) nats.Header) (result, error) {
	failed := make(chan error, 1)
	js, err := s.jetStream(jetstream.WithPublishAsyncMaxPending(window), jetstream.WithPublishAsyncErrHandler(
		func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case failed <- err:
			default:
			}
		}))
	if err != nil {
		return result{}, err
	}
	name, err := s.bareStream(ctx)
	if err != nil {
		return result{}, err
	}
	sent := 0
	publish := func(n int) error {
		for range n {
			m := &nats.Msg{Subject: name, Data: body, Header: header(name, sent)}
			if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
				return err
			}
			sent++
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
	if err := publish(s.o.records / 10); err != nil {
		return result{}, err
	}
	m := s.startMeter()
	if err := publish(s.o.records); err != nil {
		return result{}, err
	}
	r := m.done(s.o.records)
	return r, s.dropBare(ctx, name, uint64(sent))
}

// dropBare removes a stream that must hold so many messages.
func (s *side) dropBare(ctx context.Context, name string, want uint64) error {
	st, err := s.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	if got := st.CachedInfo().State.Msgs; got != want {
		return fmt.Errorf("the bare stream has %d messages, not %d", got, want)
	}
	return s.js.DeleteStream(ctx, name)
}

func (s *side) bareSync(ctx context.Context) (result, error) {
	name, err := s.bareStream(ctx)
	if err != nil {
		return result{}, err
	}
	r, err := s.each(func() error {
		_, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: name, Data: body})
		return err
	})
	if err != nil {
		return result{}, err
	}
	return r, s.dropBare(ctx, name, uint64(s.o.appends+s.o.appends/10))
}

// each times single calls, after some that are not counted.
func (s *side) each(f func() error) (result, error) {
	for range s.o.appends / 10 {
		if err := f(); err != nil {
			return result{}, err
		}
	}
	took := make([]time.Duration, s.o.appends)
	for i := range took {
		began := time.Now()
		if err := f(); err != nil {
			return result{}, err
		}
		took[i] = time.Since(began)
	}
	return times(took), nil
}
