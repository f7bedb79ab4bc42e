package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/client"
)

func TestR31AnEqualTokenChangesNothing(t *testing.T) { check(t, r31) }

func r31(ctx context.Context, t *testing.T, w *world) {
	for i, token := range []string{"", "t"} { // R33 is the empty one
		w.fence(ctx, t, token)
		p, q := w.open(ctx, t, w.a, client.WithFencingToken(token)), w.open(ctx, t, w.b, client.WithFencingToken(token))
		for range 3 {
			if tail := w.fence(ctx, t, token); tail.SeqNum != uint64(2*i) {
				t.Fatalf("%+v", tail)
			}
		}
		at(t, uint64(2*i))(p.Append(ctx, rec("x")...))
		at(t, uint64(2*i+1))(q.Append(ctx, rec("x")...))
	}
}

func TestR32TheEmptyTokenClears(t *testing.T) { check(t, r32) }

func r32(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "t")
	p := w.open(ctx, t, w.a, client.WithFencingToken("t"))
	at(t, 0)(p.Append(ctx, rec("a")...))
	if tail := w.fence(ctx, t, ""); tail.SeqNum != 1 {
		t.Fatalf("%+v", tail)
	}
	_, err := p.Append(ctx, rec("x")...)
	fencedOut(t, "", err)
	at(t, 1)(w.b.Append(ctx, w.addr, rec("b")...))
	w.holds(ctx, t, "a", "b")
}

func TestR34TakeoverNeedsNoReading(t *testing.T) { check(t, r34) }

func r34(ctx context.Context, t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second) // the bound
	defer cancel()
	for i, c := range []*client.Client{w.a, w.b} {
		w.fence(ctx, t, "")
		incumbent := w.open(ctx, t, c)
		busy, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for n := 0; ; n++ {
				ticket := incumbent.Submit(ctx, rec("x")...)
				if n == 50 {
					close(busy)
				}
				if n%50 == 0 {
					if _, err := ticket.Wait(ctx); err != nil {
						ended <- err
						return
					}
				}
			}
		}()
		<-busy
		token := fmt.Sprint("fresh", i)
		if _, err := w.b.Fence(ctx, w.addr, token); err != nil {
			t.Fatal(err)
		}
		p := w.open(ctx, t, w.b, client.WithFencingToken(token))
		if _, err := p.Append(ctx, rec("mine")...); err != nil {
			t.Fatal(err)
		}
		fencedOut(t, token, <-ended)
	}
}

func TestR35ConcurrentFencesBothReturn(t *testing.T) { check(t, r35) }

func r35(ctx context.Context, t *testing.T, w *world) {
	for i := range 10 {
		var wg sync.WaitGroup
		tokens := []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}
		for j, c := range []*client.Client{w.a, w.b} {
			wg.Go(func() {
				if tail, err := c.Fence(ctx, w.addr, tokens[j]); err != nil || tail.SeqNum != uint64(i) {
					t.Errorf("%+v, %v", tail, err)
				}
			})
		}
		wg.Wait()
		stands, err := w.a.FencingToken(ctx, w.addr)
		if err != nil || stands != tokens[0] && stands != tokens[1] {
			t.Fatalf("%q, %v", stands, err)
		}
		at(t, uint64(i))(w.b.Presenting(stands).Append(ctx, w.addr, rec("x")...))
	}
}

func TestR37EverybodyReadsTheTokenThatWasInstalled(t *testing.T) { check(t, r37) }

// r37 is R36 too: reading the token provokes no refusal, and appends nothing.
func r37(ctx context.Context, t *testing.T, w *world) {
	c := w.nodes[1].client(t)
	for i := range 30 {
		token := fmt.Sprint("t", i)
		if _, err := []*client.Client{w.a, w.b}[i%2].Fence(ctx, w.addr, token); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*client.Client{w.a, w.b, c} {
			if got, err := c.FencingToken(ctx, w.addr); err != nil || got != token {
				t.Fatalf("%q after %q, %v", got, token, err)
			}
		}
	}
	w.holds(ctx, t)
}

func TestR40FencedOutIsTyped(t *testing.T) { check(t, r40) }

func r40(ctx context.Context, t *testing.T, w *world) {
	p := w.open(ctx, t, w.b)
	w.fence(ctx, t, "gen-42")
	_, session := p.Append(ctx, rec("x")...)
	_, one := w.a.Presenting("gen-41").Append(ctx, w.addr, rec("x")...)
	_, opened := w.a.OpenStream(ctx, w.addr)
	for _, err := range []error{session, one, opened} {
		fencedOut(t, "gen-42", fmt.Errorf("wrapped: %w", err))
	}
}

func TestR42FencingIsNoAuthorization(t *testing.T) { check(t, r42) }

func r42(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "t")
	if _, err := w.a.Presenting("whoever").Fence(ctx, w.addr, "other"); err != nil {
		t.Fatal(err)
	}
	w.admits(ctx, t, "other")
}

func TestR44TheTokenSettlesFirst(t *testing.T) { check(t, r44) }

func r44(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "good")
	for i, c := range []*client.Client{w.a, w.b} {
		_, err := c.Presenting("bad").AppendMatch(ctx, w.addr, 99, rec("x")...)
		fencedOut(t, "good", err)
		_, err = c.Presenting("good").AppendMatch(ctx, w.addr, 99, rec("x")...)
		missed(t, err)
		at(t, uint64(i))(c.Presenting("good").AppendMatch(ctx, w.addr, uint64(i), rec("x")...))
	}
	p := w.open(ctx, t, w.b, client.WithFencingToken("good"))
	w.fence(ctx, t, "other")
	_, err := p.AppendMatch(ctx, 99, rec("x")...)
	fencedOut(t, "other", err)
}

func TestR47PresentingIsAView(t *testing.T) { check(t, r47) }

func r47(ctx context.Context, t *testing.T, w *world) {
	w.fence(ctx, t, "t")
	view := w.a.Presenting("t")
	at(t, 0)(view.Append(ctx, w.addr, rec("x")...))
	_, err := w.a.Append(ctx, w.addr, rec("x")...)
	fencedOut(t, "t", err)
	_, err = view.Presenting("").Append(ctx, w.addr, rec("x")...)
	fencedOut(t, "t", err)
	at(t, 1)(view.Append(ctx, w.addr, rec("x")...))
	at(t, 2)(w.open(ctx, t, view).Append(ctx, rec("x")...)) // producers of the view present it too
}
