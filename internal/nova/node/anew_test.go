package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// TestStreamMadeAnew: a node that has served a stream, or knows who did, serves the one that another node made anew under
// its name, at its first call.
func TestStreamMadeAnew(t *testing.T) {
	for name, know := range map[string]func(s *Stream) error{
		"led":    func(s *Stream) error { _, err := s.Fence(t.Context(), "old"); return err },
		"looked": func(s *Stream) error { _, err := s.Leader(t.Context()); return err },
	} {
		for call, f := range map[string]func(s *Stream) error{
			"append":  func(s *Stream) error { _, err := s.Append(t.Context(), one("a")); return err },
			"fence":   func(s *Stream) error { _, err := s.Fence(t.Context(), "new"); return err },
			"tail":    func(s *Stream) error { _, err := s.Stands(t.Context()); return err },
			"session": func(s *Stream) error { _, err := s.OpenSession(t.Context(), ""); return err },
		} {
			t.Run(name+"/"+call, func(t *testing.T) {
				srv := natstest.New(t)
				first, _ := testNode(t, srv)
				second, _ := testNode(t, srv)
				if err := first.Create(t.Context(), addr, jslog.Config{Memory: true}); err != nil {
					t.Fatal(err)
				}
				old := stream(t, first)
				if err := know(old); err != nil {
					t.Fatal(err)
				}
				old.mu.Lock()
				served := old.serves
				old.mu.Unlock()
				if err := second.Delete(t.Context(), addr); err != nil {
					t.Fatal(err)
				}
				if err := second.Create(t.Context(), addr, jslog.Config{Memory: true}); err != nil {
					t.Fatal(err)
				}
				if err := f(old); err != nil {
					t.Fatalf("the first call: %v", err)
				}
				if served != nil && served.sub.IsValid() {
					t.Error("what served the stream before answers still")
				}
				if err := f(stream(t, first)); call != "fence" && err != nil {
					t.Errorf("the second call: %v", err)
				}
				want := ""
				if call == "fence" {
					want = "new"
				}
				if st, err := stream(t, second).Stands(t.Context()); err != nil || st.Token != want {
					t.Errorf("the new stream stands at %+v, %v", st, err)
				}
			})
		}
	}
}

// TestStreamThatIsGone: every call says so, and the node knows nothing of it any more.
func TestStreamThatIsGone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := natstest.New(t)
	first, _ := testNode(t, srv)
	second, _ := testNode(t, srv)
	if err := first.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	s := stream(t, first)
	if err := second.Delete(ctx, addr); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, one("x")); !errors.Is(err, jslog.ErrNotFound) {
		t.Errorf("an append: %v", err)
	}
	if _, err := first.Stream(ctx, addr); !errors.Is(err, jslog.ErrNotFound) {
		t.Errorf("the stream: %v", err)
	}
}

// TestDeletedByAnotherNode: a leader whose stream was deleted through another node ends without being asked for anything,
// and its idle sessions are told.
func TestDeletedByAnotherNode(t *testing.T) {
	for name, anew := range map[string]bool{"gone": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			srv := natstest.New(t)
			a, _ := testNode(t, srv)
			a.o.RetainEvery = 20 * time.Millisecond
			ends := make(chan error, 1)
			a.o.Events.LeadEnded = func(_ nova.Addr, why error) { ends <- why }
			b, _ := testNode(t, srv)
			if err := a.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
				t.Fatal(err)
			}
			sessions := []*Session{open(ctx, t, a, ""), open(ctx, t, b, "")}
			if err := b.Delete(ctx, addr); err != nil {
				t.Fatal(err)
			}
			if anew {
				if err := b.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
					t.Fatal(err)
				}
			}
			for i, s := range sessions {
				if err := over(ctx, t, s); !errors.As(err, new(*sequencer.UnavailableError)) {
					t.Errorf("session %d: %v", i, err)
				}
			}
			select {
			case <-ends:
			case <-ctx.Done():
				t.Fatal("the leader leads on")
			}
			if n := a.Leads(); n != 0 {
				t.Errorf("it leads %d streams", n)
			}
		})
	}
}

// TestALogIsLookedAfter: a node that only reads a stream, which needs no leader, finds out that it was made anew.
func TestALogIsLookedAfter(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := natstest.New(t)
	a, _ := testNode(t, srv)
	a.o.RetainEvery = time.Millisecond
	b, _ := testNode(t, srv)
	if err := a.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	old := stream(t, a)
	if err := b.Delete(ctx, addr); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	for now := old; now == old; now = stream(t, a) {
		if ctx.Err() != nil {
			t.Fatal("it keeps the stream that is gone")
		}
	}
	if err := stream(t, a).Log().Current(ctx); err != nil {
		t.Error(err)
	}
}

// TestUntil: what is done now and then is not waited for when the lead has ended.
func TestUntil(t *testing.T) {
	done := make(chan struct{})
	until(done, time.Hour, func(ctx context.Context) {
		close(done)
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(ctx.Err())
		}
	})
	until(nil, time.Millisecond, func(ctx context.Context) {
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Error(ctx.Err())
		}
	})
}
