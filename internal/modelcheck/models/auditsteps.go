package models

import (
	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// auditTick is a tick in the units of marker TTLs, and auditSoon what an event in a tick may be late by.
const (
	auditTickUnits = 10
	auditSoon      = 5
)

func (w *auditWorld) step(s *auditState, in machine.Input) { w.carry(s, s.p.step(in)) }

// carry does what the effects ask for, and answers at once what nothing else can come between with.
func (w *auditWorld) carry(s *auditState, effects []machine.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.Audit:
			s.mend = auditing{step: auditLook, owed: e.Owed, cursor: e.Committed, rows: s.disk.rows}
		case machine.Repair:
			audits := s.mend.step != auditIdle && !s.mend.repair
			s.mend = auditing{step: auditLook, repair: true, end: e.End, owed: e.Owed, cursor: e.Committed}
			if audits {
				w.step(s, machine.Audited{Err: errWatch})
			}
		case machine.ApplyStore:
			if s.p.m.TakingOver() && s.takes != (auditKnown{}) {
				s.known, s.takes, s.watch.dead = s.takes, auditKnown{}, false
			}
		case machine.Stop:
			s.gone()
			return
		}
	}
	switch {
	case s.p.has(askedHooks):
		w.step(s, machine.HooksDone{})
	case s.p.has(askedStore):
		w.apply(s)
		w.step(s, machine.StoreDone{})
	case s.p.has(askedTimer(machine.TimerOpen)):
		w.step(s, machine.TimerFired{Timer: machine.TimerOpen})
	}
}

// apply commits the flush in progress.
func (w *auditWorld) apply(s *auditState) {
	truth := w.truth(&s.log)
	for _, c := range s.p.changes() {
		row := &s.disk.rows[c.key()]
		if c.repairs() {
			if c.hasExpect() && row.rev != c.expect() && !w.forge.noExpect {
				s.saw |= auditSawSkipped
				continue
			}
			if row.rev != 0 && *row == truth[c.key()] {
				s.saw |= auditSawPhantom
			} else if s.same {
				s.saw |= auditSawZombieGone
			}
			*row = auditRow{}
			continue
		}
		at := s.log.row(c.rev())
		switch w.decode(s.log.written[c.rev()].kind) {
		case protocol.EventPut:
			*row = at
		case protocol.EventDelete, protocol.EventPurge:
			*row = auditRow{}
		}
		w.sample(&s.known, at)
		s.away = s.log.ages[c.rev()]
	}
	f := s.p.flush
	s.disk.cursor, s.disk.owed, s.disk.known = f.Cursor, f.Owed, s.known
}

func (w *auditWorld) sample(k *auditKnown, at auditRow) {
	if k.samples[1].rev >= at.rev {
		return
	}
	if k.samples[1] = at; k.samples[0].rev == 0 && !w.young {
		k.samples[0] = at
	}
}

func (w *auditWorld) inside(s *auditState, verb auditVerb) {
	switch verb {
	case auditOpen:
		w.open(s)
	case auditDeliver:
		w.deliver(s)
	case auditProgress:
		w.progress(s)
	case auditEnd:
		w.step(s, machine.WatchEnded{End: machine.EndTransient, Err: errWatch})
	case auditDue:
		w.step(s, machine.TimerFired{Timer: machine.TimerAudit})
	case auditGo:
		w.mendOn(s, false)
	case auditGoShort:
		s.shorts--
		w.mendOn(s, true)
	}
}

// evicts: a log whose messages can have a TTL can evict, and no bound shows it.
func (w *auditWorld) retention(l *auditLog) protocol.Retention {
	return protocol.Retention{Known: true, Evicts: w.rules.MessageTTL, Inside: w.rules.MessageTTL, First: uint64(l.first())}
}

// lookUp reads a noted message back.
func (l *auditLog) lookUp(sample auditRow) protocol.SampleFound {
	at := l.written[min(sample.rev, auditRevs)]
	switch {
	case sample.rev == 0 || sample.rev > l.last:
		return protocol.SampleAbsent
	case sample.rev == l.last && at.era == sample.era: // the time of the last message is known when it is gone, too
		return protocol.SampleMatches
	case l.there>>sample.rev&1 == 0:
		return protocol.SampleAbsent
	case at.era == sample.era:
		return protocol.SampleMatches
	}
	return protocol.SampleDiffers
}

func (w *auditWorld) sameLog(seen protocol.LogSeen) protocol.LogAnswer {
	if w.forge.same != nil {
		w.forge.same(&seen)
	}
	return protocol.LogIsSame(seen)
}

