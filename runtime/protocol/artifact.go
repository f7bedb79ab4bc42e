package protocol

import (
	"math"
	"math/bits"
)

// PointerState is what was found in the place of an artifact's pointer (the seed's PointerState).
type PointerState struct {
	Present bool
	// Readable is false for a pointer that can't be parsed.
	Readable bool
	// At is the position of the artifact that it names; a manifest of schema 1 or 2 notes no log.
	At Position
}

// lost reports whether live, a log and its last revision, is known not to have the position: it is of another log, or past
// the log's end.
func lost(p, live Position) bool {
	if live.Log == 0 {
		return false
	}
	answer := LogIsSame(LogSeen{NotedCreated: p.Log, Created: live.Log, Cursor: p.Revision, Last: live.Revision})
	return answer == LogReplaced || answer == LogRewound
}

// PointerPublishAllowed (pointer_publish_allowed) reports whether the pointer may be replaced by one to candidate. live is
// the log that is there now and its last revision, read from its leader after the pointer was read, which is what makes a
// pointer past its end a lost one and not a newer one; the zero Position when it can't be read.
//
// An open slot is taken, and a corrupt pointer is no wedge. Within a log the pointer never goes back, and what is of a log
// that was not noted is compared by revision alone, as the seed does. A pointer that the live log does not have is of no
// use to anybody, so it never blocks an artifact of the live log; and an exporter of a log that is gone never takes the
// place of one of the live log.
func PointerPublishAllowed(current PointerState, candidate, live Position) bool {
	if !current.Present || !current.Readable {
		return true
	}
	currentLost, candidateLost := lost(current.At, live), lost(candidate, live)
	switch {
	case candidateLost && !currentLost:
		return false
	case currentLost && !candidateLost && candidate.Log == live.Log:
		return true
	}
	return candidate.comparable(current.At.Log) && candidate.Revision >= current.At.Revision
}

// Payload is what is known of one stored payload.
type Payload struct {
	// Ranked: its name says its revision, At.Revision. At.Log is 0 where nothing says its log: names don't.
	Ranked bool
	At     Position
	// Target: the pointer names it. Kept: it is one of the generations to keep.
	Target, Kept bool
	// AgedOut and LongAgedOut: it is older than the first, and than the second, of PruneGrace.
	AgedOut, LongAgedOut bool
}

// PayloadPrunable (payload_prunable) reports whether a payload may be deleted. live is as in PointerPublishAllowed, read
// after the payloads were listed and the pointer was read.
//
// What is deleted must never be published afterwards, by an exporter that had uploaded it and was slow: so a payload goes
// only where PointerPublishAllowed will refuse it. While the pointer is on the live log that is so for every payload below
// the pointer, whatever log it is of, and for every payload of another log. While the pointer is lost nothing goes: the
// rank of the next one may be below all that is there.
//
// Two cases have no such order, and rest on age, on a long one since nothing else speaks for them. A payload past the live
// log's end is of a log that is gone, or of an end that was lost, and in the second case the log may grow past it again.
// (A payload of another log between the pointer and the log's end waits for a later pointer.) And when the live log can't
// be read, the pointer may be the one that is lost. A log that goes back, rewound or restored from a backup, also opens
// the pointer to older positions again; there the usual grace alone keeps what is still being published.
func PayloadPrunable(p Payload, pointer PointerState, live Position) bool {
	switch {
	case p.Target, p.Kept, !p.Ranked, !p.AgedOut, !pointer.Present, !pointer.Readable, lost(pointer.At, live):
		return false
	case live.Log == 0:
		return p.LongAgedOut && p.At.comparable(pointer.At.Log) && p.At.Revision < pointer.At.Revision
	case !p.At.comparable(live.Log), p.At.Revision < pointer.At.Revision:
		return true
	}
	return p.LongAgedOut && p.At.Revision > live.Revision
}

// longGrace is how old a payload gets, at least, before its age alone speaks for it: a day.
const longGrace = 24 * 60 * 60 * 1_000_000_000

// PruneGrace is how long payloads are left alone, given the export lease's TTL, all in nanoseconds: four TTLs, after which
// a round is over or was taken over; and a longer one for payloads without an order.
func PruneGrace(ttl int64) (grace, long int64) {
	grace = scale(4, uint64(max(ttl, 0)), 1)
	return grace, max(scale(4, uint64(grace), 1), longGrace)
}

// GenerationIsNewer orders published artifacts: those that the live log has are newer than all others, whose revisions
// mean nothing to it; then by revision, then by log. It is a strict order, so that "the last N" means something.
func GenerationIsNewer(a, b, live Position) bool {
	if aLost, bLost := lost(a, live), lost(b, live); aLost != bLost {
		return bLost
	}
	if a.Revision != b.Revision {
		return a.Revision > b.Revision
	}
	return a.Log > b.Log
}

