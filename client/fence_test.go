package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/client"
)

func TestR20ATokenHas36Bytes(t *testing.T) { check(t, r20) }

func r20(ctx context.Context, t *testing.T, w *world) {
	for _, token := range []string{strings.Repeat("a", 36), strings.Repeat("é", 18), strings.Repeat("🙂", 9), "", " ", "\x00"} {
		w.fence(ctx, t, token)
		if got, err := w.a.FencingToken(ctx, w.addr); err != nil || got != token {
			t.Fatalf("%q became %q, %v", token, got, err)
		}
		if _, err := w.a.Presenting(token).Append(ctx, w.addr, rec("x")...); err != nil {
			t.Fatal(err)
		}
	}
	for _, token := range []string{strings.Repeat("a", 37), strings.Repeat("é", 18) + "a", "\xff"} {
		var bad *client.InvalidError
		if _, err := w.a.Fence(ctx, w.addr, token); !errors.As(err, &bad) {
			t.Fatalf("fence %q: %v", token, err)
		}
		if _, err := w.a.Presenting(token).Append(ctx, w.addr, rec("x")...); !errors.As(err, &bad) {
			t.Fatalf("present %q: %v", token, err)
		}
		if _, err := w.a.OpenStream(ctx, w.addr, client.WithFencingToken(token)); !errors.As(err, &bad) {
			t.Fatalf("open with %q: %v", token, err)
		}
	}
}

func TestR21WithoutATokenNonePresentedIsAdmitted(t *testing.T) { check(t, r21) }

func r21(ctx context.Context, t *testing.T, w *world) {
	for _, c := range []*client.Client{w.a, w.b} {
		if _, err := c.Append(ctx, w.addr, rec("a")...); err != nil {
			t.Fatal(err)
		}
		_, err := c.Presenting("x").Append(ctx, w.addr, rec("b")...)
		fencedOut(t, "", err)
		_, err = c.OpenStream(ctx, w.addr, client.WithFencingToken("x"))
		fencedOut(t, "", err)
		// R24: presenting installs nothing
		if got, err := c.FencingToken(ctx, w.addr); err != nil || got != "" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	w.holds(ctx, t, "a", "a")
}

func TestR22OnlyTheInstalledTokenIsAdmitted(t *testing.T) { check(t, r22) }

func r22(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "old")
	w.fence(ctx, t, "t")
	w.admits(ctx, t, "t")
	w.fence(ctx, t, "")
	w.admits(ctx, t, "")
}

// admits fails unless exactly those are admitted who present the token.
func (w *world) admits(ctx context.Context, t *testing.T, installed string) {
	t.Helper()
	before := len(w.bodies(ctx, t))
	admitted := before
	for i, c := range []*client.Client{w.a, w.b} {
		for _, token := range []string{"", "old", "t", "other"} {
			_, one := c.Presenting(token).Append(ctx, w.addr, rec("x")...)
			status, body := w.nodes[i].post(ctx, t, w.addr, fmt.Sprintf(`{"records":[{}],"fencing_token":%q}`, token))
			for name, wire := range w.nodes[i].protocols(t) {
				tried := map[string]error{"an append": appendOver(ctx, wire, w.addr, token, nil)}
				if name != gRPCWeb {
					tried["a session"] = sessionOver(ctx, wire, w.addr, token)
				}
				for what, err := range tried {
					if admits := token == installed; admits != (err == nil) || !admits && mismatchOf(t, err).GetInstalled() != installed {
						t.Fatalf("%s over %s that presents %q: %v", what, name, token, err)
					}
				}
			}
			p, opened := c.OpenStream(ctx, w.addr, client.WithFencingToken(token))
			if token != installed {
				fencedOut(t, installed, one)
				fencedOut(t, installed, opened)
				if status != http.StatusPreconditionFailed || !strings.Contains(body, fmt.Sprintf(`"fencing_token":%q`, installed)) {
					t.Fatalf("%q over HTTP: %d %s", token, status, body)
				}
				continue
			}
			if one != nil || opened != nil || status != http.StatusOK {
				t.Fatalf("%q: %v, %v, %d %s", token, one, opened, status, body)
			}
			if _, err := p.Append(ctx, rec("x")...); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(ctx); err != nil {
				t.Fatal(err)
			}
			admitted += 3 + len(w.nodes[i].protocols(t))
		}
	}
	if n := len(w.bodies(ctx, t)); n != admitted || n == before {
		t.Fatalf("%d records, not %d", n, admitted)
	}
}

func TestR23RefusalOutlastsRestartsAndTrims(t *testing.T) { check(t, r23) }