func (w *auditWorld) open(s *auditState) {
	l, after := &s.log, s.p.opening.After
	if s.p.opening.Relist {
		after = kv.Cursor{}
	}
	seen := protocol.LogSeen{NotedCreated: int64(s.known.created), Created: int64(l.created), Cursor: after.Revision(), Last: uint64(l.last)}
	if w.sameLog(seen) == protocol.LogUnknown {
		for _, sample := range s.known.samples {
			if found := l.lookUp(sample); uint64(sample.rev) == seen.Cursor {
				seen.AtCursor = found
			} else {
				seen.Samples = append(seen.Samples, found)
			}
		}
	}
	answer := w.sameLog(seen)
	if answer == protocol.LogReplaced || answer == protocol.LogRewound {
		w.alarm(s, answer)
		w.step(s, machine.OpenFailed{End: machine.EndLogChanged, Err: errWatch})
		return
	}
	r := protocol.Reopen{Cursor: after.Revision(), First: uint64(l.first()), Evicts: w.rules.MessageTTL}
	if s.watch.dead {
		r.Lost = 1
	}
	if !after.IsNone() && !protocol.ReopenIsWhole(r) {
		w.step(s, machine.OpenFailed{End: machine.EndExpired, Err: errWatch})
		return
	}
	if s.known.created == 0 {
		s.known.created = l.created
	}
	s.watch = auditWatch{pos: uint8(after.Revision())}
	in := machine.Opened{Head: uint64(l.last), Backlog: uint64(l.last) - min(uint64(l.last), after.Revision())}
	switch {
	case after.IsNone():
		s.watch.floor = l.last
		gap := protocol.Gap{Missing: s.listed != 0 && l.last > s.listed, Markers: w.markers(0)}
		if protocol.GapNeedsAudit(gap) && !w.forge.relistFree {
			in.Owes = kv.OwesMarkers
		}
	case answer != protocol.LogSame && !w.forge.identityFree:
		in.Owes = kv.OwesIdentity
		s.saw |= auditSawIdentityOwed
	}
	s.listed = 0
	audits := s.mend.step != auditIdle && !s.mend.repair && !w.forge.auditsOn
	if w.step(s, in); audits { // it ends with its watch
		w.audited(s, machine.Audited{Err: errWatch})
	}
}

// alarm notes that a log is said to be another one.
func (w *auditWorld) alarm(s *auditState, answer protocol.LogAnswer) {
	if s.same {
		s.saw |= auditSawFalseAlarm
	}
	if s.saw |= auditSawRewound; answer == protocol.LogReplaced {
		s.saw |= auditSawReplaced
	}
}

func (w *auditWorld) markers(away int64) protocol.MarkerSafety {
	rules := w.rules
	rules.MarkerTTL *= auditTickUnits
	if w.forge.markers != nil {
		w.forge.markers(&rules, &away)
	}
	return protocol.MarkersCanVanish(rules, away)
}

func (s *auditState) base() uint8 { return max(s.watch.pos, s.watch.floor) }

// owes is what a gap has the fold owe.
func (w *auditWorld) owes(s *auditState, missing, aged bool) kv.Owes {
	g := protocol.Gap{Missing: missing, Markers: w.markers(int64(s.away)*auditTickUnits + auditSoon), AgedOut: aged}
	if w.forge.gap != nil {
		w.forge.gap(&g)
	}
	if protocol.GapNeedsAudit(g) {
		return kv.OwesMarkers
	}
	return 0
}

// overrun ends a watch that the log has passed.
func (w *auditWorld) overrun(s *auditState) bool {
	if !protocol.LiveGapIsExpiry(w.rules.MessageTTL, uint64(s.base()), uint64(s.log.first())) {
		return false
	}
	w.step(s, machine.WatchEnded{End: machine.EndExpired, Err: errWatch})
	return true
}

func (w *auditWorld) deliver(s *auditState) {
	rev := s.log.after(s.watch.pos)
	missing := rev > s.base()+1
	if missing && w.overrun(s) {
		return
	}
	m := s.log.written[rev]
	seg := segmentOf(changeOf(m.key, rev, false)).received()
	if seg.Evicted = m.kind == auditAged; rev > s.watch.floor {
		if seg.Owes = w.owes(s, missing, seg.Evicted); missing && seg.Owes == 0 {
			s.saw |= auditSawStayed
		}
	} else if seg.Evicted {
		seg.Owes = kv.OwesListing
	}
	s.watch.pos = rev
	w.step(s, machine.Received{Segment: seg})
}

func (w *auditWorld) progress(s *auditState) {
	missing := s.log.last > s.base()
	if missing && w.overrun(s) {
		return
	}
	in := machine.Received{Segment: machine.Segment{Frontier: uint64(s.log.last), Owes: w.owes(s, missing, false)}}
	s.watch.pos = s.log.last
	w.step(s, in)
}
