package protocol

// FenceKeys is how many reserved keys a bucket's fence record is written to, all at once. While a replicated log has a
// write with a check in flight it refuses every other one that checks the same key, so writes take the keys in turn: it
// is twice the writes that may be in flight. It is the same for every bucket, whatever its replicas are: were it one of
// the bucket's settings, a Fence that had read an older one would leave keys unwritten that other writers check.
const FenceKeys = 64

// FenceSeen is a bucket's fence record as a read showed it. A read proves nothing of the record that stands: a leader
// that is cut off from the others answers reads for seconds from an older log. What it shows of the record at Revision is
// true all the same, since a message of a log never changes.
type FenceSeen struct {
	// Present: there is a record. Readable: it is one that can be read.
	Present, Readable bool
	// Holds: its token is the one that the writer presents, the empty one for a writer that presents none.
	Holds bool
	// Revision is the record's: that of the first of its keys.
	Revision uint64
}

// FencedStep is what a writer does next.
type FencedStep uint8

const (
	// FencedUnknown: what stands can't be told, so nothing is written.
	FencedUnknown FencedStep = iota
	// FencedAbsent: the bucket has no record to present a token to, so nothing is written.
	FencedAbsent
	// FencedUnchecked: it writes without a check. The bucket was not fenced, and no check could say so: a log that lost its
	// record would pass one that expects none.
	FencedUnchecked
	// FencedWrite: it writes, and has the log check that the record at Revision still stands.
	FencedWrite
	// FencedProve: the record has another token. Before anybody is told, a write of nothing proves that it stands.
	FencedProve
)

func (s FencedStep) String() string {
	return [...]string{"unknown", "absent", "unchecked", "write", "prove"}[s]
}

// PlanFenced (plan_fenced) decides what a writer does that presents a token, or none, after it has read the fence record.
func PlanFenced(presents bool, s FenceSeen) FencedStep {
	switch {
	case !s.Present && presents:
		return FencedAbsent
	case !s.Present:
		return FencedUnchecked
	case !s.Readable || s.Revision == 0:
		return FencedUnknown
	case s.Holds:
		return FencedWrite
	}
	return FencedProve
}

// FenceCheck is what the nth write of a process asks of the log: which of the fence's keys is checked, and which revision
// it must have. The keys were written in one batch, so their revisions follow each other.
func FenceCheck(revision, n uint64) (key int, expect uint64) {
	i := n % FenceKeys
	return int(i), revision + i
}

// CheckRefused is a write that the log refused because of a revision, and what a read showed of the checked key afterwards.
type CheckRefused struct {
	// Expected is the revision that the write asked the key to have.
	Expected uint64
	// Found is the one that it was read to have, 0 for none.
	Found uint64
}

// CheckMoved (check_moved) reports whether the key was written since, so that the fence record is to be read anew. Else the
// refusal has another reason, or the read is of an older log than the refusal: the same write may be sent again. A key
// that is gone has moved, too.
func CheckMoved(r CheckRefused) bool { return r.Found == 0 || r.Found > r.Expected }

// FenceProof is a write of nothing that was to prove that a record stands.
type FenceProof struct {
	// Stored: the log acknowledged it. Expected is the record's revision that it asked for.
	Stored   bool
	Expected uint64
}

// FenceProved (fence_proved) reports whether an answer about the record that was seen may be given: that its token locks
// a writer out, or that it is installed already. The proof is sent after the request came, so the record stood at a moment
// since then.
func FenceProved(s FenceSeen, p FenceProof) bool {
	return s.Present && s.Readable && p.Stored && p.Expected != 0 && p.Expected == s.Revision
}

// FenceInstall is what a Fence does next.
type FenceInstall uint8

const (
	// FenceWrites: it writes the record, whatever stands, so that the newest Fence of the log stands.
	FenceWrites FenceInstall = iota
	// FenceProves: the token seems to be installed. Once that is proved, nothing is to be changed.
	FenceProves
)

// PlanFence (plan_fence) decides what a Fence does after it has read the record; Holds is that of its own token.
func PlanFence(s FenceSeen) FenceInstall {
	if s.Present && s.Readable && s.Holds && s.Revision != 0 {
		return FenceProves
	}
	return FenceWrites
}

// FenceTail is a place in the log where a record is known to stand: a write that asked for the record Fence was stored at
// revision Tail, and the log acknowledged it.
type FenceTail struct{ Fence, Tail uint64 }

// FenceFollows (fence_follows) reports whether a write that asks for the log's last revision to be t.Tail asks for the fence
// record with it: if nothing was written since, no Fence was. Only an acknowledged revision can be asked for. One that was
// read, or foreseen, may be another message's.
func FenceFollows(t FenceTail, fence uint64) bool {
	return fence != 0 && t.Fence == fence && t.Tail > fence
}
