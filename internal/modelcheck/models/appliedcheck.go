package models

import (
	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

const (
	appliedComplete = "what is held is complete up to the durable cursor"
	appliedAnchored = "what lies between the durable cursor and the watch is held or queued"
	appliedForward  = "the durable cursor never goes back"
	appliedHooks    = "nothing is in the store that hooks have not returned for"
	appliedReported = "a cursor that was told is durable"
	appliedClean    = "a clean stop leaves nothing behind"
	appliedHydrated = "caught up is having all that the log held when the watch began"
	appliedOnce     = "hooks that have returned are not run again"
	appliedCovers   = "a commit's cursor covers each known revision in it"
	appliedHead     = "the durable cursor comes to the head"
)

func (w *appliedWorld) properties() []modelcheck.Property[appliedState] {
	type state = appliedState
	all := []modelcheck.Property[state]{
		modelcheck.Always(appliedComplete, func(s state) bool { return s.held(w).covers(upTo(s.durable(w))) }),
		modelcheck.Always(appliedAnchored, func(s state) bool {
			have := s.held(w) | s.queued()
			return (!s.p.watching || have.covers(upTo(s.pos))) && (!s.p.has(askedOpen) || have.covers(upTo(uint8(s.p.opening.After.Revision()))))
		}),
		modelcheck.Step(appliedForward, func(before state, _ appliedAct, after state) bool { return before.durable(w) <= after.durable(w) }),
		modelcheck.Always(appliedReported, func(s state) bool { return !w.cfg.HasStore || s.reported <= s.cursor }),
		modelcheck.Always(appliedClean, func(s state) bool { return s.p.stop != stoppedClean || s.held(w).covers(upTo(s.pos)) }),
		modelcheck.Always(appliedHydrated, func(s state) bool { return s.broken&brokenHydrated == 0 }),
		modelcheck.Always(appliedOnce, func(s state) bool { return s.broken&brokenTwice == 0 }),
		modelcheck.Always(appliedCovers, func(s state) bool { return s.broken&brokenCover == 0 }),
		modelcheck.FairEventually(appliedHead, func(s state) bool { return s.p.up() && s.durable(w) == s.last }),

		modelcheck.Sometimes("a failed flush waits while more is queued behind it", func(s state) bool {
			return s.p.has(askedTimer(machine.TimerRetry)) && int(s.p.queued) > len(s.p.flush.Segments)
		}),
		modelcheck.Sometimes("the watch is two updates ahead of the durable cursor", func(s state) bool { return s.p.watching && s.pos >= s.durable(w)+2 }),
		modelcheck.Sometimes("an update without a version is held past the cursor", func(s state) bool {
			return s.unknowns < w.unknowns && s.p.up() && s.p.queued == 0 && !s.p.hooked && s.held(w) > upTo(s.durable(w))
		}),
	}
	if w.faults >= uint8(w.cfg.MaxFailures) {
		all = append(all, modelcheck.Sometimes("a flush that failed too often ends the fold", func(s state) bool { return s.p.stop == stoppedFailing }))
	}
	if w.shutdowns > 0 {
		all = append(all,
			modelcheck.Sometimes("a deadline ends the fold with something queued", func(s state) bool { return s.p.stop == stoppedLate && !s.held(w).covers(upTo(s.pos)) }),
			modelcheck.Sometimes("a clean stop is at the head", func(s state) bool { return s.p.stop == stoppedClean && s.durable(w) == s.last && s.last > 0 }))
	}
	if w.cfg.HasStore {
		all = append(all,
			modelcheck.Always(appliedHooks, func(s state) bool { return s.hooked.covers(s.contents) }),
			modelcheck.Sometimes("a crash leaves the store ahead of its cursor", func(s state) bool { return !s.p.up() && s.contents > upTo(s.cursor) }))
	}
	return all
}

// The sizes of a segment and of the queue are small, so that they are all met.
func appliedConfig() machine.Config {
	return machine.Config{HasStore: true, MaxUpdates: 2, MaxBytes: 1, BulkUpdates: 100, BulkBytes: 1, QueueUpdates: 3, QueueBytes: 1, MaxFailures: 2}
}

func appliedWorlds() []appliedWorld {
	shipped := appliedWorld{name: "applied", revs: 4, unknowns: 1, faults: 2, crashes: 1, cfg: appliedConfig()}
	stops := shipped
	stops.name, stops.revs, stops.shutdowns = "applied-stops", 3, 1
	windowed := stops
	windowed.name, windowed.faults, windowed.cfg.Windowed = "applied-windowed", 1, true
	bulk := stops
	bulk.name, bulk.faults, bulk.cfg.BulkUpdates, bulk.cfg.MaxUpdates = "applied-bulk", 1, 2, 1
	hooks := stops
	hooks.name, hooks.cfg.HasStore = "applied-hooks-only", false
	return []appliedWorld{shipped, stops, windowed, bulk, hooks}
}

func appliedModels() (all []modelcheck.Case) {
	for _, w := range appliedWorlds() {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{}))
	}
	deep := appliedWorlds()[0]
	deep.name, deep.revs, deep.faults, deep.unknowns, deep.crashes, deep.shutdowns = "applied-deep", 5, 3, 2, 2, 1
	return append(all, modelcheck.DeepCaseOf(deep.model(), modelcheck.Options{MaxStates: 60_000_000}))
}

