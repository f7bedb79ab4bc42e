package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// stale is a log of which a server that is cut off from the others answers at first.
type stale struct {
	reader.Log
	old  jslog.Stored
	left int // answers as of before
}

func (s *stale) Last(ctx context.Context) (jslog.Stored, error) {
	if s.left > 0 {
		s.left--
		return s.old, nil
	}
	return s.Log.Last(ctx)
}

// TestAReadReachesWhatWasAnswered: a read that begins after an append was answered has it, also when the log's first answers
// are from before.
func TestAReadReachesWhatWasAnswered(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	nc, err := natstest.New(t).Connect(nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.New(nc, js, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	addr := nova.Addr{Namespace: "demo", Stream: "events"}
	if err := n.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	st, err := n.Stream(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	appendOne := func() {
		t.Helper()
		if _, err := st.Append(ctx, sequencer.Append{Records: []nova.Record{{Body: []byte("x")}}}); err != nil {
			t.Fatal(err)
		}
	}
	appendOne()
	old, err := st.Log().Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	appendOne()
	appendOne()
	for name, c := range map[string]struct {
		start             reader.Start
		limit             uint64
		first, next, asks uint64
		outside           bool
	}{
		"all":                          {next: 3, asks: 1},
		"as many as there are":         {limit: 3, next: 3, asks: 1},
		"fewer":                        {limit: 1, next: 1},
		"from what was answered":       {start: reader.Start{N: 2}, first: 2, next: 3, asks: 1},
		"from there, clamped":          {start: reader.Start{N: 2, Clamp: true}, first: 2, next: 3, asks: 1},
		"from the tail":                {start: reader.Start{N: 3}, first: 3, next: 3, asks: 1},
		"from beyond":                  {start: reader.Start{N: 4}, outside: true, asks: 1},
		"from before the tail":         {start: reader.Start{Kind: reader.FromTail, N: 1}, first: 2, next: 3, asks: 1},
		"from a time behind all":       {start: reader.Start{Kind: reader.FromTime, N: 1 << 60}, first: 3, next: 3, asks: 1},
		"from a time before all":       {start: reader.Start{Kind: reader.FromTime, N: 1}, next: 3, asks: 1},
		"from a time, and not so many": {start: reader.Start{Kind: reader.FromTime, N: 1}, limit: 1, next: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &stale{Log: st.Log(), old: old, left: 3}
			asked, got := uint64(0), c.first
			stands := func(ctx context.Context) (sequencer.Standing, error) {
				asked++
				return st.Stands(ctx)
			}
			next, err := readProved(ctx, l, stands, c.start, c.limit, reader.Each(func(rs reader.Records) error {
				if len(rs.Records) > 0 && rs.First != got {
					t.Errorf("record %d comes where %d was due", rs.First, got)
				}
				got += uint64(len(rs.Records))
				return nil
			}))
			var outside *reader.OutOfRangeError
			switch {
			case c.outside:
				if !errors.As(err, &outside) || outside.Tail.SeqNum != 3 {
					t.Errorf("%v", err)
				}
			case err != nil || next.SeqNum != c.next || got != c.next:
				t.Errorf("it read up to %d, and goes on at %d: %v", got, next.SeqNum, err)
			}
			if asked != c.asks {
				t.Errorf("the leader was asked %d times", asked)
			}
		})
	}
}
