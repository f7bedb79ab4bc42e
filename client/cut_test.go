package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/typedfold/fold/client"
)

// cutAt is a plan that cuts at one message only.
func cutAt(n int, what cut) func(int) cut {
	return func(i int) cut {
		if i == n {
			return what
		}
		return pass
	}
}

func TestR11AResentMatchSaysSo(t *testing.T) { check(t, r11) }

func r11(ctx context.Context, t *testing.T, w *world) {
	x := newProxy(t, w.nodes[1].at)
	x.plan = cutAt(2, cutBehind)
	p := w.open(ctx, t, newClient(t, x.at()))
	at(t, 0)(p.AppendMatch(ctx, 0, rec("a")...))
	_, err := p.AppendMatch(ctx, 1, rec("b")...)
	if seq := missed(t, err); !seq.Resent || seq.Tail.SeqNum != 2 {
		t.Fatalf("%+v", seq)
	}
	_, err = p.AppendMatch(ctx, 1, rec("c")...)
	if seq := missed(t, err); seq.Resent {
		t.Fatalf("a batch that was sent once: %+v", seq)
	}
	w.holds(ctx, t, "a", "b")
}

func TestR12AMatchThatWasLostIsAppendedOnce(t *testing.T) { check(t, r12) }

func r12(ctx context.Context, t *testing.T, w *world) {
	x := newProxy(t, w.nodes[1].at)
	x.plan = cutAt(1, dropIt)
	p := w.open(ctx, t, newClient(t, x.at()))
	at(t, 0)(p.AppendMatch(ctx, 0, rec("a")...))
	if requests, batches := x.count(); requests != 2 || batches != 2 {
		t.Fatalf("%d sessions, %d batches", requests, batches)
	}
	w.holds(ctx, t, "a")
}

func TestR13MatchesAreExactlyOnce(t *testing.T) { check(t, r13) }

