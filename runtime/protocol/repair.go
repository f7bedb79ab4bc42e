package protocol

// RepairMode is what a fold may do when its cursor is no resume position any more (the seed's ExpiryRepair).
type RepairMode uint8

const (
	// RepairAuto re-lists where the listing is the truth, and otherwise restores from an artifact.
	RepairAuto RepairMode = iota
	// RepairRelist only re-lists.
	RepairRelist
	// RepairRestore only restores from an artifact.
	RepairRestore
	// RepairOff stops the fold instead.
	RepairOff
)

func (m RepairMode) String() string {
	switch m {
	case RepairAuto:
		return "auto"
	case RepairRelist:
		return "relist"
	case RepairRestore:
		return "restore"
	default:
		return "off"
	}
}

// Cause is why a fold's cursor is no resume position.
type Cause uint8

const (
	// CauseExpired: the log no longer holds everything after the cursor.
	CauseExpired Cause = iota
	// CauseNoCursor: there is none.
	CauseNoCursor
	// CauseReplaced: the log was deleted and created anew.
	CauseReplaced
	// CauseRewound: the log lost its end.
	CauseRewound
)

func (c Cause) String() string {
	switch c {
	case CauseExpired:
		return "cursor expired"
	case CauseNoCursor:
		return "no cursor"
	case CauseReplaced:
		return "log replaced"
	default:
		return "log rewound"
	}
}

// Retention is what is known of what a log can take away by itself.
type Retention struct {
	// Known is false when the log can't say.
	Known bool
	// Evicts: it can take a key's current value.
	Evicts bool
	// Inside: it can take one from inside the log (a per-message TTL), so that First does not show what it took.
	Inside bool
	// First is the first retained revision; 0 for a log that never held a message.
	First uint64
}

// Truth answers whether a key that is not listed was deleted.
type Truth uint8

const (
	TruthUnknown Truth = iota
	TruthYes
	TruthNo
)

func (t Truth) String() string {
	switch t {
	case TruthYes:
		return "yes"
	case TruthNo:
		return "no"
	default:
		return "unknown"
	}
}

// ListingIsTruth (listing_is_truth) reports whether "not listed" means "deleted": retention never takes current values,
// or it can and has taken nothing yet; never once the fold has seen it take some, since a key that aged out then is
// missing from every later listing, whatever the settings say by now.
func ListingIsTruth(evicts bool, first uint64, seenEvicting bool) bool {
	return !seenEvicting && (!evicts || first <= 1)
}

// ListingTruth (listing_truth) is ListingIsTruth for a retention that may not be known, or may have taken values where
// the first revision does not show it. A log that never held a message has lost none, whatever it may take: the first node
// of a new bucket needs no artifact to begin with.
func ListingTruth(r Retention, seenEvicting bool) Truth {
	switch {
	case seenEvicting:
		return TruthNo
	case !r.Known:
		return TruthUnknown
	case r.Evicts && r.Inside && r.First > 0:
		return TruthNo
	case ListingIsTruth(r.Evicts, r.First, seenEvicting):
		return TruthYes
	}
	return TruthNo
}

// HasEvicted reports whether a reading of retention has to be remembered for good (the memo of kv.Cursor): it has taken
// current values, or may have from inside the log.
func HasEvicted(r Retention) bool {
	return r.Known && r.Evicts && (r.First > 1 || r.Inside && r.First > 0)
}

// Plan is what a repair does.
type Plan uint8

const (
	// PlanStop: nothing; the fold stops as it is.
	PlanStop Plan = iota
	// PlanRelist: delete what the bucket no longer lists, then read its current values anew.
	PlanRelist
	// PlanRestore: take over the newest artifact that is good for it, then resume from its cursor.
	PlanRestore
	// PlanAdopt: the listing of another log replaces everything.
	PlanAdopt
	// PlanRefuseRelist: a re-list was asked for where it would delete valid keys.
	PlanRefuseRelist
	// PlanNoSource: only an artifact can settle it, and there is no source of any.
	PlanNoSource
)

func (p Plan) String() string {
	return [...]string{"stop", "relist", "restore", "adopt", "refuse relist", "no restore source"}[p]
}

