package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/typedfold/fold/client"
)

func TestR01AMatchGetsItsNumber(t *testing.T) { check(t, r01) }

func r01(ctx context.Context, t *testing.T, w *world) {
	at(t, 0)(w.a.Append(ctx, w.addr, rec("a", "b", "c")...))
	at(t, 3)(w.b.AppendMatch(ctx, w.addr, 3, rec("d", "e")...))
	at(t, 5)(w.open(ctx, t, w.b).AppendMatch(ctx, 5, rec("f")...))
	w.holds(ctx, t, "a", "b", "c", "d", "e", "f")
}

func TestR02AMissAppendsNothing(t *testing.T) { check(t, r02) }

func r02(ctx context.Context, t *testing.T, w *world) {
	at(t, 0)(w.a.Append(ctx, w.addr, rec("a", "b")...))
	p := w.open(ctx, t, w.b)
	for _, n := range []int{1, 2, 1000} {
		batch := rec(slices.Repeat([]string{"x"}, n)...)
		_, err := w.a.AppendMatch(ctx, w.addr, 1, batch...)
		missed(t, err)
		_, err = p.AppendMatch(ctx, 1, batch...)
		missed(t, err)
	}
	w.holds(ctx, t, "a", "b")
}

func TestR03AMatchBelowOrAboveTheTailMisses(t *testing.T) { check(t, r03) }

func r03(ctx context.Context, t *testing.T, w *world) {
	at(t, 0)(w.a.Append(ctx, w.addr, rec("a", "b")...))
	p := w.open(ctx, t, w.b)
	for _, n := range []uint64{0, 1, 3, 1 << 40, 1<<64 - 1} {
		_, err := w.b.AppendMatch(ctx, w.addr, n, rec("x")...)
		if seq := missed(t, err); seq.Tail.SeqNum != 2 || seq.Resent {
			t.Fatalf("match %d: %+v", n, seq)
		}
		_, err = p.AppendMatch(ctx, n, rec("x")...)
		missed(t, err)
	}
	w.holds(ctx, t, "a", "b")
}

func TestR04OfRacingMatchesOneWins(t *testing.T) { check(t, r04) }

