package models

import (
	"fmt"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// A fold that has to be repaired, step by step, under the machine that ships: its watch falls behind the log, its process
// ends anywhere, its store fails, and meanwhile the log is written, loses its oldest messages, and others publish what they
// have folded of it.
//
// The decisions are those of runtime/protocol, asked in the order of package repair and of package fold's shell. Left out
// are several artifacts at a time, rejected updates, and audits: what is owed stays owed. Hooks never fail here, and return
// at once: nothing but the flush waits for them. So do the timers.

type repairState struct {
	log  repairLog
	art  repairArtifact
	p    process
	disk repairDisk
	// domain is what hooks have made, newest the newest revision that they have seen of each key.
	domain, newest rows

	watch repairWatch
	mend  mending
	// listed is where the listing of the last repair began, for the re-list after it.
	listed uint8
	// lost is how long ago a live watch of this process has ended, if none was opened since.
	lost lostFor
	// relisting: a re-list is to be opened. reread: the log's settings are to be read after one.
	relisting, reread bool
	// noted: a commit had the memo.
	noted bool
	// tried is where the artifact ends that the last process was refused with, and one more.
	tried uint8

	crashes, faults uint8 // that may still happen
	broken          repairBroken
}

type lostFor uint8

const (
	lostNot lostFor = iota
	lostNow
	lostLong // for longer than ReopenGrace
)

// repairDisk is the store.
type repairDisk struct {
	rows   rows
	cursor kv.Cursor
	owed   kv.Owed
}

// repairWatch is where the open watch is.
type repairWatch struct {
	// pos is what it has handed out. A re-list owes nothing up to floor, where the log ended when it began.
	pos, floor uint8
	// evicts: the log could evict when the watch looked at it last, or before.
	evicts bool
}

// base is how far the watch has everything.
func (w *repairWatch) base() uint8 { return max(w.pos, w.floor) }

type repairBroken uint8

const (
	brokenBackward repairBroken = 1 << iota
	brokenPhantom
	brokenListed
)

// repairWorld is one configuration.
type repairWorld struct {
	name                        string
	keys, revs, crashes, faults uint8
	// synced is how many revisions were written, and folded, at the beginning.
	synced uint8
	// evicts: retention may take any message. turnsOff: that may end. Else it only takes delete markers, and unless vanish
	// is set, none that a live watch, or a re-list after its listing, is still to get.
	evicts, turnsOff, vanish bool
	// olds: an exporter may have re-listed over an old fold.
	olds bool
	// blind: the log can't say what it evicts.
	blind  bool
	mode   protocol.RepairMode
	source bool
	forge  repairForge
}

type repairKind uint8

const (
	repPut repairKind = iota
	repDelete
	repEvict
	repTurnOff
	repPublish
	repStart
	repCrash
	repOpen
	repOpenFails
	repDeliver
	repProgress
	repWatchLost
	repStore
	repStoreFails
	repCrashBefore
	repCrashAfter
	repCrashTorn
	repMend
	repMendFails
	repTime
	repPoll
	repReread
)

var repairNames = [...]string{"put", "delete", "evict", "eviction is turned off", "publish", "start", "crash", "open", "open fails",
	"deliver", "progress", "watch lost", "store applies", "store fails", "crash before apply", "crash after apply", "crash amid apply",
	"repair goes on", "repair fails", "time passes", "settings are read", "settings are read after a re-list"}

type repairAct struct {
	kind repairKind
	// n is a key, or where an artifact ends, and by who exported it.
	n  uint8
	by exporter
}

func (a repairAct) String() string {
	switch a.kind {
	case repPut, repDelete:
		return fmt.Sprintf("%s %c", repairNames[a.kind], 'a'+a.n)
	case repPublish:
		return fmt.Sprintf("publish up to %d%s", a.n, [...]string{"", ", amid a re-list", ", amid a re-list of an old fold"}[a.by])
	}
	return repairNames[a.kind]
}

// fairRepair: exporters go on. A write ends, and so does what goes wrong.
func fairRepair(a repairAct) bool {
	switch a.kind {
	case repPublish, repStart, repOpen, repDeliver, repProgress, repStore, repMend, repReread:
		return true
	}
	return false
}

func (w *repairWorld) machine() machine.Config {
	return machine.Config{HasStore: true, CanRepair: true, MaxUpdates: 1, MaxBytes: 1, BulkUpdates: 100, BulkBytes: 1, QueueUpdates: 2, QueueBytes: 1, MaxFailures: 2}
}

func (w *repairWorld) actions(s repairState, out []repairAct) []repairAct {
	out = w.outside(&s, out)
	add := func(ok bool, kinds ...repairKind) {
		for _, k := range kinds {
			if ok {
				out = append(out, repairAct{kind: k})
			}
		}
	}
	if !s.p.up() {
		add(s.p.stop != stoppedFinal || s.art.cursor >= s.tried, repStart)
		return out
	}
	fault, crash := s.faults > 0, s.crashes > 0
	add(crash, repCrash)
	add(s.p.has(askedOpen), repOpen)
	add(s.p.has(askedOpen) && fault, repOpenFails)
	if s.p.has(askedReceive) {
		add(s.log.after(s.watch.pos) != 0, repDeliver)
		add(w.progresses(&s), repProgress)
		add(fault, repWatchLost)
	}
	add(s.p.has(askedStore), repStore)
	add(s.p.has(askedStore) && fault, repStoreFails)
	add(s.p.has(askedStore) && crash, repCrashBefore, repCrashAfter, repCrashTorn)
	add(s.mend.step != mendNot && !s.mend.waits, repMend)
	add(s.mend.step != mendNot && !s.mend.waits && fault, repMendFails)
	add(s.lost == lostNow && !w.evicts, repTime)
	add(w.turnsOff && !s.disk.cursor.SeenEvicting, repPoll)
	add(s.reread, repReread)
	return out
}

// outside is what others do.
func (w *repairWorld) outside(s *repairState, out []repairAct) []repairAct {
	live := s.log.truth(s.log.last)
	for k := uint8(0); k < w.keys && s.log.last < w.revs; k++ {
		out = append(out, repairAct{kind: repPut, n: k})
		if live[k] != 0 {
			out = append(out, repairAct{kind: repDelete, n: k})
		}
	}
	if w.mayEvict(s) {
		out = append(out, repairAct{kind: repEvict})
	}
	if w.turnsOff && s.log.evicts && (s.noted || !s.log.evicted) {
		out = append(out, repairAct{kind: repTurnOff})
	}
	if !w.source {
		return out
	}
	// One that ends before the log and has all of it was there for publishing before.
	for c := s.art.cursor + 1; c < s.log.last; c++ {
		whole, lists, again := s.log.export(c, exporterWhole), s.log.export(c, exporterLists), s.log.export(c, exporterListsAgain)
		if lists != whole {
			out = append(out, repairAct{kind: repPublish, n: c, by: exporterLists})
		}
		if w.olds && again != whole && again != lists {
			out = append(out, repairAct{kind: repPublish, n: c, by: exporterListsAgain})
		}
	}
	if s.art.cursor < s.log.last {
		out = append(out, repairAct{kind: repPublish, n: s.log.last})
	}
	return out
}

// mayEvict reports whether the oldest message may go.
func (w *repairWorld) mayEvict(s *repairState) bool {
	oldest := s.log.after(0)
	if oldest == 0 || s.log.evicts {
		return oldest != 0
	}
	settled := !s.p.watching && s.lost != lostNow && !s.relisting && s.mend.step <= mendList
	return !w.evicts && s.log.written[oldest].deletes() && (w.vanish || settled)
}

func (w *repairWorld) next(s repairState, a repairAct) (repairState, bool) {
	switch a.kind {
	case repOpenFails, repWatchLost, repStoreFails, repMendFails:
		s.faults--
	case repCrash, repCrashBefore, repCrashAfter, repCrashTorn:
		s.crashes--
	}
	switch a.kind {
	case repPut, repDelete:
		s.log.write(a.n, a.kind == repDelete)
	case repEvict:
		s.log.evict()
	case repTurnOff:
		s.log.evicts = false
	case repPublish:
		s.art = s.log.export(a.n, a.by)
	case repStart:
		s.domain, s.newest = s.disk.rows, s.disk.rows
		resume, owed := s.disk.cursor, s.disk.owed
		w.forge.start(&resume, &owed, &s)
		w.carry(&s, s.p.start(w.machine(), resume, owed))
	case repCrash:
		w.crash(&s)
	case repOpen, repOpenFails, repDeliver, repProgress, repWatchLost:
		w.watched(&s, a.kind)
	case repMend:
		w.mendOn(&s)
	case repMendFails:
		w.mendFails(&s)
	case repTime:
		s.lost = lostLong
	case repPoll, repReread:
		w.readRetention(&s, a.kind == repReread)
	default:
		w.stored(&s, a.kind)
	}
	return s, true
}

func (w *repairWorld) crash(s *repairState) {
	seen := s.watch.pos
	s.p.crash()
	s.gone()
	if w.forge.onStart != nil {
		s.watch.pos = seen // for who remembers what it must not
	}
}

// gone forgets what a process had in memory.
func (s *repairState) gone() {
	s.domain, s.newest, s.watch, s.mend = rows{}, rows{}, repairWatch{}, mending{}
	s.listed, s.lost, s.relisting, s.reread = 0, lostNot, false, false
}

// step gives the machine one input, and does at once what nothing else can come between with.
func (w *repairWorld) step(s *repairState, in machine.Input) {
	w.carry(s, s.p.step(in))
}

func (w *repairWorld) carry(s *repairState, effects []machine.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.Repair:
			w.forge.repair(&e)
			was := s.mend
			s.mend = mending{step: mendPlan, cursor: e.Committed, owed: e.Owed, none: e.End == machine.EndNoCursor}
			if s.mend.back = was.back; was.early {
				s.mend.early, s.mend.rows, s.mend.cursor = true, was.rows, was.cursor
			}
		case machine.ApplyStore:
			if s.p.m.TakingOver() {
				s.lost = lostNot
			}
		case machine.Committed:
			for _, id := range e.Flush.Segments {
				if change(id).repairs() {
					s.mend.waits = false
				}
			}
		case machine.CaughtUp:
			s.reread = s.reread || e.Relisted
		case machine.Stop:
			s.gone()
			return
		}
	}
	switch {
	case s.p.has(askedHooks):
		w.hooks(s)
		w.step(s, machine.HooksDone{})
	case s.p.has(askedTimer(machine.TimerRetry)):
		w.step(s, machine.TimerFired{Timer: machine.TimerRetry})
	case s.p.has(askedTimer(machine.TimerOpen)):
		w.step(s, machine.TimerFired{Timer: machine.TimerOpen})
	}
}

