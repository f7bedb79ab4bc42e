package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
)

const (
	pubForward   = "the pointer never goes back within a log"
	pubOfLive    = "the pointer never leaves the live log for one that is gone"
	pubFetchable = "what the pointer names can be fetched"
	pubNoWedge   = "a pointer that the live log does not have blocks nobody"
	pubNotOurs   = "what is no artifact stays"
	pubWhole     = "what is announced has its payload"
	pubKept      = "the newest generations stay"
	pubStaleMiss = "a payload is missed only by a pointer that was read before"
	pubNoDrop    = "no bootstrap takes an older artifact than the one before"
	pubUnmixed   = "what arrives is what was announced"
	pubFollowed  = "what is installed can be followed"
	pubReaches   = "the pointer can always get to the log's end"
	pubBoots     = "a bootstrap can always succeed"
)

func (s *pubState) someone(is func(pubExporter) bool) bool {
	return is(s.exporters[0]) || is(s.exporters[1])
}

// newest is the highest of positions: of the later log, then of the higher revision.
func (a pubAt) before(b pubAt) bool { return a.log < b.log || a.log == b.log && a.rev < b.rev }

func (w *pubWorld) properties() []modelcheck.Property[pubState] {
	always, sometimes := modelcheck.Always[pubState], modelcheck.Sometimes[pubState]
	step := func(name string, holds func(pubState, pubAction, pubState) bool) modelcheck.Property[pubState] {
		return modelcheck.Step(name, holds)
	}
	all := []modelcheck.Property[pubState]{
		step(pubForward, w.forward), step(pubOfLive, w.ofLive), step(pubNoWedge, w.noWedge),
		always(pubFetchable, func(s pubState) bool {
			return s.pointer == pubNone || s.pointer == pubDamaged || s.payloads.has(s.pointer)
		}),
		always(pubNotOurs, func(s pubState) bool { return s.payloads.has(0) }),
		sometimes("an exporter has a second round", func(s pubState) bool {
			return s.someone(func(e pubExporter) bool {
				return e.phase >= pubAnnounced && w.at(s.pointer).log != 0 && s.pointer%2 == e.at%2
			})
		}),
	}
	if !w.alone {
		all = append(all, sometimes("an exporter comes too late", func(s pubState) bool {
			return s.someone(func(e pubExporter) bool {
				at, saw := w.at(e.at), w.at(e.saw)
				if w.coarse && e.phase == pubAnnounced {
					saw = w.at(s.pointer)
				}
				return e.phase >= pubAnnounced && at.log == saw.log && at.rev < saw.rev
			})
		}))
	}
	if w.logs > 1 {
		all = append(all,
			sometimes("the pointer goes over to a new log", func(s pubState) bool {
				return w.at(s.pointer).log == 2 && s.payloads&(1<<w.id(pubAt{2, 1}, 0)-2) != 0
			}),
			sometimes("what a log that is gone left is pruned above the pointer's revision", func(s pubState) bool {
				return w.at(s.pointer) == pubAt{2, 1} && s.pruner.step == 3 && w.at(s.pruner.id) == pubAt{1, w.revs}
			}))
	}
	if !w.coarse {
		all = append(all, sometimes("the pointer moves under an exporter", func(s pubState) bool {
			return s.someone(func(e pubExporter) bool { return e.phase == pubMaySwap && s.pointer != e.saw })
		}))
	}
	if w.announces {
		all = append(all, step(pubKept, w.kept),
			always(pubWhole, func(s pubState) bool { return s.manifests&^s.payloads == 0 }))
	}
	if !w.graced {
		all = append(all, sometimes("a prune takes what an exporter is at", func(s pubState) bool {
			return s.someone(func(e pubExporter) bool { return e.phase == pubMaySwap && s.pruner.step == 3 && s.pruner.id == e.at })
		}))
	}
	if w.rewinds {
		all = append(all, sometimes("a log that lost its end has the pointer again", func(s pubState) bool {
			return s.rewound && w.at(s.pointer) == s.live && s.payloads.has(w.id(pubAt{s.live.log, w.revs}, 0)) && s.live.rev < w.revs
		}))
	}
	if w.reads {
		return append(all, w.bootstraps()...)
	}
	return append(all, modelcheck.Reachable(pubReaches, func(s pubState) bool { return w.at(s.pointer) == s.live }))
}

