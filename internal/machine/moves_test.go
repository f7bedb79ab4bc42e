package machine_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// moves are what can happen now: news is what nobody asked for, answers is the rest.
func (w *world) moves() (news, answers []func()) {
	add := func(ok bool, f func()) {
		if ok {
			answers = append(answers, f)
		}
	}
	news = append(news, func() { w.log += uint64(rapid.IntRange(1, 3).Draw(w.t, "written")) }, w.readRetention)
	if w.injects < 3 && (w.repair || w.audit != nil && !w.overtake) {
		news = append(news, w.inject)
	}
	add(w.opening != nil, w.answerOpen)
	add(w.receive != nil, w.answerReceive)
	add(w.hooks, w.answerHooks)
	add(w.store, w.answerStore)
	add(w.repair, w.answerRepair)
	if hurry := w.calm || w.stopping; w.audit != nil && !hurry {
		news = append(news, w.answerAudit) // it takes its time
	} else {
		add(w.audit != nil, w.answerAudit)
	}
	for timer := machine.TimerOpen; timer <= machine.TimerAudit; timer++ {
		add(w.timers[timer], func() {
			delete(w.timers, timer)
			if timer == machine.TimerAudit {
				w.saw["audit timer, this run"]++
			}
			if timer == machine.TimerOpen && w.seen == 0 {
				w.end = machine.EndNoCursor
				w.note(w.cfg.CanRepair && w.flush != nil, "a repair for want of a cursor waits for a flush")
				w.note(w.cfg.CanRepair, "a repair for want of a cursor after a pause")
			}
			w.step(machine.TimerFired{Timer: timer})
		})
	}
	return news, answers
}

// rarely is about one in n, and never once it is calm. Rapid draws small numbers more often, and shrinks to them.
func (w *world) rarely(n int, what string) bool {
	return !w.calm && rapid.IntRange(0, n-1).Draw(w.t, what) == (n+1)/2
}

func (w *world) owes(why kv.Owes, at uint64) {
	w.owed = w.owed.Add(why, at)
	if w.repair || w.outcome != nil {
		w.since = w.since.Add(why, at)
	}
}

func (w *world) readRetention() {
	in := machine.RetentionRead{Evicted: w.rarely(8, "evicted"), Owes: drawOwes(w.t), Head: w.log, Whole: w.rarely(4, "whole")}
	w.memo = w.memo || in.Evicted
	w.owes(in.Owes, in.Head)
	if in.Whole && !w.memo && w.open && w.caught && w.m.Phase() == machine.PhaseWatching {
		w.note(w.owed.Why == kv.OwesListing, "a re-list turns out to be whole")
		if w.owed.Why &^= kv.OwesListing; w.owed.Why == 0 {
			w.owed = kv.Owed{}
		}
	}
	w.note(in.Evicted && w.repair, "retention is read beside a repair")
	w.step(in)
}

// inject adds a repair's or an audit's changes. What they say of revisions means nothing.
func (w *world) inject() {
	w.nextID++
	w.injects++
	n := rapid.IntRange(1, 3).Draw(w.t, "injected")
	s := machine.Segment{ID: w.nextID, Updates: n, Bytes: n * 10, Alone: rapid.Bool().Draw(w.t, "alone")}
	if rapid.Bool().Draw(w.t, "versions") {
		s.High, s.Frontier = kv.Revision(w.log+1), w.log+2
	}
	w.segments[s.ID], w.injected[s.ID] = s, true
	w.note(len(w.order) > w.flushed, "injected changes are queued behind others")
	w.note(w.audit != nil && w.open, "an audit injects beside a watch")
	w.order = append(w.order, s.ID)
	w.step(machine.Injected{Segment: s})
}

// ended takes down why a watch ended for good.
func (w *world) ended(end machine.End) {
	if end != machine.EndTransient && !w.stopping {
		w.end = end
	}
}

