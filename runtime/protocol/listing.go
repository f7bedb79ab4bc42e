package protocol

// Listing is what is known of a listing of a bucket's keys, and of the log before and after it was taken.
type Listing struct {
	// CreatedPlanned is the log's creation time when the plan was made, CreatedAfter the one after the listing.
	CreatedPlanned, CreatedAfter int64
	// HeadBefore and HeadAfter are the log's last revision around the listing; Highest is the highest one listed.
	HeadBefore, HeadAfter, Highest uint64
	// Listed counts the keys of the listing, those whose last message is a tombstone too.
	Listed uint64
	// KeysBefore and KeysAfter are how many keys the log said it held around the listing; 0 when it was not asked about
	// this scope.
	KeysBefore, KeysAfter uint64
}

// ListingPlausible (listing_plausible) reports whether a listing may be used as evidence: it is of the log that the plan
// was made for, the log did not go back meanwhile, and it has at least as many keys as the log says it holds.
func ListingPlausible(l Listing) bool {
	return l.CreatedPlanned == l.CreatedAfter &&
		l.HeadAfter >= l.HeadBefore && l.Highest <= l.HeadAfter &&
		l.Listed >= min(l.KeysBefore, l.KeysAfter)
}

// massDeleteFloor is how many deletions a repair may decide from one listing, however small the fold is.
const massDeleteFloor = 10

// NeedsSecondListing is the mass-delete brake: where a repair would delete more than ten keys and more than a fifth of
// the fold, a second listing is taken, and only what is missing from both goes.
func NeedsSecondListing(deletes, rows uint64) bool { return deletes > max(massDeleteFloor, rows/5) }

// MarkerRules are a log's settings that decide how long a delete marker stays in it.
type MarkerRules struct {
	// Purge: subjects can be purged; Delete: single messages can be deleted; Rollup: a message can take its key's others
	// with it, and be given a TTL of its own where MessageTTL allows it.
	Purge, Delete, Rollup bool
	// MessageTTL: messages, markers among them, can have a TTL of their own.
	MessageTTL bool
	// MarkerTTL is how long the server keeps the markers that it writes itself, in nanoseconds; 0 is that it writes none.
	MarkerTTL int64
}

// MarkerSafety is how far a log can be trusted to deliver each delete marker.
type MarkerSafety uint8

const (
	// MarkersUnsealed: a marker can vanish from inside the log at any time.
	MarkersUnsealed MarkerSafety = iota
	// MarkersLongLived: one can vanish, and leaves a marker of the server that stays for longer than the reader was away.
	MarkersLongLived
	// MarkersSealed: one only leaves from the log's head, which the window rule sees.
	MarkersSealed
)

func (m MarkerSafety) String() string {
	return [...]string{"unsealed", "long-lived", "sealed"}[m]
}

// MarkersCanVanish (markers_can_vanish) classifies a log whose reader may have missed what was written in the last away
// nanoseconds; 0 is not known. JetStream never takes DenyPurge back, so a sealed log stays sealed.
func MarkersCanVanish(r MarkerRules, away int64) MarkerSafety {
	switch {
	case r.Purge || r.Delete || r.Rollup:
		return MarkersUnsealed
	case !r.MessageTTL:
		return MarkersSealed
	case away > 0 && r.MarkerTTL >= away:
		return MarkersLongLived
	}
	return MarkersUnsealed
}

// Gap is what is known of revisions that a watch was not given.
type Gap struct {
	// Missing: a revision in scope may have been left out.
	Missing bool
	Markers MarkerSafety
	// AgedOut: an age-out marker was delivered with it. The server writes one for a delete marker that ages out, too, so
	// behind a gap it does not say that the key was not deleted.
	AgedOut bool
}