// PlanInput is what a repair is planned from.
type PlanInput struct {
	Cause Cause
	Mode  RepairMode
	// Source: there is a source of artifacts.
	Source bool
	// Adopt: the caller asked to follow a log that is not the one the fold came from.
	Adopt bool
	Truth Truth
}

// PlanRepair (plan_repair) chooses the repair. Another log is never followed unasked. A re-list is refused where it is
// known to delete valid keys, and chosen by itself only where it is known not to.
func PlanRepair(p PlanInput) Plan {
	switch {
	case p.Mode >= RepairOff:
		return PlanStop
	case p.Cause != CauseExpired && p.Cause != CauseNoCursor:
		if p.Adopt {
			return PlanAdopt
		}
		return PlanStop
	case p.Mode == RepairRelist && p.Truth == TruthNo:
		return PlanRefuseRelist
	case p.Mode == RepairRelist, p.Mode == RepairAuto && p.Truth == TruthYes:
		return PlanRelist
	case !p.Source:
		return PlanNoSource
	}
	return PlanRestore
}

// CursorlessStartNeedsRepair (cursorless_start_needs_repair) reports whether a start without a cursor can't simply read
// the bucket: the fold holds data, of which a re-list removes nothing; or the listing is not the truth, and there is an
// artifact to begin with instead. The seed goes on without a repair when none is armed; here that is PlanStop.
func CursorlessStartNeedsRepair(m RepairMode, source, hasData bool, t Truth) bool {
	if hasData {
		return true
	}
	return (m == RepairAuto || m == RepairRestore) && source && t != TruthYes
}

// Position is a revision and the log that it belongs to, named by its creation time in Unix nanoseconds; 0 is a log
// that was not noted.
type Position struct {
	Log      int64
	Revision uint64
}

// comparable reports whether the positions may be of one log.
func (p Position) comparable(log int64) bool { return p.Log == 0 || log == 0 || p.Log == log }

// RestoreAhead (restore_ahead) reports whether an artifact is strictly ahead of a fold, so that a restore never moves
// it back. Positions of two logs have no order; a fold without a cursor is behind every artifact.
func RestoreAhead(artifact, local Position) bool {
	if artifact.Revision <= local.Revision {
		return false
	}
	return local.Revision == 0 || artifact.comparable(local.Log)
}

// LogBounds are a log's creation time and its first and last retained revision.
type LogBounds struct {
	Log         int64
	First, Last uint64
}

// RestoreAllowed (restore_allowed) reports whether a fold may be replaced by an artifact: it is ahead of the fold, both
// are of the log that is there, and the resume from it will have no gap.
func RestoreAllowed(artifact, local Position, log LogBounds) bool {
	return RestoreAhead(artifact, local) && artifact.comparable(log.Log) && local.comparable(log.Log) &&
		artifact.Revision <= log.Last && ResumeWindowOK(artifact.Revision, log.First)
}

// KeyState is one side of a key; Revision is 0 when it is not known.
type KeyState struct {
	Present  bool
	Revision uint64
}

// KeyRestore is what a restore does with a key.
type KeyRestore uint8

const (
	RestoreKeep KeyRestore = iota
	RestoreTake
	RestoreDelete
)

func (k KeyRestore) String() string { return [...]string{"keep", "take", "delete"}[k] }

// RestoreKey (restore_key) decides one key of a restore: the artifact's entry is taken unless the local one is known to
// be newer, and a key that the artifact lacks is deleted unless the bucket lists it. In both cases that keep the local
// entry the key's latest message is after the artifact's cursor, so the resume delivers it. An artifact's entry of
// unknown revision is no older than its cursor's fold, so it is taken too. Two entries are identical when their revisions
// are, too.
func RestoreKey(local, artifact KeyState, identical, listed bool) KeyRestore {
	switch {
	case !artifact.Present && (!local.Present || listed):
		return RestoreKeep
	case !artifact.Present:
		return RestoreDelete
	case local.Present && (identical || artifact.Revision != 0 && local.Revision > artifact.Revision):
		return RestoreKeep
	}
	return RestoreTake
}