// changes are those of the flush in progress, without a repair's whose row is no longer the one that it was decided on.
func (w *repairWorld) changes(s *repairState) (all []change) {
	for _, c := range s.p.changes() {
		if !c.hasExpect() || s.disk.rows[c.key()] == c.expect() || w.forge.ignoresRows {
			all = append(all, c)
		}
	}
	return all
}

func (w *repairWorld) hooks(s *repairState) {
	for _, c := range w.changes(s) {
		k := c.key()
		if c.rev() != 0 && c.rev() < s.newest[k] {
			s.broken |= brokenBackward
		}
		s.newest[k] = max(s.newest[k], c.rev())
		if s.domain[k] = c.rev(); c.deletes() {
			s.domain[k] = 0
		}
	}
}

// stored answers what the store was asked for.
func (w *repairWorld) stored(s *repairState, kind repairKind) {
	switch kind {
	case repStore:
		w.apply(s, true)
		w.step(s, machine.StoreDone{})
	case repStoreFails:
		if w.forge.requeuesBacklog && s.p.m.Phase() == machine.PhaseRepairing && !s.p.has(askedRepair) && s.mend.back == 0 && len(s.p.flush.Segments) > 0 {
			s.mend.back = segment(s.p.flush.Segments[0])
			w.step(s, machine.StoreDone{})
			return
		}
		w.step(s, machine.StoreDone{Err: errFlush})
	case repCrashBefore:
		w.crash(s)
	case repCrashAfter, repCrashTorn:
		w.apply(s, kind == repCrashAfter)
		w.crash(s)
	}
}