func r23(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "t")
	tail, err := w.a.Presenting("t").Append(ctx, w.addr, rec("a", "b", "c")...)
	at(t, 0)(tail, err)
	if _, err := w.a.Trim(ctx, w.addr, 3); err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		n.shutdown()
	}
	n := startNode(ctx, t, w.nodes[0].urls)
	c := n.client(t)
	if got, err := c.FencingToken(ctx, w.addr); err != nil || got != "t" {
		t.Fatalf("%q, %v", got, err)
	}
	for range 3 {
		_, err := c.Append(ctx, w.addr, rec("x")...)
		fencedOut(t, "t", err)
	}
	at(t, 3)(c.Presenting("t").Append(ctx, w.addr, rec("d")...))
}

func TestR25OnlyFenceChangesTheToken(t *testing.T) { check(t, r25) }

func r25(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "t")
	for i, f := range []func() error{
		func() error { _, err := w.a.Presenting("t").Append(ctx, w.addr, rec("a")...); return err },
		func() error { _, err := w.b.Presenting("u").Append(ctx, w.addr, rec("a")...); return err },
		func() error { _, err := w.b.OpenStream(ctx, w.addr, client.WithFencingToken("u")); return err },
		func() error { _, err := w.a.Presenting("t").AppendMatch(ctx, w.addr, 9, rec("a")...); return err },
		func() error { _, err := w.a.Trim(ctx, w.addr, 1); return err },
		func() error { _, err := w.a.Tail(ctx, w.addr); return err },
		func() error { _, err := w.b.DescribeStream(ctx, w.addr); return err },
		func() error { return w.b.CreateStream(ctx, w.addr, w.config) },
	} {
		err := f()
		if got, gotErr := w.b.FencingToken(ctx, w.addr); gotErr != nil || got != "t" {
			t.Fatalf("after %d (%v): %q, %v", i, err, got, gotErr)
		}
	}
}

func TestR26NoStaleAppendBehindTheBoundary(t *testing.T) { check(t, r26) }

// r26 has writers present a token each, and rotates it: the boundaries divide the records by the token of their writer. That
// is R30 too.
func r26(ctx context.Context, t *testing.T, w *world) {
	const generations = 12
	token := func(i int) string { return fmt.Sprint("gen", i) }
	var boundaries []uint64
	var wg sync.WaitGroup
	for i := range generations {
		boundaries = append(boundaries, w.fence(ctx, t, token(i)).SeqNum)
		for j, c := range []*client.Client{w.a, w.b} {
			p, err := c.OpenStream(ctx, w.addr, client.WithFencingToken(token(i)))
			if err != nil {
				t.Fatal(err)
			}
			started := make(chan struct{})
			wg.Go(func() {
				var tickets []*client.Ticket
				for k := 0; ; k++ {
					ticket := p.Submit(ctx, rec(token(i))...)
					tickets = append(tickets, ticket)
					if k < 5 {
						continue
					}
					if _, err := tickets[k-5].Wait(ctx); err != nil {
						break // the next fence came
					}
					if k == 10 {
						close(started)
					}
				}
				for _, ticket := range tickets {
					if _, err := ticket.Wait(ctx); err != nil && !errors.Is(err, client.ErrFencedOut) {
						t.Errorf("writer %d of %s: %v", j, token(i), err)
					}
				}
				if err := p.Close(ctx); err != nil {
					t.Error(err)
				}
			})
			select {
			case <-started:
			case <-ctx.Done():
				t.Fatal("a writer does not get on")
			}
		}
	}
	w.fence(ctx, t, "")
	wg.Wait()
	for seq, body := range w.bodies(ctx, t) {
		gen := -1
		for gen+1 < generations && boundaries[gen+1] <= uint64(seq) {
			gen++
		}
		if body != token(gen) {
			t.Fatalf("record %d is of %s, and %s stood", seq, body, token(gen))
		}
	}
}

func TestR27LiveSessionsAreSuperseded(t *testing.T) { check(t, r27) }

func r27(ctx context.Context, t *testing.T, w *world) {
	for i, c := range []*client.Client{w.a, w.b} {
		p := w.open(ctx, t, c)
		if _, err := p.Append(ctx, rec("a")...); err != nil {
			t.Fatal(err)
		}
		w.fence(ctx, t, "t")
		_, err := p.Append(ctx, rec("b")...)
		if fencedOut(t, "t", err).Resent {
			t.Fatal("a batch that was sent once, and refused")
		}
		w.fence(ctx, t, "") // a session that is dead stays dead
		_, err = p.Append(ctx, rec("c")...)
		fencedOut(t, "t", err)
		if n := len(w.bodies(ctx, t)); n != i+1 {
			t.Fatalf("%d records", n)
		}
	}
}

func TestR27ASessionSleepsThroughTwoFences(t *testing.T) { check(t, r27b) }

