package repair

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// rig is a fold that needs a repair.
type rig struct {
	sim     *kvtest.Log
	log     *bentLog
	store   store.Store
	folder  *testFolder
	scratch string
	scope   kv.Scope
	o       Options
	report  Report
}

func newRig(t *testing.T, backend string, o kvtest.Options) *rig {
	s := openStore(t, backend)
	sim := kvtest.NewLog(o)
	r := &rig{sim: sim, log: &bentLog{Log: sim}, store: s, folder: &testFolder{store: s}, scratch: t.TempDir()}
	t.Cleanup(func() { emptyDir(t, r.scratch) })
	return r
}

func (g *rig) repairer(fold Fold) *Repairer {
	g.o.Scratch = g.scratch
	return New(g.log, fold, g.folder, g.scope, g.o)
}

func (g *rig) repair(t *testing.T, q Request) (Outcome, error) {
	t.Helper()
	return g.repairer(g.store).Repair(bounded(t), q, &g.report)
}

// request is the fold's, as it is in the store.
func (g *rig) request(c protocol.Cause) Request {
	return Request{Cause: c, Cursor: g.store.Cursor()}
}

func (g *rig) wantUntouched(t *testing.T, before map[string]string) {
	t.Helper()
	wantRows(t, contents(t, g.store), before)
	if g.folder.calls != 0 || g.report.Deleted != 0 {
		t.Errorf("%d calls of the folder, %d deletes reported", g.folder.calls, g.report.Deleted)
	}
}

func eachStore(t *testing.T, f func(t *testing.T, backend string)) {
	for b := range backends {
		t.Run(b, func(t *testing.T) { f(t, b) })
	}
}

// TestRelistSaysWhereItsListingBegan: what is deleted while the bucket is listed may have a marker that nobody delivers.
func TestRelistSaysWhereItsListingBegan(t *testing.T) {
	for cause, adopt := range map[protocol.Cause]bool{protocol.CauseExpired: false, protocol.CauseReplaced: true} {
		t.Run(cause.String(), func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			g.o.AdoptNewLog = adopt
			gap(t, g, 30, 1)
			began := head(t, g.sim)
			g.sim.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) { l.Set("meanwhile", "v") }})
			out, err := g.repair(t, g.request(cause))
			if err != nil || !out.Relist || out.Listed != began {
				t.Errorf("outcome %+v, %v; the listing began at %d of %d", out, err, began, head(t, g.sim))
			}
		})
	}
}

func TestRelistDeletesWhatTheBucketNoLongerLists(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		g := newRig(t, backend, kvtest.Options{})
		for _, k := range []string{"kept", "gone.marker", "gone.vanished", "again", "changed"} {
			g.sim.Set(k, "old")
		}
		at := head(t, g.sim)
		fill(t, g.store, g.sim, g.scope, at)
		g.sim.Remove("gone.vanished")
		g.sim.Remove("again")
		g.sim.PurgeMarkers()
		g.sim.Set("again", "new")
		g.sim.Set("changed", "new")
		g.sim.Set("new", "new")
		g.sim.Remove("gone.marker")

		q := g.request(protocol.CauseExpired)
		q.Known = kv.Incarnation{CreatedUnixNano: createdOf(t, g)}
		q.Owed = kv.Owed{}.Add(kv.OwesMarkers, at)
		out, err := g.repair(t, q)
		if err != nil {
			t.Fatal(err)
		}
		if want := (Outcome{Cursor: kv.CursorAt(at), Known: q.Known, Relist: true, Listed: 11}); fmt.Sprint(out) != fmt.Sprint(want) {
			t.Errorf("outcome %v, want %v", out, want)
		}
		wantRows(t, contents(t, g.store), map[string]string{"kept": "1=old", "again": "4=old", "changed": "5=old"})
		if g.store.Cursor() != kv.CursorAt(at) {
			t.Errorf("the cursor moved to %v", g.store.Cursor())
		}
		for _, c := range g.folder.taken {
			if c.Op != kv.OpDelete || c.Reason != kv.ReasonRepair || !c.Version.IsUnknown() || c.Expect.IsUnknown() {
				t.Errorf("change %+v", c)
			}
		}
		r := &g.report
		if r.Rows != 5 || r.Listed != 5 || r.Deleted != 2 || r.Put != 0 || decision(r, "listing_plausible") != "true" ||
			decision(r, "needs_second_listing") != "false" || decision(r, "audit_settles") != "true" {
			t.Errorf("report %+v", r)
		}
	})
}