// apply puts the flush in progress into the store; torn is without the cursor and the mark.
func (w *repairWorld) apply(s *repairState, whole bool) {
	for _, c := range w.changes(s) {
		k := c.key()
		if c.repairs() && c.deletes() && s.disk.rows[k] != 0 && !s.log.deletedSince(k, s.disk.rows[k]) {
			s.broken |= brokenPhantom
		}
		if s.disk.rows[k] = c.rev(); c.deletes() {
			s.disk.rows[k] = 0
		}
	}
	if whole {
		f := s.p.flush
		s.noted = s.noted || f.Cursor.SeenEvicting
		w.forge.commit(&f)
		s.disk.cursor, s.disk.owed = f.Cursor, f.Owed
	}
}

func (s repairState) appendState(out []byte) []byte {
	out = s.p.appendState(s.log.appendState(out))
	out = append(out, s.art.cursor, s.art.rows[0], s.art.rows[1], s.disk.rows[0], s.disk.rows[1],
		byte(s.disk.cursor.Revision()), byte(s.disk.owed.Why), byte(s.disk.owed.At), s.domain[0], s.domain[1], s.newest[0], s.newest[1],
		s.watch.pos, s.watch.floor, s.listed, s.tried, s.crashes, s.faults, byte(s.broken), byte(s.lost),
		flags(s.art.memo, s.disk.cursor.SeenEvicting, s.watch.evicts, s.relisting, s.reread, s.noted))
	return s.mend.appendState(out)
}

