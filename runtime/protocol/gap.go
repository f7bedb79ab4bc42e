package protocol

// GapAge is what is known of a gap between a known revision and the log's first retained one.
type GapAge struct {
	// AgeOnly: MaxAge is the log's only way to take a current value, so no per-message TTLs and no limit that discards
	// the oldest.
	AgeOnly bool
	// MaxAge is the log's age limit now, in nanoseconds; Noted is the one that it had when the known revision was read, 0
	// when age was not its only way then, or nobody noted it. A limit that was raised since took by the lower one.
	MaxAge, Noted int64
	// WrittenAt is the server's time of the known revision's message, or any later time before the first message that
	// may be missing was written; 0 is not known. Now is the server's time now; 0 is not known.
	WrittenAt, Now int64
}

// GapHoldsNoEviction (gap_holds_no_eviction) reports whether every message that the gap may have held is too young to
// have aged out, so that what is missing was superseded by a message that is still to come. Half of the limit is
// headroom for clock steps and leader changes; a clock that stands before WrittenAt proves nothing.
func GapHoldsNoEviction(g GapAge) bool {
	limit := min(g.MaxAge, g.Noted)
	if !g.AgeOnly || limit <= 0 || g.WrittenAt <= 0 || g.Now < g.WrittenAt {
		return false
	}
	return g.Now-g.WrittenAt <= limit/2
}
