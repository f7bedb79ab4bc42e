package machine_test

import (
	"reflect"
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// Short names, so that a test reads as what happens and what follows.
type (
	flush = machine.Flush
	fx    = []machine.Effect
)

var (
	at5      = kv.CursorAt(5)
	at5memo  = kv.Cursor{Version: kv.Revision(5), SeenEvicting: true}
	marked   = kv.Owed{Why: kv.OwesMarkers, At: 5}
	room     = machine.Receive{Max: 10, MaxBytes: 100}
	closed   = machine.CloseWatch{}
	hooksOK  = machine.HooksDone{}
	storeOK  = machine.StoreDone{}
	expired  = machine.WatchEnded{End: machine.EndExpired, Err: errBoom}
	lost     = machine.WatchEnded{Err: errBoom}
	opened5  = machine.Opened{Head: 5}
	evicted  = machine.RetentionRead{Evicted: true, Head: 5}
	hold     = machine.Arm{Timer: machine.TimerAudit}
	auditDue = machine.TimerFired{Timer: machine.TimerAudit}
	openDue  = machine.TimerFired{Timer: machine.TimerOpen}
)

func mending() machine.Config {
	return machine.Config{
		HasStore: true, CanRepair: true, MaxFailures: 3,
		MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100,
	}
}

// begin makes a machine, whose first effects are the given ones.
func begin(t *testing.T, cfg machine.Config, c kv.Cursor, owed kv.Owed, want ...machine.Effect) *machine.M {
	t.Helper()
	m, got := machine.New(cfg, c, owed)
	same(t, "New", got, want)
	return m
}

// does takes one input, which has exactly the given effects.
func does(t *testing.T, m *machine.M, in machine.Input, want ...machine.Effect) {
	t.Helper()
	same(t, in, m.Step(in, nil), want)
}

func same(t *testing.T, in any, got, want fx) {
	t.Helper()
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("%T%+v does\n\t%#v, want\n\t%#v", in, in, got, want)
	}
}

func received(id, rev uint64) machine.Received {
	return machine.Received{Segment: machine.Segment{ID: id, Updates: 1, High: kv.Revision(rev)}}
}

func alone(c kv.Cursor, o kv.Owed) machine.Flush { return machine.Flush{Cursor: c, Owed: o} }

func one(id uint64, c kv.Cursor, o kv.Owed) machine.Flush {
	return machine.Flush{Segments: []uint64{id}, Updates: 1, Cursor: c, Owed: o}
}

// watching is a machine that has caught up at revision 5.
func watching(t *testing.T, cfg machine.Config) *machine.M {
	t.Helper()
	m := begin(t, cfg, at5, kv.Owed{}, machine.OpenWatch{After: at5})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5, First: true}, room)
	return m
}

// repairing is a machine whose repair is out.
func repairing(t *testing.T) *machine.M {
	t.Helper()
	m := watching(t, mending())
	does(t, m, expired, closed, machine.Repair{Committed: at5, End: machine.EndExpired, Err: errBoom})
	return m
}

// auditing is a machine whose audit is out, of the mark at revision 5.
func auditing(t *testing.T) *machine.M {
	t.Helper()
	m := begin(t, mending(), at5, marked, machine.OpenWatch{After: at5})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5, First: true}, hold, room)
	does(t, m, auditDue, machine.Audit{Committed: at5, Owed: marked})
	return m
}

func TestStartWithoutACursor(t *testing.T) {
	m := begin(t, mending(), kv.Cursor{}, marked, machine.Repair{Owed: marked, End: machine.EndNoCursor})
	if !m.Repairing() {
		t.Error("a repair is out, and Repairing says no")
	}
	does(t, m, machine.Repaired{Owed: marked, Relist: true}, machine.OpenWatch{Relist: true})
	if m.Repairing() {
		t.Error("no repair is out, and Repairing says yes")
	}
	does(t, m, machine.Opened{Head: 3, Backlog: 3}, room)
	c := kv.CursorAt(3)
	f := one(1, c, marked)
	does(t, m, received(1, 3), machine.RunHooks{Flush: f}, room)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.CaughtUp{Cursor: c, First: true, Relisted: true}, hold)
}

func TestStartWithoutACursorOrARepair(t *testing.T) {
	cfg := mending()
	cfg.HasStore, cfg.CanRepair = false, false
	m := begin(t, cfg, kv.Cursor{}, kv.Owed{}, machine.OpenWatch{})
	does(t, m, machine.Opened{Head: 0}, machine.CaughtUp{First: true, Relisted: true}, room)
}

