package models

import (
	"fmt"
	"math/bits"

	"github.com/typedfold/fold/runtime/protocol"
)

// The order of a re-list, as the machine and the Repairer have it: what was received is committed; the log is read and the
// repair planned; the bucket is listed and the log read again; rows that are not listed are deleted, each while it still
// has the version that was judged; then a watch begins with every current value. Around it keys are written and deleted,
// markers are purged from the log's head, the bucket is re-created, and the process dies. In some worlds retention takes
// values, or a listing comes out empty. What is lost under a live watch, or within the log, is for the model of the live
// watch, so markers go from the log's head, and only where there is no watch.
//
// Left out: chunks and failures of the store (the repair's own model has them), the audit that what is owed leads to, and
// restores: where a re-list is not allowed the fold stops and says so. Where a key stands for twelve, the brake on
// mass deletes has something to brake.

const (
	// orderCuts is how often the watch is cut at most.
	orderCuts = 2
)

// orderItem is one update that is received and not committed; the zero value is none.
type orderItem struct {
	msg    histMsg
	rev    uint8 // 0: a repair's delete
	expect uint8 // the row that it was decided on
}

type orderPhase uint8

const (
	orderWatching orderPhase = iota
	orderDown                // without a watch
	orderEnded               // the cursor is no resume position any more
	orderPlanned
	orderListed
	orderJudged
	orderDeleted // or about to be, all is queued
	orderStopped // and says why
)

// orderInfo is a reading of the log.
type orderInfo struct {
	log, first, last, keys uint8
}

// orderListing has the values that are listed, and how many keys are, those with a marker too.
type orderListing struct {
	rows      histRows
	keys, top uint8
}

// orderNode is the process. Rows, cursor and noted are what its store has, owed too.
type orderNode struct {
	rows   histRows
	cursor uint8
	noted  uint8 // the log that it follows
	owed   bool

	phase orderPhase
	lost  bool // there was no cursor
	// seen is what was received, base what the watch goes on after, relist what it has to deliver of a re-list before.
	seen, base, relist uint8
	queue              [3]orderItem

	info   orderInfo
	listed orderListing
	of     uint8 // the log that was listed
	again  bool  // the second listing
	stale  uint8
}

type orderState struct {
	h      history
	log    uint8
	before histRows // the truth of the log that is gone
	evicts bool
	// Once each: purged markers, a lost cursor, a crash, a listing that came out empty.
	purged, lost, crashed, lied bool
	cuts                        uint8
	node                        orderNode
}

type orderWorld struct {
	name string
	deep bool
	revs uint8
	// weight is how many keys one stands for.
	weight uint64
	// recreated: the bucket may be re-created. evicts: retention may begin to take values; inside: from inside the log too.
	// lies: a listing may come out empty. filtered: the log does not say how many keys it has in scope.
	recreated, evicts, inside, lies, filtered bool
	forge                                     orderForge
}

// orderForge is what a mutation does to it.
type orderForge struct {
	retention func(*protocol.Retention)
	plan      func(*protocol.PlanInput)
	listing   func(*protocol.Listing)
	brake     func(deletes, rows *uint64)
	gap       func(*protocol.Gap)
	window    func(cursor, first *uint64)

	hasData func(*bool)

	noDrain, noBarrier, planOnce, headLate, compareNot bool
}

type orderVerb uint8

const (
	orderPut   orderVerb = iota // the first key
	orderOther                  // the second one
	orderDelete
	orderPurge
	orderEvictOn
	orderEvict
	orderRecreate
	orderReceive
	orderCommit
	orderCut
	orderLose
	orderCrash
	orderRepair
	orderLie
	orderVerbs
)

var orderNames = [...]string{"put k", "put l", "del k", "a marker is purged", "retention is set", "a value ages out", "the bucket is re-created",
	"receive", "commit", "the watch is cut", "the cursor is lost", "crash", "next step", "a listing comes out empty"}

type orderAction struct {
	verb orderVerb
	rev  uint8 // of what ages out
}

func (a orderAction) String() string {
	if a.verb == orderEvict {
		return fmt.Sprintf("revision %d ages out", a.rev)
	}
	return orderNames[a.verb]
}

