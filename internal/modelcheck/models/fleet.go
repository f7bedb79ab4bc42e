package models

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"

	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// A fleet on one bucket: nodes that follow its log, publish what they hold, and are repaired from the bucket's listing or
// from each other's artifacts. They begin, and begin again, by what Start and Bootstrap ask the kernels; a node that
// bootstraps and one that seeds its empty store by a repair take the same artifact by the same rules. Keys are written and
// deleted; the log keeps its values, but for what an administrator purges, or loses them from its head.
//
// Left out: the steps within a publication (publish.go), within a repair (the repair's own model and relistorder.go), and
// of flushes: what is received is committed. Only an administrator's purge waits for the nodes that watch. A node that
// can't be repaired waits, and tries again when something changes.

type fleetPhase uint8

const (
	fleetOff  fleetPhase = iota // never started
	fleetDown                   // without a watch
	fleetLive
)

type fleetNode struct {
	phase  fleetPhase
	rows   histRows
	cursor uint8
	// base is what the watch goes on after, relist what it has to deliver of a re-list before.
	base, relist uint8
	evicts       bool // retention could take values when the watch began
	memo, owed   bool
	restored     bool
}

// fleetArtifact is what a node exported; without a cursor it is none.
type fleetArtifact struct {
	rows                 histRows
	cursor               uint8
	memo, owed, restored bool
}

type fleetState struct {
	h      history
	evicts bool // retention may take values now
	ended  bool // and did, and no longer may
	// cuts is how often a watch was cut, torn that a cursor was lost, once.
	cuts      uint8
	torn      bool
	nodes     [3]fleetNode
	artifacts [2]fleetArtifact // the newest first
}

type fleetWorld struct {
	name string
	deep bool
	revs uint8
	cuts uint8
	// synced and fresh are how many nodes begin with the log, and how many may come later.
	synced, fresh int
	evicts        bool
	// ends: retention may be turned off. tears: a cursor may be lost. restores: repairs may be told not to re-list.
	ends, tears, restores bool
	forge                 fleetForge
}

// fleetForge is what a mutation does to it.
type fleetForge struct {
	memo       func(*protocol.Retention) // of HasEvicted
	truth      func(r *protocol.Retention, seen *bool)
	plan       func(*protocol.PlanInput)
	cursorless func(m *protocol.RepairMode, source, hasData *bool, t *protocol.Truth)
	allowed    func(artifact, local *protocol.Position, log *protocol.LogBounds)
	key        func(local, artifact *protocol.KeyState, identical, listed *bool)
	window     func(cursor, first *uint64)
	gap        func(evicts *bool, base, first *uint64)
	publish    func(current *protocol.PointerState, candidate *protocol.Position)
	memoLost   bool // a restore does not take over the artifact's memo
}

type fleetVerb uint8

const (
	fleetPut fleetVerb = iota // the first key
	fleetOther
	fleetDelete
	fleetEvict
	fleetPurge
	fleetEnd
	fleetDeliver
	fleetCut
	fleetTear
	fleetStart
	fleetBootstrap
	fleetRepair
	fleetRestore // a repair that is told not to re-list
	fleetPublish
	fleetVerbs
)

type fleetAction struct {
	verb fleetVerb
	n    uint8
}

func (a fleetAction) String() string {
	name := [...]string{"put k", "put l", "del k", "the oldest message ages out", "the oldest marker is purged", "retention is turned off",
		"receives", "is cut off", "loses its cursor", "starts", "bootstraps", "is repaired", "is restored", "publishes"}[a.verb]
	if a.verb < fleetDeliver {
		return name
	}
	return fmt.Sprintf("node %d %s", a.n, name)
}

func (w *fleetWorld) actions(_ fleetState, out []fleetAction) []fleetAction {
	for v := range fleetVerbs {
		switch {
		case v < fleetDeliver:
			out = append(out, fleetAction{verb: v})
		case v == fleetTear && !w.tears, v == fleetRestore && !w.restores:
		default:
			for n := range w.synced + w.fresh {
				out = append(out, fleetAction{v, uint8(n)})
			}
		}
	}
	return out
}

