package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// full is a stream whose leader has no room: the log is away, and the leader tries for longer than the test. Its own node
// gives nothing up, the other one's sessions and requests are what the test begins.
func full(ctx context.Context, t *testing.T) (leader, other *Stream, session *Session) {
	t.Helper()
	srv := natstest.New(t)
	var streams []*Stream
	for _, o := range []Options{{ForwardTimeout: time.Hour, RecoverTimeout: time.Hour, MaxBytes: 16 << 10}, {ForwardTimeout: time.Hour}} {
		nc, err := srv.Connect(nats.ReconnectBufSize(-1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		n, err := New(nc, js, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(streams) == 0 {
			if err := n.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
				t.Fatal(err)
			}
		}
		s := stream(t, n)
		if _, err := s.Stands(ctx); err != nil { // the first one leads
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	session, err := streams[1].OpenSession(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Server().DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	return streams[0], streams[1], session
}

func big(i int) []nova.Record {
	return []nova.Record{{Body: fmt.Append(make([]byte, 5000), i)}}
}

// TestWaitingForRoomHoldsNothingUp: while batches of another node wait until the leader has room for them, that node is
// answered what it asks else.
func TestWaitingForRoomHoldsNothingUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, other, session := full(ctx, t)
	for i := range 3 { // the third finds no room
		if err := session.Submit(ctx, big(i), nil, func(sequencer.Result) {}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // and neither does the second
		go func() {
			_, _ = other.Append(ctx, sequencer.Append{Records: big(0)})
		}()
	}
	f, ok := session.s.(*forwarded)
	if !ok {
		t.Fatalf("the session is a %T", session.s)
	}
	m := f.r.message(opKeep, nil)
	m.Header[hdrSession] = []string{f.id}
	a, err := f.r.ask(ctx, m)
	if err != nil {
		t.Fatalf("is the session known: %v", err)
	}
	if _, err := a.result(); err != nil {
		t.Fatalf("the session is not known: %v", err)
	}
}

// TestWhatWaitsIsBounded: batches of another node that find too many waiting are refused, and nothing behind them in their
// session is taken.
func TestWhatWaitsIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leader, _, session := full(ctx, t)
	results := make(chan int, 16)
	for i := range 8 {
		err := session.Submit(ctx, big(i), nil, func(r sequencer.Result) {
			var away *sequencer.UnavailableError
			if !errors.As(r.Err, &away) || away.Indefinite {
				t.Errorf("batch %d: %+v", i, r)
			}
			results <- i
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		select {
		case <-results:
		case <-ctx.Done():
			t.Fatal("they wait without a bound")
		}
	}
	v := leader.serves
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held > 16<<10 {
		t.Errorf("%d bytes wait", v.held)
	}
}

// TestASessionsOrder: batches of another node come in the order of their submission, and its end behind them.
func TestASessionsOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leader, other := pair(ctx, t)
	const n = 500
	results := make(chan sequencer.Result, n)
	session, err := other.OpenSession(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := session.Submit(ctx, one(fmt.Sprint(i)).Records, nil, func(r sequencer.Result) { results <- r }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if r := <-results; r.Err != nil || r.Start.SeqNum != uint64(i) {
			t.Fatalf("batch %d: %+v", i, r)
		}
	}
	session.Close()
	for v := leader.serves; ; {
		v.mu.Lock()
		left, held := len(v.sessions), v.held
		v.mu.Unlock()
		if left == 0 && held == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d sessions, and %d bytes, are left", left, held)
		}
	}
	for i, text := range texts(t, leader) {
		if text != fmt.Sprint(i) {
			t.Fatalf("record %d is %q", i, text)
		}
	}
}
