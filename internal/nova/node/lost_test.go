package node

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
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// TestABatchThatCantBeSentLeavesNoneWithoutAnAnswer: the connection to the leader is lost with the answer to one batch, and
// the next one finds that it is. The first is told that its outcome is unknown.
func TestABatchThatCantBeSentLeavesNoneWithoutAnAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := natstest.New(t)
	a, _ := testNode(t, srv)
	if err := a.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream(t, a).Stands(ctx); err != nil { // it leads
		t.Fatal(err)
	}
	nc, err := srv.Connect(nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(nc, js, Options{ForwardTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s, err := stream(t, b).OpenSession(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	f, ok := s.s.(*forwarded)
	if !ok {
		t.Fatalf("the session is a %T", s.s)
	}
	if err := f.sub.Unsubscribe(); err != nil { // the answer is lost
		t.Fatal(err)
	}
	told := make(chan sequencer.Result, 1)
	one := []nova.Record{{Body: []byte("a")}}
	if err := s.Submit(ctx, one, nil, func(r sequencer.Result) { told <- r }); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := s.Submit(ctx, one, nil, func(sequencer.Result) { t.Error("what was not sent has no answer") }); err == nil {
		t.Fatal("a batch was sent over a connection that is closed")
	}
	select {
	case r := <-told:
		var away *sequencer.UnavailableError
		if !errors.As(r.Err, &away) || !away.Indefinite {
			t.Errorf("%v", r.Err)
		}
	case <-ctx.Done():
		t.Fatal("the first batch has no answer")
	}
}
