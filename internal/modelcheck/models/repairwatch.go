package models

import (
	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// retention is what the log says of it.
func (w *repairWorld) retention(i logInfo) protocol.Retention {
	if w.blind {
		return protocol.Retention{First: uint64(i.first)}
	}
	return protocol.Retention{Known: true, Evicts: i.evicts, First: uint64(i.first)}
}

// markers is what can happen to a delete marker.
func (w *repairWorld) markers() protocol.MarkerSafety {
	return protocol.MarkersCanVanish(protocol.MarkerRules{Purge: w.vanish}, 0)
}

// readRetention is what the shell tells the machine of the log's settings.
func (w *repairWorld) readRetention(s *repairState, relisted bool) {
	i := s.log.info()
	s.watch.evicts = s.watch.evicts || i.evicts
	in := machine.RetentionRead{Evicted: protocol.HasEvicted(w.retention(i)), Head: uint64(i.last)}
	if relisted {
		s.reread = false
		if in.Whole = w.listingIsWhole(i); !in.Whole {
			in.Owes = kv.OwesListing
		}
	}
	w.forge.read(&in)
	w.step(s, in)
}

func (w *repairWorld) listingIsWhole(i logInfo) bool {
	return protocol.ListingTruth(w.retention(i), false) == protocol.TruthYes
}

func (w *repairWorld) watched(s *repairState, kind repairKind) {
	switch kind {
	case repOpen:
		w.open(s)
	case repOpenFails:
		s.relisting = false
		w.step(s, machine.OpenFailed{End: machine.EndTransient, Err: errWatch})
	case repDeliver:
		w.deliver(s)
	case repProgress:
		if w.overrun(s) {
			w.expire(s)
			return
		}
		rev := s.log.last
		in := machine.Received{Segment: machine.Segment{Frontier: uint64(rev), Owes: w.gap(rev >= s.watch.base()+1)}}
		w.forge.segment(&in.Segment)
		s.watch.pos = rev
		w.step(s, in)
	case repWatchLost:
		w.lose(s)
		w.step(s, machine.WatchEnded{End: machine.EndTransient, Err: errWatch})
	}
}

// resumes puts the window kernel to a cursor.
func (w *repairWorld) resumes(s *repairState, after kv.Cursor, lost lostFor) bool {
	r := protocol.Reopen{Cursor: after.Revision(), First: uint64(s.log.first()), Evicts: s.log.evicts}
	switch lost {
	case lostNow:
		r.Lost = 1
	case lostLong:
		r.Lost = protocol.ReopenGrace + 1
	}
	w.forge.reopen(&r)
	return protocol.ReopenIsWhole(r)
}

func (w *repairWorld) open(s *repairState) {
	after := s.p.opening.After
	if s.p.opening.Relist && !w.forge.relistDropped {
		after = kv.Cursor{}
	}
	s.relisting = false
	if !after.IsNone() && !w.resumes(s, after, s.lost) {
		w.step(s, machine.OpenFailed{End: machine.EndExpired, Err: errWatch})
		return
	}
	i := s.log.info()
	s.watch = repairWatch{pos: uint8(after.Revision()), evicts: i.evicts}
	in := machine.Opened{Head: uint64(i.last), Backlog: uint64(i.last) - min(uint64(i.last), after.Revision()), Evicted: protocol.HasEvicted(w.retention(i))}
	if after.IsNone() {
		s.watch.floor, in.Backlog = i.last, uint64(i.keys)
		if !w.listingIsWhole(i) || i.evicts {
			in.Owes = kv.OwesListing
		}
		listed := uint64(s.listed)
		w.forge.listed(&listed)
		gap := protocol.Gap{Missing: listed != 0 && uint64(i.last) > listed, Markers: w.markers()}
		if protocol.GapNeedsAudit(gap) {
			in.Owes |= kv.OwesMarkers
		}
	}
	s.lost = lostNot
	w.forge.opened(&in)
	w.step(s, in)
}

// gap is what a delivery owes that left something out.
func (w *repairWorld) gap(missing bool) kv.Owes {
	if protocol.GapNeedsAudit(protocol.Gap{Missing: missing, Markers: w.markers()}) {
		return kv.OwesMarkers
	}
	return 0
}

// deliver hands out the next message, and looks at the log before one that comes after a gap.
func (w *repairWorld) deliver(s *repairState) {
	rev := s.log.after(s.watch.pos)
	if rev > s.watch.pos+1 && rev > s.watch.floor && w.overrun(s) {
		w.expire(s)
		return
	}
	m := s.log.written[rev]
	c := changeOf(m.key(), rev, m.deletes())
	seg := segmentOf(c).received()
	if rev > s.watch.floor {
		seg.Owes = w.gap(rev != s.watch.base()+1)
	}
	w.forge.segment(&seg)
	s.watch.pos = rev
	w.step(s, machine.Received{Segment: seg})
}

func (w *repairWorld) overrun(s *repairState) bool {
	s.watch.evicts = s.watch.evicts || s.log.evicts
	evicts, base, first := s.watch.evicts, uint64(s.watch.base()), uint64(s.log.first())
	w.forge.live(&evicts, &base, &first)
	return protocol.LiveGapIsExpiry(evicts, base, first)
}

func (w *repairWorld) expire(s *repairState) {
	if w.forge.plansEarly {
		s.mend.early, s.mend.rows, s.mend.cursor = true, s.disk.rows, s.disk.cursor
	}
	w.lose(s)
	w.step(s, machine.WatchEnded{End: machine.EndExpired, Err: errWatch})
}

// lose notes that a live watch has ended, whose successor continues it unless the log could evict meanwhile.
func (w *repairWorld) lose(s *repairState) {
	if !s.watch.evicts || w.forge.continues {
		s.lost = lostNow
	}
}

// progresses reports whether the watch may name the log's end: nothing is left to hand out.
func (w *repairWorld) progresses(s *repairState) bool {
	f := protocol.Frontier{Head: uint64(s.log.last), Current: uint64(s.watch.pos)}
	if s.log.after(s.watch.pos) != 0 {
		f.Pending = 1
	}
	return protocol.FrontierMayAdvance(f)
}
