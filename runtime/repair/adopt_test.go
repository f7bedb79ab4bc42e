package repair

import (
	"errors"
	"fmt"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
)

// changeLog makes the rig's log another one, which holds some of the fold's keys.
func changeLog(t *testing.T, g *rig, cause protocol.Cause, n, kept int) {
	t.Helper()
	gap(t, g, n, 0)
	if cause == protocol.CauseRewound {
		g.sim.Rewind(uint64(kept))
		return
	}
	g.sim.Recreate()
	for i := range kept {
		g.sim.Set(fmt.Sprintf("key.%03d", i), "new")
	}
}

func TestAdoptMakesTheFoldWhatTheNewLogLists(t *testing.T) {
	for _, cause := range []protocol.Cause{protocol.CauseReplaced, protocol.CauseRewound} {
		for name, c := range map[string]struct {
			limits kvtest.Limits
			seen   bool
			evict  uint64
			ageOut string
			memo   bool
			owes   bool
		}{
			"Keeps":       {},
			"Evicts":      {limits: kvtest.Limits{Evicts: true}},
			"Evicted":     {limits: kvtest.Limits{Evicts: true}, evict: 5, memo: true, owes: true},
			"MessageTTLs": {limits: kvtest.Limits{AllowTTL: true}, memo: true, owes: true},
			"AgedOut":     {ageOut: "key.003", memo: true, owes: true},
			"OldMemo":     {seen: true, memo: true},
		} {
			t.Run(cause.String()+name, func(t *testing.T) {
				g := newRig(t, "logstore", kvtest.Options{})
				g.o.AdoptNewLog = true
				changeLog(t, g, cause, 60, 20)
				g.sim.SetLimits(c.limits)
				g.sim.EvictTo(c.evict)
				if c.ageOut != "" {
					g.sim.AgeOut(c.ageOut, true)
				}
				q := g.request(cause)
				q.Cursor.SeenEvicting = c.seen
				q.Known = kv.Incarnation{CreatedUnixNano: 5, Samples: []kv.Sample{{Revision: 1, UnixNano: 1}}}
				q.Owed = kv.Owed{}.Add(kv.OwesMarkers, 7)
				out, err := g.repair(t, q)
				if err != nil {
					t.Fatal(err)
				}
				info, err := g.sim.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				want := Outcome{Cursor: kv.Cursor{SeenEvicting: c.memo}, Known: kv.Incarnation{CreatedUnixNano: info.Created.UnixNano()}, Relist: true, Listed: info.Last}
				if c.owes {
					want.Owed = kv.Owed{}.Add(kv.OwesListing, info.Last)
				}
				if fmt.Sprint(out) != fmt.Sprint(want) {
					t.Errorf("outcome %+v, want %+v", out, want)
				}
				listed := map[string]bool{}
				for k, err := range g.sim.Keys(t.Context(), g.scope) {
					if listed[k.Key] = true; err != nil {
						t.Fatal(err)
					}
				}
				rows := contents(t, g.store)
				for k := range rows {
					if !listed[k] {
						t.Errorf("%s is still there", k)
					}
				}
				if len(rows) != len(listed) || g.report.Evicted != (c.memo && !c.seen) {
					t.Errorf("%d rows, %d listed, evicted %t", len(rows), len(listed), g.report.Evicted)
				}
				if g.log.lists != 2 { // 40 keys of 60 go: the brake is tried
					t.Errorf("%d listings", g.log.lists)
				}
			})
		}
	}
}

