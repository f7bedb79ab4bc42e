package protocol

import (
	"math"
	"math/big"
	"testing"
	"time"
)

const top = math.MaxUint64

var edges = []uint64{0, 1, 2, 3, 4, 5, 6, top / 2, top - 3, top - 2, top - 1, top}

// A resume is sound when no revision after the cursor lies below the first one: said in whole numbers, which do not
// wrap.
func TestResumeWindowOK(t *testing.T) {
	for _, cursor := range edges {
		for _, first := range edges {
			lost := new(big.Int).Sub(whole(first), whole(cursor))
			lost.Sub(lost, big.NewInt(1)) // how many revisions between the two are gone
			if got, want := ResumeWindowOK(cursor, first), lost.Sign() <= 0; got != want {
				t.Errorf("cursor %d, first %d: got %v, want %v", cursor, first, got, want)
			}
		}
	}
}

// The same by counting, on every small log: each revision after the cursor and below the end is retained.
func TestResumeWindowOKByCounting(t *testing.T) {
	for cursor := range uint64(7) {
		for first := uint64(1); first <= 6; first++ {
			missing := 0
			for rev := uint64(1); rev < first; rev++ {
				if rev > cursor {
					missing++
				}
			}
			if got := ResumeWindowOK(cursor, first); got != (missing == 0) {
				t.Errorf("cursor %d, first %d: got %v with %d revisions missing", cursor, first, got, missing)
			}
		}
		if !ResumeWindowOK(cursor, 0) {
			t.Errorf("cursor %d: a log that never held a message lost none", cursor)
		}
	}
}

// Every small log whose head moved while a watch stood at base: it is an expiry exactly when retention can take current
// values and a revision after base lies below the head.
func TestLiveGapIsExpiry(t *testing.T) {
	for _, evicts := range []bool{false, true} {
		for base := range uint64(7) {
			for first := range uint64(7) {
				want := false
				for rev := base + 1; rev < first; rev++ {
					want = evicts
				}
				if got := LiveGapIsExpiry(evicts, base, first); got != want {
					t.Errorf("evicts %v, base %d, first %d: got %v, want %v", evicts, base, first, got, want)
				}
			}
		}
	}
}

func TestReopenIsWhole(t *testing.T) {
	for _, evicts := range []bool{false, true} {
		for _, lost := range []int64{-1, 0, 1, ReopenGrace, ReopenGrace + 1} {
			for cursor := range uint64(5) {
				for first := range uint64(7) {
					hole := first > 0 && first-1 > cursor
					continues := !evicts && (lost == 1 || lost == ReopenGrace)
					got := ReopenIsWhole(Reopen{Cursor: cursor, First: first, Evicts: evicts, Lost: lost})
					if got != (!hole || continues) {
						t.Errorf("evicts %v, lost %d, cursor %d, first %d: got %v", evicts, lost, cursor, first, got)
					}
				}
			}
		}
	}
}

func whole(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

func TestResumeStart(t *testing.T) {
	for _, cursor := range edges {
		start, ok := ResumeStart(cursor)
		want := new(big.Int).Add(whole(cursor), big.NewInt(1))
		if ok != want.IsUint64() {
			t.Errorf("after %d: ok %v", cursor, ok)
		}
		if ok && (start != want.Uint64() || start == 0) || !ok && start != 0 {
			t.Errorf("after %d: start %d", cursor, start)
		}
	}
}

func TestConsumerStartsAt(t *testing.T) {
	for _, cursor := range edges {
		for _, delivered := range edges {
			clamped, early := delivered > cursor, delivered < cursor
			if got := ConsumerStartsAt(cursor, delivered); got == (clamped || early) {
				t.Errorf("cursor %d, delivered %d: %v", cursor, delivered, got)
			}
		}
	}
}

func TestFrontierMayAdvance(t *testing.T) {
	small := []uint64{0, 1, 2, 3, top}
	yes := 0
	for _, head := range small {
		for _, pending := range small {
			for _, delivered := range small {
				for _, received := range small {
					for _, current := range small {
						f := Frontier{Head: head, Pending: pending, Delivered: delivered, Received: received, Current: current}
						got := FrontierMayAdvance(f)
						if want := specFrontier(f); got != want {
							t.Fatalf("%+v: got %v, want %v", f, got, want)
						}
						if got {
							yes++
						}
					}
				}
			}
		}
	}
	if yes != 10*15 { // ten pairs with current below head, fifteen with nothing on its way
		t.Fatalf("it may advance in %d cases", yes)
	}
}

// specFrontier names each reason to stay.
func specFrontier(f Frontier) bool {
	switch {
	case f.Pending >= 1: // a matching message is still at the server
	case f.Received < f.Delivered: // one is on its way
	case f.Head <= f.Current: // there is nothing to gain, or it would go back
	default:
		return true
	}
	return false
}

// Against a tiny consumer, message by message: whenever the frontier may move to the head, everything in scope at or
// below the head was received. The head is read first, then the consumer, and writes come in at any time.
func TestFrontierMayAdvanceIsSound(t *testing.T) {
	const revisions = 5
	advanced := 0
	for scope := range 1 << revisions { // which revisions match
		for head := uint64(0); head <= revisions; head++ { // the end of the log when it was read
			for atInfo := head; atInfo <= revisions; atInfo++ { // its end when the consumer was asked
				for sent := uint64(0); sent <= matching(scope, atInfo); sent++ {
					for received := uint64(0); received <= sent; received++ {
						f := Frontier{Head: head, Pending: matching(scope, atInfo) - sent, Delivered: sent, Received: received}
						if !FrontierMayAdvance(f) {
							continue
						}
						advanced++
						if received < matching(scope, head) {
							t.Fatalf("scope %05b: %+v would pass a message", scope, f)
						}
					}
				}
			}
		}
	}
	if advanced == 0 {
		t.Fatal("it never advanced")
	}
}

// matching counts the matching revisions up to end.
func matching(scope int, end uint64) uint64 {
	n := uint64(0)
	for rev := range end {
		n += uint64(scope>>rev) & 1
	}
	return n
}

// TestReopenGrace: NATS leaves delete markers alone for half an hour by default; a watch that was away for half of that
// has them all.
func TestReopenGrace(t *testing.T) {
	if 2*time.Duration(ReopenGrace) != 30*time.Minute {
		t.Errorf("the grace is %v", time.Duration(ReopenGrace))
	}
}