func r27b(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "t")
	p, q := w.open(ctx, t, w.a, client.WithFencingToken("t")), w.open(ctx, t, w.b, client.WithFencingToken("t"))
	w.fence(ctx, t, "u")
	w.fence(ctx, t, "t") // the former token again: the sessions that it had are dead all the same
	for _, p := range []*client.Producer{p, q} {
		_, err := p.Append(ctx, rec("x")...)
		var out *client.FenceError // of the one fence or the other, as it was told
		if !errors.As(err, &out) || out.Installed != "u" && out.Installed != "t" {
			t.Fatal(err)
		}
	}
	at(t, 0)(w.a.Presenting("t").Append(ctx, w.addr, rec("x")...))
}

func TestR27IdleProducersHearOfAFence(t *testing.T) { check(t, r27c) }

// r27c has producers in which nothing happens, or for whose records it is not time yet: a fence ends them without an append.
func r27c(ctx context.Context, t *testing.T, w *world) {
	for i, n := range w.nodes {
		x := newProxy(t, n.at)
		before, token := fmt.Sprint(i), fmt.Sprint(i+1)
		w.fence(ctx, t, before)
		c := newClient(t, x.at())
		idle, staged := w.open(ctx, t, c, client.WithFencingToken(before)), w.open(ctx, t, c, client.WithFencingToken(before), client.WithLinger(time.Hour))
		ticket := staged.Submit(ctx, rec("x")...)
		if idle.Err() != nil {
			t.Fatal(idle.Err())
		}
		w.fence(ctx, t, token)
		for _, p := range []*client.Producer{idle, staged} {
			select {
			case <-p.Done():
			case <-ctx.Done():
				t.Fatal("an idle producer does not hear of a fence")
			}
			fencedOut(t, token, p.Err())
			_, err := p.Append(ctx, rec("y")...)
			if fencedOut(t, token, err).Resent {
				t.Fatal("it was never sent")
			}
			if err := p.Close(ctx); err != nil {
				t.Fatal(err)
			}
			fencedOut(t, token, p.Err())
		}
		_, err := ticket.Wait(ctx)
		if fencedOut(t, token, err).Resent {
			t.Fatal("it was never sent")
		}
		if requests, batches := x.count(); requests != 2 || batches != 0 {
			t.Fatalf("%d sessions and %d batches", requests, batches)
		}
	}
	w.holds(ctx, t)
}

func TestR28WhatIsInFlightIsAdmittedOrRefused(t *testing.T) { check(t, r28) }

func r28(ctx context.Context, t *testing.T, w *world) {
	for round, c := range []*client.Client{w.a, w.b} {
		w.fence(ctx, t, fmt.Sprint("before", round))
		p := w.open(ctx, t, c, client.WithFencingToken(fmt.Sprint("before", round)))
		var tickets []*client.Ticket
		boundary := make(chan client.Tail, 1)
		for i := range 600 {
			tickets = append(tickets, p.Submit(ctx, rec(fmt.Sprint(i))...))
			if i == 300 {
				go func() {
					tail, err := w.b.Fence(ctx, w.addr, "after")
					if err != nil {
						t.Error(err)
					}
					boundary <- tail
				}()
			}
		}
		tail := <-boundary
		refused := 0
		for i, ticket := range tickets {
			r, err := ticket.Wait(ctx)
			switch {
			case err == nil && refused == 0 && r.End.SeqNum <= tail.SeqNum:
			case err != nil && !fencedOut(t, "after", err).Resent:
				refused++
			default:
				t.Fatalf("batch %d: %+v, %v, the boundary is %d", i, r, err, tail.SeqNum)
			}
		}
		if n := len(w.bodies(ctx, t)); uint64(n) != tail.SeqNum {
			t.Fatalf("%d records, the boundary is %d", n, tail.SeqNum)
		}
	}
}

func TestR29CloseOfASupersededProducerIsInert(t *testing.T) { check(t, r29) }

func r29(ctx context.Context, t *testing.T, w *world) {
	for _, c := range []*client.Client{w.a, w.b} {
		w.fence(ctx, t, "")
		old := w.open(ctx, t, c, client.WithLinger(time.Hour))
		staged := []*client.Ticket{old.Submit(ctx, rec("x")...), old.Submit(ctx, rec("y")...)}
		w.fence(ctx, t, "t")
		next := w.open(ctx, t, w.b, client.WithFencingToken("t"))
		before := len(w.bodies(ctx, t))
		if err := old.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for _, ticket := range staged {
			_, err := ticket.Wait(ctx)
			if fencedOut(t, "t", err).Resent {
				t.Fatal(err)
			}
		}
		at(t, uint64(before))(next.AppendMatch(ctx, uint64(before), rec("z")...))
	}
	w.holds(ctx, t, "z", "z")
}