func (w *world) answerOpen() {
	after := w.opening.After
	w.opening = nil
	switch {
	case w.rarely(6, "open"):
		w.step(machine.OpenFailed{End: machine.EndTransient, Err: errBoom})
		return
	case w.rarely(6, "open"):
		end := machine.EndExpired + machine.End(rapid.IntRange(0, 1).Draw(w.t, "end"))
		w.ended(end)
		w.step(machine.OpenFailed{End: end, Err: errBoom})
		return
	}
	in := machine.Opened{Head: w.log, Backlog: w.log - after.Revision(), Evicted: w.rarely(8, "evicted")}
	if !w.calm {
		in.Owes = drawOwes(w.t)
	}
	w.watchAt = after.Revision()
	if w.stopping {
		w.note(true, "a watch opens while stopping")
		w.step(in)
		return
	}
	w.open = true
	w.head, w.headKnown, w.caught = in.Head, true, false
	w.bulk = !w.cfg.Windowed && in.Backlog >= uint64(w.cfg.BulkUpdates)
	w.memo = w.memo || in.Evicted
	w.owes(in.Owes, in.Head)
	if w.audit != nil {
		w.overtake = true
		w.note(true, "a watch opens beside an audit")
	}
	w.step(in)
}

func (w *world) answerReceive() {
	r := *w.receive
	w.receive = nil
	if w.rarely(10, "receive") || !w.open && rapid.Bool().Draw(w.t, "ends") {
		end := machine.End(rapid.IntRange(0, 2).Draw(w.t, "end"))
		if w.open {
			w.ended(end)
		}
		w.note(!w.open && !w.stopping, "a watch that was closed ends")
		w.step(machine.WatchEnded{End: end, Err: errBoom})
		return
	}
	w.note(!w.open && !w.stopping, "a watch that was closed delivers")
	w.nextID++
	n := rapid.IntRange(0, min(r.Max, max(r.MaxBytes/10, 1))).Draw(w.t, "n")
	s := machine.Segment{ID: w.nextID, Updates: int(min(w.log-w.watchAt, uint64(n)))}
	if s.Updates > 0 {
		w.watchAt += uint64(s.Updates)
		s.High, s.Bytes = kv.Revision(w.watchAt), s.Updates*10
		if w.rarely(10, "unknown") {
			s.High = kv.Version{}
		}
	}
	if w.watchAt == w.log {
		s.Frontier = w.log
	}
	if !w.calm {
		s.Alone = w.rarely(8, "alone")
		s.Owes = drawOwes(w.t)
	}
	w.segments[s.ID] = s
	w.order = append(w.order, s.ID)
	w.seen = max(w.seen, s.High.Rank(), s.Frontier)
	w.owes(s.Owes, w.seen)
	w.step(machine.Received{Segment: s})
}

// fails is how hooks or a store apply went.
func (w *world) fails() (err error, fatal bool) {
	switch {
	case w.rarely(3, "fails"):
		w.failures++
		return errBoom, false
	case w.rarely(150, "fatal"):
		return errFatal, true
	}
	return nil, false
}

func (w *world) answerHooks() {
	w.hooks = false
	err, fatal := w.fails()
	if w.hooksDone = err == nil; w.hooksDone {
		w.failures = 0
	}
	w.step(machine.HooksDone{Err: err, Fatal: fatal})
}

func (w *world) answerStore() {
	w.store = false
	err, fatal := w.fails()
	w.step(machine.StoreDone{Err: err, Fatal: fatal})
}

