package models

import (
	"fmt"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// mendStep is what a repair does next, in the order of package repair. Between two of them anything can happen.
type mendStep uint8

const (
	mendNot mendStep = iota
	mendPlan
	mendList       // the bucket's keys
	mendJudge      // the log after the listing
	mendCandidates // the artifact that there is
	mendArrived    // the log after that, and the difference
	mendSpare      // the bucket's keys, where the artifact lacks some
	mendSift       // the log after that
	mendResumes    // whether a watch would resume from it
	mendFold       // the next change
	mendTell
	mendEnd
)

var mendNames = [...]string{"", "plan", "list", "judge", "candidates", "arrived", "spare", "sift", "resumes", "fold", "tell", "end"}

// mending is a repair under way.
type mending struct {
	step   mendStep
	cursor kv.Cursor
	owed   kv.Owed
	none   bool // for want of a cursor
	// waits: a change is in the machine's hands.
	waits bool
	// evicted: retention was seen to have taken values.
	evicted bool
	before  logInfo // around the listing that is under way
	list    listing
	art     repairArtifact
	changes segment // to be folded
	relist  bool
	refused bool
	listed  uint8

	// Only of a repair that is wrong on purpose.
	early, late bool
	rows        rows
	back        segment
}

func (m *mending) appendState(out []byte) []byte {
	out = append(out, byte(m.step), flags(m.waits, m.early, m.late))
	if m.step == mendNot && !m.early && m.back == 0 {
		return out
	}
	out = append(out, flags(m.none, m.evicted, m.before.evicts, m.art.memo, m.relist, m.refused, m.cursor.SeenEvicting),
		byte(m.cursor.Revision()), byte(m.owed.Why), byte(m.owed.At), m.before.first, m.before.last, m.before.keys,
		m.list.rank[0], m.list.rank[1], m.list.values, m.art.cursor, m.art.rows[0], m.art.rows[1], m.listed, m.rows[0], m.rows[1], byte(m.back), byte(m.back>>8))
	for n := m.changes; n != 0; n >>= 8 {
		out = append(out, byte(n))
	}
	return out
}

func (m *mending) String() string {
	if m.step == mendNot {
		return ""
	}
	return fmt.Sprintf(", repair: %s, to fold %v", mendNames[m.step], m.changes)
}

// look reads the log's settings, and remembers what they tell.
func (w *repairWorld) look(s *repairState) logInfo {
	i := s.log.info()
	if protocol.HasEvicted(w.retention(i)) {
		s.mend.evicted, s.mend.cursor.SeenEvicting = true, true
	}
	return i
}

func (w *repairWorld) truth(s *repairState, i logInfo, again bool) protocol.Truth {
	r, memo := w.retention(i), s.mend.cursor.SeenEvicting
	w.forge.truth(&r, &memo, again)
	return protocol.ListingTruth(r, memo)
}

func (w *repairWorld) plan(s *repairState, truth protocol.Truth) protocol.Plan {
	in := protocol.PlanInput{Cause: protocol.CauseExpired, Mode: w.mode, Source: w.source, Truth: truth}
	if s.mend.none {
		in.Cause = protocol.CauseNoCursor
	}
	w.forge.plan(&in)
	return protocol.PlanRepair(in)
}

// mendOn takes the repair's next step.
func (w *repairWorld) mendOn(s *repairState) {
	m := &s.mend
	switch m.step {
	case mendPlan:
		w.mendPlan(s)
	case mendList:
		m.list, m.step = s.log.list(), mendJudge
	case mendJudge:
		w.mendJudge(s)
	case mendCandidates:
		if m.art, m.step = s.art, mendArrived; w.forge.logFirst {
			w.fit(s, m.before, mendArrived)
		}
	case mendArrived:
		w.mendArrived(s)
	case mendSpare:
		m.list, m.step = s.log.list(), mendSift
	case mendSift:
		w.mendSift(s)
	case mendResumes:
		w.mendResumes(s)
	case mendFold:
		w.mendFold(s)
	case mendTell:
		m.step = mendEnd
		w.step(s, machine.RetentionRead{Evicted: true})
	case mendEnd:
		w.mendEnd(s)
	}
}

func (w *repairWorld) mendPlan(s *repairState) {
	m := &s.mend
	m.before = w.look(s)
	truth := w.truth(s, m.before, false)
	if m.none {
		mode, source, hasData := w.mode, w.source, s.disk.rows != rows{}
		w.forge.cursorless(&mode, &source, &hasData, &truth)
		if !protocol.CursorlessStartNeedsRepair(mode, source, hasData, truth) {
			m.relist = true
			w.tell(s)
			return
		}
	}
	switch w.plan(s, truth) {
	case protocol.PlanRelist:
		m.step = mendList
	case protocol.PlanRestore:
		m.step = mendCandidates
	default:
		w.refuse(s)
	}
}

func (w *repairWorld) refuse(s *repairState) {
	s.mend.refused, s.mend.changes = true, 0
	w.tell(s)
}

// tell ends the repair, after what it has seen of retention is told.
func (w *repairWorld) tell(s *repairState) {
	if s.mend.step = mendEnd; s.mend.evicted {
		s.mend.step = mendTell
	}
}

func (w *repairWorld) mendJudge(s *repairState) {
	m := &s.mend
	after := w.look(s)
	if !protocol.ListingPlausible(m.list.seen(m.before, after)) {
		w.mendFails(s)
		return
	}
	truth := w.truth(s, after, true)
	switch plan := w.plan(s, truth); {
	case plan == protocol.PlanRestore:
		m.step, m.before = mendCandidates, after
		return
	case plan != protocol.PlanRelist:
		w.refuse(s)
		return
	}
	m.relist, m.listed = true, m.before.last
	var stale []change
	for k, row := range w.rowsSeen(s) {
		if row != 0 && !m.list.has(k) {
			stale = append(stale, changeOf(uint8(k), 0, true).repair(row))
		}
	}
	if settles := uint64(m.before.last); m.owed.Why != 0 && truth == protocol.TruthYes {
		w.forge.settles(&settles)
		if protocol.AuditSettles(settles, m.owed.At) {
			m.owed = kv.Owed{}
		}
	}
	m.changes = segmentOf(stale...)
	w.decided(s)
}

// rowsSeen is the view of the fold that the repair compares.
func (w *repairWorld) rowsSeen(s *repairState) rows {
	if s.mend.early {
		return s.mend.rows
	}
	return s.disk.rows
}

// decided goes on with what is to be folded.
func (w *repairWorld) decided(s *repairState) {
	switch s.mend.step = mendFold; {
	case w.forge.toldFirst && s.mend.changes != 0:
		s.mend.step = mendEnd
	case s.mend.changes == 0:
		w.tell(s)
	}
}

// fit judges the artifact by a reading of the log, and goes on to a step if it may be restored.
func (w *repairWorld) fit(s *repairState, i logInfo, to mendStep) bool {
	m := &s.mend
	art, local := protocol.Position{Revision: uint64(m.art.cursor)}, protocol.Position{Revision: m.cursor.Revision()}
	log := protocol.LogBounds{First: uint64(i.first), Last: uint64(i.last)}
	w.forge.allowed(&art, &local, &log)
	if m.art.cursor == 0 || !protocol.RestoreAhead(art, local) || !protocol.RestoreAllowed(art, local, log) {
		w.refuse(s)
		return false
	}
	m.step = to
	return true
}

func (w *repairWorld) restoreKey(local, remote uint8, listed bool) protocol.KeyRestore {
	l, a := protocol.KeyState{Present: local != 0, Revision: uint64(local)}, protocol.KeyState{Present: remote != 0, Revision: uint64(remote)}
	same := local == remote
	w.forge.key(&l, &a, &same, &listed)
	return protocol.RestoreKey(l, a, same && l.Present && a.Present, listed)
}

func (w *repairWorld) mendArrived(s *repairState) {
	m := &s.mend
	if m.before = w.look(s); !w.fit(s, m.before, mendResumes) {
		return
	}
	var puts, deletes []change
	for k, row := range w.rowsSeen(s) {
		switch remote := m.art.rows[k]; w.restoreKey(row, remote, false) {
		case protocol.RestoreTake:
			puts = append(puts, changeOf(uint8(k), remote, false).repair(row))
		case protocol.RestoreDelete:
			deletes = append(deletes, changeOf(uint8(k), 0, true).repair(row))
		}
	}
	if m.changes = segmentOf(append(puts, deletes...)...); len(deletes) > 0 {
		m.step = mendSpare
	}
}

// mendSift takes the keys that the bucket lists out of those to delete.
func (w *repairWorld) mendSift(s *repairState) {
	m := &s.mend
	after := w.look(s)
	if !protocol.ListingPlausible(m.list.seen(m.before, after)) {
		w.mendFails(s)
		return
	}
	var left []change
	for _, c := range m.changes.changes() {
		k := c.key()
		listed := m.list.has(int(k))
		if c.deletes() && listed && m.list.rank[k] > c.expect() && m.list.rank[k] <= m.art.cursor {
			w.refuse(s) // it is not complete
			return
		}
		if !c.deletes() || w.restoreKey(c.expect(), 0, listed) == protocol.RestoreDelete {
			left = append(left, c)
		}
	}
	m.changes, m.before = segmentOf(left...), after
	if m.step = mendResumes; !w.forge.looksOnce {
		w.fit(s, after, mendResumes)
	}
}

// mendResumes asks the log what the watch after the restore will ask it.
func (w *repairWorld) mendResumes(s *repairState) {
	if !w.forge.asksNot && !w.resumes(s, kv.CursorAt(uint64(s.mend.art.cursor)), lostNot) {
		w.refuse(s)
		return
	}
	w.decided(s)
}

// mendFold gives the machine the next change. It is back when that is committed.
func (w *repairWorld) mendFold(s *repairState) {
	m := &s.mend
	if w.overtaken(s, s.p.repair.Committed) {
		w.mendFails(s)
		return
	}
	c := change(m.changes)
	m.changes >>= 16
	m.waits = !w.forge.toldFirst
	if m.changes == 0 {
		w.tell(s)
	}
	if m.late && m.changes == 0 {
		s.mend = mending{}
	}
	in := machine.Injected{Segment: segmentOf(c).received()}
	in.Segment.Alone = true
	w.step(s, in)
}

// overtaken reports whether the fold was told of evictions that the repair does not know of.
func (w *repairWorld) overtaken(s *repairState, of kv.Cursor) bool {
	return s.p.m.SeenEvicting() && !of.SeenEvicting && !w.forge.notOvertaken
}

func (w *repairWorld) mendEnd(s *repairState) {
	m := s.mend
	s.mend = mending{}
	if m.refused {
		s.tried = m.art.cursor + 1
		w.step(s, machine.Repaired{Err: errFinal})
		return
	}
	out := machine.Repaired{Cursor: m.cursor, Owed: m.owed, Relist: m.relist}
	if !m.relist {
		out.Cursor, out.Owed = kv.CursorAt(uint64(m.art.cursor)), kv.Owed{}
		out.Cursor.SeenEvicting = m.cursor.SeenEvicting || m.art.memo
	}
	if w.overtaken(s, out.Cursor) {
		w.mendFails(s)
		return
	}
	s.listed, s.relisting = m.listed, m.relist
	if m.relist && m.evicted && w.source {
		s.broken |= brokenListed
	}
	w.forge.outcome(&out, &m)
	w.step(s, out)
	if m.back != 0 {
		w.step(s, machine.Injected{Segment: m.back.received()})
	}
	if w.forge.toldFirst && m.changes != 0 {
		s.mend = mending{step: mendFold, changes: m.changes, late: true}
	}
}

func (w *repairWorld) mendFails(s *repairState) {
	evicted := s.mend.evicted
	s.mend = mending{}
	if evicted {
		w.step(s, machine.RetentionRead{Evicted: true})
	}
	w.step(s, machine.RepairFailed{Err: errWatch})
}
