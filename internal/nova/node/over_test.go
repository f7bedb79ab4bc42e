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

// over waits until a session is over, and says why.
func over(ctx context.Context, t *testing.T, s *Session) error {
	t.Helper()
	select {
	case <-s.Over():
		return s.Err()
	case <-ctx.Done():
		t.Fatal("the session is not told that it is over")
		return nil
	}
}

func open(ctx context.Context, t *testing.T, n *Node, token string) *Session {
	t.Helper()
	s, err := stream(t, n).OpenSession(ctx, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestAFenceEndsIdleSessions: sessions in which nothing happens hear of a fence, at the leader's node and at another one, and
// those that were opened behind it go on.
func TestAFenceEndsIdleSessions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := natstest.New(t)
	a, _ := testNode(t, srv)
	b, _ := testNode(t, srv)
	if err := a.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	before := ""
	for _, token := range []string{"g1", "g2", "g1", ""} {
		old := []*Session{open(ctx, t, a, before), open(ctx, t, b, before)}
		if _, err := stream(t, b).Fence(ctx, token); err != nil {
			t.Fatal(err)
		}
		next := []*Session{open(ctx, t, a, token), open(ctx, t, b, token)}
		for i, s := range old {
			var out *sequencer.FencedError
			if err := over(ctx, t, s); !errors.As(err, &out) || out.Installed != token {
				t.Errorf("fence %q, session %d: %v", token, i, err)
			}
			done := make(chan sequencer.Result, 1)
			if err := s.Submit(ctx, one("stale").Records, nil, func(r sequencer.Result) { done <- r }); err != nil {
				t.Error(err)
			} else if r := <-done; !errors.As(r.Err, &out) {
				t.Errorf("an append of a session that is over: %+v", r)
			}
		}
		if _, err := stream(t, a).Fence(ctx, token); err != nil { // an equal one ends nothing
			t.Fatal(err)
		}
		for i, s := range next {
			done := make(chan sequencer.Result, 1)
			if err := s.Submit(ctx, one(token).Records, nil, func(r sequencer.Result) { done <- r }); err != nil {
				t.Fatal(err)
			}
			if r := <-done; r.Err != nil || s.Err() != nil {
				t.Errorf("session %d behind fence %q: %v, %v", i, token, r.Err, s.Err())
			}
		}
		before = token
	}
	if got := texts(t, stream(t, a)); len(got) != 8 {
		t.Errorf("the stream holds %q", got)
	}
}

// TestALeadersEndEndsIdleSessions: they belong to that leader, and must look for the next one.
func TestALeadersEndEndsIdleSessions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := natstest.New(t)
	a, _ := testNode(t, srv)
	b, _ := testNode(t, srv)
	if err := a.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	sessions := []*Session{open(ctx, t, a, ""), open(ctx, t, b, "")}
	l, here := stream(t, a).leading()
	if !here {
		t.Fatal("the node that was asked first does not lead")
	}
	if err := l.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for i, s := range sessions {
		var away *sequencer.UnavailableError
		if err := over(ctx, t, s); !errors.As(err, &away) || away.Indefinite {
			t.Errorf("session %d: %v", i, err)
		}
	}
}

// quickNode is a node that looks after its sessions often.
func quickNode(t *testing.T, s *natstest.Server) (*Node, *nats.Conn) {
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
	n, err := New(nc, js, Options{ForwardTimeout: 300 * time.Millisecond, RetainEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return n, nc
}

// TestAnIdleSessionOfADeadLeader hears that its leader's node is gone, though nothing is appended.
func TestAnIdleSessionOfADeadLeader(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := natstest.New(t)
	for ctx.Err() == nil {
		a, connA := quickNode(t, srv)
		b, _ := quickNode(t, srv)
		at := nova.Addr{Namespace: "demo", Stream: a.ID()}
		if err := a.Create(ctx, at, jslog.Config{Memory: true}); err != nil {
			t.Fatal(err)
		}
		of := func(n *Node) *Stream {
			s, err := n.Stream(ctx, at)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if _, err := of(a).Stands(ctx); err != nil {
			t.Fatal(err)
		}
		idle, err := of(b).OpenSession(ctx, "")
		if err != nil {
			continue // on a busy machine the leader's node is too slow for so short a time
		}
		if _, other := idle.s.(*forwarded); !other {
			continue // or taken for dead
		}
		connA.Close() // as if its process were killed
		if err := over(ctx, t, idle); !errors.As(err, new(*sequencer.UnavailableError)) {
			t.Error(err)
		}
		idle.Close()
		return
	}
	t.Fatal("no session was opened")
}

// TestSessionsOfDeadNodes: a leader forgets them while it leads.
func TestSessionsOfDeadNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, _ := quickNode(t, natstest.New(t))
	if err := n.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream(t, n).Stands(ctx); err != nil {
		t.Fatal(err)
	}
	v := stream(t, n).serves
	v.mu.Lock()
	v.sessions["lost"] = &served{heard: time.Now().Add(-(silence + 1) * n.o.ForwardTimeout)}
	v.mu.Unlock()
	there := func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.sessions["lost"] != nil
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for there() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the session of a node that is gone is kept")
		}
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestASessionThatIsAskedForIsKept: its leader does not forget it, however long nothing is appended.
func TestASessionThatIsAskedForIsKept(t *testing.T) {
	n, _ := testNode(t, natstest.New(t))
	if err := n.Create(t.Context(), addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	s := stream(t, n)
	if _, err := s.Stands(t.Context()); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-(silence + 1) * n.o.ForwardTimeout)
	s.serves.sessions["kept"], s.serves.sessions["lost"] = &served{heard: long}, &served{heard: long}
	m := remote{s, n.id}.message(opKeep, nil)
	m.Header[hdrSession] = []string{"kept"}
	if err := s.serves.keep(m); err != nil {
		t.Error(err)
	}
	s.serves.expire()
	if err := s.serves.keep(m); err != nil {
		t.Error(err)
	}
	m.Header[hdrSession] = []string{"lost"}
	if err := s.serves.keep(m); !errors.Is(err, errNoSession) {
		t.Errorf("a session that nobody asked for: %v", err)
	}
}

func TestOptionsMakeSense(t *testing.T) {
	for name, o := range map[string]Options{
		"window": {Window: -1}, "bytes": {MaxBytes: -1}, "acks": {AckTimeout: -1}, "recovery": {RecoverTimeout: -1},
		"forwarding": {ForwardTimeout: -1}, "retention": {RetainEvery: -1},
	} {
		if err := o.Validate(); err == nil {
			t.Errorf("%s: %+v is taken", name, o)
		}
	}
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
}