// TestAdoptRemembersAMarkerOfTheFirstListing: retention took a value, and by the second listing nothing shows it any more.
func TestAdoptRemembersAMarkerOfTheFirstListing(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	g.o.AdoptNewLog = true
	changeLog(t, g, protocol.CauseReplaced, 60, 20)
	g.sim.AgeOut("key.003", true)
	g.sim.Inject(kvtest.Fault{At: kvtest.PointList, Skip: 1, Do: func(l *kvtest.Log) { l.Set("key.003", "again") }})
	out, err := g.repair(t, g.request(protocol.CauseReplaced))
	if err != nil || g.log.lists != 2 {
		t.Fatalf("%d listings: %v", g.log.lists, err)
	}
	if want := (kv.Owed{}).Add(kv.OwesListing, head(t, g.sim)); !out.Cursor.SeenEvicting || !g.report.Evicted || out.Owed != want {
		t.Errorf("outcome %+v, evicted %t", out, g.report.Evicted)
	}
}

func TestAdoptUsesNoBadListing(t *testing.T) {
	for name, f := range listingFaults {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			g.o.AdoptNewLog = true
			changeLog(t, g, protocol.CauseReplaced, 30, 25)
			before := contents(t, g.store)
			f.bend(g.log, g.sim)
			_, err := g.repair(t, g.request(protocol.CauseReplaced))
			wantFault(t, err, f.want)
			g.wantUntouched(t, before)
		})
	}
}

func TestAdoptIsNotDoneUnasked(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	changeLog(t, g, protocol.CauseReplaced, 10, 5)
	before := contents(t, g.store)
	if _, err := g.repair(t, g.request(protocol.CauseReplaced)); err == nil {
		t.Error("no error")
	}
	g.wantUntouched(t, before)
	if g.log.lists != 0 {
		t.Errorf("%d listings", g.log.lists)
	}
}

// createdOf is when the log was created.
func createdOf(t *testing.T, g *rig) int64 {
	t.Helper()
	info, err := g.sim.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return created(info)
}

// TestExpiredOnAnotherLog: the cursor had expired, and before the repair looks the bucket is re-created, or loses its end.
// What it lists now deletes nothing, unless it was asked to.
func TestExpiredOnAnotherLog(t *testing.T) {
	for cause, kept := range map[protocol.Cause]int{protocol.CauseReplaced: 0, protocol.CauseRewound: 20} {
		t.Run(cause.String(), func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			was := createdOf(t, g)
			changeLog(t, g, cause, 60, kept)
			before := contents(t, g.store)
			q := g.request(protocol.CauseExpired)
			q.Known = kv.Incarnation{CreatedUnixNano: was}
			q.Err = kv.ErrCursorExpired
			_, err := g.repair(t, q)
			want := kv.ErrLogReplaced
			if cause == protocol.CauseRewound {
				want = kv.ErrLogRewound
			}
			if !errors.Is(err, ErrRefused) || !errors.Is(err, want) {
				t.Errorf("repair: %v", err)
			}
			g.wantUntouched(t, before)
			g.o.AdoptNewLog = true
			out, err := g.repair(t, q)
			if err != nil || out.Known.CreatedUnixNano != createdOf(t, g) || !out.Relist {
				t.Errorf("adopt: %+v, %v", out, err)
			}
		})
	}
}

// TestNoCursorOnAnotherLog: a fold of a noted log that has rows and no cursor, as a crash in an adoption leaves it, is not
// made what a bucket created since lists, unless it was asked to.
func TestNoCursorOnAnotherLog(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	changeLog(t, g, protocol.CauseReplaced, 60, 20)
	before := contents(t, g.store)
	q := g.request(protocol.CauseNoCursor)
	q.Cursor, q.Known = kv.Cursor{}, kv.Incarnation{CreatedUnixNano: 5}
	_, err := g.repair(t, q)
	if !errors.Is(err, ErrRefused) || !errors.Is(err, kv.ErrLogReplaced) {
		t.Errorf("repair: %v", err)
	}
	wantRows(t, contents(t, g.store), before)
	g.o.AdoptNewLog = true
	out, err := g.repair(t, q)
	if err != nil || out.Known.CreatedUnixNano == 5 || !out.Relist {
		t.Errorf("adopt: %+v, %v", out, err)
	}
}
