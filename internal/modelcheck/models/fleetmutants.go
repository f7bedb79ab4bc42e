package models

import (
	"math"

	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// fleetMutations leaves out what a fleet on one log can't miss: whether two rows are the same when they are (a write that
// changes nothing), and, of RestoreAllowed, the fold's revision, since an artifact in the window is ahead of every fold that
// is not, the logs (see publishmutants.go) and the log's end, which here never goes back.
func fleetMutations() []modelcheck.Mutation {
	var all []modelcheck.Mutation
	add := func(w fleetWorld, name, property string, steps int, forge fleetForge, ignore ...string) {
		w.forge = forge
		all = append(all, modelcheck.MutationOf(name, w.model(), modelcheck.Options{Ignore: ignore}, property, steps))
	}
	type (
		at  = protocol.Position
		log = protocol.LogBounds
		key = protocol.KeyState
	)
	pair := fleetEvicts
	pair.name, pair.synced, pair.fresh = "fleet, two nodes on a log that evicts", 2, 0

	truth := func(f func(*protocol.Retention, *bool)) fleetForge { return fleetForge{truth: f} }
	add(pair, "RelistOnEvicting: a fleet takes retention for one that keeps values", fleetNoPhantom, 12, truth(func(r *protocol.Retention, seen *bool) { r.Evicts, *seen = false, false }))
	add(fleetEnds, "NoEvictionMemo: what retention did is forgotten", fleetNoPhantom, 16, truth(func(_ *protocol.Retention, seen *bool) { *seen = false }), fleetFolds)

	memo := func(f func(*protocol.Retention)) fleetForge { return fleetForge{memo: f} }
	add(fleetEnds, "the memo is not set where retention can't be told", fleetNoPhantom, 16, memo(func(r *protocol.Retention) { r.Known = false }), fleetFolds, fleetArtifacts, fleetConverges)
	add(fleetEnds, "the memo is not set where values may be taken", fleetNoPhantom, 16, memo(func(r *protocol.Retention) { r.Evicts = false }), fleetFolds, fleetArtifacts, fleetConverges)
	add(fleetEnds, "the memo is not set where the log has lost something", fleetNoPhantom, 16, memo(func(r *protocol.Retention) { r.First = 1 }), fleetFolds, fleetArtifacts, fleetConverges)
	add(fleetEnds, "an artifact's memo is not taken over", fleetNoPhantom, 16, fleetForge{memoLost: true})

	type cursorless = func(m *protocol.RepairMode, source, hasData *bool, t *protocol.Truth)
	start := func(f cursorless) fleetForge { return fleetForge{cursorless: f} }
	add(fleetEvicts, "FreshStartRelist: a new node takes the listing for the truth", fleetSeeds, 12,
		start(func(_ *protocol.RepairMode, _, _ *bool, t *protocol.Truth) { *t = protocol.TruthYes }))
	add(fleetEvicts, "a new node takes its source for none", fleetSeeds, 12, start(func(_ *protocol.RepairMode, source, _ *bool, _ *protocol.Truth) { *source = false }))
	add(fleetEvicts, "a new node takes repairs to be off", fleetSeeds, 12, start(func(m *protocol.RepairMode, _, _ *bool, _ *protocol.Truth) { *m = protocol.RepairOff }))
	add(fleetKeeps, "a node that lost its cursor is taken for a new one", fleetFolds, 12, start(func(_ *protocol.RepairMode, _, has *bool, _ *protocol.Truth) { *has = false }))

	plan := func(f func(*protocol.PlanInput)) fleetForge { return fleetForge{plan: f} }
	add(pair, "a repair takes the listing for the truth", fleetNoPhantom, 12, plan(func(p *protocol.PlanInput) { p.Truth = protocol.TruthYes }))
	add(pair, "a repair only re-lists", fleetConverges, 24, plan(func(p *protocol.PlanInput) { p.Mode = protocol.RepairRelist }))
	add(pair, "a repair takes its source for none", fleetConverges, 24, plan(func(p *protocol.PlanInput) { p.Source = false }))
	add(pair, "an expiry is taken for another log", fleetConverges, 24, plan(func(p *protocol.PlanInput) { p.Cause = protocol.CauseReplaced }))

	allowed := func(f func(a, local *at, l *log)) fleetForge { return fleetForge{allowed: f} }
	add(pair, "an artifact is taken for a newer one", fleetForward, 16, allowed(func(a, _ *at, l *log) { a.Revision = l.Last }))
	add(pair, "a restore does not look at the log's first revision", fleetNoPhantom, 16, allowed(func(_, _ *at, l *log) { l.First = 0 }))
	add(pair, "a restore takes the log for ended", fleetConverges, 24, allowed(func(_, _ *at, l *log) { l.Last = 0 }))

	restore := func(f func(local, artifact *key, identical, listed *bool)) fleetForge { return fleetForge{key: f} }
	add(pair, "a restore does not see the fold's row", fleetFolds, 16, restore(func(local, _ *key, _, _ *bool) { local.Present = false }))
	add(pair, "a restore does not see the artifact's row", fleetFolds, 16, restore(func(_, artifact *key, _, _ *bool) { artifact.Present = false }))
	add(fleetRestores, "a restore does not know the row's revision", fleetForward, 24, restore(func(local, _ *key, _, _ *bool) { local.Revision = 0 }))
	add(fleetRestores, "a restore takes the artifact's row for newer", fleetForward, 24, restore(func(_, artifact *key, _, _ *bool) { artifact.Revision = math.MaxUint64 }))
	add(pair, "a restore takes all rows for the same", fleetFolds, 16, restore(func(_, _ *key, same, _ *bool) { *same = true }))
	add(fleetRestores, "a restore does not see what is listed", fleetNoPhantom, 16, restore(func(_, _ *key, _, listed *bool) { *listed = false }))
	add(pair, "a restore takes all keys for listed", fleetFolds, 16, restore(func(_, _ *key, _, listed *bool) { *listed = true }))

	add(fleetKeeps, "SilentClamp: a resume does not look at the log's first revision", fleetFolds, 16, fleetForge{window: func(_, first *uint64) { *first = 0 }})
	add(fleetKeeps, "a resume takes its cursor for a later one", fleetFolds, 16, fleetForge{window: func(cursor, _ *uint64) { *cursor += 2 }})
	type gap = func(evicts *bool, base, first *uint64)
	live := func(f gap) fleetForge { return fleetForge{gap: f} }
	add(pair, "a live watch takes retention for one that keeps values", fleetFolds, 12, live(func(evicts *bool, _, _ *uint64) { *evicts = false }))
	add(pair, "a live watch does not look at the log's first revision", fleetFolds, 12, live(func(_ *bool, _, first *uint64) { *first = 0 }))
	add(pair, "a live watch takes what it has for more", fleetFolds, 12, live(func(_ *bool, base, _ *uint64) { *base += 2 }))
	return all
}
