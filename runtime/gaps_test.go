package fold

import (
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

func changed(rev uint64, at time.Time) []kv.Update {
	return []kv.Update{{Key: "route.t.a", Op: kv.OpPut, Version: kv.Revision(rev), UnixNano: at.UnixNano()}}
}

// TestGapsOfAScope: in a watch of a scope every other key is a gap, so what counts is a lag: behind the head when it
// resumed, behind a cut, or with more to come.
func TestGapsOfAScope(t *testing.T) {
	scope, err := kv.Prefixes("route.")
	if err != nil {
		t.Fatal(err)
	}
	unsealed := func() protocol.MarkerRules { return protocol.MarkerRules{Purge: true} }
	for name, c := range map[string]struct {
		last uint64 // of the log, when a watch after 5 begins
		d    kv.Delivery
		owes kv.Owes
	}{
		"at the head":  {5, kv.Delivery{Frontier: 9}, 0},
		"resumed late": {6, kv.Delivery{Frontier: 9}, kv.OwesMarkers},
		"cut":          {5, kv.Delivery{Frontier: 9, Behind: true}, kv.OwesMarkers},
		"more to come": {5, kv.Delivery{Frontier: 9, Pending: 1}, kv.OwesMarkers},
	} {
		g := newGaps(kv.OpenRequest{Scope: scope, After: kv.CursorAt(5)}, kv.LogInfo{Last: c.last}, unsealed)
		if got := g.note(changed(9, time.Now()), &c.d); got != c.owes {
			t.Errorf("%s: owes %v, want %v", name, got, c.owes)
		}
		if got := g.note(changed(12, time.Now()), &kv.Delivery{Frontier: 12}); got != 0 {
			t.Errorf("%s, and then at the head: owes %v", name, got)
		}
	}
}

// TestGapsAreAsOldAsWhatCameBefore: a marker that stays for an hour is there after a gap of a minute, and may be gone after
// one of two hours, however new what comes after the gap is.
func TestGapsAreAsOldAsWhatCameBefore(t *testing.T) {
	now := time.Now()
	stay := func() protocol.MarkerRules {
		return protocol.MarkerRules{MessageTTL: true, MarkerTTL: int64(time.Hour)}
	}
	for away, owes := range map[time.Duration]kv.Owes{time.Minute: 0, 2 * time.Hour: kv.OwesMarkers} {
		known := kv.Incarnation{Samples: []kv.Sample{{Revision: 5, UnixNano: now.Add(-away).UnixNano()}, {Revision: 6, UnixNano: now.UnixNano()}}}
		g := newGaps(kv.OpenRequest{After: kv.CursorAt(5), Known: known}, kv.LogInfo{Last: 9}, stay)
		if got := g.note(changed(9, now), &kv.Delivery{Frontier: 9}); got != owes {
			t.Errorf("away for %v: owes %v, want %v", away, got, owes)
		}
	}
}