func r04(ctx context.Context, t *testing.T, w *world) {
	const writers, rounds = 16, 40
	var mu sync.Mutex
	winners := map[uint64][]string{}
	var wg sync.WaitGroup
	for i := range writers {
		c := w.nodes[i%2].client(t) // a connection of its own
		wg.Go(func() {
			for n := uint64(0); n < rounds; {
				me := fmt.Sprintf("%d", i)
				_, err := c.AppendMatch(ctx, w.addr, n, rec(me)...)
				var seq *client.SequenceError
				switch {
				case err == nil:
					mu.Lock()
					winners[n] = append(winners[n], me)
					mu.Unlock()
					n++
				case errors.As(err, &seq) && !seq.Resent:
					n = seq.Tail.SeqNum
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	all := w.bodies(ctx, t)
	if len(all) < rounds {
		t.Fatalf("%d records", len(all))
	}
	for n, body := range all {
		if won := winners[uint64(n)]; len(won) != 1 || won[0] != body {
			t.Fatalf("record %d is of %s, and %v won it", n, body, won)
		}
	}
}

func TestR05AMissTellsTheNextNumber(t *testing.T) { check(t, r05) }

func r05(ctx context.Context, t *testing.T, w *world) {
	at(t, 0)(w.a.Append(ctx, w.addr, rec("a", "b")...))
	_, err := w.b.AppendMatch(ctx, w.addr, 0, rec("c")...)
	at(t, 2)(w.b.AppendMatch(ctx, w.addr, missed(t, err).Tail.SeqNum, rec("c")...))
	p := w.open(ctx, t, w.a)
	_, err = p.AppendMatch(ctx, 9, rec("d")...)
	at(t, 3)(p.AppendMatch(ctx, missed(t, err).Tail.SeqNum, rec("d")...))
	w.holds(ctx, t, "a", "b", "c", "d")
}

func TestR06TheSessionLivesAfterAMiss(t *testing.T) { check(t, r06) }

func r06(ctx context.Context, t *testing.T, w *world) {
	for i, n := range w.nodes {
		x := newProxy(t, n.at)
		p := w.open(ctx, t, newClient(t, x.at()))
		_, err := p.AppendMatch(ctx, 77, rec("x")...)
		missed(t, err)
		at(t, uint64(i))(p.Append(ctx, rec("a")...))
		if requests, _ := x.count(); requests != 1 {
			t.Fatalf("%d sessions", requests)
		}
	}
	w.holds(ctx, t, "a", "a")
}

func TestR07LaterBatchesAreUnaffected(t *testing.T) { check(t, r07) }

func r07(ctx context.Context, t *testing.T, w *world) {
	for i, c := range []*client.Client{w.a, w.b} {
		p := w.open(ctx, t, c)
		n := uint64(3 * i)
		t1, t2 := p.SubmitMatch(ctx, n, rec("1")...), p.SubmitMatch(ctx, n+9, rec("2")...)
		t3, t4 := p.Submit(ctx, rec("3")...), p.Submit(ctx, rec("4")...)
		at(t, n)(t1.Wait(ctx))
		_, err := t2.Wait(ctx)
		missed(t, err)
		at(t, n+1)(t3.Wait(ctx))
		at(t, n+2)(t4.Wait(ctx))
	}
	w.holds(ctx, t, "1", "3", "4", "1", "3", "4")
}

func TestR08MissesDisturbNobodyElse(t *testing.T) { check(t, r08) }

func r08(ctx context.Context, t *testing.T, w *world) {
	const each = 50
	var mu sync.Mutex
	acked := map[uint64]string{}
	var wg sync.WaitGroup
	for i := range 6 {
		p := w.open(ctx, t, []*client.Client{w.a, w.b}[i%2])
		wg.Go(func() {
			for j := range each {
				body := fmt.Sprintf("%d.%d", i, j)
				var r *client.AppendResult
				var err error
				if i < 4 {
					r, err = p.Append(ctx, rec(body)...)
				} else { // R10: what misses is nowhere
					r, err = p.AppendMatch(ctx, uint64(j), rec(body)...)
					var seq *client.SequenceError
					if errors.As(err, &seq) && !seq.Resent {
						continue
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[r.Start.SeqNum] = body
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	all := w.bodies(ctx, t)
	if len(all) != len(acked) {
		t.Fatalf("%d records, %d acknowledged", len(all), len(acked))
	}
	for n, body := range all {
		if acked[uint64(n)] != body {
			t.Fatalf("record %d is %s, and %s was acknowledged", n, body, acked[uint64(n)])
		}
	}
}

func TestR09AMissCarriesTailAndResent(t *testing.T) { check(t, r09) }

func r09(ctx context.Context, t *testing.T, w *world) {
	r, err := w.a.Append(ctx, w.addr, rec("a", "b")...)
	at(t, 0)(r, err)
	_, one := w.b.AppendMatch(ctx, w.addr, 0, rec("x")...)
	_, session := w.open(ctx, t, w.b).AppendMatch(ctx, 0, rec("x")...)
	for _, err := range []error{one, fmt.Errorf("wrapped: %w", session)} {
		if seq := missed(t, err); seq.Tail != r.Tail || seq.Resent {
			t.Fatalf("%+v after %+v", seq, r)
		}
	}
}

func TestR10AMissThatWasNotResentIsDefinite(t *testing.T) { check(t, r10) }

// r10 has writers race with conditions until so many have missed, over sessions and by one-shots. The log holds what was
// acknowledged, and nothing of what missed without having been sent again. Nobody cuts anything off here; what a busy
// machine makes late may be sent again all the same, and is in the log or not.
func r10(ctx context.Context, t *testing.T, w *world) {
	misses := w.many(10_000)
	var missing atomic.Int64
	var mu sync.Mutex
	acked, missed, perhaps := map[uint64]string{}, map[string]bool{}, map[string]bool{}
	settle := func(body string, r *client.AppendResult, err error) (next uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		var seq *client.SequenceError
		switch {
		case err == nil:
			if other, twice := acked[r.Start.SeqNum]; twice {
				t.Errorf("%s and %s both got number %d", other, body, r.Start.SeqNum)
			}
			acked[r.Start.SeqNum] = body
			return r.End.SeqNum, true
		case errors.As(err, &seq) && !seq.Resent:
			missed[body] = true
			missing.Add(1)
			return seq.Tail.SeqNum, true
		case errors.As(err, &seq), errors.Is(err, client.ErrOutcomeUnknown):
			perhaps[body] = true
			return 0, true
		}
		t.Errorf("%s: %v", body, err)
		return 0, false
	}
	var wg sync.WaitGroup
	for i := range 6 {
		c := []*client.Client{w.a, w.b}[i%2]
		if i < 2 {
			wg.Go(func() { // one-shots
				for n, next, ok := 0, uint64(0), true; ok && missing.Load() < int64(misses); n++ {
					body := fmt.Sprintf("%d.%d", i, n)
					r, err := c.AppendMatch(ctx, w.addr, next, rec(body)...)
					next, ok = settle(body, r, err)
				}
			})
			continue
		}
		p := w.open(ctx, t, c)
		wg.Go(func() { // of each round of a session, one batch at most can be at its place
			for n, next, ok := 0, uint64(0), true; ok && missing.Load() < int64(misses); n++ {
				var tickets []*client.Ticket
				for j := range 16 {
					tickets = append(tickets, p.SubmitMatch(ctx, next, rec(fmt.Sprintf("%d.%d.%d", i, n, j))...))
				}
				for j, ticket := range tickets {
					r, err := ticket.Wait(ctx)
					if next, ok = settle(fmt.Sprintf("%d.%d.%d", i, n, j), r, err); !ok {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for n, body := range w.bodies(ctx, t) {
		own, ok := acked[uint64(n)]
		if ok && own != body || !ok && !perhaps[body] || missed[body] {
			t.Fatalf("record %d is %s, and %q was acknowledged; it missed: %v", n, body, own, missed[body])
		}
		delete(acked, uint64(n))
	}
	if len(acked) > 0 {
		t.Fatalf("%d acknowledged records are not there", len(acked))
	}
	if len(missed) < misses || len(perhaps) > misses/10 {
		t.Fatalf("%d misses, and %d batches of which nobody knows", len(missed), len(perhaps))
	}
}

func TestR17AMatchNeverMerges(t *testing.T) { check(t, r17) }

func r17(ctx context.Context, t *testing.T, w *world) {
	x := newProxy(t, w.nodes[0].at)
	p := w.open(ctx, t, newClient(t, x.at()), client.WithLinger(time.Hour))
	t1, t2 := p.Submit(ctx, rec("a")...), p.Submit(ctx, rec("b")...)
	t3 := p.SubmitMatch(ctx, 2, rec("c", "d")...)
	t4, t5 := p.Submit(ctx, rec("e")...), p.Submit(ctx, rec("f")...)
	for i, ticket := range []*client.Ticket{t1, t2, t3} {
		at(t, uint64(i))(ticket.Wait(ctx))
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	at(t, 4)(t4.Wait(ctx))
	at(t, 5)(t5.Wait(ctx))
	if _, batches := x.count(); batches != 3 {
		t.Fatalf("%d batches, not 3", batches)
	}
	w.holds(ctx, t, "a", "b", "c", "d", "e", "f")
}

func TestR19MatchesAreCheckedAtTheCursor(t *testing.T) { check(t, r19) }

func r19(ctx context.Context, t *testing.T, w *world) {
	for i, c := range []*client.Client{w.a, w.b} {
		p := w.open(ctx, t, c)
		var tickets []*client.Ticket
		for n := range uint64(100) {
			tickets = append(tickets, p.SubmitMatch(ctx, uint64(100*i)+n, rec("x")...))
		}
		for n, ticket := range tickets {
			at(t, uint64(100*i+n))(ticket.Wait(ctx))
		}
	}
}

func TestR48NumbersAreDense(t *testing.T) { check(t, r48) }

func r48(ctx context.Context, t *testing.T, w *world) {
	at(t, 0)(w.a.Append(ctx, w.addr, rec("0")...))
	for i, token := range []string{"x", "y", "", "z", ""} {
		if tail := w.fence(ctx, t, token); tail.SeqNum != uint64(i+1) {
			t.Fatalf("fence %q: %+v", token, tail)
		}
		at(t, uint64(i+1))(w.b.Presenting(token).Append(ctx, w.addr, rec(fmt.Sprint(i+1))...))
	}
	if _, err := w.a.Trim(ctx, w.addr, 3); err != nil {
		t.Fatal(err)
	}
	at(t, 6)(w.a.AppendMatch(ctx, w.addr, 6, rec("6")...))
}