// TestRepairComesAfterTheFlush: what was received is committed before the repair, its outcome before the next watch.
func TestRepairComesAfterTheFlush(t *testing.T) {
	m := watching(t, mending())
	f := one(1, kv.CursorAt(6), kv.Owed{})
	does(t, m, received(1, 6), machine.RunHooks{Flush: f}, room)
	does(t, m, expired, closed)
	if m.Phase() != machine.PhaseRepairing {
		t.Errorf("phase %v", m.Phase())
	}
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.Repair{Committed: f.Cursor, End: machine.EndExpired, Err: errBoom})
	moved := alone(kv.CursorAt(9), kv.Owed{Why: kv.OwesListing, At: 9})
	does(t, m, machine.Repaired{Cursor: moved.Cursor, Owed: moved.Owed, Relist: true}, machine.ApplyStore{Flush: moved})
	does(t, m, machine.StoreDone{Err: errBoom}, machine.Arm{Timer: machine.TimerRetry})
	does(t, m, machine.TimerFired{Timer: machine.TimerRetry}, machine.ApplyStore{Flush: moved})
	does(t, m, storeOK, machine.Committed{Flush: moved, Moved: true}, machine.OpenWatch{After: moved.Cursor, Relist: true})
	does(t, m, machine.Opened{Head: 9}, machine.CaughtUp{Cursor: moved.Cursor, Relisted: true}, hold, room)
}

// TestAdoptGoesBackToNone: only a repair moves the cursor back, and the watch is not caught up with the old log's head.
func TestAdoptGoesBackToNone(t *testing.T) {
	m := repairing(t)
	none := alone(kv.Cursor{}, kv.Owed{})
	does(t, m, machine.Repaired{Relist: true, NewLog: true}, machine.ApplyStore{Flush: none})
	does(t, m, storeOK, machine.Committed{Flush: none, Moved: true}, machine.OpenWatch{Relist: true})
	f := one(1, kv.CursorAt(2), kv.Owed{})
	does(t, m, machine.Opened{Head: 2, Backlog: 1}, room)
	does(t, m, received(1, 2), machine.RunHooks{Flush: f}, room)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.CaughtUp{Cursor: f.Cursor, Relisted: true})
	if !m.Hydrated() {
		t.Error("hydrated once is hydrated")
	}
}

// TestNewLogAlone: the log's identity is committed though cursor and mark stay, and once.
func TestNewLogAlone(t *testing.T) {
	m := repairing(t)
	does(t, m, machine.Repaired{Cursor: at5, NewLog: true}, machine.ApplyStore{Flush: alone(at5, kv.Owed{})})
	does(t, m, storeOK, machine.Committed{Flush: alone(at5, kv.Owed{})}, machine.OpenWatch{After: at5})
}

func TestRepairFails(t *testing.T) {
	m := repairing(t)
	does(t, m, machine.RepairFailed{Err: errBoom}, machine.Arm{Timer: machine.TimerOpen})
	if m.Phase() != machine.PhaseWaiting || m.Repairing() {
		t.Errorf("phase %v, repairing %v", m.Phase(), m.Repairing())
	}
	does(t, m, openDue, machine.OpenWatch{After: at5})

	m = begin(t, mending(), kv.Cursor{}, kv.Owed{}, machine.Repair{End: machine.EndNoCursor})
	does(t, m, machine.RepairFailed{Err: errBoom}, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue, machine.Repair{End: machine.EndNoCursor})
	does(t, m, machine.RepairFailed{Err: errBoom}, machine.Arm{Timer: machine.TimerOpen, Attempt: 1})
}

// TestWithoutRepairs: a watch that ended for good stops the loop with its error, after the flush and the memo.
func TestWithoutRepairs(t *testing.T) {
	cfg := mending()
	cfg.CanRepair = false
	m := begin(t, cfg, at5, kv.Owed{}, machine.OpenWatch{After: at5})
	f := alone(at5memo, kv.Owed{})
	does(t, m, machine.Opened{Head: 5, Evicted: true}, machine.CaughtUp{Cursor: at5, First: true}, machine.ApplyStore{Flush: f}, room)
	does(t, m, expired, closed)
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, closed, machine.Stop{Cursor: at5memo, Err: errBoom})
}

// TestEndWithoutAnError: what ends a watch for good asks for a repair, with an error or without.
func TestEndWithoutAnError(t *testing.T) {
	m := watching(t, mending())
	does(t, m, machine.WatchEnded{End: machine.EndLogChanged}, closed, machine.Repair{Committed: at5, End: machine.EndLogChanged})
}

