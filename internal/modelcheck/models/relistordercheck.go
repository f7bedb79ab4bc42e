package models

import (
	"fmt"
	"strings"

	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

const (
	orderNoPhantom = "no repair deletes a current value"
	orderUntouched = "nothing is deleted by what another log lists"
	orderOneLog    = "no other log is followed unasked"
	orderComplete  = "the store and what the log still has after its cursor are the truth"
	orderEnds      = "every run ends with the bucket's truth, with an audit owed, or stopped"
)

func (w *orderWorld) model() modelcheck.Model[orderState, orderAction] {
	begin := orderState{log: 1, node: orderNode{noted: 1}}
	return modelcheck.Model[orderState, orderAction]{
		Name: w.name, Init: []orderState{begin}, Actions: w.actions, Next: w.next, Encode: orderEncode, Properties: w.properties(), ShowState: orderShow,
	}
}

func orderEncode(s orderState, out []byte) []byte {
	n := &s.node
	out = s.h.encode(out)
	flags := asUint8(s.evicts) | asUint8(s.purged)<<1 | asUint8(s.lost)<<2 | asUint8(s.crashed)<<3 | asUint8(s.lied)<<4 |
		asUint8(n.owed)<<5 | asUint8(n.lost)<<6 | asUint8(n.again)<<7
	out = append(out, s.log, flags, s.cuts, n.cursor, n.noted, byte(n.phase), n.seen, n.base, n.relist, n.stale, n.listed.keys, n.listed.top, n.of)
	out = append(out, n.info.log, n.info.first, n.info.last, n.info.keys)
	for k := range n.rows {
		out = append(out, s.before[k], n.rows[k], n.listed.rows[k])
	}
	for _, u := range n.queue {
		out = append(out, byte(u.msg), u.rev, u.expect)
	}
	return out
}

func orderShow(s orderState) string {
	var b strings.Builder
	n := &s.node
	phase := [...]string{"watching", "down", "ended", "planned", "listed", "judged", "deletes", "stopped"}[n.phase]
	fmt.Fprintf(&b, "%d: %v; %s, rows %v cursor %d seen %d", s.log, s.h, phase, n.rows, n.cursor, n.seen)
	if n.queue[0] != (orderItem{}) {
		fmt.Fprintf(&b, " queue %v", n.queue)
	}
	if n.phase > orderEnded && n.phase < orderStopped {
		fmt.Fprintf(&b, " info %+v listed %v stale %b again %t", n.info, n.listed, n.stale, n.again)
	}
	if n.owed {
		b.WriteString(" owed")
	}
	return b.String()
}

func (w *orderWorld) properties() []modelcheck.Property[orderState] {
	sometimes := modelcheck.Sometimes[orderState]
	all := []modelcheck.Property[orderState]{
		modelcheck.Step(orderNoPhantom, w.noPhantom),
		modelcheck.Step(orderUntouched, func(s orderState, a orderAction, to orderState) bool {
			n := &s.node
			return n.phase != orderJudged || to.node.phase != orderDeleted || n.stale == 0 || n.of == 1
		}),
		modelcheck.Always(orderOneLog, func(s orderState) bool { return s.node.noted == 1 }),
		modelcheck.Always(orderComplete, func(s orderState) bool {
			n := &s.node
			follows := n.phase == orderWatching && s.log == n.noted && !n.owed && n.cursor > 0
			return !follows || !s.h.begins(n.cursor) || s.h.replay(n.rows, n.cursor) == s.h.truth(s.h.last)
		}),
		modelcheck.Terminal(orderEnds, func(s orderState) bool {
			n := &s.node
			return n.phase == orderStopped || n.queue[0] == (orderItem{}) && n.phase == orderWatching && (n.owed || n.rows == s.h.truth(s.h.last))
		}),
		sometimes("a repair drains a backlog", func(s orderState) bool { return s.node.phase == orderEnded && s.node.queue[0] != (orderItem{}) }),
	}
	if !w.evicts {
		all = append(all, w.relists()...)
	}
	if w.recreated {
		all = append(all, sometimes("a bucket is re-created behind a listing", func(s orderState) bool {
			return s.node.phase == orderListed && s.node.info.log != s.log
		}))
	}
	if w.evicts {
		all = append(all, sometimes("retention takes a value behind a listing", func(s orderState) bool {
			n := &s.node
			return n.phase == orderListed && n.listed.rows == (histRows{}) && n.rows[1] != 0 && n.rows[1] == s.h.latest(1) && s.evicts
		}))
	}
	switch {
	case w.lies && !w.filtered:
		all = append(all, sometimes("an empty listing is not used", func(s orderState) bool { return s.lied && s.node.phase == orderDown && s.cuts == 0 && !s.crashed }))
	case w.lies:
		all = append(all, sometimes("a second listing has what the first one lacks", func(s orderState) bool {
			return s.node.again && s.node.phase == orderListed && s.node.listed.rows != (histRows{})
		}))
	}
	return all
}

func (w *orderWorld) relists() []modelcheck.Property[orderState] {
	sometimes := modelcheck.Sometimes[orderState]
	return []modelcheck.Property[orderState]{
		sometimes("a key is re-created after the listing", func(s orderState) bool {
			n := &s.node
			return n.phase == orderJudged && n.stale&1 == 1 && s.log == 1 && s.h.truth(s.h.last)[0] != 0
		}),
		sometimes("a key is re-created before the listing", func(s orderState) bool {
			n := &s.node
			return n.phase == orderListed && n.rows[0] != 0 && n.listed.rows[0] > n.rows[0]+1
		}),
		sometimes("a key is deleted for good, and its marker is gone", func(s orderState) bool {
			n := &s.node
			return n.phase == orderDeleted && n.queue[0].expect != 0 && s.log == 1 && !s.h.holds(s.h.latest(0))
		}),
		sometimes("a marker goes between the listing and the re-list", func(s orderState) bool {
			n := &s.node
			return n.owed && n.phase == orderWatching && n.relist == 0 && n.rows[0] != 0 && s.h.truth(s.h.last)[0] == 0 && !s.h.holds(s.h.latest(0))
		}),
	}
}

// noPhantom judges what a commit takes away by the log that the fold came from, be it there or gone.
func (w *orderWorld) noPhantom(s orderState, a orderAction, to orderState) bool {
	if a.verb != orderCommit || s.node.queue[0].rev != 0 {
		return true
	}
	truth := s.before
	if s.log == 1 {
		truth = s.h.truth(s.h.last)
	}
	k := s.node.queue[0].msg.key()
	return to.node.rows[k] == s.node.rows[k] || s.node.rows[k] != truth[k]
}

var (
	orderKeeps  = orderWorld{name: "re-list order", revs: 4, weight: 12}
	orderNewLog = orderWorld{name: "re-list order, a bucket that is re-created", revs: 3, weight: 12, recreated: true}
	orderEvicts = orderWorld{name: "re-list order, retention that is set meanwhile", revs: 3, weight: 12, evicts: true}
	orderInside = orderWorld{name: "re-list order, values that age out inside the log", revs: 3, weight: 12, evicts: true, inside: true}
	orderLies   = orderWorld{name: "re-list order, an empty listing of some keys", revs: 3, weight: 12, lies: true, filtered: true}
	orderShort  = orderWorld{name: "re-list order, an empty listing of all keys", revs: 3, weight: 1, lies: true}
)

func relistOrderModels() []modelcheck.Case {
	deep := orderKeeps
	deep.name, deep.revs, deep.deep = "re-list order, deep", 6, true
	var all []modelcheck.Case
	for _, w := range []orderWorld{orderKeeps, orderNewLog, orderEvicts, orderInside, orderLies, orderShort, deep} {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{MaxStates: 20_000_000}))
		all[len(all)-1].Deep = w.deep
	}
	return all
}