func (w *world) answerRepair() {
	w.repair = false
	switch {
	case w.rarely(5, "repair"):
		w.note(len(w.order) > w.flushed, "a repair fails with changes in the queue")
		w.note(true, "a repair fails")
		w.step(machine.RepairFailed{Err: errBoom})
		return
	case w.rarely(12, "repair") || w.stopping && w.rarely(2, "repair"):
		w.note(w.stopping, "a repair is refused while stopping")
		w.stopping = true
		w.step(machine.Repaired{Err: errFinal})
		return
	}
	in := machine.Repaired{Cursor: w.committed, Owed: w.owed, Relist: rapid.Bool().Draw(w.t, "relist"), NewLog: rapid.Bool().Draw(w.t, "new")}
	switch rapid.IntRange(0, 2).Draw(w.t, "outcome") {
	case 0:
		w.log = uint64(rapid.IntRange(0, 3).Draw(w.t, "head"))
		in = machine.Repaired{Relist: true, NewLog: true}
	case 1:
		in.Cursor = kv.CursorAt(uint64(rapid.IntRange(int(w.committed.Revision()), int(w.log)).Draw(w.t, "to")))
		in.Owed = kv.Owed{}.Add(drawOwes(w.t), in.Cursor.Revision())
		in.Cursor.SeenEvicting = rapid.IntRange(0, 5).Draw(w.t, "memo") == 0
	}
	w.note(w.stopping, "a repair ends while stopping")
	if !w.stopping {
		w.note(w.flush != nil, "a repair ends beside a flush")
		w.note(in.Relist, "a repair asks for a re-list")
		w.outcome, w.headKnown, w.unproven = &in, false, false
		w.memo = w.memo || in.Cursor.SeenEvicting
	}
	w.step(in)
}

func (w *world) answerAudit() {
	w.audit = nil
	in := machine.Audited{Before: w.before}
	switch {
	case w.rarely(5, "audit"):
		in = machine.Audited{Err: errBoom}
	case w.rarely(8, "audit"):
		in.Unproven = true
		w.unproven = w.unproven || !w.overtake
		w.note(!w.overtake, "an audit proves nothing")
	case w.rarely(5, "audit") || w.overtake && w.rarely(2, "audit"):
		in.Contradiction, in.Err = errBoom, errBoom
		if !w.overtake && w.open && !w.stopping {
			w.end = machine.EndLogChanged
			w.note(w.receive != nil, "a contradiction beside a receive")
		}
		w.note(w.overtake && w.open, "a contradiction that counts no more")
	case protocol.AuditSettles(in.Before, w.owed.At) && !w.overtake:
		w.note(w.owed.Why != 0, "an audit settles what is owed")
		w.owed = kv.Owed{}
	default:
		w.note(!w.overtake, "an audit does not settle what came later")
		w.note(w.overtake && protocol.AuditSettles(in.Before, w.owed.At), "an audit counts no more")
	}
	w.step(in)
}

// run lets everything that can happen happen in any order for a while.
func (w *world) run() {
	for range rapid.IntRange(0, 200).Draw(w.t, "steps") {
		if w.stopped {
			return
		}
		news, answers := w.moves()
		if all := append(news, answers...); len(answers) == 0 || w.rarely(4, "news") {
			all[rapid.IntRange(0, len(news)-1).Draw(w.t, "news")]()
		} else {
			answers[rapid.IntRange(0, len(answers)-1).Draw(w.t, "answer")]()
		}
	}
}

// until answers what is out, fairly and with no more news, until done.
func (w *world) until(done func() bool, what string) {
	dice := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(w.t, "dice")))
	for i := 0; !w.stopped && !done(); i++ {
		_, answers := w.moves()
		if len(answers) == 0 || i > 1000 {
			w.t.Fatalf("%s (%d steps, %d answers to give)", what, i, len(answers))
		}
		answers[dice.IntN(len(answers))]()
	}
}

// explore checks f in so many hundred worlds, and that what is listed was reached.
func explore(t *testing.T, hundreds int, reach []string, f func(*world)) {
	saw := map[string]int{}
	for range hundreds {
		rapid.Check(t, func(t *rapid.T) {
			saw["audit timer, this run"] = 0
			f(newWorld(t, saw))
		})
	}
	for _, what := range reach {
		if testing.Verbose() {
			t.Logf("%6d %s", saw[what], what)
		}
		if saw[what] == 0 {
			t.Errorf("never reached: %s", what)
		}
	}
}