func appliedMutations() []modelcheck.Mutation {
	var all []modelcheck.Mutation
	add := func(name, property string, steps int, forge appliedForge, ignore ...string) {
		w := appliedWorlds()[0]
		if w.forge = forge; property == appliedHead {
			w.revs = 2 // a whole search
		}
		all = append(all, modelcheck.MutationOf("applied/"+name, w.model(), modelcheck.Options{Ignore: ignore}, property, steps))
	}
	add("a failed batch is dropped", appliedAnchored, 8, appliedForge{dropsFailed: true})
	add("a failed batch goes behind what came after it", appliedComplete, 20, appliedForge{requeuesFailed: true}, appliedReported, appliedHydrated)
	add("hooks that failed count as returned", appliedHooks, 8, appliedForge{hooksSwallowed: true})
	add("the store applies before the hooks return", appliedHooks, 8, appliedForge{storeFirst: true})
	add("a commit is told before it is durable", appliedReported, 8, appliedForge{ackFirst: true})
	add("a start resumes after what was received", appliedAnchored, 8, appliedForge{resume: func(c *kv.Cursor, s *appliedState) {
		*c = kv.CursorAt(uint64(max(s.pos, s.cursor)))
	}})
	add("a start resumes without the store's cursor", appliedForward, 20, appliedForge{resume: func(c *kv.Cursor, _ *appliedState) { *c = kv.Cursor{} }})
	add("the cursor is the last update's, not the highest", appliedForward, 20, appliedForge{commit: func(f *machine.Flush, all []change) []change {
		for _, c := range all {
			if f.Cursor = kv.CursorAt(uint64(c.rev())); c.isUnknown() {
				f.Cursor = kv.Cursor{}
			}
		}
		return all
	}}, appliedReported, appliedCovers)
	add("an unknown version counts as one", appliedComplete, 20, appliedForge{segment: func(m *machine.Segment, of segment, s *appliedState) {
		for _, c := range of.changes() {
			if c.isUnknown() {
				m.High = kv.Revision(uint64(s.pos) + 1)
			}
		}
	}})
	add("a segment's highest revision is not told", appliedCovers, 20, appliedForge{segment: func(m *machine.Segment, _ segment, _ *appliedState) { m.High = kv.Version{} }})
	add("a segment's frontier is not told", appliedHead, 20, appliedForge{segment: func(m *machine.Segment, _ segment, _ *appliedState) { m.Frontier = 0 }})
	add("a segment's frontier is the log's end", appliedAnchored, 20, appliedForge{segment: func(m *machine.Segment, _ segment, s *appliedState) { m.Frontier = uint64(s.last) }})
	add("the frontier moves while messages are under way", appliedComplete, 20, appliedForge{probe: func(f *protocol.Frontier) { f.Received = f.Delivered }})
	add("the frontier moves while messages are pending", appliedComplete, 20, appliedForge{probe: func(f *protocol.Frontier) { f.Pending = 0 }})
	add("a watch does not tell the log's end", appliedHydrated, 20, appliedForge{opened: func(o *machine.Opened) { o.Head = 0 }})
	add("of a flush of several segments only the last is applied", appliedComplete, 20, appliedForge{commit: func(f *machine.Flush, all []change) []change {
		if len(f.Segments) > 1 {
			return segment(f.Segments[len(f.Segments)-1]).changes()
		}
		return all
	}})
	return all
}
