package machine_test

import (
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// TestRepairForWantOfACursorWaits: a watch without a cursor delivered, and was lost before anything moved one. What it
// delivered is committed before the next repair is asked for.
func TestRepairForWantOfACursorWaits(t *testing.T) {
	m := begin(t, mending(), kv.Cursor{}, kv.Owed{}, machine.Repair{End: machine.EndNoCursor})
	does(t, m, machine.Repaired{Relist: true}, machine.OpenWatch{Relist: true})
	does(t, m, machine.Opened{Head: 3, Backlog: 3}, room)
	f := one(1, kv.Cursor{}, kv.Owed{})
	does(t, m, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1}}, machine.RunHooks{Flush: f}, room)
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f}, machine.Repair{End: machine.EndNoCursor})
}

// TestOutcomeWaitsForTheFlush: what a repair came to is committed whole, and after the flush that it found in progress.
func TestOutcomeWaitsForTheFlush(t *testing.T) {
	m := repairing(t)
	memo, moved := alone(at5memo, kv.Owed{}), alone(kv.Cursor{Version: kv.Revision(9), SeenEvicting: true}, marked)
	does(t, m, evicted, machine.ApplyStore{Flush: memo})
	does(t, m, machine.Repaired{Cursor: kv.CursorAt(9), Owed: marked, Relist: true})
	does(t, m, storeOK, machine.Committed{Flush: memo, Moved: true}, machine.ApplyStore{Flush: moved})
	does(t, m, storeOK, machine.Committed{Flush: moved, Moved: true}, machine.OpenWatch{After: moved.Cursor, Relist: true})
}

// TestShutdownDropsAnOutcome: a repair's cursor that can't be committed any more takes its mark along, and the old cursor
// keeps the old mark.
func TestShutdownDropsAnOutcome(t *testing.T) {
	m := begin(t, mending(), at5, marked, machine.OpenWatch{After: at5})
	does(t, m, machine.OpenFailed{End: machine.EndExpired, Err: errBoom}, machine.Repair{Committed: at5, Owed: marked, End: machine.EndExpired, Err: errBoom})
	memo := alone(at5memo, marked)
	does(t, m, evicted, machine.ApplyStore{Flush: memo})
	does(t, m, machine.Repaired{Relist: true, NewLog: true})
	does(t, m, machine.Shutdown{}, closed)
	does(t, m, storeOK, machine.Committed{Flush: memo, Moved: true}, closed, machine.Stop{Cursor: at5memo})
}

// TestOutcomeBesideInjected: changes that were queued before a repair's end are committed under the old cursor and mark.
func TestOutcomeBesideInjected(t *testing.T) {
	m := begin(t, mending(), at5, marked, machine.OpenWatch{After: at5})
	does(t, m, machine.OpenFailed{End: machine.EndExpired, Err: errBoom}, machine.Repair{Committed: at5, Owed: marked, End: machine.EndExpired, Err: errBoom})
	f, next := one(1, at5, marked), one(2, at5, marked)
	does(t, m, machine.Injected{Segment: machine.Segment{ID: 1, Updates: 1}}, machine.RunHooks{Flush: f})
	does(t, m, machine.Injected{Segment: machine.Segment{ID: 2, Updates: 1}})
	does(t, m, machine.Repaired{Cursor: kv.CursorAt(9)})
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f}, machine.RunHooks{Flush: next})
	does(t, m, hooksOK, machine.ApplyStore{Flush: next})
	does(t, m, storeOK, machine.Committed{Flush: next}, machine.ApplyStore{Flush: alone(kv.CursorAt(9), kv.Owed{})})
}

// TestMarkBesideARepair: a repair settles what it was asked about, and nothing that was told since.
func TestMarkBesideARepair(t *testing.T) {
	m := begin(t, mending(), at5, marked, machine.OpenWatch{After: at5})
	does(t, m, machine.OpenFailed{End: machine.EndExpired, Err: errBoom}, machine.Repair{Committed: at5, Owed: marked, End: machine.EndExpired, Err: errBoom})
	told := alone(at5, kv.Owed{Why: kv.OwesMarkers | kv.OwesListing, At: 7})
	does(t, m, machine.RetentionRead{Owes: kv.OwesListing, Head: 7}, machine.ApplyStore{Flush: told})
	does(t, m, machine.Repaired{Cursor: kv.CursorAt(9)})
	f := alone(kv.CursorAt(9), kv.Owed{Why: kv.OwesListing, At: 7})
	does(t, m, storeOK, machine.Committed{Flush: told}, machine.ApplyStore{Flush: f})
}