func (w *orderWorld) actions(s orderState, out []orderAction) []orderAction {
	for v := range orderVerbs {
		if v != orderEvict {
			out = append(out, orderAction{verb: v})
			continue
		}
		for rev := s.h.next(0); s.evicts && rev != 0; rev = s.h.next(rev) {
			if out = append(out, orderAction{v, rev}); !w.inside {
				break
			}
		}
	}
	return out
}

func (w *orderWorld) next(s orderState, a orderAction) (orderState, bool) {
	n := &s.node
	if a.verb >= orderPurge && a.verb <= orderEvict && (n.phase == orderWatching || n.phase == orderStopped) {
		return s, false
	}
	switch a.verb {
	case orderPut, orderOther, orderDelete:
		return w.write(s, a.verb)
	case orderPurge:
		first := s.h.next(0)
		if s.purged || first == 0 || s.h.isValue(first) {
			return s, false
		}
		s.purged = true
		s.h.lose(first)
	case orderEvictOn:
		if !w.evicts || s.evicts {
			return s, false
		}
		s.evicts = true
	case orderEvict:
		s.h.lose(a.rev)
	case orderRecreate:
		if !w.recreated || s.log > 1 || s.h.last == 0 {
			return s, false
		}
		s.log, s.before, s.h = 2, s.h.truth(s.h.last), history{}
	case orderReceive:
		return w.receive(s)
	case orderCommit:
		if n.queue[0] == (orderItem{}) {
			return s, false
		}
		n.commit()
	case orderCut:
		if n.phase != orderWatching || s.cuts == orderCuts && s.log == n.noted {
			return s, false
		}
		s.cuts = min(s.cuts+1, orderCuts)
		n.phase, n.relist = orderDown, 0
	case orderLose:
		if s.lost || n.phase != orderWatching || n.queue[0] != (orderItem{}) || n.rows == (histRows{}) {
			return s, false
		}
		s.lost, n.cursor, n.seen, n.phase, n.relist = true, 0, 0, orderDown, 0
	case orderCrash:
		if s.crashed || n.phase == orderStopped {
			return s, false
		}
		s.crashed = true
		n.begin()
	case orderLie:
		if !w.lies || s.lied || n.phase != orderPlanned {
			return s, false
		}
		s.lied, n.listed, n.phase, n.of = true, orderListing{}, orderListed, s.log
	case orderRepair:
		return w.repairOn(s)
	}
	return s, true
}

func (w *orderWorld) write(s orderState, v orderVerb) (orderState, bool) {
	m := [...]histMsg{histPut(0), histPut(1), histDelete(0)}[v]
	if s.h.last >= w.revs || m.isMarker() && s.h.latest(0) == 0 {
		return s, false
	}
	s.h.write(m)
	return s, true
}

// room is the queue's first free place; ok is false when there is none.
func (n *orderNode) room() (at int, ok bool) {
	for at = range n.queue {
		if n.queue[at] == (orderItem{}) {
			return at, true
		}
	}
	return 0, false
}

// receive takes the next message of the watch: of a re-list the next current value, else what comes next.
func (w *orderWorld) receive(s orderState) (orderState, bool) {
	n := &s.node
	at, ok := n.room()
	if n.phase != orderWatching || !ok || at == len(n.queue)-1 || s.log != n.noted {
		return s, false
	}
	rev := uint8(0)
	for n.relist != 0 && rev == 0 {
		if r := uint8(bits.TrailingZeros8(n.relist)) + 1; s.h.holds(r) {
			rev = r
		}
		n.relist &= n.relist - 1
	}
	if rev == 0 {
		if rev = s.h.next(n.base); rev == 0 {
			return s, s.node.relist != 0
		}
		if protocol.LiveGapIsExpiry(s.evicts, uint64(n.base), uint64(s.h.first())) {
			n.phase = orderEnded
			return s, true
		}
		n.base = rev
	}
	n.queue[at] = orderItem{msg: s.h.at(rev), rev: rev}
	n.seen = max(n.seen, rev)
	return s, true
}