func (w *fleetWorld) next(s fleetState, a fleetAction) (fleetState, bool) {
	if a.verb < fleetDeliver {
		return w.outside(s, a.verb)
	}
	n, ok := &s.nodes[a.n], true
	switch a.verb {
	case fleetDeliver:
		ok = w.deliver(&s, n)
	case fleetCut:
		if n.phase != fleetLive || s.cuts >= w.cuts {
			return s, false
		}
		s.cuts++
		n.phase, n.base, n.relist, n.evicts = fleetDown, 0, 0, false
	case fleetTear:
		if s.torn || n.phase != fleetLive || n.cursor == 0 || n.rows == (histRows{}) {
			return s, false
		}
		s.torn = true
		*n = fleetNode{phase: fleetDown, rows: n.rows, owed: n.owed}
	case fleetStart:
		if n.phase != fleetDown || n.cursor == 0 || !w.windowOK(&s, n.cursor) {
			return s, false
		}
		n.phase, n.base, n.evicts = fleetLive, n.cursor, s.evicts
		w.remember(&s, n)
	case fleetBootstrap:
		ok = n.phase == fleetOff && slices.ContainsFunc(s.artifacts[:], func(a fleetArtifact) bool { return w.restore(&s, n, a) })
	case fleetRepair:
		ok = w.repair(&s, n, protocol.RepairAuto)
	case fleetRestore:
		ok = w.repair(&s, n, protocol.RepairRestore)
	case fleetPublish:
		ok = w.publish(&s, n)
	}
	return s, ok
}

// outside is what happens to the log.
func (w *fleetWorld) outside(s fleetState, v fleetVerb) (fleetState, bool) {
	first := s.h.next(0)
	switch v {
	case fleetPut, fleetOther, fleetDelete:
		m := [...]histMsg{histPut(0), histPut(1), histDelete(0)}[v]
		if s.h.last >= w.revs || m.isMarker() && s.h.latest(0) == 0 {
			return s, false
		}
		s.h.write(m)
		return s, true
	case fleetEnd:
		// What follows the log has read what retention takes, while it did, and nothing older is left. Without that, nobody
		// could tell.
		unread := slices.ContainsFunc(s.nodes[:], func(n fleetNode) bool { return n.phase == fleetDown }) ||
			slices.ContainsFunc(s.artifacts[:], func(a fleetArtifact) bool { return a.cursor != 0 && !a.memo })
		if !w.ends || !s.evicts || s.h.first() <= 1 || unread {
			return s, false
		}
		s.evicts, s.ended = false, true
		return s, true
	case fleetEvict:
		if !s.evicts || first == 0 {
			return s, false
		}
	case fleetPurge:
		late := func(n fleetNode) bool { return n.phase == fleetLive && (n.cursor < first || n.relist != 0) }
		if w.evicts || first == 0 || s.h.isValue(first) || slices.ContainsFunc(s.nodes[:], late) {
			return s, false
		}
	}
	s.h.lose(first)
	for i := range s.nodes {
		if n := &s.nodes[i]; n.phase == fleetLive {
			w.remember(&s, n)
		}
	}
	return s, true
}

func (s *fleetState) retention() protocol.Retention {
	return protocol.Retention{Known: true, Evicts: s.evicts, First: uint64(s.h.first())}
}

// remember has the node read the log's settings.
func (w *fleetWorld) remember(s *fleetState, n *fleetNode) {
	r := s.retention()
	if w.forge.memo != nil {
		w.forge.memo(&r)
	}
	n.memo = n.memo || protocol.HasEvicted(r)
}

func (w *fleetWorld) windowOK(s *fleetState, cursor uint8) bool {
	at, first := uint64(cursor), uint64(s.h.first())
	if w.forge.window != nil {
		w.forge.window(&at, &first)
	}
	return protocol.ResumeWindowOK(at, first)
}

