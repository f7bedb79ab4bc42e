package models

import (
	"fmt"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Cursor authority: one fold of a log that only grows, under a machine that is the one that ships. Hooks and store applies
// fail, or end the process before, after or amid what they do; watches are lost; versions can't be read.
//
// Each revision is of a key of its own, so that what was lost stays lost: what the store holds is a set of revisions.

// revs has a bit for each revision.
type revs uint16

func upTo(rev uint8) revs           { return revs(2)<<rev - 2 }
func (r revs) covers(all revs) bool { return all&^r == 0 }

type appliedState struct {
	p process
	// last is the log's last revision, pos what the watch has delivered, told what it has said of that, head where the log
	// ended when it began.
	last, pos, told, head uint8
	// The store, and what has been through hooks at any time.
	contents, hooked revs
	cursor           uint8
	// reported is the cursor that was told last.
	reported uint8
	// What may still happen.
	unknowns, faults, crashes, shutdowns uint8
	broken                               appliedBroken
}

// appliedBroken is what a transition has done that it must not.
type appliedBroken uint8

const (
	brokenHydrated appliedBroken = 1 << iota
	brokenTwice
	brokenCover
)

// appliedWorld is one configuration.
type appliedWorld struct {
	name                                       string
	revs, unknowns, faults, crashes, shutdowns uint8
	cfg                                        machine.Config
	forge                                      appliedForge
}

// appliedForge is what a mutation does to it.
type appliedForge struct {
	segment func(s *machine.Segment, of segment, w *appliedState)
	resume  func(c *kv.Cursor, s *appliedState)
	opened  func(*machine.Opened)
	probe   func(*protocol.Frontier)
	// commit changes what a store apply commits.
	commit func(f *machine.Flush, changes []change) []change

	dropsFailed, requeuesFailed, hooksSwallowed, storeFirst, ackFirst bool
}

type appliedAct struct {
	kind appliedKind
	// n updates are delivered, those of the mask unknown without a version.
	n, unknown uint8
	timer      machine.Timer
}

type appliedKind uint8

const (
	actChurn appliedKind = iota
	actOpen
	actOpenFails
	actDeliver
	actProgress
	actWatchLost
	actReceiveEnds
	actHooks
	actHooksFail
	actStore
	actStoreFails
	actStoreFailsAfter
	actCrashBefore
	actCrashAfter
	actCrashTorn
	actTimer
	actCrash
	actStart
	actShutdown
	actDeadline
)

var appliedNames = [...]string{"churn", "open", "open fails", "deliver", "progress", "watch lost", "receive ends", "hooks return", "hooks fail",
	"store applies", "store fails", "store applies and fails", "crash before apply", "crash after apply", "crash amid apply",
	"timer", "crash", "start", "shutdown", "deadline"}

func (a appliedAct) String() string {
	switch a.kind {
	case actDeliver:
		return fmt.Sprintf("deliver %d, unknown %b", a.n, a.unknown)
	case actTimer:
		return fmt.Sprintf("timer %d", a.timer)
	}
	return appliedNames[a.kind]
}

func (w *appliedWorld) first() appliedState {
	s := appliedState{unknowns: w.unknowns, faults: w.faults, crashes: w.crashes, shutdowns: w.shutdowns}
	s.start(w)
	return s
}

func (s *appliedState) start(w *appliedWorld) {
	resume := kv.CursorAt(uint64(s.durable(w)))
	if w.forge.resume != nil {
		w.forge.resume(&resume, s)
	}
	s.reported, s.pos, s.told, s.head = s.durable(w), 0, 0, 0
	s.p.start(w.cfg, resume, kv.Owed{})
}

// durable is the cursor that the next process resumes after: the store's, or the one that was reported where there is none.
func (s *appliedState) durable(w *appliedWorld) uint8 {
	if w.cfg.HasStore {
		return s.cursor
	}
	return s.reported
}

// held is what is applied for good.
func (s *appliedState) held(w *appliedWorld) revs {
	if w.cfg.HasStore {
		return s.contents
	}
	return s.hooked
}

// queued is what was received and is not committed.
func (s *appliedState) queued() (r revs) {
	for _, q := range s.p.queue[:s.p.queued] {
		r |= revsOf(q.changes())
	}
	return r
}

func revsOf(changes []change) (r revs) {
	for _, c := range changes {
		r |= 1 << c.rev()
	}
	return r
}

func (w *appliedWorld) actions(s appliedState, out []appliedAct) []appliedAct {
	add := func(ok bool, kinds ...appliedKind) {
		for _, k := range kinds {
			if ok {
				out = append(out, appliedAct{kind: k})
			}
		}
	}
	add(s.last < w.revs, actChurn)
	if !s.p.up() {
		add(true, actStart)
		return out
	}
	fault, stopping := s.faults > 0, s.p.m.Phase() == machine.PhaseStopping
	add(s.p.has(askedOpen), actOpen)
	add(s.p.has(askedOpen) && fault, actOpenFails)
	if s.p.has(askedReceive) {
		out = w.deliveries(s, out)
		add(w.progresses(&s), actProgress)
		add(fault && s.p.watching, actWatchLost)
		add(!s.p.watching, actReceiveEnds)
	}
	add(s.p.has(askedHooks), actHooks)
	add(s.p.has(askedHooks) && fault, actHooksFail)
	add(s.p.has(askedStore), actStore)
	add(s.p.has(askedStore) && fault, actStoreFails, actStoreFailsAfter)
	add(s.p.has(askedStore) && s.crashes > 0, actCrashBefore, actCrashAfter, actCrashTorn)
	for t := machine.TimerOpen; t <= machine.TimerWindow; t++ {
		if s.p.has(askedTimer(t)) {
			out = append(out, appliedAct{kind: actTimer, timer: t})
		}
	}
	add(s.crashes > 0, actCrash)
	add(s.shutdowns > 0, actShutdown)
	add(stopping && fault, actDeadline)
	return out
}

// deliveries are one or two updates, each with and without a version.
func (w *appliedWorld) deliveries(s appliedState, out []appliedAct) []appliedAct {
	most := min(s.last-s.pos, 2, uint8(s.p.receive.Max))
	for n := uint8(1); n <= most; n++ {
		out = append(out, appliedAct{kind: actDeliver, n: n})
		for i := uint8(0); i < n && s.unknowns > 0; i++ {
			out = append(out, appliedAct{kind: actDeliver, n: n, unknown: 1 << i})
		}
	}
	return out
}

// progresses reports whether the watch may say that all up to the log's end is delivered. The server may have sent out more
// than what has arrived, or nothing more.
func (w *appliedWorld) progresses(s *appliedState) bool {
	for sent := s.pos; sent <= s.last; sent++ {
		f := protocol.Frontier{Head: uint64(s.last), Pending: uint64(s.last - sent), Delivered: uint64(sent), Received: uint64(s.pos), Current: uint64(s.told)}
		if w.forge.probe != nil {
			w.forge.probe(&f)
		}
		if s.p.watching && protocol.FrontierMayAdvance(f) {
			return true
		}
	}
	return false
}

func (w *appliedWorld) next(s appliedState, a appliedAct) (appliedState, bool) {
	switch a.kind {
	case actHooksFail, actStoreFails, actStoreFailsAfter, actOpenFails, actWatchLost, actDeadline:
		s.faults--
	case actCrash, actCrashBefore, actCrashAfter, actCrashTorn:
		s.crashes--
	}
	switch a.kind {
	case actChurn:
		s.last++
	case actStart:
		s.start(w)
	case actShutdown:
		s.shutdowns--
		w.step(&s, machine.Shutdown{})
	case actDeadline:
		w.step(&s, machine.DeadlinePassed{})
	case actTimer:
		w.step(&s, machine.TimerFired{Timer: a.timer})
	case actCrash:
		s.p.crash()
	case actOpen, actOpenFails, actDeliver, actProgress, actWatchLost, actReceiveEnds:
		w.watch(&s, a)
	default:
		w.flush(&s, a.kind)
	}
	return s, true
}

// watch answers what was asked of the watch.
func (w *appliedWorld) watch(s *appliedState, a appliedAct) {
	switch a.kind {
	case actOpen:
		after := uint8(s.p.opening.After.Revision())
		if s.p.m.Phase() != machine.PhaseStopping { // else it is closed at once
			s.pos, s.told, s.head = after, after, s.last
		}
		in := machine.Opened{Head: uint64(s.last), Backlog: uint64(s.last - after)}
		if w.forge.opened != nil {
			w.forge.opened(&in)
		}
		w.step(s, in)
	case actOpenFails:
		w.step(s, machine.OpenFailed{End: machine.EndTransient, Err: errWatch})
	case actDeliver:
		var all []change
		for i := range a.n {
			s.pos++
			c := changeOf(0, s.pos, false)
			if a.unknown>>i&1 == 1 {
				c, s.unknowns = c.unknown(), s.unknowns-1
			}
			all = append(all, c)
		}
		w.received(s, segmentOf(all...), 0)
	case actProgress:
		w.received(s, 0, s.last)
	case actWatchLost, actReceiveEnds:
		w.step(s, machine.WatchEnded{End: machine.EndTransient, Err: errWatch})
	}
}

func (w *appliedWorld) received(s *appliedState, of segment, frontier uint8) {
	m := of.received()
	m.Frontier = uint64(frontier)
	if w.forge.segment != nil {
		w.forge.segment(&m, of, s)
	}
	s.told = max(s.told, uint8(m.High.Rank()), frontier)
	w.step(s, machine.Received{Segment: m})
}

// flush answers what hooks and store were asked for.
func (w *appliedWorld) flush(s *appliedState, kind appliedKind) {
	changes := s.p.changes()
	switch kind {
	case actHooks:
		s.hooked |= revsOf(changes)
		w.step(s, machine.HooksDone{})
	case actHooksFail:
		if w.forge.storeFirst {
			s.apply(w, changes, true)
		}
		err := errFlush
		if w.forge.hooksSwallowed {
			err = nil
		}
		w.step(s, machine.HooksDone{Err: err})
	case actStore:
		s.apply(w, changes, true)
		w.step(s, machine.StoreDone{})
	case actStoreFails:
		w.storeFails(s)
	case actStoreFailsAfter:
		s.apply(w, changes, true)
		w.step(s, machine.StoreDone{Err: errFlush})
	case actCrashBefore:
		if w.forge.ackFirst {
			w.step(s, machine.StoreDone{})
		}
		s.p.crash()
	case actCrashAfter, actCrashTorn:
		s.apply(w, changes, kind == actCrashAfter)
		s.p.crash()
	}
}

func (w *appliedWorld) storeFails(s *appliedState) {
	switch {
	case w.forge.dropsFailed:
		w.step(s, machine.StoreDone{})
	case w.forge.requeuesFailed:
		again := s.p.flush.Segments
		w.step(s, machine.StoreDone{})
		for _, id := range again {
			w.step(s, machine.Injected{Segment: segment(id).received()})
		}
	default:
		w.step(s, machine.StoreDone{Err: errFlush})
	}
}

// apply puts the flush in progress into the store; torn is without the cursor.
func (s *appliedState) apply(w *appliedWorld, changes []change, whole bool) {
	f := s.p.flush
	if w.forge.commit != nil {
		changes = w.forge.commit(&f, changes)
	}
	s.contents |= revsOf(changes)
	if !whole {
		return
	}
	s.cursor = uint8(f.Cursor.Revision())
	for _, c := range changes {
		if !c.isUnknown() && c.rev() > s.cursor {
			s.broken |= brokenCover
		}
	}
}

// step takes a step, and judges what it asks for.
func (w *appliedWorld) step(s *appliedState, in machine.Input) {
	hooked := s.p.hooked
	for _, e := range s.p.step(in) {
		switch e := e.(type) {
		case machine.Committed:
			s.reported, hooked = uint8(e.Flush.Cursor.Revision()), false
		case machine.CaughtUp:
			if !s.held(w).covers(upTo(s.head)) {
				s.broken |= brokenHydrated
			}
		case machine.RunHooks:
			if hooked {
				s.broken |= brokenTwice
			}
		}
	}
}

func (s appliedState) appendState(out []byte) []byte {
	out = append(out, s.last, s.pos, s.told, s.head, byte(s.contents), byte(s.hooked), s.cursor, s.reported,
		s.unknowns, s.faults, s.crashes, s.shutdowns, byte(s.broken))
	return s.p.appendState(out)
}

func (s appliedState) String() string {
	return fmt.Sprintf("log %d, watch at %d, store %b at %d, %v", s.last, s.pos, s.contents, s.cursor, &s.p)
}

func (w *appliedWorld) model() modelcheck.Model[appliedState, appliedAct] {
	return modelcheck.Model[appliedState, appliedAct]{
		Name: w.name, Init: []appliedState{w.first()}, Actions: w.actions, Next: w.next,
		Encode:     func(s appliedState, out []byte) []byte { return s.appendState(out) },
		Properties: w.properties(), Fair: fairApplied,
		ShowState: appliedState.String, ShowAction: appliedAct.String,
	}
}

func fairApplied(a appliedAct) bool {
	switch a.kind {
	case actOpen, actProgress, actReceiveEnds, actHooks, actStore, actTimer, actStart:
		return true
	case actDeliver:
		return a.unknown == 0
	}
	return false
}