// Turnover is how fast a log loses its oldest revisions.
type Turnover struct {
	// MaxAge is how long a message is kept, in nanoseconds; 0 is for good.
	MaxAge int64
	// Revisions is how many were written in Over nanoseconds on a log that discards its oldest ones for new ones; 0 for a
	// log that does not.
	Revisions uint64
	Over      int64
	// Room is how many more it takes before it discards the first one; 0 where it is full, or may be.
	Room uint64
}

const never = math.MaxInt64

// lose is how long the log takes to fill up and to discard that many of its oldest revisions. A log that is empty has shown
// nothing of how many it holds.
func (t Turnover) lose(log LogBounds, revisions uint64) int64 {
	if t.Revisions == 0 || t.Over <= 0 || log.First == 0 || log.First > log.Last {
		return never
	}
	return scale(revisions+min(t.Room, math.MaxUint64-revisions), uint64(t.Over), t.Revisions)
}

// ExportPeriod is how often to export so that a node can always be restored: a quarter of the shorter one of MaxAge and of
// the time in which the log is written anew, so that three rounds in a row may fail; within least and most. Where least
// is the longest of them it wins, and RestoreImpossibleAt tells what that means. Nanoseconds.
func ExportPeriod(t Turnover, log LogBounds, least, most int64) int64 {
	shortest := int64(never)
	if t.MaxAge > 0 {
		shortest = t.MaxAge
	}
	shortest = min(shortest, t.lose(log, log.Last-log.First+1))
	return max(least, min(most, shortest/4))
}

// LastExport is the newest published artifact.
type LastExport struct {
	At Position
	// Whole is a time, in Unix nanoseconds, before which nothing was written that the artifact does not have: the time of
	// its cursor's message, or of the export where that was at the log's end.
	Whole int64
}

// RestoreImpossibleAt is when, at the earliest and by the log's turnover so far, the log will have lost a revision that
// comes after the newest artifact, in Unix nanoseconds: from then on no node can be restored. It is now for an artifact
// that is of no use already; ok is false when nothing will take it away.
func RestoreImpossibleAt(e LastExport, log LogBounds, t Turnover, now int64) (at int64, ok bool) {
	rev := e.At.Revision
	if lost(e.At, Position{Log: log.Log, Revision: log.Last}) || !ResumeWindowOK(rev, log.First) {
		return now, true
	}
	left := int64(never)
	if t.MaxAge > 0 {
		next := e.Whole // when the first revision after the cursor was written, at the earliest
		if rev >= log.Last {
			next = now
		}
		left = max(0, t.MaxAge-max(0, now-next))
	}
	// Lost are rev+1 and all before it; the window rule says that first is at most rev+1.
	before := rev - (max(log.First, 1) - 1)
	left = min(left, t.lose(log, min(before, math.MaxUint64-1)+1))
	if left == never || now > never-left {
		return 0, false
	}
	return now + left, true
}

// scale is a*b/c, and the largest int64 where that is too large.
func scale(a, b, c uint64) int64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return never
	}
	q, _ := bits.Div64(high, low, c)
	return int64(min(q, never))
}

// LeaseSeen is what was found in a lease's place. Times are Unix seconds, as its record has them.
type LeaseSeen struct {
	// Present: the key has a value. Readable: it is a record.
	Present, Readable bool
	// Acquired and Expires are the record's, by its holder's clock; Stored is when the server stored it, 0 when not known.
	Acquired, Expires, Stored uint64
	Now                       uint64
}

// end is when the lease is over: at its expiry, or when it has lain there for as long as it was taken for. A holder whose
// clock is years ahead would otherwise stop the fleet's exports for years.
func (s LeaseSeen) end() uint64 {
	ttl := s.Expires - min(s.Acquired, s.Expires)
	if s.Stored == 0 || ttl > math.MaxUint64-s.Stored {
		return s.Expires
	}
	return min(s.Expires, s.Stored+ttl)
}

// LeaseStep is what to do about a lease.
type LeaseStep uint8

const (
	// LeaseLost: somebody holds it.
	LeaseLost LeaseStep = iota
	// LeaseCreate: nobody does; create the key.
	LeaseCreate
	// LeaseSteal: nobody does any more; replace what is there, at the version that was seen.
	LeaseSteal
)

func (s LeaseStep) String() string { return [...]string{"lost", "create", "steal"}[s] }

// NextLeaseStep decides what to do about a lease. It is live until its end; a value that is no record would otherwise
// stop the fleet's exports for good, so it is replaced as a corrupt pointer is. A clock that is wrong costs an export too
// many or too late, never more.
func NextLeaseStep(s LeaseSeen) LeaseStep {
	switch {
	case !s.Present:
		return LeaseCreate
	case s.Readable && s.end() > s.Now:
		return LeaseLost
	}
	return LeaseSteal
}
