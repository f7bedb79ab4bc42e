package protocol

// Append is what one batch asks of the leader of its stream.
type Append struct {
	// Token is what the writer presents; "" is none.
	Token string
	// InSession: the batch came over a session, which was opened under fence SessionFence and lives no longer than that
	// fence. A one-shot has none.
	InSession    bool
	SessionFence uint64
	// HasMatch: the batch's first record must get number Match.
	HasMatch bool
	Match    uint64
}

// AppendSeen is what the leader knows at its assignment cursor, the one point where batches are admitted.
type AppendSeen struct {
	// Leads: the log has acknowledged a write under this leader's epoch, and the leader has neither ended nor been asked to.
	// While it is in trouble it admits still: what it admits is answered only when the log has it.
	Leads bool
	// Installed is the token as of the cursor, Fence the number of the fence that put it there, acknowledged or not.
	Installed string
	Fence     uint64
	// Cursor is the number that the next record gets, records in flight counted.
	Cursor uint64
}

// Admission is the decision on one batch.
type Admission uint8

const (
	// AppendUnavailable: this node can't decide.
	AppendUnavailable Admission = iota
	// AppendFenced: another token is installed, or a fence ended the session.
	AppendFenced
	// AppendMissed: the first record would get another number.
	AppendMissed
	// AppendAdmitted: the batch's records get the numbers from Cursor on.
	AppendAdmitted
)

// AdmitAppend decides on a batch. The token comes before the match, so that a writer that was locked out is never told
// to try another number. A session stays superseded when its token is installed again: only its one-shot siblings are
// admitted then, since equality is all that they state.
func AdmitAppend(a Append, s AppendSeen) Admission {
	switch {
	case !s.Leads:
		return AppendUnavailable
	case a.Token != s.Installed, a.InSession && a.SessionFence != s.Fence:
		return AppendFenced
	case a.HasMatch && a.Match != s.Cursor:
		return AppendMissed
	}
	return AppendAdmitted
}

// FenceInstalls reports whether a Fence with this token writes anything. An equal token is an idempotent no-op, the empty
// one on a stream without a token too.
func FenceInstalls(token, installed string) bool { return token != installed }

// Proof is a write of a leader that the log acknowledged: Sent is the leader's own count of events when it was sent.
type Proof struct {
	Sent uint64
}

// ProofCovers reports whether an answer that is true for this leader's state, to a request that came at the leader's event
// count requested, may be given: the leader led at some moment after the request came. A read proves no leadership, since
// a partitioned leader of the log answers reads for seconds.
func ProofCovers(p Proof, requested uint64) bool { return p.Sent > requested }

// FrameReply is what came of one frame.
type FrameReply uint8

const (
	// FrameUnknown: no answer came; it may be stored.
	FrameUnknown FrameReply = iota
	// FrameStored: the log acknowledged it.
	FrameStored
	// FrameRefused: the log refused it, and nothing of it is stored, now or later.
	FrameRefused
)

// PendingFrame is a frame whose fate is to be settled after its leader took the log over anew: from then on no frame of an
// earlier epoch can be stored any more.
type PendingFrame struct {
	Reply FrameReply
	// Place is where in the log it is if it is stored: the sequence that its chain check names, and one.
	Place uint64
	// Epoch and Base are the frame's own.
	Epoch, Base uint64
	// Fences: it is a fence frame, the one that installed fence Fence. Any other holds records, from Base on.
	Fences bool
	Fence  uint64
}

// PlaceSeen is what a read found from a frame's place on, after the takeover. The read proves nothing by itself: a
// partitioned leader of the log answers from an older log.
type PlaceSeen struct {
	// Opened is the log sequence of the frame that opened the new epoch.
	Opened uint64
	// Found is the log sequence of the first frame at the place or behind it; 0 when the read failed, or found none.
	Found uint64
	// Epoch, Base and Fence are that frame's: the leader who wrote it, and the state before its records.
	Epoch, Base, Fence uint64
}

// FrameFate is where a pending frame stands.
type FrameFate uint8

const (
	// FateUnknown: it may be stored.
	FateUnknown FrameFate = iota
	// FateStored: its batches are acknowledged.
	FateStored
	// FateAbsent: it is not stored and never will be.
	FateAbsent
)

// SettleFrame decides what became of a pending frame. A frame's place, epoch and base name it: a chain gives a place only
// once, and an epoch is one leader's. A place at the opening frame or behind it was never reached. Before it, a frame is
// always found, the opening one at the latest: a read that finds none is of an older log, and says nothing. A frame
// that is found behind the place says that the place is empty if the pending one's records, or its fence, are still to
// come there; else retention may have removed it.
func SettleFrame(f PendingFrame, at PlaceSeen) FrameFate {
	switch {
	case f.Reply == FrameStored:
		return FateStored
	case f.Reply == FrameRefused, f.Place >= at.Opened:
		return FateAbsent
	case at.Found < f.Place:
		return FateUnknown
	case at.Found == f.Place:
		if at.Epoch == f.Epoch && at.Base == f.Base {
			return FateStored
		}
		return FateAbsent
	case f.Fences && at.Fence >= f.Fence, !f.Fences && at.Base > f.Base:
		return FateUnknown
	}
	return FateAbsent
}