// commit takes the oldest update of the queue into the store. A repair's delete whose row is another one is left out.
func (n *orderNode) commit() {
	u := n.queue[0]
	copy(n.queue[:], n.queue[1:])
	n.queue[len(n.queue)-1] = orderItem{}
	switch {
	case u.rev != 0:
		n.rows.apply(u.msg, u.rev)
		n.cursor = max(n.cursor, u.rev)
	case u.expect == 0 || n.rows[u.msg.key()] == u.expect:
		n.rows[u.msg.key()] = 0
	}
}

// begin is a start from what is in the store.
func (n *orderNode) begin() {
	*n = orderNode{rows: n.rows, cursor: n.cursor, seen: n.cursor, noted: n.noted, owed: n.owed, phase: orderDown}
}

// open resumes after what was received, or has the fold repaired, or stops.
func (w *orderWorld) open(s *orderState) {
	n := &s.node
	n.base, n.relist = n.seen, 0
	first, cursor := uint64(s.h.first()), uint64(n.seen)
	if w.forge.window != nil {
		w.forge.window(&cursor, &first)
	}
	log := protocol.LogIsSame(protocol.LogSeen{NotedCreated: int64(n.noted), Created: int64(s.log), Cursor: uint64(n.seen), Last: uint64(s.h.last)})
	switch {
	case n.seen == 0:
		n.phase, n.lost = orderEnded, true
	case log == protocol.LogReplaced || log == protocol.LogRewound:
		n.stop()
	case !protocol.ResumeWindowOK(cursor, first):
		n.phase, n.lost = orderEnded, false
	default:
		n.phase = orderWatching
		n.owed = n.owed || w.inside && s.evicts // a gap may be one of these
	}
}

func (s *orderState) info() orderInfo {
	return orderInfo{log: s.log, first: s.h.first(), last: s.h.last, keys: s.h.keys()}
}

func (w *orderWorld) truth(s *orderState, i orderInfo) protocol.Truth {
	r := protocol.Retention{Known: true, Evicts: s.evicts, Inside: s.evicts && w.inside, First: uint64(i.first)}
	if w.forge.retention != nil {
		w.forge.retention(&r)
	}
	return protocol.ListingTruth(r, false)
}

// plan is what the repair may do by a reading of the log. The first one compares the logs.
func (w *orderWorld) plan(s *orderState, i orderInfo, compare bool) protocol.Plan {
	in := protocol.PlanInput{Cause: protocol.CauseExpired, Truth: w.truth(s, i)}
	if s.node.lost {
		in.Cause = protocol.CauseNoCursor
	}
	// No watch has compared the logs, or one has before this one was there.
	seen := protocol.LogSeen{NotedCreated: int64(s.node.noted), Created: int64(i.log), Cursor: uint64(s.node.cursor), Last: uint64(i.last)}
	if log := protocol.LogIsSame(seen); compare && log == protocol.LogReplaced && !w.forge.compareNot {
		in.Cause = protocol.CauseReplaced
	}
	if w.forge.plan != nil {
		w.forge.plan(&in)
	}
	return protocol.PlanRepair(in)
}

// planned goes on by the plan; ok is false where that is not to delete what is not listed.
func (w *orderWorld) planned(s *orderState, p protocol.Plan) (ok bool) {
	switch p {
	case protocol.PlanRelist:
		return true
	case protocol.PlanAdopt:
		s.node.noted = s.log
		return true
	}
	s.node.stop()
	return false
}

func (w *orderWorld) repairOn(s orderState) (orderState, bool) {
	n := &s.node
	switch n.phase {
	case orderWatching:
		if n.stale == 0 { // else the deletes come late
			return s, false
		}
		return w.queueDeletes(s)
	case orderDown:
		w.open(&s)
	case orderEnded:
		if n.queue[0] != (orderItem{}) && !w.forge.noDrain {
			return s, false
		}
		n.info, n.phase = s.info(), orderPlanned
		plan := w.plan(&s, n.info, true)
		if n.lost && plan != protocol.PlanStop && !w.cursorlessNeedsRepair(&s) {
			n.info.last = 0
			w.relist(&s)
			return s, true
		}
		w.planned(&s, plan)
	case orderPlanned:
		n.phase, n.of = orderListed, s.log
		n.listed = orderListing{rows: s.h.listing(), keys: s.h.keys()}
		for k := range uint8(histKeys) {
			if rev := s.h.latest(k); s.h.holds(rev) {
				n.listed.top = max(n.listed.top, rev)
			}
		}
	case orderListed:
		w.judge(&s)
	case orderJudged:
		if w.forge.noBarrier {
			stale := n.stale
			w.relist(&s)
			n.stale = stale
			return s, true
		}
		return w.queueDeletes(s)
	case orderDeleted:
		if n.queue[0] != (orderItem{}) {
			return s, false
		}
		w.relist(&s)
	default:
		return s, false
	}
	return s, true
}