func TestRelistKeepsWhatIsOwedWhenItsListingCanNotTell(t *testing.T) {
	for name, c := range map[string]struct {
		mode    Mode
		unknown bool
		at      uint64
		settled bool
	}{
		"Before":  {Auto, false, 3, true},
		"Later":   {Auto, false, 4, false},
		"Unknown": {Relist, true, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			g.o.Mode = c.mode
			for _, k := range []string{"a", "b", "c"} {
				g.sim.Set(k, "v")
			}
			g.log.info = func(_ int, i kv.LogInfo) (kv.LogInfo, error) { i.Retention.Unknown = c.unknown; return i, nil }
			fill(t, g.store, g.sim, g.scope, 2)
			q := g.request(protocol.CauseExpired)
			q.Owed = kv.Owed{}.Add(kv.OwesMarkers, c.at)
			out, err := g.repair(t, q)
			if err != nil || (out.Owed == kv.Owed{}) != c.settled || !c.settled && out.Owed != q.Owed {
				t.Errorf("owed %v, err %v", out.Owed, err)
			}
		})
	}
}

func TestRelistScopes(t *testing.T) {
	keys := []string{"a", "a-1.x", "a.b", "a.b.c", "a.bc", "a0.x", "ab", "b.c", "tenant-1.x", "tenant.1", "z"}
	for name, p := range map[string][]string{
		"Overlapping":    {"a.b", "a.b.c", "a"},
		"TokenSplit":     {"a.b", "tenant"},
		"OrderedApart":   {"a-", "a.", "a0"}, // the store has "a." before "a-"
		"WholeToken":     {"tenant."},
		"MatchesNothing": {"q"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "pebble", kvtest.Options{})
			g.scope = prefixes(t, p...)
			for _, k := range keys {
				g.sim.Set(k, "v")
			}
			fill(t, g.store, g.sim, kv.AllKeys(), head(t, g.sim))
			want := contents(t, g.store)
			for i, k := range keys {
				if i%2 == 0 {
					continue
				}
				g.sim.Remove(k)
				if g.scope.Contains(k) {
					delete(want, k)
				}
			}
			g.sim.PurgeMarkers()
			if _, err := g.repair(t, g.request(protocol.CauseExpired)); err != nil {
				t.Fatal(err)
			}
			wantRows(t, contents(t, g.store), want)
		})
	}
}

func TestRelistRandom(t *testing.T) {
	scopes := []kv.Scope{kv.AllKeys(), prefixes(t, "a"), prefixes(t, "a.", "b-", "c.a"), prefixes(t, "b.a", "b-a", "b")}
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 3))
		g := newRig(t, "logstore", kvtest.Options{History: 1 + r.IntN(2)})
		g.scope = scopes[r.IntN(len(scopes))]
		g.o.RunBytes = []int{1, 512, 4096, 0}[r.IntN(4)]
		g.o.Chunk = 1 + r.IntN(5)
		busy(r, g.sim, 60)
		at := uint64(r.IntN(int(head(t, g.sim)) + 1))
		fill(t, g.store, g.sim, kv.AllKeys(), at)
		outside := contents(t, g.store)
		busy(r, g.sim, 40)
		maps.DeleteFunc(outside, func(k, _ string) bool { return g.scope.Contains(k) })

		if _, err := g.repair(t, g.request(protocol.CauseExpired)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		now := truth(g.sim, g.scope, head(t, g.sim))
		got := contents(t, g.store)
		for k := range got {
			if _, ok := now[k]; g.scope.Contains(k) && !ok {
				t.Errorf("seed %d: %s is still there", seed, k)
			}
		}
		for e, err := range g.sim.Scan(t.Context(), g.scope) { // the re-list
			if err != nil {
				t.Fatal(err)
			}
			apply(t, g.store, g.store.Cursor(), e.Update)
		}
		maps.Copy(now, outside)
		wantRows(t, contents(t, g.store), now)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// busy writes, deletes and forgets deletes.
func busy(r *rand.Rand, log *kvtest.Log, n int) {
	for range n {
		switch k := someKey(r); r.IntN(5) {
		case 0, 1, 2:
			log.Set(k, fmt.Sprint(r.IntN(100)))
		case 3:
			log.Remove(k)
		default:
			if r.IntN(4) == 0 {
				log.PurgeMarkers()
			}
		}
	}
}
