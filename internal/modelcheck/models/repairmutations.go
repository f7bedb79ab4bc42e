package models

import (
	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// repairMutation is one mistake, in the smallest world that shows it.
type repairMutation struct {
	name, world, property string
	steps                 int
	forge                 repairForge
	ignore                []string
	// hard: it takes a fault, or a crash, to show it.
	hard bool
}

func repairMutations() (all []modelcheck.Mutation) {
	worlds := map[string]repairWorld{}
	for _, w := range repairWorlds() {
		worlds[w.name] = w
	}
	list := append(repairStepMutations(), repairKernelMutations()...)
	for _, m := range append(list, repairMachineMutations()...) {
		w := worlds[m.world]
		if w.forge = m.forge; !m.hard {
			w.faults, w.crashes = 0, 0
		}
		all = append(all, modelcheck.MutationOf("repair/"+m.name, w.model(), modelcheck.Options{Ignore: m.ignore}, m.property, m.steps))
	}
	return all
}

// repairStepMutations leave steps of a repair out, or change their order.
func repairStepMutations() []repairMutation {
	return []repairMutation{
		{name: "a restore sees the fold as it was before the backlog", world: "repair-evicting", property: repairTail, steps: 30,
			forge: repairForge{plansEarly: true}},
		{name: "a re-list's outcome is told before its deletes", world: "repair-keeps", property: repairWatching, steps: 30, forge: repairForge{toldFirst: true}},
		{name: "a restore's outcome is told before its changes", world: "repair-evicting", property: repairTail, steps: 30, forge: repairForge{toldFirst: true}},
		{name: "the watch after a re-list resumes", world: "repair-keeps", property: repairEnds, steps: 60, forge: repairForge{relistDropped: true}},
		{name: "a re-list's cursor is where the listing ended", world: "repair-keeps", property: repairTail, steps: 30,
			forge: repairForge{onOutcome: func(r *machine.Repaired, m *mending) {
				if r.Relist {
					r.Cursor = kv.CursorAt(uint64(m.before.last))
				}
			}}},
		{name: "a re-list's watch is opened at the log's end", world: "repair-keeps-fresh", property: repairTail, steps: 30,
			forge: repairForge{onOutcome: func(r *machine.Repaired, m *mending) {
				r.Relist, r.Cursor = false, kv.CursorAt(uint64(m.before.last))
			}}},
		{name: "artifacts are judged by the log before them", world: "repair-evicting", property: repairEnds, steps: 60, forge: repairForge{logFirst: true}},
		{name: "the log is not looked at after a restore's listing", world: "repair-evicting", property: repairPhantom, steps: 30,
			forge: repairForge{looksOnce: true, asksNot: true}},
		{name: "a repair does not heed an eviction that was told meanwhile", world: "repair-eviction-turned-off", property: repairPhantom, steps: 30,
			forge: repairForge{notOvertaken: true}},
		{name: "a lost watch of a log that evicted is continued", world: "repair-eviction-turned-off", property: repairWatching, steps: 30,
			forge: repairForge{continues: true}},
		{name: "markers that vanish after the listing are not minded", world: "repair-marker-vanishes", property: repairTail, steps: 30,
			forge: repairForge{onListed: func(rev *uint64) { *rev = 0 }}},
	}
}

// repairKernelMutations forge what a kernel is asked, one input each.
func repairKernelMutations() []repairMutation {
	evicting, keeps, off := "repair-evicting", "repair-keeps", "repair-eviction-turned-off"
	truth := func(f func(r *protocol.Retention, memo *bool, again bool)) repairForge {
		return repairForge{onTruth: f}
	}
	plan := func(f func(*protocol.PlanInput)) repairForge { return repairForge{onPlan: f} }
	key := func(f func(local, art *protocol.KeyState, same, listed *bool)) repairForge {
		return repairForge{onKey: f}
	}
	return []repairMutation{
		{name: "the log is said to evict nothing", world: evicting, property: repairListed, steps: 30,
			forge: truth(func(r *protocol.Retention, memo *bool, _ bool) { r.Evicts, *memo = false, false })},
		{name: "the log is said to have lost nothing", world: evicting, property: repairListed, steps: 30,
			forge: truth(func(r *protocol.Retention, memo *bool, _ bool) { r.First, *memo = 1, false })},
		{name: "a log that can't say is said to evict nothing", world: "repair-blind", property: repairPhantom, steps: 30,
			forge: truth(func(r *protocol.Retention, _ *bool, _ bool) { r.Known = true })},
		{name: "the memo is not asked for", world: off, property: repairPhantom, steps: 30,
			forge: truth(func(_ *protocol.Retention, memo *bool, _ bool) { *memo = false })},
		{name: "a log is said to evict from inside", world: "repair-keeps-fresh", property: repairEnds, hard: true, steps: 60,
			forge: truth(func(r *protocol.Retention, _ *bool, _ bool) { r.Evicts, r.Inside = true, true })},
		{name: "retention is not judged again after the listing", world: "repair-evicting-fresh", property: repairPhantom, hard: true, steps: 40,
			forge: truth(func(r *protocol.Retention, memo *bool, again bool) {
				if again {
					r.Evicts, *memo = false, false
				}
			})},
		{name: "a repair is planned for a listing that is the truth", world: evicting, property: repairListed, steps: 30,
			forge: plan(func(p *protocol.PlanInput) { p.Truth = protocol.TruthYes })},
		{name: "a repair is planned for a listing that is not the truth", world: keeps, property: repairEnds, steps: 60,
			forge: plan(func(p *protocol.PlanInput) { p.Truth = protocol.TruthNo })},
		{name: "a repair is planned without a source", world: evicting, property: repairEnds, steps: 60,
			forge: plan(func(p *protocol.PlanInput) { p.Source = false })},
		{name: "a repair is planned as off", world: keeps, property: repairEnds, steps: 60,
			forge: plan(func(p *protocol.PlanInput) { p.Mode = protocol.RepairOff })},
		{name: "a repair is planned as of another log", world: keeps, property: repairEnds, steps: 60,
			forge: plan(func(p *protocol.PlanInput) { p.Cause = protocol.CauseReplaced })},
		{name: "a restore is held against neither the fold's cursor nor the log's first revision", world: evicting, property: repairForward, steps: 40,
			forge:  repairForge{onAllowed: func(_, local *protocol.Position, log *protocol.LogBounds) { local.Revision, log.First = 0, 0 }, asksNot: true},
			ignore: []string{repairPhantom, repairDomain, repairTail, repairWatching}},
		{name: "a restore is not held against the log's first revision", world: evicting, property: repairPhantom, steps: 40,
			forge: repairForge{onAllowed: func(_, _ *protocol.Position, log *protocol.LogBounds) { log.First = 0 }, asksNot: true}},
		{name: "an artifact is taken for one of the log's end", world: evicting, property: repairPhantom, steps: 40,
			forge:  repairForge{onAllowed: func(art, _ *protocol.Position, log *protocol.LogBounds) { art.Revision = log.Last }, asksNot: true},
			ignore: []string{repairForward, repairDomain, repairTail}},
		{name: "a restore does not know the fold's revisions", world: "repair-old-artifacts", property: repairDomain, steps: 40,
			forge: key(func(local, _ *protocol.KeyState, _, _ *bool) { local.Revision = 0 })},
		{name: "a restore does not know the artifact's revisions", world: "repair-old-artifacts", property: repairDomain, steps: 40,
			forge: key(func(_, art *protocol.KeyState, _, _ *bool) { art.Revision = 0 })},
		{name: "a restore takes the fold's keys for missing", world: evicting, property: repairTail, steps: 40,
			forge: key(func(local, _ *protocol.KeyState, _, _ *bool) { local.Present = false })},
		{name: "a restore takes the artifact's keys for missing", world: evicting, property: repairPhantom, steps: 40,
			forge: key(func(_, art *protocol.KeyState, _, _ *bool) { art.Present = false })},
		{name: "a restore takes entries for identical", world: evicting, property: repairTail, steps: 40,
			forge: key(func(local, art *protocol.KeyState, same, _ *bool) { *same = local.Present && art.Present })},
		{name: "a restore ignores what the bucket lists", world: evicting, property: repairPhantom, steps: 40,
			forge: key(func(_, _ *protocol.KeyState, _, listed *bool) { *listed = false })},
		{name: "a restore takes all keys for listed", world: evicting, property: repairTail, steps: 40,
			forge: key(func(_, _ *protocol.KeyState, _, listed *bool) { *listed = true })},
		{name: "a resume is not held against the log's first revision", world: keeps, property: repairWatching, steps: 30,
			forge: repairForge{onReopen: func(r *protocol.Reopen) { r.First = 0 }}},
		{name: "a resume is judged as from the log's end", world: keeps, property: repairWatching, steps: 30,
			forge: repairForge{onReopen: func(r *protocol.Reopen) { r.Cursor = max(r.Cursor, r.First) }}},
		{name: "every start continues a live watch", world: keeps, property: repairWatching, steps: 30,
			forge: repairForge{onReopen: func(r *protocol.Reopen) { r.Lost = 1 }}},
		{name: "a live watch's gap is not minded", world: evicting, property: repairWatching, steps: 30,
			forge: repairForge{onLive: func(evicts *bool, _, _ *uint64) { *evicts = false }}},
		{name: "a fold with rows and no cursor is taken for a new one", world: "repair-keeps-fresh", property: repairWatching, hard: true, steps: 40,
			forge: repairForge{onCursorless: func(_ *protocol.RepairMode, _, hasData *bool, _ *protocol.Truth) { *hasData = false }}},
		{name: "a new fold is taken for one of a whole log", world: "repair-evicting-fresh", property: repairListed, steps: 60,
			forge: repairForge{onCursorless: func(_ *protocol.RepairMode, _, _ *bool, t *protocol.Truth) { *t = protocol.TruthYes }}},
		{name: "a new fold is taken for one without a source", world: "repair-evicting-fresh", property: repairListed, steps: 60,
			forge: repairForge{onCursorless: func(_ *protocol.RepairMode, source, _ *bool, _ *protocol.Truth) { *source = false }}},
	}
}

// repairMachineMutations undo steps of the machine, by what goes into it and comes out of it.
func repairMachineMutations() []repairMutation {
	evicting, keeps, off := "repair-evicting", "repair-keeps", "repair-eviction-turned-off"
	return []repairMutation{
		{name: "a flush before a restore is put behind it when it fails", world: evicting, property: repairDomain, hard: true, steps: 40,
			forge: repairForge{requeuesBacklog: true}, ignore: []string{repairSame}},
		{name: "a flush before a re-list is put behind it when it fails", world: keeps, property: repairWatching, hard: true, steps: 40,
			forge: repairForge{requeuesBacklog: true}, ignore: []string{repairSame}},
		{name: "the memo is not committed", world: off, property: repairPhantom, steps: 40,
			forge: repairForge{onCommit: func(f *machine.Flush) { f.Cursor.SeenEvicting = false }}},
		{name: "a repair is not told the memo", world: off, property: repairPhantom, steps: 40,
			forge: repairForge{onRepair: func(r *machine.Repair) { r.Committed.SeenEvicting = false }, notOvertaken: true}},
		{name: "what is owed is not committed", world: "repair-markers-vanish", property: repairTail, steps: 30,
			forge: repairForge{onCommit: func(f *machine.Flush) { f.Owed = kv.Owed{} }}},
		{name: "a start forgets what is owed", world: "repair-markers-vanish", property: repairTail, hard: true, steps: 40,
			forge: repairForge{onStart: func(_ *kv.Cursor, owed *kv.Owed, _ *repairState) { *owed = kv.Owed{} }}},
		{name: "a gap is not told as one", world: "repair-markers-vanish", property: repairTail, steps: 30,
			forge: repairForge{onSegment: func(s *machine.Segment) { s.Owes = 0 }}},
		{name: "a start resumes after what was received", world: keeps, property: repairWatching, hard: true, steps: 30,
			forge: repairForge{onStart: func(c *kv.Cursor, _ *kv.Owed, s *repairState) {
				if rev := uint64(s.watch.pos); rev > c.Revision() {
					c.Version = kv.Revision(rev)
				}
			}}},
		{name: "a start forgets its cursor", world: keeps, property: repairForward, hard: true, steps: 30,
			forge: repairForge{onStart: func(c *kv.Cursor, _ *kv.Owed, _ *repairState) { *c = kv.Cursor{} }}},
	}
}
