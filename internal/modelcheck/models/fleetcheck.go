package models

import (
	"slices"

	"github.com/typedfold/fold/internal/modelcheck"
)

const (
	fleetFolds     = "each fold that follows is the truth with what the log still has after its cursor"
	fleetArtifacts = "each artifact that can be resumed is the truth with what the log still has after its cursor"
	fleetForward   = "no row and no cursor goes back"
	fleetNoPhantom = "no repair deletes a key that has a value, but by an artifact that owes a listing"
	fleetSeeds     = "no node begins with a listing that lacks values where an artifact has them"
	fleetConverges = "every run ends with all nodes at the truth, or with no fold and no artifact that holds the log's end"
)

func (s *fleetState) isWhole(rows histRows, cursor uint8) bool {
	return !s.h.begins(cursor) || s.h.replay(rows, cursor) == s.h.truth(s.h.last)
}

func (w *fleetWorld) properties() []modelcheck.Property[fleetState] {
	always, sometimes := modelcheck.Always[fleetState], modelcheck.Sometimes[fleetState]
	all := []modelcheck.Property[fleetState]{
		modelcheck.Step(fleetNoPhantom, func(s fleetState, a fleetAction, to fleetState) bool {
			if a.verb != fleetRepair && a.verb != fleetRestore {
				return true
			}
			truth := s.h.truth(s.h.last)
			for k, row := range s.nodes[a.n].rows {
				n := to.nodes[a.n]
				if row != 0 && n.rows[k] == 0 && truth[k] != 0 && (n.phase == fleetLive || !n.owed) {
					return false
				}
			}
			return true
		}),
		modelcheck.Step(fleetSeeds, func(s fleetState, a fleetAction, to fleetState) bool {
			if a.verb != fleetRepair && a.verb != fleetRestore || s.h.listing() == s.h.truth(s.h.last) || to.nodes[a.n].phase == fleetDown {
				return true
			}
			return !slices.ContainsFunc(s.artifacts[:], func(a fleetArtifact) bool {
				return a.cursor != 0 && !a.owed && s.h.begins(a.cursor)
			})
		}),
		modelcheck.Step(fleetForward, w.forward),
		always(fleetFolds, func(s fleetState) bool {
			for _, n := range s.nodes {
				if n.phase != fleetLive || n.owed {
					continue
				}
				if n.relist != 0 && s.h.replay(n.rows, 0) != s.h.truth(s.h.last) || n.relist == 0 && !s.isWhole(n.rows, n.cursor) {
					return false
				}
			}
			return true
		}),
		always(fleetArtifacts, func(s fleetState) bool {
			for _, a := range s.artifacts {
				if a.cursor != 0 && !a.owed && !s.isWhole(a.rows, a.cursor) {
					return false
				}
			}
			return true
		}),
		modelcheck.Terminal(fleetConverges, w.converges),
	}
	if w.cuts > 0 {
		all = append(all, sometimes("a watch that was cut off resumes", func(s fleetState) bool {
			return slices.ContainsFunc(s.nodes[:], func(n fleetNode) bool { return n.phase == fleetLive && s.cuts > 0 && !n.restored && n.cursor > 1 })
		}))
	}
	if w.evicts {
		return append(all, w.evicting()...)
	}
	return append(all,
		sometimes("a node re-lists with rows that it holds", func(s fleetState) bool {
			return slices.ContainsFunc(s.nodes[:], func(n fleetNode) bool { return n.relist != 0 && n.cursor > 0 && n.rows != histRows{} })
		}),
		sometimes("a node publishes in the middle of a re-list", func(s fleetState) bool {
			return slices.ContainsFunc(s.nodes[:], func(n fleetNode) bool { return n.relist != 0 && n.cursor > 0 && n.cursor == s.artifacts[0].cursor })
		}))
}

func (w *fleetWorld) evicting() []modelcheck.Property[fleetState] {
	sometimes := modelcheck.Sometimes[fleetState]
	some := func(s fleetState, is func(fleetNode) bool) bool { return slices.ContainsFunc(s.nodes[:], is) }
	return []modelcheck.Property[fleetState]{
		sometimes("a node is restored past a key that aged out", func(s fleetState) bool {
			return some(s, func(n fleetNode) bool {
				return n.restored && n.phase == fleetLive && n.rows[0] != 0 && !s.h.holds(n.rows[0])
			})
		}),
		sometimes("a restore recovers a write that aged out before its node had it", func(s fleetState) bool {
			return some(s, func(n fleetNode) bool {
				return n.restored && n.phase == fleetDown && n.cursor == s.h.last && n.rows[0] == n.cursor && !s.h.holds(n.cursor)
			})
		}),
		sometimes("a restored node publishes", func(s fleetState) bool { return s.artifacts[0].restored }),
		sometimes("a write ages out before any node folds it", func(s fleetState) bool {
			return s.h.first() > 1 && !some(s, func(n fleetNode) bool { return n.cursor+1 >= s.h.first() })
		}),
		sometimes("a fresh node bootstraps, and is at the log's end", func(s fleetState) bool {
			n := s.nodes[w.synced+w.fresh-1]
			return n.phase == fleetLive && n.restored && n.cursor == s.h.last && !n.owed
		}),
		sometimes("the older artifact is taken", func(s fleetState) bool {
			return some(s, func(n fleetNode) bool { return n.phase == fleetDown && n.restored && n.cursor < s.artifacts[0].cursor })
		}),
	}
}

func (w *fleetWorld) forward(s fleetState, a fleetAction, to fleetState) bool {
	if a.verb == fleetTear {
		return true
	}
	for i, n := range s.nodes {
		m := to.nodes[i]
		if m.cursor < n.cursor {
			return false
		}
		for k := range n.rows {
			if m.rows[k] != 0 && m.rows[k] < n.rows[k] {
				return false
			}
		}
	}
	return true
}

func (w *fleetWorld) converges(s fleetState) bool {
	truth := s.h.truth(s.h.last)
	helps, stuck := s.artifacts[0].cursor == s.h.last && s.h.last > 0, false
	for _, n := range s.nodes[:w.synced+w.fresh] {
		switch {
		case n.phase != fleetLive:
			stuck = true
		case !n.owed && n.rows != truth || n.relist != 0:
			return false
		case n.cursor == s.h.last:
			helps = true
		}
	}
	return !stuck || !helps || s.ended
}

var (
	fleetKeeps    = fleetWorld{name: "fleet, a log that keeps values", revs: 3, cuts: 2, synced: 2, fresh: 1, tears: true}
	fleetEvicts   = fleetWorld{name: "fleet, a log that evicts", revs: 3, synced: 2, fresh: 1, evicts: true}
	fleetEnds     = fleetWorld{name: "fleet, retention that is turned off", revs: 3, cuts: 1, synced: 1, fresh: 1, evicts: true, ends: true}
	fleetRestores = fleetWorld{name: "fleet, restores where a re-list would do", revs: 5, cuts: 2, synced: 2, restores: true}
)

func fleetModels() []modelcheck.Case {
	keeps, evicts := fleetKeeps, fleetEvicts
	keeps.name, keeps.deep, keeps.revs, keeps.cuts = keeps.name+", deep", true, 4, 1
	evicts.name, evicts.deep, evicts.cuts = evicts.name+", deep", true, 1
	var all []modelcheck.Case
	for _, w := range []fleetWorld{fleetKeeps, fleetEvicts, fleetEnds, fleetRestores, keeps, evicts} {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{MaxStates: 20_000_000}))
		all[len(all)-1].Deep = w.deep
	}
	return all
}
