package machine_test

import (
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

func TestAuditSettles(t *testing.T) {
	m := auditing(t)
	f := alone(at5, kv.Owed{})
	does(t, m, machine.Audited{Before: 5}, machine.ApplyStore{Flush: f}, hold)
	does(t, m, storeOK, machine.Committed{Flush: f})
	if owed, _ := m.Owed(); owed != f.Owed {
		t.Errorf("owed %v", owed)
	}
	does(t, m, auditDue)
}

func TestAuditThatSettlesNothing(t *testing.T) {
	for _, in := range []machine.Audited{{Before: 4}, {Before: 9, Err: errBoom}} {
		m := auditing(t)
		does(t, m, in, hold)
		does(t, m, auditDue, machine.Audit{Committed: at5, Owed: marked})
	}
}

// TestAuditOfWhatCameLater: a mark beyond the audit's beginning stays.
func TestAuditOfWhatCameLater(t *testing.T) {
	m := auditing(t)
	later := kv.Owed{Why: kv.OwesMarkers, At: 6}
	f := one(1, kv.CursorAt(6), later)
	s := machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6), Owes: kv.OwesMarkers}
	does(t, m, machine.Received{Segment: s}, machine.RunHooks{Flush: f}, room)
	does(t, m, machine.Audited{Before: 5}, hold)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true})
	does(t, m, auditDue, machine.Audit{Committed: f.Cursor, Owed: later})
	does(t, m, machine.Audited{Before: 6}, machine.ApplyStore{Flush: alone(f.Cursor, kv.Owed{})}, hold)
}

// TestAuditTimerOfAMarkThatIsGone: a timer that ends when nothing is owed any more begins no audit of a later mark.
func TestAuditTimerOfAMarkThatIsGone(t *testing.T) {
	m := auditing(t)
	does(t, m, machine.Audited{Before: 5}, machine.ApplyStore{Flush: alone(at5, kv.Owed{})}, hold)
	does(t, m, storeOK, machine.Committed{Flush: alone(at5, kv.Owed{})})
	does(t, m, auditDue)
	does(t, m, machine.RetentionRead{Owes: kv.OwesMarkers, Head: 5}, machine.ApplyStore{Flush: alone(at5, marked)})
	does(t, m, storeOK, machine.Committed{Flush: alone(at5, marked)}, hold)
}

func TestAuditProvesNothing(t *testing.T) {
	m := auditing(t)
	does(t, m, machine.Audited{Before: 5, Unproven: true})
	if owed, unproven := m.Owed(); owed != marked || !unproven {
		t.Errorf("owed %v, unproven %v", owed, unproven)
	}
	does(t, m, expired, closed, machine.Repair{Committed: at5, Owed: marked, End: machine.EndExpired, Err: errBoom})
	does(t, m, machine.Repaired{Cursor: at5, Owed: marked}, machine.OpenWatch{After: at5})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5}, hold, room)
}

// TestAuditContradicts: the log is another one, which a repair decides on as soon as nothing is out.
func TestAuditContradicts(t *testing.T) {
	m := auditing(t)
	does(t, m, machine.Audited{Contradiction: errBoom, Err: errBoom}, closed)
	f := one(1, kv.CursorAt(6), marked)
	does(t, m, received(1, 6), machine.RunHooks{Flush: f})
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.Repair{Committed: f.Cursor, Owed: marked, End: machine.EndLogChanged, Err: errBoom})

	m = auditing(t)
	does(t, m, machine.Audited{Contradiction: errBoom}, closed)
	does(t, m, lost, machine.Repair{Committed: at5, Owed: marked, End: machine.EndLogChanged, Err: errBoom})
}

// TestAuditContradictsWithoutAWatch: the next audit will say so again.
func TestAuditContradictsWithoutAWatch(t *testing.T) {
	m := auditing(t)
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, machine.Audited{Contradiction: errBoom})
	does(t, m, openDue, machine.OpenWatch{After: at5})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5}, hold, room)
}

// TestAuditBesideANewWatch: while an audit is out that began beside a watch that was lost, no second one begins. It settles
// nothing: the log may have lost its end in between, and what was listed with it.
func TestAuditBesideANewWatch(t *testing.T) {
	m := auditing(t)
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue, machine.OpenWatch{After: at5})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5}, room)
	does(t, m, machine.Audited{Before: 5}, hold)
	does(t, m, auditDue, machine.Audit{Committed: at5, Owed: marked})
	does(t, m, machine.Audited{Before: 5}, machine.ApplyStore{Flush: alone(at5, kv.Owed{})}, hold)
}

// TestAuditWaits: for a watch that has caught up, for a commit of the mark, and only where audits are.
func TestAuditWaits(t *testing.T) {
	m := begin(t, mending(), at5, marked, machine.OpenWatch{After: at5})
	does(t, m, machine.Opened{Head: 6, Backlog: 1}, room)
	f := one(1, kv.CursorAt(6), marked)
	does(t, m, received(1, 6), machine.RunHooks{Flush: f}, room)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f, Moved: true}, machine.CaughtUp{Cursor: f.Cursor, First: true}, hold)
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, auditDue)
	does(t, m, openDue, machine.OpenWatch{After: f.Cursor})
	does(t, m, machine.Opened{Head: 6}, machine.CaughtUp{Cursor: f.Cursor}, machine.Audit{Committed: f.Cursor, Owed: marked}, room)

	m = watching(t, mending())
	does(t, m, machine.RetentionRead{Owes: kv.OwesMarkers, Head: 5}, machine.ApplyStore{Flush: alone(at5, marked)})
	does(t, m, storeOK, machine.Committed{Flush: alone(at5, marked)}, hold)

	cfg := mending()
	cfg.CanRepair = false
	m = begin(t, cfg, at5, marked, machine.OpenWatch{After: at5})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5, First: true}, room)
}

func TestShutdownBesideAnAudit(t *testing.T) {
	m := auditing(t)
	does(t, m, machine.Shutdown{}, closed)
	does(t, m, machine.Audited{Before: 5}, machine.ApplyStore{Flush: alone(at5, kv.Owed{})})
	does(t, m, lost)
	does(t, m, storeOK, machine.Committed{Flush: alone(at5, kv.Owed{})}, closed, machine.Stop{Cursor: at5})
}