// deliver takes the next message of the watch into the fold.
func (w *fleetWorld) deliver(s *fleetState, n *fleetNode) bool {
	if n.phase != fleetLive {
		return false
	}
	if n.relist != 0 {
		rev := uint8(bits.TrailingZeros8(n.relist)) + 1
		n.relist &= n.relist - 1
		if s.h.holds(rev) {
			n.take(s, rev)
		}
		if n.relist == 0 {
			n.cursor = max(n.cursor, n.base) // the frontier
			w.whole(s, n)
		}
		return true
	}
	evicts, base, first := s.evicts || n.evicts, uint64(n.base), uint64(s.h.first())
	if w.forge.gap != nil {
		w.forge.gap(&evicts, &base, &first)
	}
	if protocol.LiveGapIsExpiry(evicts, base, first) {
		n.phase, n.base, n.evicts = fleetDown, 0, false
		return true
	}
	rev := s.h.next(n.base)
	if rev == 0 {
		return false
	}
	n.base = rev
	n.take(s, rev)
	return true
}

func (n *fleetNode) take(s *fleetState, rev uint8) {
	n.rows.apply(s.h.at(rev), rev)
	n.cursor = max(n.cursor, rev)
}

// whole settles what a re-list owes where retention has taken nothing by now.
func (w *fleetWorld) whole(s *fleetState, n *fleetNode) {
	if n.owed && !n.memo && protocol.ListingTruth(s.retention(), false) == protocol.TruthYes {
		n.owed = false
	}
}

// repair is one of a node that has no cursor, or whose cursor has expired; ok is false where it is refused.
func (w *fleetWorld) repair(s *fleetState, n *fleetNode, mode protocol.RepairMode) (ok bool) {
	if n.phase == fleetLive || n.cursor != 0 && w.windowOK(s, n.cursor) || n.phase == fleetOff && s.ended {
		return false
	}
	w.remember(s, n)
	r, seen := s.retention(), n.memo
	if w.forge.truth != nil {
		w.forge.truth(&r, &seen)
	}
	in := protocol.PlanInput{Cause: protocol.CauseExpired, Mode: mode, Source: true, Truth: protocol.ListingTruth(r, seen)}
	if n.cursor == 0 {
		in.Cause = protocol.CauseNoCursor
		m, source, hasData, t := mode, true, n.rows != (histRows{}), in.Truth
		if w.forge.cursorless != nil {
			w.forge.cursorless(&m, &source, &hasData, &t)
		}
		if !protocol.CursorlessStartNeedsRepair(m, source, hasData, t) {
			n.beginRelist(s)
			return true
		}
	}
	if w.forge.plan != nil {
		w.forge.plan(&in)
	}
	switch protocol.PlanRepair(in) {
	case protocol.PlanRelist:
		listed := s.h.listing()
		for k := range n.rows {
			if listed[k] == 0 {
				n.rows[k] = 0
			}
		}
		n.beginRelist(s)
		return true
	case protocol.PlanRestore:
		for _, a := range s.artifacts {
			if w.restore(s, n, a) {
				return true
			}
		}
	}
	return false
}

// beginRelist opens the watch that begins with every current value. Where retention can come in between, that is owed.
func (n *fleetNode) beginRelist(s *fleetState) {
	n.phase, n.base, n.relist, n.evicts = fleetLive, s.h.last, 0, s.evicts
	n.owed = n.owed || s.evicts
	for rev := s.h.next(0); rev != 0; rev = s.h.next(rev) {
		n.relist |= 1 << (rev - 1)
	}
}

// restore takes over an artifact; taken is false where it is no good.
func (w *fleetWorld) restore(s *fleetState, n *fleetNode, a fleetArtifact) (taken bool) {
	at, local := protocol.Position{Log: 1, Revision: uint64(a.cursor)}, protocol.Position{Log: 1, Revision: uint64(n.cursor)}
	log := protocol.LogBounds{Log: 1, First: uint64(s.h.first()), Last: uint64(s.h.last)}
	if w.forge.allowed != nil {
		w.forge.allowed(&at, &local, &log)
	}
	if a.cursor == 0 || !protocol.RestoreAllowed(at, local, log) {
		return false
	}
	listed, rows := s.h.listing(), n.rows
	for k := range rows {
		if n.rows[k] != 0 && a.rows[k] == 0 && listed[k] > n.rows[k] && listed[k] <= a.cursor {
			return false // it lacks what the resume would not deliver either
		}
		mine, theirs := protocol.KeyState{Present: n.rows[k] != 0, Revision: uint64(n.rows[k])}, protocol.KeyState{Present: a.rows[k] != 0, Revision: uint64(a.rows[k])}
		same, lists := n.rows[k] == a.rows[k], listed[k] != 0
		if w.forge.key != nil {
			w.forge.key(&mine, &theirs, &same, &lists)
		}
		switch protocol.RestoreKey(mine, theirs, same, lists) {
		case protocol.RestoreTake:
			rows[k] = a.rows[k]
		case protocol.RestoreDelete:
			rows[k] = 0
		}
	}
	*n = fleetNode{phase: fleetDown, rows: rows, cursor: a.cursor, memo: n.memo || a.memo && !w.forge.memoLost, owed: a.owed, restored: w.evicts}
	return true
}

