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

// pair is a stream at the node that leads it, and at another one.
func pair(ctx context.Context, t *testing.T) (leader, other *Stream) {
	t.Helper()
	srv := natstest.New(t)
	a, _ := testNode(t, srv)
	b, _ := testNode(t, srv)
	if err := a.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	leader, other = stream(t, a), stream(t, b)
	if _, err := leader.Stands(ctx); err != nil { // it leads
		t.Fatal(err)
	}
	return leader, other
}

// TestTokensAreBytes: a token is what its bytes are, through whichever node it comes.
func TestTokensAreBytes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leader, other := pair(ctx, t)
	tokens := []string{"k", " k", "k ", "k\n", "\r\nk", "k\tk", "\t", "  ", "\n", "k\x00", "\x00", `"k"`, "<k>", "\u2028", "é", ""}
	for _, installed := range tokens {
		for _, through := range []*Stream{leader, other} {
			if _, err := through.Fence(ctx, "before"); err != nil {
				t.Fatal(err)
			}
			if _, err := through.Fence(ctx, installed); err != nil {
				t.Fatalf("%q: %v", installed, err)
			}
			for _, s := range []*Stream{leader, other} {
				if st, err := s.Stands(ctx); err != nil || st.Token != installed {
					t.Fatalf("%q was installed, and %q stands, %v", installed, st.Token, err)
				}
			}
		}
		for _, s := range []*Stream{leader, other} {
			for _, presented := range tokens {
				admitted(ctx, t, s, installed, presented)
			}
		}
	}
}

// admitted checks that a session and a one-shot are admitted if they present the token that is installed, and only then.
func admitted(ctx context.Context, t *testing.T, s *Stream, installed, presented string) {
	t.Helper()
	session, err := s.OpenSession(ctx, presented)
	var out *sequencer.FencedError
	switch {
	case presented == installed && err != nil, presented != installed && (!errors.As(err, &out) || out.Installed != installed):
		t.Errorf("a session with %q while %q is installed: %v", presented, installed, err)
	case err == nil:
		session.Close()
	}
	a := one("x")
	a.Token = presented
	_, err = s.Append(ctx, a)
	if presented == installed && err != nil || presented != installed && (!errors.As(err, &out) || out.Installed != installed) {
		t.Errorf("an append with %q while %q is installed: %v", presented, installed, err)
	}
}

// TestABatchThatTheLogDoesNotTake: it is invalid, through whichever node it comes, and nothing behind it in its session is
// handed over.
func TestABatchThatTheLogDoesNotTake(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leader, other := pair(ctx, t)
	for name, s := range map[string]*Stream{"here": leader, "at another node": other} {
		for what, records := range map[string][]nova.Record{
			"nothing": nil, "more than a message": {{Body: make([]byte, nova.MaxBatchBytes-8)}}, "too much": {{Body: make([]byte, nova.MaxBatchBytes)}},
		} {
			a := sequencer.Append{Records: records}
			if _, err := s.Append(ctx, a); !errors.Is(err, nova.ErrInvalid) {
				t.Errorf("%s, %s: an append: %v", name, what, err)
			}
			session, err := s.OpenSession(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan sequencer.Result, 1)
			if err := session.Submit(ctx, one("before").Records, nil, func(r sequencer.Result) { told <- r }); err != nil {
				t.Fatal(err)
			}
			unexpected := func(r sequencer.Result) { t.Errorf("%s, %s: %+v", name, what, r) }
			if err := session.Submit(ctx, records, nil, unexpected); !errors.Is(err, nova.ErrInvalid) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			var away *sequencer.UnavailableError
			err = session.Submit(ctx, one("behind").Records, nil, unexpected)
			if !errors.As(err, &away) || away.Indefinite || errors.Is(err, nova.ErrInvalid) {
				t.Errorf("%s, behind %s: %v", name, what, err)
			}
			if r := <-told; r.Err != nil {
				t.Errorf("%s, before %s: %v", name, what, r.Err)
			}
			session.Close()
		}
	}
	if st, err := leader.Stands(ctx); err != nil || st.Tail.SeqNum != 6 {
		t.Errorf("the stream stands at %+v, %v", st, err)
	}
}