// overtaken is a machine whose audit is out since before a repair, and that owes what the repair left.
func overtaken(t *testing.T) *machine.M {
	t.Helper()
	m := auditing(t)
	does(t, m, expired, closed, machine.Repair{Committed: at5, Owed: marked, End: machine.EndExpired, Err: errBoom})
	f := alone(kv.CursorAt(3), kv.Owed{Why: kv.OwesListing, At: 3})
	does(t, m, machine.Repaired{Cursor: f.Cursor, Owed: f.Owed, NewLog: true}, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.OpenWatch{After: f.Cursor})
	does(t, m, machine.Opened{Head: 3}, machine.CaughtUp{Cursor: f.Cursor, Relisted: true}, room)
	return m
}

// TestAuditIsOvertakenByARepair: it saw the log and the fold as they were before, so it settles nothing, and no answer
// of its is heard. The next one is.
func TestAuditIsOvertakenByARepair(t *testing.T) {
	for _, in := range []machine.Audited{{Before: 5}, {Before: 5, Unproven: true}, {Contradiction: errBoom}, {Err: errBoom}} {
		m := overtaken(t)
		does(t, m, in, hold)
		if owed, unproven := m.Owed(); owed.Why != kv.OwesListing || unproven {
			t.Errorf("after %+v: owed %v, unproven %v", in, owed, unproven)
		}
		c := kv.CursorAt(3)
		does(t, m, auditDue, machine.Audit{Committed: c, Owed: kv.Owed{Why: kv.OwesListing, At: 3}})
		does(t, m, machine.Audited{Before: 3}, machine.ApplyStore{Flush: alone(c, kv.Owed{})}, hold)
	}
}

// TestAuditIsOvertakenByAWatchThatOwes: the audit's listing may be of the log before the watch.
func TestAuditIsOvertakenByAWatchThatOwes(t *testing.T) {
	m := auditing(t)
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue, machine.OpenWatch{After: at5})
	both := kv.Owed{Why: kv.OwesMarkers | kv.OwesIdentity, At: 5}
	f := alone(at5, both)
	does(t, m, machine.Opened{Head: 5, Owes: kv.OwesIdentity}, machine.CaughtUp{Cursor: at5}, machine.ApplyStore{Flush: f}, room)
	does(t, m, storeOK, machine.Committed{Flush: f})
	does(t, m, machine.Audited{Before: 5}, hold)
	does(t, m, auditDue, machine.Audit{Committed: at5, Owed: both})
}

// TestBulkAcrossWatches: bulk flushes are told of at the next time that the fold has caught up, whichever watch that is
// with, and only then.
func TestBulkAcrossWatches(t *testing.T) {
	m := begin(t, mending(), at5, kv.Owed{}, machine.OpenWatch{After: at5})
	does(t, m, machine.Opened{Head: 16, Backlog: 11}, machine.Receive{Max: 10, MaxBytes: 100, Gather: true})
	f := flush{Segments: []uint64{1}, Updates: 10, Cursor: kv.CursorAt(15), Bulk: true}
	bulk := machine.Segment{ID: 1, Updates: 10, High: kv.Revision(15)}
	gather := machine.Receive{Max: 10, MaxBytes: 100, Gather: true}
	does(t, m, machine.Received{Segment: bulk}, machine.RunHooks{Flush: f}, gather)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true})
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue, machine.OpenWatch{After: f.Cursor})
	does(t, m, machine.Opened{Head: 16, Backlog: 1}, room)
	last := one(2, kv.CursorAt(16), kv.Owed{})
	does(t, m, received(2, 16), machine.RunHooks{Flush: last}, room)
	does(t, m, hooksOK, machine.ApplyStore{Flush: last})
	does(t, m, storeOK, machine.Committed{Flush: last, Moved: true}, machine.CaughtUp{Cursor: last.Cursor, First: true, Bulk: true})
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue, machine.OpenWatch{After: last.Cursor})
	does(t, m, machine.Opened{Head: 16}, machine.CaughtUp{Cursor: last.Cursor}, room)
}