// publish makes what the node holds the newest artifact. Another one at the same cursor would say the same.
func (w *fleetWorld) publish(s *fleetState, n *fleetNode) (ok bool) {
	newest := s.artifacts[0]
	current := protocol.PointerState{Present: newest.cursor != 0, Readable: newest.cursor != 0, At: protocol.Position{Log: 1, Revision: uint64(newest.cursor)}}
	at, live := protocol.Position{Log: 1, Revision: uint64(n.cursor)}, protocol.Position{Log: 1, Revision: uint64(s.h.last)}
	if w.forge.publish != nil {
		w.forge.publish(&current, &at)
	}
	if n.phase != fleetLive || n.cursor == 0 || n.cursor == newest.cursor || !protocol.PointerPublishAllowed(current, at, live) {
		return false
	}
	if s.artifacts[0] = (fleetArtifact{n.rows, n.cursor, n.memo, n.owed, n.restored}); w.evicts {
		s.artifacts[1] = newest // where nothing is evicted, nothing has to be restored by an older one
	}
	return true
}

func (w *fleetWorld) model() modelcheck.Model[fleetState, fleetAction] {
	begin := fleetState{evicts: w.evicts}
	for i := range w.synced {
		begin.nodes[i].phase, begin.nodes[i].evicts = fleetLive, w.evicts
	}
	return modelcheck.Model[fleetState, fleetAction]{
		Name: w.name, Init: []fleetState{begin}, Actions: w.actions, Next: w.next, Encode: fleetEncode, Properties: w.properties(), ShowState: fleetShow,
	}
}

const fleetNodeBytes = 7

// fleetEncode takes nodes as alike.
func fleetEncode(s fleetState, out []byte) []byte {
	out = s.h.encode(out)
	out = append(out, asUint8(s.evicts)|asUint8(s.ended)<<1|asUint8(s.torn)<<2, s.cuts)
	for _, a := range s.artifacts {
		out = append(out, a.rows[0], a.rows[1], a.cursor, asUint8(a.memo)|asUint8(a.owed)<<1|asUint8(a.restored)<<2)
	}
	var nodes [3][fleetNodeBytes]byte
	for i, n := range s.nodes {
		nodes[i] = [...]byte{byte(n.phase), n.rows[0], n.rows[1], n.cursor, n.base, n.relist, asUint8(n.memo) | asUint8(n.owed)<<1 | asUint8(n.restored)<<2 | asUint8(n.evicts)<<3}
	}
	slices.SortFunc(nodes[:], func(a, b [fleetNodeBytes]byte) int { return bytes.Compare(a[:], b[:]) })
	for _, n := range nodes {
		out = append(out, n[:]...)
	}
	return out
}

func fleetShow(s fleetState) string {
	out := fmt.Sprintf("%v", s.h)
	for i, n := range s.nodes {
		if n == (fleetNode{}) {
			continue
		}
		out += fmt.Sprintf("; node %d %s %v at %d", i, [...]string{"off", "down", "live"}[n.phase], n.rows, n.cursor)
		if n.relist != 0 {
			out += fmt.Sprintf(" re-lists %b", n.relist)
		}
		if n.owed {
			out += " owes"
		}
	}
	for _, a := range s.artifacts {
		if a.cursor != 0 {
			out += fmt.Sprintf("; artifact %v at %d owes %t", a.rows, a.cursor, a.owed)
		}
	}
	return out
}