// TestAnyOrder: after anything, a shutdown stops with nothing left behind, or at its deadline.
func TestAnyOrder(t *testing.T) {
	explore(t, 100, always, func(w *world) {
		w.run()
		if w.stopped {
			return
		}
		if w.repair && rapid.Bool().Draw(w.t, "busy") {
			w.inject()
		}
		w.shutdown, w.stopping = true, true
		w.note(w.outcome != nil, "a shutdown before a repair's outcome is taken over")
		w.note(w.takes, "a shutdown beside the commit of a repair's cursor")
		w.outcome = nil
		w.step(machine.Shutdown{})
		if rapid.Bool().Draw(w.t, "patient") {
			w.until(func() bool { return false }, "the machine does not stop")
			w.must(len(w.m.Step(machine.RetentionRead{Evicted: true}, nil)) == 0, "an effect after Stop")
			return
		}
		steps := rapid.IntRange(0, 6).Draw(w.t, "until the deadline")
		w.until(func() bool { steps--; return steps < 0 }, "the machine does not stop")
		if !w.stopped {
			w.deadline = true
			w.step(machine.DeadlinePassed{})
			w.must(w.stopped, "a deadline does not stop")
		}
	})
}

// TestComesToRest: after anything, when nothing fails any more, the machine watches and has it all, or has stopped.
func TestComesToRest(t *testing.T) {
	explore(t, 40, []string{"at rest"}, func(w *world) {
		w.run()
		w.calm = true
		w.until(func() bool {
			return w.m.Phase() == machine.PhaseWatching && w.open && w.caught && w.flush == nil && w.flushed == len(w.order) &&
				w.committed.Revision() == w.log && w.settled()
		}, "the machine does not come to rest")
		w.note(!w.stopped, "at rest")
	})
}

// always is what the worlds of TestAnyOrder reach, or it would show nothing.
var always = []string{
	"a start without a cursor asks for a repair",
	"a repair for want of a cursor after a pause",
	"a repair for want of a cursor waits for a flush",
	"a repair of an expired cursor",
	"a repair of a log that changed",
	"a repair overtakes an audit",
	"a repair asks for a re-list",
	"a repair fails",
	"a repair fails with changes in the queue",
	"a repair ends beside a flush",
	"a repair ends while stopping",
	"a repair is refused while stopping",
	"a repair's cursor is committed",
	"a repair's cursor is committed after a failure",
	"a repair's cursor can't be committed",
	"a repair's outcome has nothing to commit",
	"a mark told beside a repair outlives it",
	"a refused repair leaves the memo",
	"retention is read beside a repair",
	"only the log's identity is committed",
	"the cursor goes back to none",
	"a memo is committed alone",
	"a mark is committed alone",
	"a settled mark is committed alone",
	"a cursor alone without a store",
	"a cursor alone is committed after a failure",
	"a commit of a cursor alone fails too often",
	"a commit of a cursor alone fails for good",
	"injected changes are flushed",
	"injected changes are queued behind others",
	"an audit injects beside a watch",
	"an audit settles what is owed",
	"an audit does not settle what came later",
	"an audit proves nothing",
	"an audit counts no more",
	"a contradiction that counts no more",
	"a contradiction beside a receive",
	"a watch opens beside an audit",
	"a watch opens while stopping",
	"a watch that was closed ends",
	"a watch that was closed delivers",
	"caught up again",
	"caught up with a re-list that a repair asked for",
	"bulk flushes after the first hydrate",
	"a shutdown beside a repair",
	"a shutdown beside an audit",
	"a shutdown before a repair's outcome is taken over",
	"a shutdown beside the commit of a repair's cursor",
	"a deadline beside a repair",
	"a deadline beside a commit of a cursor alone",
}