// TestRefusedRepairLeavesTheMemo: what was learned of the log is committed before the loop stops.
func TestRefusedRepairLeavesTheMemo(t *testing.T) {
	m := repairing(t)
	does(t, m, machine.Repaired{Err: errFinal}, closed, machine.Stop{Cursor: at5, Err: errFinal})

	m = repairing(t)
	f := alone(at5memo, kv.Owed{})
	does(t, m, evicted, machine.ApplyStore{Flush: f})
	does(t, m, machine.Repaired{Err: errFinal})
	if m.Phase() != machine.PhaseStopping {
		t.Errorf("phase %v", m.Phase())
	}
	does(t, m, machine.Shutdown{})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, closed, machine.Stop{Cursor: at5memo, Err: errFinal})
	does(t, m, storeOK)
}

func TestMemoAlone(t *testing.T) {
	m := watching(t, mending())
	f := alone(at5memo, kv.Owed{})
	does(t, m, evicted, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true})
	does(t, m, evicted)
	does(t, m, machine.RetentionRead{})
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue, machine.OpenWatch{After: at5memo})

	cfg := mending()
	cfg.HasStore, cfg.CanRepair = false, false
	m = watching(t, cfg)
	does(t, m, evicted, machine.Committed{Flush: f, Moved: true})
}

// TestMemoInARepairsCursor: an artifact's memo stays with the fold, and the fold's with an artifact's cursor.
func TestMemoInARepairsCursor(t *testing.T) {
	m := repairing(t)
	nine := kv.Cursor{Version: kv.Revision(9), SeenEvicting: true, WrittenAt: 90}
	does(t, m, machine.Repaired{Cursor: nine}, machine.ApplyStore{Flush: alone(nine, kv.Owed{})})
	does(t, m, storeOK, machine.Committed{Flush: alone(nine, kv.Owed{}), Moved: true}, machine.OpenWatch{After: nine})
	does(t, m, machine.OpenFailed{End: machine.EndExpired, Err: errBoom}, machine.Repair{Committed: nine, End: machine.EndExpired, Err: errBoom})
	ten := kv.Cursor{Version: kv.Revision(10), SeenEvicting: true}
	does(t, m, machine.Repaired{Cursor: kv.CursorAt(10)}, machine.ApplyStore{Flush: alone(ten, kv.Owed{})})
}

// TestMarksAreCommitted: alone where no update comes, else with the flush that is next.
func TestMarksAreCommitted(t *testing.T) {
	m := begin(t, mending(), at5, kv.Owed{}, machine.OpenWatch{After: at5})
	identity := kv.Owed{Why: kv.OwesIdentity, At: 7}
	does(t, m, machine.Opened{Head: 7, Owes: kv.OwesIdentity}, machine.ApplyStore{Flush: alone(at5, identity)}, room)
	does(t, m, storeOK, machine.Committed{Flush: alone(at5, identity)})
	gap := machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6), Frontier: 8, Owes: kv.OwesMarkers}
	both := kv.Owed{Why: kv.OwesIdentity | kv.OwesMarkers, At: 8}
	f := one(1, kv.CursorAt(8), both)
	does(t, m, machine.Received{Segment: gap}, machine.RunHooks{Flush: f}, room)
	does(t, m, machine.RetentionRead{Owes: kv.OwesListing, Head: 12})
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	all := alone(f.Cursor, kv.Owed{Why: both.Why | kv.OwesListing, At: 12})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.CaughtUp{Cursor: f.Cursor, First: true, Relisted: true}, machine.ApplyStore{Flush: all}, hold)
	does(t, m, storeOK, machine.Committed{Flush: all})
	if owed, unproven := m.Owed(); owed != all.Owed || unproven {
		t.Errorf("owed %v, unproven %v", owed, unproven)
	}
}

// TestCursorAloneFailsToCommit: it is retried like every flush, and stops the loop like every flush.
func TestCursorAloneFailsToCommit(t *testing.T) {
	m := watching(t, mending())
	apply := machine.ApplyStore{Flush: alone(at5memo, kv.Owed{})}
	does(t, m, evicted, apply)
	for n := range 2 {
		does(t, m, machine.StoreDone{Err: errBoom}, machine.Arm{Timer: machine.TimerRetry, Attempt: n})
		does(t, m, machine.TimerFired{Timer: machine.TimerRetry}, apply)
	}
	failed := &machine.FailStopError{What: machine.FailedStore, Failures: 3, Cursor: at5, Err: errBoom}
	does(t, m, machine.StoreDone{Err: errBoom}, closed, machine.Stop{Cursor: at5, Err: failed})
}

