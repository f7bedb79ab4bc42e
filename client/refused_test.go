package client_test

import (
	"context"
	"errors"
	"testing"

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
