// Package machine is the watch loop as a pure state machine: Step takes one input and says what to do next. It has
// no goroutine, clock or I/O, and does not see keys or values, so the model checker runs the very code that ships.
// The shell in package fold turns effects into calls and their results into inputs.
//
// What it holds to: a flush's hooks return before its store apply begins, the store apply before the cursor is
// reported; one flush at a time, in delivery order; a flush that failed is retried as it was, before anything newer,
// and hooks that have returned are not run again; the cursor goes back only where a repair says so.
package machine

import (
	"slices"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Config is the machine's fixed part.
type Config struct {
	// HasStore: flushes are committed to a store; without one, hooks are all there is.
	HasStore bool
	// Windowed: a flush waits for its window or for MaxUpdates; else it begins as soon as the last one is done.
	Windowed bool
	// MaxUpdates and MaxBytes bound one receive, and so one flush of one receive; at least 1.
	MaxUpdates, MaxBytes int
	// BulkUpdates and BulkBytes take their place until the fold is hydrated, when it begins at least BulkUpdates
	// revisions behind. A receive then gathers that much, as long as the log says that more is to come.
	BulkUpdates, BulkBytes int
	// QueueUpdates and QueueBytes bound what is received and not yet in a flush: a receive is only asked for below them.
	// A flush's own bound takes their place where it is larger.
	QueueUpdates, QueueBytes int
	// MaxFailures is how many times in a row one flush's hooks or store apply may fail before the loop stops.
	MaxFailures int
	// CanRepair: a watch that ended for good goes to Repair, as does a start without a cursor, and what is owed is
	// audited. Else the loop stops with the watch's error. It needs a store.
	CanRepair bool
}

// Phase is where the loop is, for status.
type Phase uint8

const (
	PhaseOpening Phase = iota
	PhaseWatching
	// PhaseWaiting: no watch, a new one is tried after a while.
	PhaseWaiting
	// PhaseRepairing: the cursor is no resume position any more.
	PhaseRepairing
	PhaseStopping
	PhaseStopped
)

func (p Phase) String() string {
	return [...]string{"opening", "watching", "waiting", "repairing", "stopping", "stopped"}[p]
}

// M is the machine's state. Copy it with Clone.
type M struct {
	cfg   Config
	phase Phase

	committed kv.Cursor // in the store, or, without one, hooks returned
	seen      kv.Cursor // received: what a re-opened watch resumes after
	memo      bool      // cursors carry SeenEvicting from now on
	owed      kv.Owed   // with what was received; what is committed is in stored
	stored    kv.Owed
	head      uint64 // the log's end when the current watch began
	headKnown bool
	relisting bool // the current watch began with every current value
	caughtUp  bool // with the current watch's head
	hydrated  bool // it was so once
	bulk      bool // far behind, until caught up
	bulked    bool // a bulk flush is committed since it was caught up last

	pending        []Segment
	pendingUpdates int
	pendingBytes   int
	windowArmed    bool
	windowOver     bool

	receiving  bool // a Receive is out
	openTries  int  // since something was last received
	flush      Flush
	stage      stage
	failures   int
	retryArmed bool

	ended     bool // no watch without a repair; set until the queue is flushed
	end       error
	endKind   End
	repairing bool     // a Repair is out
	since     kv.Owed  // told since it was asked for
	decided   bool     // outcome waits for the flush in progress, to be taken over
	outcome   Repaired // what the last repair came to
	reopen    bool     // a watch opens there once it is committed
	newLog    bool     // what is remembered of the log is to be committed with it
	stopWith  error    // what a stop that waits for a commit stops with

	auditing   bool // an Audit is out
	overtaken  bool // a repair or a watch that owes began since, so it settles and tells nothing any more
	auditArmed bool
	auditDue   bool
	unproven   bool // no audit settles what is owed
}

type stage uint8

const (
	stageIdle stage = iota
	stageHooks
	stageStore
)

// New is a machine that resumes after the given cursor, with the mark that was committed beside it, and its first
// effects.
func New(cfg Config, resume kv.Cursor, owed kv.Owed) (*M, []Effect) {
	m := &M{cfg: cfg, committed: resume, seen: resume, memo: resume.SeenEvicting, owed: owed, stored: owed}
	return m, m.proceed(m.begin(nil))
}

// Clone is an independent copy.
func (m *M) Clone() *M {
	c := *m
	c.pending = slices.Clone(m.pending)
	c.flush.Segments = slices.Clone(m.flush.Segments)
	return &c
}

// Phase is where the loop is.
func (m *M) Phase() Phase { return m.phase }

// Committed is the cursor of the last flush that is done.
func (m *M) Committed() kv.Cursor { return m.committed }

// Hydrated reports whether the fold once had all that the log held when a watch began.
func (m *M) Hydrated() bool { return m.hydrated }

// Failures is the current flush's failures in a row.
func (m *M) Failures() int { return m.failures }

// Step takes one input and appends what to do to out. After a Stop effect it does nothing more.
func (m *M) Step(in Input, out []Effect) []Effect {
	if m.phase == PhaseStopped {
		return out
	}
	switch in := in.(type) {
	case Opened:
		out = m.opened(in, out)
	case OpenFailed:
		out = m.watchGone(in.End, in.Err, out)
	case Received:
		m.received(in.Segment)
	case WatchEnded:
		m.receiving = false
		if m.phase == PhaseWatching {
			out = append(out, CloseWatch{})
			out = m.watchGone(in.End, in.Err, out)
		}
	case RetentionRead:
		m.retention(in.Evicted)
		m.owes(in.Owes, in.Head)
		m.listed(in.Whole)
	case Injected:
		m.injected(in.Segment)
	case HooksDone:
		out = m.hooksDone(in, out)
	case StoreDone:
		out = m.storeDone(in, out)
	case Repaired:
		out = m.repaired(in, out)
	case RepairFailed:
		m.repairing = false
		out = m.watchGone(EndTransient, in.Err, out)
	case Audited:
		out = m.audited(in, out)
	case TimerFired:
		out = m.timer(in.Timer, out)
	case Shutdown:
		out = m.shutdown(out)
	case DeadlinePassed:
		return m.stop(&ShutdownError{Committed: m.committed, Pending: m.pendingUpdates + m.flush.Updates}, out)
	}
	return m.proceed(out)
}

func (m *M) opened(in Opened, out []Effect) []Effect {
	if m.phase == PhaseStopping {
		return append(out, CloseWatch{})
	}
	m.phase = PhaseWatching
	m.head, m.headKnown, m.caughtUp = in.Head, true, false
	m.retention(in.Evicted)
	m.owes(in.Owes, in.Head)
	m.overtaken = true // the log may have lost its end meanwhile, and have been written again
	m.bulk = !m.cfg.Windowed && in.Backlog >= uint64(m.cfg.BulkUpdates)
	return m.noteCaughtUp(out)
}

// watchGone takes the end of a watch, or of the attempt to open one.
func (m *M) watchGone(end End, err error, out []Effect) []Effect {
	if m.phase == PhaseStopping {
		return out
	}
	if end == EndTransient {
		m.phase = PhaseWaiting
		out = append(out, Arm{Timer: TimerOpen, Attempt: m.openTries})
		m.openTries++
		return out
	}
	m.phase = PhaseRepairing
	m.ended, m.end, m.endKind = true, err, end
	return out
}

func (m *M) received(s Segment) {
	m.receiving = false
	m.openTries = 0
	rev := protocol.NextCursor(protocol.CursorStep{Current: m.seen.Revision(), High: s.High.Rank(), Frontier: s.Frontier})
	m.seen = moved(m.seen, rev, s)
	m.retention(s.Evicted)
	m.owes(s.Owes, rev)
	m.enqueue(s)
}

func (m *M) enqueue(s Segment) {
	m.pending = append(m.pending, s)
	m.pendingUpdates += s.Updates
	m.pendingBytes += s.Bytes
}

// moved is c at revision rev, with the time of the segment's last message when that is what moved it.
func moved(c kv.Cursor, rev uint64, s Segment) kv.Cursor {
	if rev == c.Revision() {
		return c
	}
	c.Version = kv.Revision(rev)
	if c.SeenEvicting {
		c.WrittenAt = 0
		if rev == s.High.Rank() {
			c.WrittenAt = s.HighMillis
		}
	}
	return c
}

func (m *M) hooksDone(in HooksDone, out []Effect) []Effect {
	if in.Err != nil {
		return m.failed(in.Err, in.Fatal, out)
	}
	m.failures = 0
	if m.cfg.HasStore {
		m.stage = stageStore
		return append(out, ApplyStore{Flush: m.flush})
	}
	return m.flushDone(out)
}

func (m *M) storeDone(in StoreDone, out []Effect) []Effect {
	if in.Err != nil {
		return m.failed(in.Err, in.Fatal, out)
	}
	return m.flushDone(out)
}

func (m *M) failed(err error, fatal bool, out []Effect) []Effect {
	m.failures++
	if fatal {
		return m.stop(err, out)
	}
	if m.failures >= m.cfg.MaxFailures {
		what := FailedHooks
		if m.stage == stageStore {
			what = FailedStore
		}
		return m.stop(&FailStopError{What: what, Failures: m.failures, Cursor: m.committed, Err: err}, out)
	}
	m.retryArmed = true
	return append(out, Arm{Timer: TimerRetry, Attempt: m.failures - 1})
}

func (m *M) flushDone(out []Effect) []Effect {
	moved := m.committed != m.flush.Cursor
	m.committed, m.stored = m.flush.Cursor, m.flush.Owed
	m.bulked = m.bulked || m.flush.Bulk
	m.failures = 0
	m.stage = stageIdle
	out = append(out, Committed{Flush: m.flush, Moved: moved})
	m.flush = Flush{}
	return m.noteCaughtUp(out)
}

func (m *M) noteCaughtUp(out []Effect) []Effect {
	if m.caughtUp || !m.headKnown || !protocol.Hydrated(m.committed.Revision(), m.head) {
		return out
	}
	relisted := m.relisting || m.owed.Why&kv.OwesListing != 0
	out = append(out, CaughtUp{Cursor: m.committed, First: !m.hydrated, Bulk: m.bulked, Relisted: relisted})
	m.caughtUp, m.hydrated, m.bulk, m.bulked = true, true, false, false
	return out
}

func (m *M) timer(t Timer, out []Effect) []Effect {
	switch t {
	case TimerOpen:
		if m.phase == PhaseWaiting {
			m.phase = PhaseOpening
			out = m.begin(out)
		}
	case TimerWindow:
		m.windowArmed, m.windowOver = false, len(m.pending) > 0
	case TimerAudit:
		m.auditArmed, m.auditDue = false, true
	case TimerRetry:
		if !m.retryArmed {
			break
		}
		m.retryArmed = false
		if m.stage == stageStore {
			out = append(out, ApplyStore{Flush: m.flush})
		} else {
			out = append(out, RunHooks{Flush: m.flush})
		}
	}
	return out
}

func (m *M) shutdown(out []Effect) []Effect {
	if m.phase == PhaseStopping {
		return out
	}
	m.phase = PhaseStopping
	return append(out, CloseWatch{})
}

func (m *M) stop(err error, out []Effect) []Effect {
	m.phase = PhaseStopped
	return append(out, CloseWatch{}, Stop{Cursor: m.committed, Err: err})
}

// proceed starts whatever the state allows.
func (m *M) proceed(out []Effect) []Effect {
	if m.phase == PhaseStopped {
		return out
	}
	if m.stage == stageIdle && m.shouldFlush() {
		out = m.startFlush(out)
	}
	if m.stage == stageIdle && len(m.pending) == 0 {
		out = m.settle(out)
	}
	if m.cfg.Windowed && len(m.pending) > 0 && !m.windowArmed && !m.windowOver && m.phase != PhaseStopping {
		m.windowArmed = true
		out = append(out, Arm{Timer: TimerWindow})
	}
	idle := m.stage == stageIdle && len(m.pending) == 0 && !m.receiving
	switch {
	case m.phase == PhaseStopping && idle:
		return m.stop(m.stopWith, out)
	case m.ended && idle:
		m.ended = false
		if !m.cfg.CanRepair {
			return m.stop(m.end, out)
		}
		out = m.repair(out)
	}
	out = m.audit(out)
	if m.phase == PhaseWatching && !m.receiving && m.queueHasRoom() {
		m.receiving = true
		updates, bytes := m.limits()
		out = append(out, Receive{Max: updates, MaxBytes: bytes, Gather: m.bulk})
	}
	return out
}

func (m *M) shouldFlush() bool {
	if len(m.pending) == 0 {
		return false
	}
	updates, bytes := m.limits()
	if m.pendingUpdates >= updates || m.pendingBytes >= bytes || m.phase != PhaseWatching {
		return true
	}
	return !m.cfg.Windowed || m.windowOver
}

// limits are the bounds of one flush now.
func (m *M) limits() (updates, bytes int) {
	if m.bulk {
		return m.cfg.BulkUpdates, m.cfg.BulkBytes
	}
	return m.cfg.MaxUpdates, m.cfg.MaxBytes
}

func (m *M) queueHasRoom() bool {
	updates, bytes := m.limits()
	return m.pendingUpdates < max(updates, m.cfg.QueueUpdates) && m.pendingBytes < max(bytes, m.cfg.QueueBytes)
}

// startFlush takes from the queue, in order, what fits one flush; at least one segment.
func (m *M) startFlush(out []Effect) []Effect {
	updates, bytes := m.limits()
	f := Flush{Cursor: m.committed, Owed: m.owed, Bulk: m.bulk}
	f.Cursor.SeenEvicting = m.memo
	n := 0
	for _, s := range m.pending {
		if n > 0 && (s.Alone || m.pending[n-1].Alone || f.Updates+s.Updates > updates || f.Bytes+s.Bytes > bytes) {
			break
		}
		n++
		f.Segments = append(f.Segments, s.ID)
		f.Updates += s.Updates
		f.Bytes += s.Bytes
		rev := protocol.NextCursor(protocol.CursorStep{Current: f.Cursor.Revision(), High: s.High.Rank(), Frontier: s.Frontier})
		f.Cursor = moved(f.Cursor, rev, s)
	}
	m.pending = slices.Delete(m.pending, 0, n)
	m.pendingUpdates -= f.Updates
	m.pendingBytes -= f.Bytes
	m.windowOver = false
	m.flush, m.stage, m.failures = f, stageHooks, 0
	return append(out, RunHooks{Flush: f})
}