func (s repairState) String() string {
	return fmt.Sprintf("log %v, artifact %v at %d, store %v at %v owes %v, domain %v, watch at %d, %v%v",
		&s.log, s.art.rows, s.art.cursor, s.disk.rows, s.disk.cursor, s.disk.owed, s.domain, s.watch.pos, &s.p, &s.mend)
}

func (w *repairWorld) model() modelcheck.Model[repairState, repairAct] {
	return modelcheck.Model[repairState, repairAct]{
		Name: w.name, Init: w.first(), Actions: w.actions, Next: w.next,
		Encode:     func(s repairState, out []byte) []byte { return s.appendState(out) },
		Properties: w.properties(), Fair: fairRepair,
		ShowState: repairState.String, ShowAction: repairAct.String,
	}
}

// first are the folds that are synced with every log of so many revisions, or have nothing.
func (w *repairWorld) first() (all []repairState) {
	logs := []repairLog{{evicts: w.evicts}}
	for range w.synced {
		var longer []repairLog
		for _, l := range logs {
			live := l.truth(l.last)
			for k := range w.keys {
				for _, del := range []bool{false, true} {
					if n := l; !del || live[k] != 0 {
						n.write(k, del)
						longer = append(longer, n)
					}
				}
			}
		}
		logs = longer
	}
	for _, l := range logs {
		s := repairState{log: l, crashes: w.crashes, faults: w.faults}
		s.disk.rows, s.disk.cursor = l.truth(l.last), kv.CursorAt(uint64(l.last))
		all = append(all, s)
	}
	return all
}
