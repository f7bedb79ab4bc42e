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
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
	"github.com/typedfold/fold/runtime/protocol"
)

var addr = nova.Addr{Namespace: "demo", Stream: "events"}

// testNode is a node on a connection of its own.
func testNode(t *testing.T, s *natstest.Server) (*Node, *nats.Conn) {
	t.Helper()
	nc, err := s.Connect(nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(nc, js, Options{ForwardTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if nc.IsConnected() {
			if err := n.Close(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return n, nc
}

func stream(t *testing.T, n *Node) *Stream {
	t.Helper()
	s, err := n.Stream(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func leads(s *Stream) bool {
	_, here := s.leading()
	return here
}

func one(text string) sequencer.Append {
	return sequencer.Append{Records: []nova.Record{{Body: []byte(text)}}}
}

func texts(t *testing.T, s *Stream) []string {
	t.Helper()
	var all []string
	_, err := reader.Read(t.Context(), s.Log(), reader.Start{}, 0, false, reader.Each(func(r reader.Records) error {
		if r.First != uint64(len(all)) {
			return fmt.Errorf("record %d comes after %d records", r.First, len(all))
		}
		for _, rec := range r.Records {
			all = append(all, string(rec.Body))
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestForward: a node that does not lead answers as the one that does, and takes over when that one is gone, by a graceful
// end or without a word.
func TestForward(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := natstest.New(t)
	a, connA := testNode(t, srv)
	b, _ := testNode(t, srv)
	c, _ := testNode(t, srv)
	if err := a.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream(t, a).Append(ctx, one("0")); err != nil {
		t.Fatal(err)
	}
	r, err := stream(t, b).Append(ctx, one("1"))
	if err != nil || r.Start.SeqNum != 1 {
		t.Fatalf("through another node: %+v, %v", r, err)
	}
	if who, _ := stream(t, b).Leader(ctx); who != a.ID() {
		t.Fatalf("%s leads, not %s", who, a.ID())
	}
	match := one("x")
	match.HasMatch, match.Match = true, 1
	if _, err := stream(t, b).Append(ctx, match); err == nil {
		t.Fatal("a miss through another node was no error")
	} else if miss := new(sequencer.MissedError); !errors.As(err, &miss) || miss.Tail.SeqNum != 2 {
		t.Fatalf("a miss through another node: %v", err)
	}
	if tail, err := stream(t, b).Fence(ctx, "g1"); err != nil || tail.SeqNum != 2 {
		t.Fatalf("%+v, %v", tail, err)
	}
	if _, err := stream(t, b).OpenSession(ctx, "other"); err == nil {
		t.Fatal("a session with another token was opened")
	} else if out := new(sequencer.FencedError); !errors.As(err, &out) || out.Installed != "g1" {
		t.Fatal(err)
	}
	session, err := stream(t, b).OpenSession(ctx, "g1")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan sequencer.Result, 200)
	for i := range 100 {
		if err := session.Submit(ctx, one(fmt.Sprint(i+2)).Records, new(uint64(i+2)), func(r sequencer.Result) { results <- r }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if r := <-results; r.Err != nil || r.Start.SeqNum != uint64(i+2) {
			t.Fatalf("batch %d of a session: %+v", i, r)
		}
	}
	if _, err := stream(t, c).Fence(ctx, "g2"); err != nil {
		t.Fatal(err)
	}
	if err := session.Submit(ctx, one("stale").Records, nil, func(r sequencer.Result) { results <- r }); err != nil {
		t.Fatal(err)
	}
	if r := <-results; !errors.As(r.Err, new(*sequencer.FencedError)) {
		t.Fatalf("an append of a superseded session: %+v", r)
	}
	session.Close()

	connA.Close() // as if the process were killed
	g2 := one("102")
	g2.Token = "g2"
	g2.HasMatch, g2.Match = true, 102
	for r, err = stream(t, c).Append(ctx, g2); errors.As(err, new(*sequencer.UnavailableError)) && ctx.Err() == nil; {
		r, err = stream(t, c).Append(ctx, g2) // asked while the server still took the leader's node for connected
	}
	if err != nil || r.Start.SeqNum != 102 {
		t.Fatalf("after the leader's death: %+v, %v", r, err)
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	g2 = one("103")
	g2.Append = protocol.Append{Token: "g2"}
	if r, err = stream(t, b).Append(ctx, g2); err != nil || r.Start.SeqNum != 103 {
		t.Fatalf("after the leader's end: %+v, %v", r, err)
	}
	for i, text := range texts(t, stream(t, b)) {
		if text != fmt.Sprint(i) {
			t.Fatalf("record %d is %q", i, text)
		}
	}
}

// TestImpatientCallers: callers that leave before a leader's node answers don't have it taken for dead; that it doesn't
// answer within ForwardTimeout does.
func TestImpatientCallers(t *testing.T) {
	n, nc := testNode(t, natstest.New(t, natstest.Options{}))
	n.o.ForwardTimeout = 50 * time.Millisecond
	if err := n.Create(t.Context(), addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	s := stream(t, n)
	sub, err := nc.SubscribeSync(s.subject("silent"))
	if err != nil {
		t.Fatal(err)
	}
	s.remote = "silent"
	for range maxSilent {
		left, leave := context.WithCancel(t.Context())
		defer leave()
		go func() {
			if _, err := sub.NextMsg(10 * time.Second); err == nil {
				leave()
			}
		}()
		if _, err := (remote{s, "silent"}).Stands(left); err == nil {
			t.Fatal("nobody answers")
		}
	}
	if s.silent != 0 {
		t.Errorf("%d callers that left count", s.silent)
	}
	for i := range maxSilent {
		if _, err := (remote{s, "silent"}).Stands(t.Context()); err == nil {
			t.Fatal("nobody answers")
		}
		if s.silent != i+1 {
			t.Errorf("%d of %d requests without an answer count", s.silent, i+1)
		}
	}
	if st, err := s.Stands(t.Context()); err != nil || !leads(s) {
		t.Errorf("the node that doesn't answer is not followed: %+v, %v", st, err)
	}
}

// TestTakeoversAtOnce has two nodes use streams that nobody leads at the same time: whoever loses the race for the lead
// forwards to the winner.
func TestTakeoversAtOnce(t *testing.T) {
	s := natstest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, _ := testNode(t, s)
	b, _ := testNode(t, s)
	for i := range 20 {
		at := nova.Addr{Namespace: "demo", Stream: fmt.Sprint("s", i)}
		if err := a.Create(ctx, at, jslog.Config{Memory: true}); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		for _, n := range []*Node{a, b} {
			st, err := n.Stream(ctx, at)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := st.Append(ctx, one("x"))
				errs <- err
			}()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
		}
	}
}

// TestLeadAgain: a node that leads a stream again, when its leader before has just ended, does not answer for that one too.
func TestLeadAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, _ := testNode(t, natstest.New(t, natstest.Options{}))
	if err := n.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	s := stream(t, n)
	// As lead leaves it before anybody has seen that the leader has ended.
	v, err := s.serve()
	if err != nil {
		t.Fatal(err)
	}
	l, err := sequencer.Start(ctx, sequencer.OfJetStream(s.log), n.leaderOptions(v))
	if err != nil {
		t.Fatal(err)
	}
	v.begin(l)
	s.leader, s.serves = l, v
	if err := l.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, one("a")); err != nil {
		t.Fatal(err)
	}
	if v.sub.IsValid() {
		t.Error("the leader that has ended answers still")
	}
}

// TestSessionEndsWithABatch: a batch that could not be handed over ends its session, here and at another node.
func TestSessionEndsWithABatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, _ := testNode(t, natstest.New(t, natstest.Options{}))
	if err := n.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	s := stream(t, n)
	here, err := s.OpenSession(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(ctx)
	leave()
	done := make(chan sequencer.Result, 1)
	submit := func(ctx context.Context, records []nova.Record) error {
		return here.Submit(ctx, records, nil, func(r sequencer.Result) { done <- r })
	}
	if err := submit(ctx, one("a").Records); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.Err != nil {
		t.Error(r.Err)
	}
	if err := submit(left, one("b").Records); err == nil {
		t.Error("a batch is handed over though its caller has left")
	}
	if err := submit(ctx, one("c").Records); !errors.As(err, new(*sequencer.UnavailableError)) {
		t.Errorf("a batch behind one that was not handed over: %v", err)
	}

	s.mu.Lock()
	v, l := s.serves, s.leader
	s.mu.Unlock()
	batch := func(index string) *nats.Msg {
		m, err := remote{s, n.id}.batch(opBatch, &frame.Batch{Records: one("d").Records})
		if err != nil {
			t.Fatal(err)
		}
		m.Header[hdrSession], m.Header[hdrIndex] = []string{"x"}, []string{index}
		return m
	}
	invalid := batch("0")
	invalid.Data = []byte("no frame")
	for what, first := range map[string]func(){
		"not handed over": func() { v.append(left, l, batch("0")) },
		"invalid":         func() { v.append(ctx, l, invalid) },
	} {
		v.mu.Lock()
		v.sessions["x"] = &served{}
		v.mu.Unlock()
		first()
		for _, index := range []string{"0", "1"} {
			v.append(ctx, l, batch(index))
		}
		if st, err := s.Stands(ctx); err != nil || st.Tail.SeqNum != 1 {
			t.Errorf("behind a batch that was %s: the tail is %d, %v", what, st.Tail.SeqNum, err)
		}
	}
}