// relistOrderMutations has none for the version that a delete expects of its row alone: nothing else is committed between
// a repair's decision and its deletes. It is there for audits; without it, deletes after the re-list would do harm.
func relistOrderMutations() []modelcheck.Mutation {
	var all []modelcheck.Mutation
	add := func(w orderWorld, name, property string, steps int, forge orderForge, ignore ...string) {
		w.forge = forge
		all = append(all, modelcheck.MutationOf(name, w.model(), modelcheck.Options{Ignore: ignore}, property, steps))
	}
	retention := func(f func(*protocol.Retention)) orderForge { return orderForge{retention: f} }
	add(orderEvicts, "RelistOnEvicting: retention is taken for one that keeps values", orderNoPhantom, 20, retention(func(r *protocol.Retention) { r.Evicts = false }))
	add(orderEvicts, "the log is taken for one that has lost nothing", orderNoPhantom, 20, retention(func(r *protocol.Retention) { r.First = 1 }))
	add(orderInside, "values are taken to leave from the log's head only", orderNoPhantom, 20, retention(func(r *protocol.Retention) { r.Inside = false }))
	add(orderKeeps, "retention is never known", "a key is re-created after the listing", 60, retention(func(r *protocol.Retention) { r.Known = false }))

	plan := func(f func(*protocol.PlanInput)) orderForge { return orderForge{plan: f} }
	add(orderNewLog, "another log is taken for an expiry", orderUntouched, 20, plan(func(p *protocol.PlanInput) { p.Cause = protocol.CauseExpired }))
	add(orderNewLog, "another log is followed unasked", orderOneLog, 20, plan(func(p *protocol.PlanInput) { p.Adopt = true }))
	add(orderEvicts, "a listing is always taken for the truth", orderNoPhantom, 20, plan(func(p *protocol.PlanInput) { p.Truth = protocol.TruthYes }))

	listing := func(f func(*protocol.Listing)) orderForge { return orderForge{listing: f} }
	add(orderNewLog, "a listing of another log is used", orderUntouched, 20, listing(func(l *protocol.Listing) { l.CreatedAfter = l.CreatedPlanned }))
	add(orderNewLog, "the log is not compared with the planned one", orderUntouched, 20, listing(func(l *protocol.Listing) { l.CreatedPlanned = l.CreatedAfter }))
	add(orderShort, "what is listed is not counted", orderNoPhantom, 20, listing(func(l *protocol.Listing) { l.Listed = 99 }))
	add(orderShort, "the keys before a listing are not counted", orderNoPhantom, 20, listing(func(l *protocol.Listing) { l.KeysBefore = 0 }))
	add(orderShort, "the keys after a listing are not counted", orderNoPhantom, 20, listing(func(l *protocol.Listing) { l.KeysAfter = 0 }))

	add(orderLies, "deletes are not counted", orderNoPhantom, 20, orderForge{brake: func(deletes, _ *uint64) { *deletes = 0 }})
	add(orderLies, "the fold is taken for a large one", orderNoPhantom, 20, orderForge{brake: func(_, rows *uint64) { *rows = 1000 }})
	add(orderKeeps, "a marker between listing and re-list is not missed", orderEnds, 30, orderForge{gap: func(g *protocol.Gap) { g.Missing = false }}, orderComplete)
	add(orderKeeps, "markers are taken to be sealed", orderEnds, 30, orderForge{gap: func(g *protocol.Gap) { g.Markers = protocol.MarkersSealed }}, orderComplete)
	add(orderKeeps, "SilentClamp: the log's first revision is not looked at", orderComplete, 20, orderForge{window: func(_, first *uint64) { *first = 0 }})
	add(orderKeeps, "a resume is judged by a later cursor", orderComplete, 20, orderForge{window: func(cursor, _ *uint64) { *cursor += 2 }})
	add(orderKeeps, "a fold without a cursor is taken for empty", orderComplete, 20, orderForge{hasData: func(has *bool) { *has = false }})

	add(orderKeeps, "NoDrain: the fold is compared before its backlog is committed", orderComplete, 20, orderForge{noDrain: true})
	add(orderKeeps, "NoAckBarrier: deletes come after the re-list, whatever the row is", orderNoPhantom, 20, orderForge{noBarrier: true}, orderComplete)
	add(orderEvicts, "retention is not read again after the listing", orderNoPhantom, 20, orderForge{planOnce: true})
	add(orderKeeps, "the log's end is noted after the listing", orderEnds, 30, orderForge{headLate: true}, orderComplete)
	add(orderNewLog, "the logs are not compared again", orderUntouched, 20, orderForge{compareNot: true})
	return all
}
