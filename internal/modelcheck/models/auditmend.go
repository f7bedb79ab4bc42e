package models

import (
	"fmt"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// auditStep is what an audit, or a repair that lists, does next, in the order of package repair. Anything can happen
// between two of them.
type auditStep uint8

const (
	auditIdle auditStep = iota
	auditLook
	auditListA
	auditListB
	auditJudge
	auditCompare
	auditSuspects
	auditDelete
	auditTell
)

// auditInfo is one reading of the log's settings.
type auditInfo struct{ created, last, keys uint8 }

// auditing is an audit or a repair under way. It lists one key after the other.
type auditing struct {
	step   auditStep
	repair bool
	adopts bool
	end    machine.End
	owed   kv.Owed
	cursor kv.Cursor

	planned, before, after auditInfo
	again                  bool
	list                   auditRows // the last message of each key; 0 is none
	values                 uint8     // those that are a value
	aged                   bool      // retention was seen to take a value
	rows                   auditRows // the fold, as it is compared
	applied                uint8
	stale, unsure, suspect uint8 // keys
	settles                bool  // what is owed, of a re-list
}

func (m *auditing) appendState(out []byte) []byte {
	if m.step == auditIdle {
		return append(out, 0)
	}
	out = append(out, byte(m.step), flags(m.repair, m.adopts, m.again, m.aged, m.settles, m.cursor.SeenEvicting), byte(m.end), byte(m.owed.Why), byte(m.owed.At), byte(m.cursor.Revision()),
		m.values, m.applied, m.stale|m.unsure<<2|m.suspect<<4)
	for _, i := range []auditInfo{m.planned, m.before, m.after} {
		out = append(out, i.created, i.last, i.keys)
	}
	return appendRows(appendRows(out, m.list), m.rows)
}

func (w *auditWorld) info(l *auditLog) (i auditInfo) {
	i = auditInfo{created: l.created, last: l.last}
	for r := l.after(0); r != 0 && !w.uncounted; r = l.after(r) {
		i.keys++
	}
	return i
}

// canGo: an audit waits until the fold has applied what the log held.
func (w *auditWorld) canGo(s *auditState) bool {
	m := &s.mend
	return m.step != auditCompare || m.repair || s.disk.cursor.Revision() >= uint64(m.after.last)
}

func (w *auditWorld) mendOn(s *auditState, short bool) {
	m := &s.mend
	switch m.step {
	case auditLook:
		m.planned = w.info(&s.log)
		m.before = m.planned
		if m.repair {
			w.planRepair(s)
		} else {
			w.planAudit(s)
		}
	case auditListA, auditListB:
		w.list(s, short)
	case auditJudge:
		w.judgeListing(s)
	case auditCompare:
		w.compare(s)
	case auditSuspects:
		w.readSuspects(s)
	case auditDelete:
		w.deleteNext(s)
	case auditTell:
		w.tell(s)
	}
}

func (w *auditWorld) truthOf(s *auditState) protocol.Truth {
	retention := w.retention(&s.log)
	if protocol.HasEvicted(retention) || s.mend.aged {
		s.mend.cursor.SeenEvicting = true
	}
	truth := protocol.ListingTruth(retention, s.mend.cursor.SeenEvicting)
	if w.forge.truth != nil {
		w.forge.truth(&truth)
	}
	return truth
}

func (w *auditWorld) planAudit(s *auditState) {
	m, l := &s.mend, &s.log
	answer := w.sameLog(protocol.LogSeen{NotedCreated: int64(s.known.created), Created: int64(l.created), Cursor: m.cursor.Revision(), Last: uint64(l.last)})
	if answer == protocol.LogReplaced || answer == protocol.LogRewound {
		w.alarm(s, answer)
		w.audited(s, machine.Audited{Err: errFinal, Contradiction: errFinal})
		return
	}
	owed, truth := m.owed.Why != 0, w.truthOf(s)
	if w.forge.plan != nil {
		w.forge.plan(&owed)
	}
	switch protocol.PlanAudit(owed, truth) {
	case protocol.AuditList:
		m.step = auditListA
	case protocol.AuditUnproven:
		w.audited(s, machine.Audited{Unproven: true})
	default:
		w.audited(s, machine.Audited{Before: uint64(m.before.last)})
	}
}

func (w *auditWorld) audited(s *auditState, in machine.Audited) {
	s.mend = auditing{}
	if w.forge.audited != nil {
		w.forge.audited(&in)
	}
	w.step(s, in)
}

// repairFor plans by cause and truth.
func (w *auditWorld) repairFor(s *auditState, truth protocol.Truth) protocol.Plan {
	m := &s.mend
	in := protocol.PlanInput{Cause: protocol.CauseExpired, Adopt: w.adopts, Truth: truth}
	switch m.end {
	case machine.EndLogChanged:
		in.Cause = protocol.CauseRewound
	case machine.EndNoCursor:
		if in.Cause = protocol.CauseNoCursor; w.adopts && s.known.created != 0 {
			in.Cause = protocol.CauseReplaced
		}
	}
	if w.forge.repair != nil {
		w.forge.repair(&in)
	}
	return protocol.PlanRepair(in)
}

func (w *auditWorld) planRepair(s *auditState) {
	m := &s.mend
	truth := w.truthOf(s)
	if m.end == machine.EndNoCursor && !protocol.CursorlessStartNeedsRepair(protocol.RepairAuto, false, s.disk.rows != auditRows{}, truth) {
		w.repaired(s, machine.Repaired{Cursor: m.cursor, Owed: m.owed, Relist: true})
		return
	}
	switch w.repairFor(s, truth) {
	case protocol.PlanRelist:
		m.step = auditListA
	case protocol.PlanAdopt:
		m.step, m.adopts = auditListA, true
	default:
		w.repaired(s, machine.Repaired{Err: errFinal})
	}
}

func (w *auditWorld) repaired(s *auditState, in machine.Repaired) {
	s.mend = auditing{}
	w.step(s, in)
}

// list reads the last message of the next key.
func (w *auditWorld) list(s *auditState, short bool) {
	m := &s.mend
	key := uint8(m.step - auditListA)
	m.list[key], m.values = auditRow{}, m.values&^(1<<key)
	if r := s.log.latest(key); r != 0 && s.log.there>>r&1 == 1 && !short {
		m.list[key] = s.log.row(r)
		switch w.decode(s.log.written[r].kind) {
		case protocol.EventPut:
			m.values |= 1 << key
		case protocol.EventAgedOut:
			m.aged = true
		}
	}
	m.step++
}

func (w *auditWorld) fails(s *auditState) {
	if s.mend.repair {
		s.mend = auditing{}
		w.step(s, machine.RepairFailed{Err: errWatch})
		return
	}
	w.audited(s, machine.Audited{Err: errWatch})
}

func (w *auditWorld) judgeListing(s *auditState) {
	m := &s.mend
	m.after = w.info(&s.log)
	seen := protocol.Listing{CreatedPlanned: int64(m.planned.created), CreatedAfter: int64(m.after.created), HeadBefore: uint64(m.before.last), HeadAfter: uint64(m.after.last),
		KeysBefore: uint64(m.before.keys), KeysAfter: uint64(m.after.keys)}
	for _, at := range m.list {
		if at.rev != 0 {
			seen.Listed++
		}
		seen.Highest = max(seen.Highest, uint64(at.rev))
	}
	if w.forge.listing != nil {
		w.forge.listing(&seen)
	}
	if !protocol.ListingPlausible(seen) {
		s.saw |= auditSawImplausible
		w.fails(s)
		return
	}
	truth := w.truthOf(s)
	switch {
	case m.repair && !m.adopts && w.repairFor(s, truth) != protocol.PlanRelist:
		w.repaired(s, machine.Repaired{Err: errFinal})
		return
	case !m.repair && truth != protocol.TruthYes:
		w.audited(s, machine.Audited{Unproven: true})
		return
	case m.again:
		m.stale &^= m.values
		m.unsure &^= m.values
		m.step = auditDelete
		w.deleted(s)
		return
	}
	m.settles = protocol.AuditSettles(uint64(m.planned.last), m.owed.At)
	m.step = auditCompare
}

// compare judges each key.
func (w *auditWorld) compare(s *auditState) {
	m := &s.mend
	if !w.forge.earlyRows {
		m.rows = s.disk.rows
	}
	m.applied = uint8(s.disk.cursor.Revision())
	var rows, contradict uint8
	for k := range uint8(auditKeys) {
		row, listed := m.rows[k], m.values>>k&1 == 1
		if row.rev != 0 {
			rows++
		}
		if m.repair {
			if row.rev != 0 && !listed {
				m.stale |= 1 << k
			}
			continue
		}
		switch w.judgeKey(m, row, m.list[k], listed) {
		case protocol.AuditStale:
			m.stale |= 1 << k
		case protocol.AuditUnsure:
			m.stale, m.unsure = m.stale|1<<k, m.unsure|1<<k
			s.saw |= auditSawUnsure
		case protocol.AuditSuspect:
			m.suspect |= 1 << k
		case protocol.AuditContradicts:
			contradict++
		}
	}
	switch {
	case contradict > 0:
		s.saw |= auditSawContradiction
		w.contradicts(s)
	case m.suspect != 0:
		m.step = auditSuspects
	default:
		w.brake(s, rows)
	}
}

func (w *auditWorld) judgeKey(m *auditing, row, at auditRow, listed bool) protocol.AuditVerdict {
	seen := protocol.AuditSeen{Before: uint64(m.before.last), After: uint64(m.after.last), Row: uint64(row.rev), HasRow: row.rev != 0, RowTime: auditTime(row)}
	if row.rev > m.applied {
		seen.Row = 0
	}
	if seen.ListedTime = auditTime(at); listed {
		seen.Listed = uint64(at.rev)
	}
	if w.forge.key != nil {
		w.forge.key(&seen)
	}
	return protocol.AuditKey(seen)
}

// auditTime is when a message was written.
func auditTime(r auditRow) int64 {
	if r.rev == 0 {
		return 0
	}
	return int64(r.era)*100 + int64(r.rev)
}

func (w *auditWorld) contradicts(s *auditState) {
	w.alarm(s, protocol.LogRewound)
	w.audited(s, machine.Audited{Err: errFinal, Contradiction: errFinal})
}

// readSuspects reads the last message of each key whose value the fold lacks.
func (w *auditWorld) readSuspects(s *auditState) {
	m := &s.mend
	for k := range uint8(auditKeys) {
		if m.suspect>>k&1 == 0 {
			continue
		}
		value, last := w.lastMessage(s, k)
		applied := uint64(m.applied)
		if w.forge.suspect != nil {
			w.forge.suspect(&value, &last, &applied)
		}
		if protocol.SuspectIsMissing(value, last, applied) {
			s.saw |= auditSawMissing
			w.contradicts(s)
			return
		}
		s.saw |= auditSawSuspectSpared
	}
	m.suspect = 0
	var rows uint8
	for _, row := range m.rows {
		if row.rev != 0 {
			rows++
		}
	}
	w.brake(s, rows)
}

func (w *auditWorld) lastMessage(s *auditState, key uint8) (value bool, last uint64) {
	r := s.log.latest(key)
	if r == 0 || s.log.there>>r&1 == 0 {
		return false, 0
	}
	return w.decode(s.log.written[r].kind) == protocol.EventPut, uint64(r)
}

// brake asks for a second listing.
func (w *auditWorld) brake(s *auditState, rows uint8) {
	m := &s.mend
	each := uint64(1)
	if w.uncounted {
		each = 11
	}
	deletes, all := uint64(0), each*uint64(rows)
	for k := range auditKeys {
		deletes += each * uint64(m.stale>>k&1)
	}
	if w.forge.brake != nil {
		w.forge.brake(&deletes, &all)
	}
	if protocol.NeedsSecondListing(deletes, all) {
		m.again, m.step, m.before = true, auditListA, m.after
		return
	}
	m.step = auditDelete
	w.deleted(s)
}

// deleted goes on when nothing is left to delete.
func (w *auditWorld) deleted(s *auditState) {
	if s.mend.stale == 0 {
		s.mend.step = auditTell
	}
}

// deleteNext has the first key that is left deleted.
func (w *auditWorld) deleteNext(s *auditState) {
	m := &s.mend
	for k := range uint8(auditKeys) {
		if m.stale>>k&1 == 0 {
			continue
		}
		m.stale &^= 1 << k
		unsure := m.unsure>>k&1 == 1
		w.deleted(s)
		if value, _ := w.lastMessage(s, k); unsure && value {
			return
		}
		in := machine.Injected{Segment: segmentOf(changeOf(k, 0, true).repair(m.rows[k].rev)).received()}
		in.Segment.Alone = true
		w.step(s, in)
		return
	}
}

func (w *auditWorld) tell(s *auditState) {
	m := s.mend
	if !m.repair {
		s.saw |= auditSawSettled
		w.audited(s, machine.Audited{Before: uint64(m.planned.last)})
		return
	}
	out := machine.Repaired{Cursor: m.cursor, Owed: m.owed, Relist: true}
	if s.listed = m.planned.last; m.adopts {
		s.saw |= auditSawAdopted
		out.Cursor, out.Owed, out.NewLog = kv.Cursor{SeenEvicting: m.cursor.SeenEvicting}, kv.Owed{}, m.after.created != s.known.created
		s.takes, s.same = auditKnown{created: m.after.created}, s.log.created == m.after.created
		if w.forge.adoptKeepsKnown {
			s.takes = s.known
		}
	} else if m.settles {
		out.Owed = kv.Owed{}
	}
	w.repaired(s, out)
}

func (m auditing) String() string {
	if m.step == auditIdle {
		return "nothing is listed"
	}
	names := [...]string{"", "look", "list a", "list b", "judge", "compare", "suspects", "delete", "tell"}
	return fmt.Sprintf("repair %v adopts %v: %s, listed %v (%b are values), stale %b, suspect %b, rows %v, applied %d", m.repair, m.adopts, names[m.step], m.list, m.values,
		m.stale, m.suspect, m.rows, m.applied)
}
