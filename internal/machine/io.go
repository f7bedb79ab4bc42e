package machine

import (
	"fmt"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

// Segment is one receive's updates, as the machine sees them: the shell keeps the updates under ID.
type Segment struct {
	ID      uint64
	Updates int
	Bytes   int
	// High is the highest known version in it; unknown when it has none.
	High kv.Version
	// HighMillis is the time of High's message, Unix milliseconds; 0 when not known.
	HighMillis uint64
	// Frontier is the delivery's frontier; 0 when it had none.
	Frontier uint64
	// Owes says why the fold can't be sure of what it holds once this is in it.
	Owes kv.Owes
	// Evicted: it shows that the log has evicted current values.
	Evicted bool
	// Alone: it is flushed by itself, after all that is before it.
	Alone bool
}

// Flush is what goes through hooks and store together.
type Flush struct {
	Segments []uint64
	Updates  int
	Bytes    int
	// Cursor is what its commit moves the cursor to, Owed the audit mark that stands beside it.
	Cursor kv.Cursor
	Owed   kv.Owed
	// Bulk: the fold is hydrating, from far behind.
	Bulk bool
}

// Input is something that happened.
type Input interface{ isInput() }

// Opened: the watch asked for is there.
type Opened struct {
	// Head is the log's last revision when it began, Backlog about how many updates are to come until then.
	Head, Backlog uint64
	// Evicted: the log can evict current values, and has.
	Evicted bool
	// Owes says why the fold can't be sure of what it holds when it has this watch's updates.
	Owes kv.Owes
}

// RetentionRead: the log's settings were read again.
type RetentionRead struct {
	Evicted bool
	// Owes is what follows from them, up to the log's last revision Head.
	Owes kv.Owes
	Head uint64
	// Whole: the log has never evicted anything, so no re-list of it can have lacked a value.
	Whole bool
}

// Injected: a repair or an audit adds changes, which move no cursor. Its commit is reported like every other.
type Injected struct{ Segment Segment }

// End is how a watch, or the attempt to open one, came to its end.
type End uint8

const (
	// EndTransient: another try may work.
	EndTransient End = iota
	// EndExpired: the log no longer holds everything after the cursor.
	EndExpired
	// EndLogChanged: the log is not the one that the cursor came from.
	EndLogChanged
	// EndNoCursor: there is no cursor to begin after.
	EndNoCursor
)

// OpenFailed: no watch came of the last OpenWatch.
type OpenFailed struct {
	End End
	Err error
}

// Received answers a Receive.
type Received struct{ Segment Segment }

// WatchEnded answers a Receive when there is nothing more to receive from this watch.
type WatchEnded struct {
	End End
	Err error
}

// HooksDone answers RunHooks. A fatal error is not retried.
type HooksDone struct {
	Err   error
	Fatal bool
}

// StoreDone answers ApplyStore. A fatal error is not retried.
type StoreDone struct {
	Err   error
	Fatal bool
}

// Repaired answers Repair: commit Cursor and Owed, then watch on from there, after a re-list where Relist says so; or
// stop with Err.
type Repaired struct {
	Cursor kv.Cursor
	Owed   kv.Owed
	Relist bool
	// NewLog: what is remembered of the log has changed, so there is something to commit in any case.
	NewLog bool
	Err    error
}

// RepairFailed answers Repair: another try may work.
type RepairFailed struct{ Err error }

// Audited answers Audit.
type Audited struct {
	// Before is the log's last revision when the audit began: what is owed up to there is settled.
	Before uint64
	// Unproven: no listing can settle it.
	Unproven bool
	// Contradiction: the log and the fold are not of one history.
	Contradiction error
	// Err: it did not come to its end; another follows.
	Err error
}

// Timer names a timer.
type Timer uint8

const (
	TimerOpen Timer = iota
	TimerRetry
	TimerWindow
	TimerAudit
)

// TimerFired: an armed timer is over.
type TimerFired struct{ Timer Timer }

// Shutdown: flush what was received, then stop.
type Shutdown struct{}

// DeadlinePassed: stop now, and say what was left.
type DeadlinePassed struct{}

func (Opened) isInput()         {}
func (OpenFailed) isInput()     {}
func (Received) isInput()       {}
func (WatchEnded) isInput()     {}
func (HooksDone) isInput()      {}
func (StoreDone) isInput()      {}
func (RetentionRead) isInput()  {}
func (Injected) isInput()       {}
func (Repaired) isInput()       {}
func (RepairFailed) isInput()   {}
func (Audited) isInput()        {}
func (TimerFired) isInput()     {}
func (Shutdown) isInput()       {}
func (DeadlinePassed) isInput() {}

// Effect is something to do.
type Effect interface{ isEffect() }

// OpenWatch: open a watch after the cursor; with Relist, one that delivers every current value first. It is answered
// by Opened or OpenFailed.
type OpenWatch struct {
	After  kv.Cursor
	Relist bool
}

// CloseWatch: close the watch if there is one. A Receive that is out is still answered.
type CloseWatch struct{}

// Receive: take what the watch has, at most so much. With Gather, go on taking until it is that much, or the log says
// that nothing more is to come. Answered by Received or WatchEnded.
type Receive struct {
	Max, MaxBytes int
	Gather        bool
}

// RunHooks: run the flush's hooks. Answered by HooksDone.
type RunHooks struct{ Flush Flush }

// ApplyStore: commit the flush, its cursor and its mark. Answered by StoreDone.
type ApplyStore struct{ Flush Flush }

// Committed: the flush is done; Moved says that the cursor moved.
type Committed struct {
	Flush Flush
	Moved bool
}

// CaughtUp: the fold has all that the log held when the watch began.
type CaughtUp struct {
	Cursor kv.Cursor
	// First: it has so for the first time, and is hydrated.
	First bool
	// Bulk: it came there by bulk flushes, after which a store may want to settle.
	Bulk bool
	// Relisted: the watch began with every current value, or one before it did and what it lacked is not known yet.
	Relisted bool
}

// Repair: the watch ended for good, or there is no cursor to begin one after, and everything received is flushed.
// Injected changes are committed under the cursor as it is. Answered by Repaired or RepairFailed.
type Repair struct {
	Committed kv.Cursor
	Owed      kv.Owed
	End       End
	Err       error
}

// Audit: find out whether the fold holds what was deleted, beside what goes on. Answered by Audited.
type Audit struct {
	Committed kv.Cursor
	Owed      kv.Owed
}

// Arm starts a timer; Attempt counts from 0 and makes it longer (Backoff).
type Arm struct {
	Timer   Timer
	Attempt int
}

// Stop: the loop is over. Err is nil after a clean shutdown.
type Stop struct {
	Cursor kv.Cursor
	Err    error
}

func (OpenWatch) isEffect()  {}
func (CloseWatch) isEffect() {}
func (Receive) isEffect()    {}
func (RunHooks) isEffect()   {}
func (ApplyStore) isEffect() {}
func (Committed) isEffect()  {}
func (CaughtUp) isEffect()   {}
func (Repair) isEffect()     {}
func (Audit) isEffect()      {}
func (Arm) isEffect()        {}
func (Stop) isEffect()       {}

// Backoff is the time before retry number attempt (from 0), without jitter: 50 ms doubling to 5 s.
func Backoff(attempt int) time.Duration {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	if attempt >= 7 {
		return most
	}
	return min(first<<max(attempt, 0), most)
}

// Failed names what failed too often.
type Failed string

const (
	FailedHooks Failed = "hooks"
	FailedStore Failed = "store apply"
)

// FailStopError ends a loop whose flush failed too many times in a row. The cursor covers nothing of that flush.
type FailStopError struct {
	What     Failed
	Failures int
	Cursor   kv.Cursor
	Err      error
}

func (e *FailStopError) Error() string {
	return fmt.Sprintf("%s failed %d consecutive times after cursor %v: %v", e.What, e.Failures, e.Cursor, e.Err)
}

func (e *FailStopError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *FailStopError) Hint() string {
	if e.What == FailedStore {
		return "reads still serve the fold as of the cursor; check the store's disk, then restart"
	}
	return "reads still serve the fold as of the cursor; the hook refuses the next batch, fix it, then restart"
}

// ShutdownError ends a loop whose last flush did not finish before the deadline.
type ShutdownError struct {
	Committed kv.Cursor
	// Pending is how many received updates are not committed. They come again at the next start.
	Pending int
}

func (e *ShutdownError) Error() string {
	return fmt.Sprintf("shutdown deadline passed with %d updates after cursor %v not committed; they come again at the next start", e.Pending, e.Committed)
}