// TestInjectedGoesAlone: after what came before it, by itself, and moves no cursor whatever it carries.
func TestInjectedGoesAlone(t *testing.T) {
	m := watching(t, mending())
	six := kv.CursorAt(6)
	first, injected, last := one(1, six, kv.Owed{}), one(3, six, kv.Owed{}), one(4, kv.CursorAt(8), kv.Owed{})
	does(t, m, received(1, 6), machine.RunHooks{Flush: first}, room)
	does(t, m, received(2, 6), room)
	does(t, m, machine.Injected{Segment: machine.Segment{ID: 3, Updates: 1, High: kv.Revision(20), HighMillis: 7, Frontier: 30}})
	does(t, m, received(4, 8), room)
	for _, next := range []machine.Flush{one(2, six, kv.Owed{}), injected, last} {
		does(t, m, hooksOK, machine.ApplyStore{Flush: first})
		does(t, m, storeOK, machine.Committed{Flush: first, Moved: first.Segments[0] == 1}, machine.RunHooks{Flush: next})
		first = next
	}
}

// TestAloneSegment: a received segment that goes alone does.
func TestAloneSegment(t *testing.T) {
	m := watching(t, mending())
	f := one(1, kv.CursorAt(6), kv.Owed{})
	does(t, m, received(1, 6), machine.RunHooks{Flush: f}, room)
	s := machine.Segment{ID: 2, Updates: 1, High: kv.Revision(7), Alone: true}
	does(t, m, machine.Received{Segment: s}, room)
	does(t, m, received(3, 8), room)
	does(t, m, received(4, 9), room)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	next := one(2, kv.CursorAt(7), kv.Owed{})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.RunHooks{Flush: next})
	does(t, m, hooksOK, machine.ApplyStore{Flush: next})
	rest := flush{Segments: []uint64{3, 4}, Updates: 2, Cursor: kv.CursorAt(9)}
	does(t, m, storeOK, machine.Committed{Flush: next, Moved: true}, machine.RunHooks{Flush: rest})
}

// TestRepairInjects: a repair's changes are committed under the cursor as it is, while it is out.
func TestRepairInjects(t *testing.T) {
	m := repairing(t)
	f := one(1, at5, kv.Owed{})
	does(t, m, machine.Injected{Segment: machine.Segment{ID: 1, Updates: 1}}, machine.RunHooks{Flush: f})
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f})
}

func TestShutdownBesideARepair(t *testing.T) {
	m := repairing(t)
	does(t, m, machine.Shutdown{}, closed, closed, machine.Stop{Cursor: at5})

	for _, answer := range []machine.Input{machine.Repaired{Cursor: kv.CursorAt(9), Relist: true, NewLog: true}, machine.Repaired{Err: errFinal}, machine.RepairFailed{Err: errBoom}} {
		m = repairing(t)
		f := one(1, at5, kv.Owed{})
		does(t, m, machine.Injected{Segment: machine.Segment{ID: 1, Updates: 1}}, machine.RunHooks{Flush: f})
		does(t, m, machine.Shutdown{}, closed)
		does(t, m, answer)
		does(t, m, hooksOK, machine.ApplyStore{Flush: f})
		does(t, m, storeOK, machine.Committed{Flush: f}, closed, machine.Stop{Cursor: at5})
	}

	m = repairing(t)
	does(t, m, machine.Injected{Segment: machine.Segment{ID: 1, Updates: 4}}, machine.RunHooks{Flush: flush{Segments: []uint64{1}, Updates: 4, Cursor: at5}})
	does(t, m, machine.DeadlinePassed{}, closed, machine.Stop{Cursor: at5, Err: &machine.ShutdownError{Committed: at5, Pending: 4}})
}

// TestShutdownBesideARepairsCommit: what a repair came to is committed, and no watch opens there.
func TestShutdownBesideARepairsCommit(t *testing.T) {
	m := repairing(t)
	f := alone(kv.CursorAt(9), kv.Owed{})
	does(t, m, machine.Repaired{Cursor: f.Cursor, Relist: true}, machine.ApplyStore{Flush: f})
	does(t, m, machine.Shutdown{}, closed)
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, closed, machine.Stop{Cursor: f.Cursor})
}
