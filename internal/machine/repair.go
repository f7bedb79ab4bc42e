package machine

import (
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Repairing reports whether a Repair is out.
func (m *M) Repairing() bool { return m.repairing }

// TakingOver reports whether the store apply that is out commits what a repair came to.
func (m *M) TakingOver() bool { return m.reopen }

// SeenEvicting reports whether the fold has been told that the log evicted current values, committed or not.
func (m *M) SeenEvicting() bool { return m.memo }

// Owed is the audit mark that is committed, and whether no audit can settle it.
func (m *M) Owed() (owed kv.Owed, unproven bool) { return m.stored, m.unproven && m.stored.Why != 0 }

// begin opens a watch after what was received; without a cursor the repair is asked first.
func (m *M) begin(out []Effect) []Effect {
	if m.seen.IsNone() && m.cfg.CanRepair {
		m.ended, m.end, m.endKind = true, nil, EndNoCursor
		return out
	}
	return m.openWatch(OpenWatch{After: m.seen}, out)
}

func (m *M) repair(out []Effect) []Effect {
	m.repairing, m.since, m.overtaken = true, kv.Owed{}, true
	return append(out, Repair{Committed: m.committed, Owed: m.owed, End: m.endKind, Err: m.end})
}

func (m *M) openWatch(w OpenWatch, out []Effect) []Effect {
	m.relisting = w.Relist || w.After.IsNone()
	return append(out, w)
}

// retention remembers for good that the log evicted current values.
func (m *M) retention(evicted bool) {
	m.memo = m.memo || evicted
	m.seen.SeenEvicting = m.memo
}

// owes adds to the mark. What a repair was not told of outlives it.
func (m *M) owes(why kv.Owes, at uint64) {
	m.owed = m.owed.Add(why, at)
	m.since = m.since.Add(why, at)
}

// listed settles what was owed of a re-list while nobody knew whether retention would come in between.
func (m *M) listed(whole bool) {
	if !whole || m.memo || m.phase != PhaseWatching || !m.caughtUp {
		return
	}
	if m.owed.Why &^= kv.OwesListing; m.owed.Why == 0 {
		m.owed = kv.Owed{}
	}
}

// repaired takes what a repair came to. A flush may be in progress, so it is taken over by settle.
func (m *M) repaired(in Repaired, out []Effect) []Effect {
	m.repairing = false
	if m.phase == PhaseStopping {
		return out
	}
	if in.Err != nil {
		m.phase, m.stopWith = PhaseStopping, in.Err
		return out
	}
	m.phase = PhaseOpening
	m.headKnown = false
	m.unproven = false
	m.retention(in.Cursor.SeenEvicting)
	m.decided, m.outcome = true, in
	return out
}

// takeOver makes what a repair came to the fold's own, to be committed in one step before a watch opens there. Only here
// a cursor may go back: to none, when the fold moves to another log.
func (m *M) takeOver() {
	m.seen = m.outcome.Cursor
	m.seen.SeenEvicting = m.memo
	m.owed = m.outcome.Owed.Add(m.since.Why, m.since.At)
	m.decided, m.reopen, m.newLog = false, true, m.outcome.NewLog
}

// injected queues changes that go alone and move no cursor, whatever versions they carry.
func (m *M) injected(s Segment) {
	s.High, s.HighMillis, s.Frontier, s.Alone = kv.Version{}, 0, 0, true
	m.enqueue(s)
}

// settle commits a cursor and a mark that are not, though there are no updates to go with them, and then opens the watch
// that a repair asked for.
func (m *M) settle(out []Effect) []Effect {
	if m.phase != PhaseOpening {
		m.decided, m.reopen = false, false
	}
	if m.decided {
		m.takeOver()
	}
	want := m.committed
	if m.reopen {
		want = m.seen
	}
	want.SeenEvicting = m.memo
	switch {
	case want != m.committed || m.owed != m.stored || m.newLog:
		m.newLog = false
		m.flush, m.stage = Flush{Cursor: want, Owed: m.owed}, stageStore
		if m.cfg.HasStore {
			return append(out, ApplyStore{Flush: m.flush})
		}
		return m.flushDone(out)
	case m.reopen:
		m.reopen = false
		return m.openWatch(OpenWatch{After: m.seen, Relist: m.outcome.Relist}, out)
	}
	return out
}

func (m *M) audited(in Audited, out []Effect) []Effect {
	m.auditing = false
	switch {
	case m.overtaken:
	case in.Contradiction != nil:
		if m.phase == PhaseWatching {
			out = append(out, CloseWatch{})
			return m.watchGone(EndLogChanged, in.Contradiction, out)
		}
	case in.Unproven:
		m.unproven = true
	case in.Err == nil && protocol.AuditSettles(in.Before, m.owed.At):
		m.owed = kv.Owed{}
	}
	return out
}

// audit arms the timer of an audit that is owed, and begins it when it is due.
func (m *M) audit(out []Effect) []Effect {
	wanted := m.cfg.CanRepair && m.stored.Why != 0 && !m.unproven && m.phase == PhaseWatching && m.caughtUp
	m.auditDue = m.auditDue && m.stored.Why != 0 // a mark that comes later waits its own time
	switch {
	case !wanted || m.auditing || m.auditArmed:
	case m.auditDue:
		m.auditing, m.auditDue, m.overtaken = true, false, false
		out = append(out, Audit{Committed: m.committed, Owed: m.stored})
	default:
		m.auditArmed = true
		out = append(out, Arm{Timer: TimerAudit})
	}
	return out
}
