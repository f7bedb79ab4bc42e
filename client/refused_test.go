package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/typedfold/fold/client"
)

// TestARefusalOfWhatWasSentBeforeIsNotDefinite: it says nothing of the attempt before. Of a batch that was sent once it is.
func TestARefusalOfWhatWasSentBeforeIsNotDefinite(t *testing.T) {
	f := &fake{session: func(n int, s *session) error {
		if n > 3 {
			return s.serve()
		}
		if err := s.open(); err != nil {
			return err
		}
		if _, err := s.receive(); err != nil {
			return err
		}
		if n == 1 {
			return unavailable()
		}
		return connect.NewError(connect.CodeInvalidArgument, errors.New("too large for the log"))
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		_, err := p.AppendMatch(ctx, 0, rec("sent twice")...)
		if !errors.Is(err, client.ErrOutcomeUnknown) || errors.As(err, new(*client.InvalidError)) {
			t.Errorf("a batch that was sent twice: %v", err)
		}
		_, err = p.AppendMatch(ctx, 0, rec("sent once")...)
		if !errors.As(err, new(*client.InvalidError)) || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("a batch that was sent once: %v", err)
		}
		at(t, 0)(p.AppendMatch(ctx, 0, rec("good")...))
	})
}

// TestWhatCantBeSentIsInvalid: a string that is not UTF-8 is the caller's mistake, and is not tried again. Nothing was written, and a
// producer goes on with what comes behind.
func TestWhatCantBeSentIsInvalid(t *testing.T) {
	const bad = "nova://a/\xff"
	named := []client.Record{{Headers: []client.Header{{Name: "n"}, {Name: "\xff"}}}}
	f := &fake{session: func(_ int, s *session) error { return s.serve() }}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		c := f.client(t)
		for name, call := range map[string]func() error{
			"a header of an append":    func() error { _, err := c.Append(ctx, "nova://a/b", named...); return err },
			"a header of a producer's": func() error { _, err := p.Append(ctx, named...); return err },
			"an append":                func() error { _, err := c.Append(ctx, bad, rec("x")...); return err },
			"a producer":               func() error { _, err := c.OpenStream(ctx, bad); return err },
			"a tail":                   func() error { _, err := c.Tail(ctx, bad); return err },
			"a fence":                  func() error { _, err := c.Fence(ctx, bad, ""); return err },
			"a new token":              func() error { _, err := c.Fence(ctx, "nova://a/b", "\xff"); return err },
			"a token":                  func() error { _, err := c.FencingToken(ctx, bad); return err },
			"a trim":                   func() error { _, err := c.Trim(ctx, bad, 0); return err },
			"a creation":               func() error { return c.CreateStream(ctx, bad, client.StreamConfig{}) },
			"a deletion":               func() error { return c.DeleteStream(ctx, bad) },
			"a description":            func() error { _, err := c.DescribeStream(ctx, bad); return err },
			"a list":                   func() error { _, err := c.ListStreams(ctx, "\xff"); return err },
			"a read": func() (last error) {
				for _, err := range c.Read(ctx, bad, client.ReadOptions{Retrying: func(err error, _ time.Duration) { t.Errorf("tried again: %v", err) }}) {
					last = err
				}
				return last
			},
		} {
			if err := call(); !errors.As(err, new(*client.InvalidError)) || errors.Is(err, client.ErrOutcomeUnknown) {
				t.Errorf("%s: %v", name, err)
			}
		}
		at(t, 0)(p.Append(ctx, rec("good")...))
	})
}

// TestATrimBeyondTheTail is out of range, and not a write of which nobody knows.
func TestATrimBeyondTheTail(t *testing.T) {
	run(t, single.URL(), client.StreamConfig{Memory: true}, func(ctx context.Context, t *testing.T, w *world) {
		at(t, 0)(w.a.Append(ctx, w.addr, rec("a")...))
		_, err := w.a.Trim(ctx, w.addr, 9)
		var outside *client.RangeError
		if !errors.As(err, &outside) || outside.Tail.SeqNum != 1 || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
	})
}
