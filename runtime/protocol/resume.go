package protocol

import "math"

// ResumeWindowOK (resume_window_ok) reports whether a log whose first retained revision is first still holds
// everything after cursor. JetStream does not refuse a start below its first revision, it silently starts later,
// so the check is the client's. A log that never held a message has first 0.
func ResumeWindowOK(cursor, first uint64) bool {
	if cursor == math.MaxUint64 {
		return true
	}
	return first <= cursor+1
}

// LiveGapIsExpiry reports whether a live watch that has everything up to base, on a log whose first retained revision is
// now first, must have lost something that nobody will deliver. A log that evicts no current values moves its head by
// supersession only: each message that is missing has a later one of its key, which is still to come; what an
// administrator took out by hand is for the audit of unsealed logs, as it is inside the log. Without this a burst over a
// few keys would end every watch that lags by one message (docs/adr/0006-supersession-is-no-expiry.md).
func LiveGapIsExpiry(evicts bool, base, first uint64) bool {
	return evicts && !ResumeWindowOK(base, first)
}

// ReopenGrace is how long after the end of a live watch, in nanoseconds, its successor is a continuation: 15 minutes,
// half of the age below which NATS's purge of delete markers leaves them alone by default.
const ReopenGrace = 15 * 60 * 1_000_000_000

// Reopen is what is known when a watch that was lost is opened again.
type Reopen struct {
	Cursor uint64
	// First is the log's first retained revision now.
	First uint64
	// Evicts: the log can evict current values.
	Evicts bool
	// Lost is how long ago a live watch of the same process stood at Cursor, in nanoseconds; 0 when there was none.
	Lost int64
}

// ReopenIsWhole reports whether a watch after Cursor will deliver all that is missing. Besides the window rule it is so for
// the successor of a live watch, within ReopenGrace, on a log that evicts nothing: what LiveGapIsExpiry says of a lag
// holds for a cut. A cold start has only the window rule: it does not know what happened to the log meanwhile.
func ReopenIsWhole(r Reopen) bool {
	if ResumeWindowOK(r.Cursor, r.First) {
		return true
	}
	return !r.Evicts && r.Lost > 0 && r.Lost <= ReopenGrace
}

// ResumeStart (resume_start_sequence) is the revision that a resume after cursor asks for; ok is false when there
// is none, which never wraps to the start of the log.
func ResumeStart(cursor uint64) (start uint64, ok bool) {
	if cursor == math.MaxUint64 {
		return 0, false
	}
	return cursor + 1, true
}

// ConsumerStartsAt reports whether a new consumer, whose creation reply names delivered as the revision before its
// first one, starts right after cursor. A larger value is JetStream's silent clamp: messages in between are gone.
func ConsumerStartsAt(cursor, delivered uint64) bool { return delivered == cursor }

// Frontier is what is known when a consumer may have delivered all of its scope.
type Frontier struct {
	// Head is the log's last revision, read from the leader before Pending was.
	Head uint64
	// Pending is the consumer's count of matching messages not yet delivered, from its leader.
	Pending uint64
	// Delivered is the consumer's own delivery count (the last consumer sequence that it handed out).
	Delivered uint64
	// Received is how many deliveries of this consumer the client has taken in, without a hole; what came after Delivered
	// was read may be among them.
	Received uint64
	// Current is the frontier so far.
	Current uint64
}

// FrontierMayAdvance (frontier_may_advance) reports whether everything in scope at or below Head has been received,
// so that a cursor may name Head though the last matching message is older: the head was read first, later nothing
// was pending, and every delivery up to then has arrived. It never moves a frontier back.
func FrontierMayAdvance(f Frontier) bool {
	return f.Pending == 0 && f.Received >= f.Delivered && f.Head > f.Current
}