// GapNeedsAudit (gap_needs_audit) reports whether a delete marker may have vanished from the gap, so that the fold may
// hold a key that was deleted and owes an audit.
func GapNeedsAudit(g Gap) bool {
	switch {
	case !g.Missing || g.Markers == MarkersSealed:
		return false
	case g.Markers == MarkersLongLived:
		return g.AgedOut
	}
	return true
}

// AuditPlan is what can be done about an audit that is owed.
type AuditPlan uint8

const (
	AuditNone AuditPlan = iota
	// AuditList: a listing settles it.
	AuditList
	// AuditUnproven: only a restore settles it, since a key that is not listed may have aged out.
	AuditUnproven
)

func (p AuditPlan) String() string { return [...]string{"none", "list", "unproven"}[p] }

// PlanAudit decides how an owed audit is settled.
func PlanAudit(owed bool, t Truth) AuditPlan {
	switch {
	case !owed:
		return AuditNone
	case t == TruthYes:
		return AuditList
	}
	return AuditUnproven
}

// AuditSeen is one key as an audit sees it. The listing was taken while the log's last revision went from Before to
// After, and the fold had applied everything up to After when its row was read.
type AuditSeen struct {
	Before, After uint64
	// Row is the revision of the fold's row, Listed the one of the value that the listing has; 0 is none. A row of unknown
	// revision is given as 0 with HasRow.
	Row, Listed uint64
	HasRow      bool
	// RowTime and ListedTime are the server's times of the two messages, in Unix nanoseconds; 0 is not known.
	RowTime, ListedTime int64
}

// sameRevisionTwice reports whether one revision was seen with two messages, which happens only where a log went back and
// was written anew.
func (s AuditSeen) sameRevisionTwice() bool {
	return s.HasRow && s.Row == s.Listed && s.RowTime != 0 && s.ListedTime != 0 && s.RowTime != s.ListedTime
}

// AuditVerdict is what an audit makes of one key.
type AuditVerdict uint8

const (
	// AuditAgrees: nothing speaks against the row, or against there being none.
	AuditAgrees AuditVerdict = iota
	// AuditStale: the key was deleted, and its marker vanished before the fold saw it.
	AuditStale
	// AuditSuspect: the bucket listed a value that the fold does not have, or has an older one of. It may have been deleted
	// since; a read of the key's last message tells.
	AuditSuspect
	// AuditContradicts: the fold has a later value than the log had after it, so they can't be of one history: the log was
	// rewound.
	AuditContradicts
	// AuditUnsure: a row of unknown revision is not listed. It may have been written since; it is stale unless a read of the
	// key's last message gives a value.
	AuditUnsure
)

func (v AuditVerdict) String() string {
	return [...]string{"agrees", "stale", "suspect", "contradicts", "unsure"}[v]
}

// AuditKey judges one key of an audit. A row is judged only by what was there before the listing began, and nothing by
// what was written after it.
func AuditKey(s AuditSeen) AuditVerdict {
	switch {
	case s.Listed > s.After, !s.HasRow && s.Listed == 0:
		return AuditAgrees
	case !s.HasRow:
		return AuditSuspect
	case s.sameRevisionTwice():
		return AuditContradicts
	case s.Row == 0 && s.Listed == 0:
		return AuditUnsure
	case s.Row == 0, s.Row > s.Before, s.Row == s.Listed:
		return AuditAgrees
	case s.Listed == 0:
		return AuditStale
	case s.Listed > s.Row:
		return AuditSuspect
	}
	return AuditContradicts
}

// AuditSettles reports whether an audit whose listing began at revision before settles what is owed since revision owed:
// a marker that went missing later is not in its evidence.
func AuditSettles(before, owed uint64) bool { return owed <= before }

// SuspectIsMissing decides a suspect after its key's last message was read from the leader: the fold, which had applied
// everything up to applied when its row was read, should have had it. Either it missed a write or the log was rewound.
func SuspectIsMissing(lastIsValue bool, last, applied uint64) bool {
	return lastIsValue && last <= applied
}