func (w *pubWorld) bootstraps() []modelcheck.Property[pubState] {
	always, sometimes := modelcheck.Always[pubState], modelcheck.Sometimes[pubState]
	return []modelcheck.Property[pubState]{
		modelcheck.Step(pubStaleMiss, func(s pubState, a pubAction, to pubState) bool {
			return a.verb != pubRead || s.reader.step != pubChosen || to.reader.step == pubArrived || s.pointer != s.reader.at
		}),
		modelcheck.Step(pubNoDrop, func(s pubState, a pubAction, to pubState) bool {
			had, has := w.at(s.reader.had), w.at(to.reader.at)
			return to.reader.step != pubInstalled || had.log != has.log || has.rev >= had.rev
		}),
		always(pubUnmixed, func(s pubState) bool { return s.reader.step < pubArrived || s.reader.got == s.reader.at }),
		modelcheck.Step(pubFollowed, func(s pubState, a pubAction, to pubState) bool {
			at := w.at(to.reader.at)
			return a.verb != pubRead || to.reader.step != pubInstalled || at.log == s.live.log && at.rev <= s.live.rev
		}),
		sometimes("a prune has a bootstrap begin again", func(s pubState) bool {
			at := s.reader.at
			return s.reader.step == pubChosen && !s.payloads.has(at) && !s.manifests.has(at)
		}),
		sometimes("a log that is re-created has a bootstrap begin again", func(s pubState) bool {
			return s.reader.step == pubArrived && w.at(s.reader.at).log < s.live.log
		}),
		sometimes("a bootstrap takes one that the pointer does not name yet", func(s pubState) bool {
			return s.reader.step == pubInstalled && w.at(s.pointer).before(w.at(s.reader.at))
		}),
		sometimes("a second bootstrap takes a newer one", func(s pubState) bool {
			return s.reader.step == pubArrived && s.reader.had != pubNone && w.at(s.reader.had).before(w.at(s.reader.at))
		}),
		modelcheck.Reachable(pubBoots, func(s pubState) bool { return s.reader.step == pubInstalled }),
	}
}

// forward is not asked of a log that lost its end: what it held there may be written anew.
func (w *pubWorld) forward(s pubState, _ pubAction, to pubState) bool {
	was, is := w.at(s.pointer), w.at(to.pointer)
	return was.log != is.log || is.rev >= was.rev || s.rewound
}

func (w *pubWorld) ofLive(s pubState, _ pubAction, to pubState) bool {
	return w.at(s.pointer).log != s.live.log || s.pointer == to.pointer || w.at(to.pointer).log == s.live.log
}

// noWedge looks at an exporter that had an answer from the log and gives up.
func (w *pubWorld) noWedge(s pubState, a pubAction, to pubState) bool {
	if a.verb != pubStep {
		return true
	}
	e := s.exporters[a.n]
	if to.exporters[a.n].phase != pubIdle || e.phase != pubSaw && e.phase != pubExported {
		return true
	}
	saw := e.saw
	if e.phase == pubExported {
		saw = s.pointer
	}
	has := func(id pubID) bool { return w.at(id).log == s.live.log && w.at(id).rev <= s.live.rev }
	return has(saw) || !has(e.at)
}

// kept: a generation is only taken apart where enough whole ones that are no older are left.
func (w *pubWorld) kept(s pubState, _ pubAction, to pubState) bool {
	whole := func(s pubState) pubSet { return s.manifests & s.payloads &^ 1 }
	for gone := whole(s) &^ whole(to); gone != 0; gone &= gone - 1 {
		left := 0
		for rest := whole(to); rest != 0; rest &= rest - 1 {
			if !w.at(rest.lowest()).before(w.at(gone.lowest())) {
				left++
			}
		}
		if left < w.keep {
			return false
		}
	}
	return true
}

// The worlds. A day is longer than any round, so an age that speaks for itself is in all of them.
var (
	pubPlain   = pubWorld{name: "publish", logs: 2, revs: 2, deaf: true}
	pubRewound = pubWorld{name: "publish, a log that loses its end", logs: 1, revs: 2, graced: true, rewinds: true, deaf: true}
	pubReaders = pubWorld{name: "publish, bootstrap", logs: 2, revs: 3, keep: 2, graced: true, announces: true, coarse: true, alone: true, reads: true}
)

func (w pubWorld) deepened(change func(*pubWorld)) pubWorld {
	w.name, w.deep = w.name+", deep", true
	change(&w)
	return w
}

func publishModels() []modelcheck.Case {
	var all []modelcheck.Case
	for _, w := range []pubWorld{
		pubPlain, pubRewound, pubReaders,
		pubRewound.deepened(func(w *pubWorld) { w.revs = 3 }),
	} {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{MaxStates: 40_000_000}))
		all[len(all)-1].Deep = w.deep
	}
	return all
}