func r13(ctx context.Context, t *testing.T, w *world) {
	const window = 32
	n := w.many(10_000)
	r := rand.New(rand.NewPCG(13, 13))
	x := newProxy(t, w.nodes[1].at)
	x.plan = func(int) cut { return []cut{dropIt, cutBehind, pass}[min(r.IntN(200), 2)] }
	p := w.open(ctx, t, newClient(t, x.at()))
	var want []string
	var tickets []*client.Ticket
	for i := range n {
		want = append(want, fmt.Sprint(i))
		tickets = append(tickets, p.SubmitMatch(ctx, uint64(i), rec(want[i])...))
		if i < window {
			continue
		}
		if _, err := tickets[i-window].Wait(ctx); err != nil && !missed(t, err).Resent {
			t.Fatalf("batch %d: %v", i-window, err)
		}
	}
	for i, ticket := range tickets {
		if _, err := ticket.Wait(ctx); err != nil && !missed(t, err).Resent {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
	if requests, _ := x.count(); requests < 5 {
		t.Fatalf("only %d sessions: nothing was cut", requests)
	}
	w.holds(ctx, t, want...)
}

func TestR14APlainAppendIsAtLeastOnce(t *testing.T) { check(t, r14) }

func r14(ctx context.Context, t *testing.T, w *world) {
	x := newProxy(t, w.nodes[1].at)
	x.plan = cutAt(1, cutBehind)
	p := w.open(ctx, t, newClient(t, x.at()))
	at(t, 1)(p.Append(ctx, rec("a")...))
	w.holds(ctx, t, "a", "a")
}

func TestR15AOneShotIsOneAttempt(t *testing.T) { check(t, r15) }

func r15(ctx context.Context, t *testing.T, w *world) {
	for _, what := range []cut{dropIt, cutBehind} {
		x := newProxy(t, w.nodes[1].at)
		x.unary = cutAt(2, what)
		c := newClient(t, x.at())
		if _, err := c.Tail(ctx, w.addr); err != nil {
			t.Fatal(err)
		}
		_, err := c.AppendMatch(ctx, w.addr, 0, rec("a")...)
		if !errors.Is(err, client.ErrOutcomeUnknown) || errors.As(err, new(*client.SequenceError)) {
			t.Fatalf("a one-shot whose connection was cut: %v", err)
		}
		if requests, _ := x.count(); requests != 2 {
			t.Fatalf("%d requests for one call", requests-1)
		}
	}
	_, err := w.a.AppendMatch(ctx, w.addr, 0, rec("b")...)
	if missed(t, err).Resent {
		t.Fatal("a one-shot is never sent again")
	}
	w.holds(ctx, t, "a")
}

func TestR41FencedOutIsForGood(t *testing.T) { check(t, r41) }

func r41(ctx context.Context, t *testing.T, w *world) {
	x := newProxy(t, w.nodes[0].at)
	c := newClient(t, x.at())
	p := w.open(ctx, t, c)
	at(t, 0)(p.Append(ctx, rec("a")...))
	w.fence(ctx, t, "new")
	for range 3 {
		_, err := p.Append(ctx, rec("b")...)
		fencedOut(t, "new", err)
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if requests, batches := x.count(); requests != 1 || batches > 2 {
		t.Fatalf("%d sessions and %d batches", requests, batches)
	}
	if _, err := c.OpenStream(ctx, w.addr); !errors.Is(err, client.ErrFencedOut) {
		t.Fatal(err)
	}
	_, err := c.Append(ctx, w.addr, rec("b")...)
	fencedOut(t, "new", err)
	if requests, _ := x.count(); requests != 3 {
		t.Fatalf("%d requests, not one for each call", requests)
	}
	w.holds(ctx, t, "a")
}

func TestR43AFenceMayBeRepeated(t *testing.T) { check(t, r43) }

func r43(ctx context.Context, t *testing.T, w *world) {
	for i, what := range []cut{dropIt, cutBehind} {
		token := fmt.Sprint("t", i)
		x := newProxy(t, w.nodes[1].at)
		x.unary = cutAt(1, what)
		c := newClient(t, x.at())
		if _, err := c.Fence(ctx, w.addr, token); !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Fatalf("a fence whose connection was cut: %v", err)
		}
		var p *client.Producer
		if what == cutBehind {
			p = w.open(ctx, t, w.a, client.WithFencingToken(token))
		}
		if tail, err := c.Fence(ctx, w.addr, token); err != nil || tail.SeqNum != 0 {
			t.Fatalf("%+v, %v", tail, err)
		}
		if got, err := w.a.FencingToken(ctx, w.addr); err != nil || got != token {
			t.Fatalf("%q, %v", got, err)
		}
		if p != nil { // the repetition superseded nobody
			at(t, 0)(p.Append(ctx, rec("x")...))
		}
	}
}

func TestR45ARetryCantLandBehindALaterFence(t *testing.T) { check(t, r45) }

func r45(ctx context.Context, t *testing.T, w *world) {
	token := ""
	want := []string{}
	for i, what := range []cut{dropIt, cutBehind} {
		token = fmt.Sprint("mine", i)
		w.fence(ctx, t, token)
		x := newProxy(t, w.nodes[1].at)
		x.plan, x.hold = cutAt(1, what), true
		p := w.open(ctx, t, newClient(t, x.at()), client.WithFencingToken(token))
		ticket := p.SubmitMatch(ctx, uint64(len(want)), rec(token)...)
		if what == cutBehind {
			want = append(want, token)
		}
		x.cutDone(ctx, t)
		tail := w.fence(ctx, t, "theirs")
		if tail.SeqNum != uint64(len(want)) {
			t.Fatalf("the boundary is %d", tail.SeqNum)
		}
		x.release()
		_, err := ticket.Wait(ctx)
		if !fencedOut(t, "theirs", err).Resent {
			t.Fatalf("a batch that may have landed: %v", err)
		}
		w.holds(ctx, t, want...)
	}
	w.fence(ctx, t, "both")
	p := w.open(ctx, t, w.a, client.WithFencingToken("both"))
	at(t, 1)(p.AppendMatch(ctx, 1, rec("x")...))
}
