package models

import (
	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// repairForge is what a mutation does: it forges what a kernel is asked, changes what goes into the machine or comes out of
// it, or leaves a step of the repair out. The zero value does nothing.
type repairForge struct {
	onStart      func(resume *kv.Cursor, owed *kv.Owed, s *repairState)
	onRepair     func(*machine.Repair)
	onCommit     func(*machine.Flush)
	onRead       func(*machine.RetentionRead)
	onOpened     func(*machine.Opened)
	onSegment    func(*machine.Segment)
	onOutcome    func(*machine.Repaired, *mending)
	onReopen     func(*protocol.Reopen)
	onLive       func(evicts *bool, base, first *uint64)
	onListed     func(*uint64)
	onTruth      func(r *protocol.Retention, memo *bool, again bool)
	onPlan       func(*protocol.PlanInput)
	onCursorless func(mode *protocol.RepairMode, source, hasData *bool, t *protocol.Truth)
	onSettles    func(before *uint64)
	onAllowed    func(art, local *protocol.Position, log *protocol.LogBounds)
	onKey        func(local, art *protocol.KeyState, same, listed *bool)

	// ignoresRows: a repair's changes are committed whatever row they were decided on.
	ignoresRows bool
	// requeuesBacklog: before a repair, a flush that failed is put behind it.
	requeuesBacklog bool
	// plansEarly: a repair sees the fold as it was when the watch ended.
	plansEarly bool
	// relistDropped: the watch after a re-list begins after the cursor.
	relistDropped bool
	// toldFirst: a repair's outcome is told before its changes are folded.
	toldFirst bool
	// logFirst: the artifact is judged by the log as it was before artifacts were listed.
	logFirst bool
	// continues: a lost watch is continued on any log that evicts nothing now.
	continues bool
	// notOvertaken: a repair goes on though the fold was told of evictions since it was asked for.
	notOvertaken bool
	// looksOnce: the log is not looked at again after the listing of a restore. asksNot: nor asked for a watch.
	looksOnce, asksNot bool
}

func (f *repairForge) start(resume *kv.Cursor, owed *kv.Owed, s *repairState) {
	if f.onStart != nil {
		f.onStart(resume, owed, s)
	}
}

func (f *repairForge) outcome(r *machine.Repaired, m *mending) {
	if f.onOutcome != nil {
		f.onOutcome(r, m)
	}
}

func (f *repairForge) live(evicts *bool, base, first *uint64) {
	if f.onLive != nil {
		f.onLive(evicts, base, first)
	}
}

func (f *repairForge) truth(r *protocol.Retention, memo *bool, again bool) {
	if f.onTruth != nil {
		f.onTruth(r, memo, again)
	}
}

func (f *repairForge) cursorless(mode *protocol.RepairMode, source, hasData *bool, t *protocol.Truth) {
	if f.onCursorless != nil {
		f.onCursorless(mode, source, hasData, t)
	}
}

func (f *repairForge) allowed(art, local *protocol.Position, log *protocol.LogBounds) {
	if f.onAllowed != nil {
		f.onAllowed(art, local, log)
	}
}

func (f *repairForge) key(local, art *protocol.KeyState, same, listed *bool) {
	if f.onKey != nil {
		f.onKey(local, art, same, listed)
	}
}

func (f *repairForge) repair(r *machine.Repair)      { forged(f.onRepair, r) }
func (f *repairForge) commit(fl *machine.Flush)      { forged(f.onCommit, fl) }
func (f *repairForge) read(r *machine.RetentionRead) { forged(f.onRead, r) }
func (f *repairForge) opened(o *machine.Opened)      { forged(f.onOpened, o) }
func (f *repairForge) segment(s *machine.Segment)    { forged(f.onSegment, s) }
func (f *repairForge) reopen(r *protocol.Reopen)     { forged(f.onReopen, r) }
func (f *repairForge) listed(rev *uint64)            { forged(f.onListed, rev) }
func (f *repairForge) plan(p *protocol.PlanInput)    { forged(f.onPlan, p) }
func (f *repairForge) settles(before *uint64)        { forged(f.onSettles, before) }

func forged[T any](f func(*T), v *T) {
	if f != nil {
		f(v)
	}
}