func (n *orderNode) stop() {
	*n = orderNode{rows: n.rows, cursor: n.cursor, noted: n.noted, owed: n.owed, phase: orderStopped}
}

func (w *orderWorld) cursorlessNeedsRepair(s *orderState) bool {
	hasData := s.node.rows != (histRows{})
	if w.forge.hasData != nil {
		w.forge.hasData(&hasData)
	}
	return protocol.CursorlessStartNeedsRepair(protocol.RepairAuto, false, hasData, w.truth(s, s.node.info))
}

// judge takes the listing as evidence or not, and decides what is stale by it.
func (w *orderWorld) judge(s *orderState) {
	n := &s.node
	after := s.info()
	l := protocol.Listing{CreatedPlanned: int64(n.info.log), CreatedAfter: int64(after.log), HeadBefore: uint64(n.info.last), HeadAfter: uint64(after.last),
		Highest: uint64(n.listed.top), Listed: uint64(n.listed.keys)}
	if !w.filtered {
		l.KeysBefore, l.KeysAfter = uint64(n.info.keys), uint64(after.keys)
	}
	if w.forge.listing != nil {
		w.forge.listing(&l)
	}
	switch {
	case !protocol.ListingPlausible(l):
		n.begin() // it is tried again, by a new watch first
		return
	case !w.forge.planOnce && !w.planned(s, w.plan(s, after, false)):
		return
	}
	stale, rows := uint8(0), uint64(0)
	for k, row := range n.rows {
		rows += uint64(asUint8(row != 0))
		if row != 0 && n.listed.rows[k] == 0 {
			stale |= 1 << k
		}
	}
	if n.again {
		stale &= n.stale
	}
	if w.forge.headLate {
		n.info.last = after.last
	}
	n.stale, n.listed = stale, orderListing{}
	deletes, rows := w.weight*uint64(bits.OnesCount8(stale)), w.weight*rows
	if w.forge.brake != nil {
		w.forge.brake(&deletes, &rows)
	}
	if n.phase = orderJudged; !n.again && protocol.NeedsSecondListing(deletes, rows) {
		n.again, n.phase = true, orderPlanned
	}
}

func (w *orderWorld) queueDeletes(s orderState) (orderState, bool) {
	n := &s.node
	for k := range uint8(histKeys) {
		if n.stale>>k&1 == 0 {
			continue
		}
		at, ok := n.room()
		if !ok {
			return s, false
		}
		n.queue[at] = orderItem{msg: histDelete(k), expect: n.rows[k]}
		if w.forge.noBarrier {
			n.queue[at].expect = 0
		}
	}
	if n.stale = 0; n.phase == orderJudged {
		n.phase = orderDeleted
	}
	return s, true
}

// relist opens the watch that begins with every current value.
func (w *orderWorld) relist(s *orderState) {
	n := &s.node
	if protocol.LogIsSame(protocol.LogSeen{NotedCreated: int64(n.noted), Created: int64(s.log), Last: uint64(s.h.last)}) == protocol.LogReplaced {
		n.stop()
		return
	}
	gap := protocol.Gap{Missing: n.info.last != 0 && s.h.last > n.info.last, Markers: protocol.MarkersUnsealed}
	if w.forge.gap != nil {
		w.forge.gap(&gap)
	}
	owed := n.owed || protocol.GapNeedsAudit(gap) || s.evicts
	*n = orderNode{rows: n.rows, cursor: n.cursor, noted: n.noted, owed: owed, seen: n.cursor, base: s.h.last, queue: n.queue}
	for rev := s.h.next(0); rev != 0; rev = s.h.next(rev) {
		n.relist |= 1 << (rev - 1)
	}
}
