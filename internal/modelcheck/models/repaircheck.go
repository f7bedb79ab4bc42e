package models

import (
	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/internal/modelcheck"
)

const (
	repairTail     = "while the cursor can be resumed, the store and what comes after it are the truth, or an audit is owed"
	repairWatching = "the store, what is queued and what the watch is to deliver are the truth"
	repairForward  = "the store's cursor never goes back"
	repairDomain   = "the domain never sees a key go back"
	repairPhantom  = "a repair never deletes what nobody deleted"
	repairListed   = "a log that was seen to evict is not listed anew where there are artifacts"
	repairSame     = "between flushes the domain is what the store holds"
	repairEnds     = "store and domain come to the truth, or an audit is owed"
)

func (w *repairWorld) properties() []modelcheck.Property[repairState] {
	type state = repairState
	all := []modelcheck.Property[state]{
		modelcheck.Always(repairTail, func(s state) bool {
			at := uint8(s.disk.cursor.Revision())
			return at == 0 || !s.log.begins(at) || s.disk.owed.Why != 0 ||
				s.log.fold(s.disk.rows, at) == s.log.truth(s.log.last)
		}),
		modelcheck.Always(repairWatching, w.watchIsWhole),
		modelcheck.Step(repairForward, func(before state, _ repairAct, after state) bool {
			return before.disk.cursor.Revision() <= after.disk.cursor.Revision()
		}),
		modelcheck.Always(repairDomain, func(s state) bool { return s.broken&brokenBackward == 0 }),
		modelcheck.Always(repairPhantom, func(s state) bool { return s.broken&brokenPhantom == 0 }),
		modelcheck.Always(repairListed, func(s state) bool { return s.broken&brokenListed == 0 }),
		modelcheck.Always(repairSame, func(s state) bool {
			return !s.p.up() || s.p.queued > 0 || s.p.has(askedStore) || s.domain == s.disk.rows
		}),
		modelcheck.FairEventually(repairEnds, func(s state) bool {
			if !s.p.up() || s.disk.owed.Why != 0 {
				return s.p.up()
			}
			truth := s.log.truth(s.log.last)
			return s.disk.rows == truth && s.domain == truth
		}),
	}
	return append(all, w.witnesses()...)
}

// watchIsWhole judges a watch that has not ended. A fold that begins with a re-list of a log that evicts owes an audit
// instead.
func (w *repairWorld) watchIsWhole(s repairState) bool {
	if !s.p.watching || w.vanish || w.evicts && w.synced == 0 {
		return true
	}
	if (s.watch.evicts || s.log.evicts) && !s.log.begins(s.watch.base()) {
		return true // it is to find out that it has missed something
	}
	held := s.disk.rows
	for _, q := range s.p.queue[:s.p.queued] {
		for _, c := range q.changes() {
			if held[c.key()] = c.rev(); c.deletes() {
				held[c.key()] = 0
			}
		}
	}
	return s.log.fold(held, s.watch.pos) == s.log.truth(s.log.last)
}

func (w *repairWorld) witnesses() []modelcheck.Property[repairState] {
	type state = repairState
	before := func(s state) bool {
		return s.p.up() && s.p.m.Phase() == machine.PhaseRepairing && !s.p.has(askedRepair)
	}
	folds := func(s state, del bool) bool {
		c := s.p.changes()
		return s.p.has(askedStore) && len(c) > 0 && c[0].repairs() && c[0].deletes() == del
	}
	all := []modelcheck.Property[state]{
		modelcheck.Sometimes("a repair waits for what was received before it", func(s state) bool { return before(s) && s.p.queued > 0 }),
		modelcheck.Sometimes("a crash comes amid a repair", func(s state) bool {
			return s.mend.step >= mendFold && s.p.up() && s.crashes == 0
		}),
	}
	if w.faults > 0 {
		all = append(all, modelcheck.Sometimes("a repair's change is retried", func(s state) bool { return s.p.up() && s.mend.waits && s.p.m.Failures() > 0 }))
	}
	if w.faults > 1 {
		all = append(all, modelcheck.Sometimes("a flush before a repair is retried", func(s state) bool { return before(s) && s.p.m.Failures() > 0 }))
	}
	if w.evicts && w.source {
		all = append(all,
			modelcheck.Sometimes("a restore takes a value that the log no longer has", func(s state) bool {
				return folds(s, false) && s.log.there>>s.p.changes()[0].rev()&1 == 0
			}),
			modelcheck.Sometimes("a restore deletes a key", func(s state) bool { return folds(s, true) }),
			modelcheck.Sometimes("a refused fold is there for an artifact to come", func(s state) bool { return s.p.stop == stoppedFinal }))
	}
	if !w.evicts {
		all = append(all,
			modelcheck.Sometimes("a re-list is opened", func(s state) bool { return s.p.has(askedOpen) && s.p.opening.Relist }),
			modelcheck.Sometimes("a re-list deletes a key that is written again meanwhile", func(s state) bool {
				return folds(s, true) && s.log.truth(s.log.last)[s.p.changes()[0].key()] != 0
			}))
	}
	return all
}

func repairWorlds() []repairWorld {
	keeps := repairWorld{name: "repair-keeps", keys: 1, revs: 4, crashes: 1, faults: 2, synced: 1}
	keepsTwo := repairWorld{name: "repair-keeps-two-keys", keys: 2, revs: 4, crashes: 1, faults: 1, synced: 2}
	vanishes := keeps
	vanishes.name, vanishes.vanish, vanishes.faults = "repair-marker-vanishes", true, 1
	vanish := repairWorld{name: "repair-markers-vanish", keys: 2, revs: 3, crashes: 1, faults: 1, synced: 1, vanish: true}
	keepsFresh := keeps
	keepsFresh.name, keepsFresh.synced, keepsFresh.faults = "repair-keeps-fresh", 0, 1
	evicting := repairWorld{name: "repair-evicting", keys: 1, revs: 3, crashes: 1, faults: 2, synced: 1, evicts: true, source: true}
	evictingTwo := repairWorld{name: "repair-evicting-two-keys", keys: 2, revs: 3, crashes: 1, synced: 1, evicts: true, source: true}
	evictingFresh := repairWorld{name: "repair-evicting-fresh", keys: 1, revs: 2, crashes: 1, faults: 1, evicts: true, source: true}
	olds := repairWorld{name: "repair-old-artifacts", keys: 1, revs: 4, crashes: 1, synced: 2, evicts: true, source: true, olds: true}
	turnedOff := evicting
	turnedOff.name, turnedOff.turnsOff, turnedOff.faults = "repair-eviction-turned-off", true, 1
	blind := evicting
	blind.name, blind.blind, blind.faults = "repair-blind", true, 1
	return []repairWorld{keeps, keepsTwo, vanishes, vanish, keepsFresh, evicting, evictingTwo, evictingFresh, olds, turnedOff, blind}
}

func repairModels() (all []modelcheck.Case) {
	for _, w := range repairWorlds() {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{}))
		if w.name != "repair-keeps" && w.name != "repair-evicting" {
			continue
		}
		deep := w
		deep.name, deep.revs, deep.crashes, deep.faults = w.name+"-deep", w.revs+1, 2, 3
		all = append(all, modelcheck.DeepCaseOf(deep.model(), modelcheck.Options{MaxStates: 60_000_000}))
	}
	return all
}
