package models

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/typedfold/fold/runtime/protocol"
)

// The life around one pointer: two exporters that publish, in the order of transport.Publish, a prune in the order of
// transport.Prune, and a node that bootstraps, in the order of transport.Bootstrap. Each stops at any of its requests for
// as long as it likes, or for good, and no lease keeps the exporters apart. The log is written, and re-created under its
// name; in one world it loses its end. The pointer may be damaged to begin with.
//
// Left out: what an artifact holds (the bootstrap and the fleet have that; a name stands for it here, as the hash in it
// does), the log's first revision, and time: see pubWorld.graced.

// pubID is an artifact by its log, revision and exporter, from 1. One exporter's artifacts of one position are one.
type pubID uint8

const (
	pubNone    pubID = 0
	pubMost          = 12
	pubDamaged pubID = 255 // a pointer that can't be read
)

// pubSet has a bit for each artifact. Bit 0 is an object that is none, and that somebody else put among the payloads.
type pubSet uint16

func (s pubSet) has(id pubID) bool { return id <= pubMost && s>>id&1 == 1 }

func (s *pubSet) put(id pubID)  { *s |= 1 << id }
func (s *pubSet) drop(id pubID) { *s &^= 1 << id }

func (s pubSet) lowest() pubID { return pubID(bits.TrailingZeros16(uint16(s))) }

// pubAt is a log, counted from 1, and a revision.
type pubAt struct{ log, rev uint8 }

func (a pubAt) position() protocol.Position {
	return protocol.Position{Log: int64(a.log), Revision: uint64(a.rev)}
}

type pubPhase uint8

const (
	pubIdle pubPhase = iota
	pubExported
	pubUploaded  // the payload
	pubAnnounced // the manifest too
	pubSaw       // the pointer
	pubMaySwap   // and the log after it
	pubSwapped   // only where the payload comes last
)

// pubExporter is one exporter's round.
type pubExporter struct {
	phase pubPhase
	at    pubID
	saw   pubID
	live  pubAt // only where it reads the log first
}

// pubPruner is what happens to one payload of a prune: its decision is of each by itself, from what it has read.
type pubPruner struct {
	// step counts its readings: the objects, the pointer, the log; then it deletes.
	step    uint8
	id      pubID
	young   bool // an exporter was at it when it was listed
	known   bool // it has a manifest, which says its log
	half    bool // one of its two objects is deleted
	pointer pubID
	live    pubAt // only where it reads the log first
}

// pubReader is a bootstrap.
type pubReader struct {
	step pubReading
	// gens are the generations that are left to try.
	gens    pubSet
	at, got pubID // what it downloads, and what arrived
	had     pubID // what was installed last
}

type pubReading uint8

const (
	pubNotReading pubReading = iota
	pubChosen
	pubArrived
	pubInstalled
)

type pubState struct {
	live                pubAt
	pointer             pubID
	payloads, manifests pubSet
	rewound             bool // once
	exporters           [2]pubExporter
	pruner              pubPruner
	reader              pubReader
}

// pubWorld is one configuration.
type pubWorld struct {
	name       string
	deep       bool
	logs, revs uint8
	// graced: no prune takes what an exporter was at when it was listed, which is what PruneGrace is for (see the lease).
	// Else no age spares anything, but that the long one is over only where no round is.
	graced bool
	// announces: there are manifests beside the pointer. Else a prune takes what it may with either knowledge.
	announces bool
	// coarse: an exporter reads the pointer and the log and swaps in one step, and a prune reads all in one. Their races
	// are for the other worlds.
	coarse bool
	// alone: there is one exporter. reads: a node bootstraps. rewinds: a log may lose its end, once. deaf: an exporter or
	// a prune may fail to read the log.
	alone, reads, rewinds, deaf bool
	keep                        int
	forge                       pubForge
}

// pubForge is what a mutation does to it.
type pubForge struct {
	publish func(current *protocol.PointerState, candidate, live *protocol.Position)
	prune   func(p *protocol.Payload, pointer *protocol.PointerState, live *protocol.Position)
	newer   func(a, b, live *protocol.Position)
	allowed func(artifact *protocol.Position, log *protocol.LogBounds)

	blindSwap, logFirst, manifestFirst, swapFirst bool // of an exporter
	pruneLogFirst, payloadFirst                   bool
	logOnce, byRank                               bool // of a bootstrap
}

func (w *pubWorld) id(a pubAt, exporter uint8) pubID {
	return pubID(1 + 2*((a.log-1)*w.revs+a.rev-1) + exporter)
}

func (w *pubWorld) at(id pubID) pubAt {
	if id == pubNone || id == pubDamaged {
		return pubAt{}
	}
	n := uint8(id-1) / 2
	return pubAt{log: n/w.revs + 1, rev: n%w.revs + 1}
}

func (w *pubWorld) pointerState(id pubID) protocol.PointerState {
	return protocol.PointerState{Present: id != pubNone, Readable: id != pubNone && id != pubDamaged, At: w.at(id).position()}
}

// mayPublish, mayPrune, newer and fit are the kernels, with their inputs forged where that is asked for.
func (w *pubWorld) mayPublish(pointer, candidate pubID, live protocol.Position) bool {
	current, at := w.pointerState(pointer), w.at(candidate).position()
	if w.forge.publish != nil {
		w.forge.publish(&current, &at, &live)
	}
	return protocol.PointerPublishAllowed(current, at, live)
}

func (w *pubWorld) mayPrune(p protocol.Payload, pointer pubID, live protocol.Position) bool {
	current := w.pointerState(pointer)
	if w.forge.prune != nil {
		w.forge.prune(&p, &current, &live)
	}
	return protocol.PayloadPrunable(p, current, live)
}

func (w *pubWorld) newer(x, y pubID, live protocol.Position) bool {
	a, b := w.at(x).position(), w.at(y).position()
	if w.forge.newer != nil {
		w.forge.newer(&a, &b, &live)
	}
	return protocol.GenerationIsNewer(a, b, live)
}

func (w *pubWorld) fit(id pubID, live pubAt) bool {
	at, log := w.at(id).position(), protocol.LogBounds{Log: int64(live.log), First: 1, Last: uint64(live.rev)}
	if w.forge.allowed != nil {
		w.forge.allowed(&at, &log)
	}
	return protocol.RestoreAllowed(at, protocol.Position{}, log)
}

// order is the set as transport orders generations, the newest first.
func (w *pubWorld) order(set pubSet, current pubID, live protocol.Position) []pubID {
	var all []pubID
	for set &^= 1; set != 0; set &= set - 1 {
		all = append(all, set.lowest())
	}
	slices.SortFunc(all, func(a, b pubID) int {
		switch {
		case w.newer(a, b, live):
			return -1
		case w.newer(b, a, live):
			return 1
		case a == current:
			return -1
		case b == current:
			return 1
		}
		return int(b) - int(a)
	})
	return all
}

type pubVerb uint8

const (
	pubWrite pubVerb = iota
	pubReplace
	pubRewind
	pubExport
	pubStep
	pubDeafStep // the log can't be read
	pubDie
	pubPrune
	pubDeafPrune
	pubStopPrune
	pubRead
	pubVerbs
)

type pubAction struct {
	verb pubVerb
	n    uint8
}

func (a pubAction) String() string {
	name := [...]string{"the log is written", "the log is re-created", "the log loses its end",
		"export", "next request", "next request, no answer from the log", "die", "prune on", "prune on, no answer from the log",
		"the prune dies", "bootstrap on"}[a.verb]
	if a.verb >= pubExport && a.verb <= pubDie {
		return fmt.Sprintf("exporter %d: %s", a.n, name)
	}
	return name
}

func (w *pubWorld) actions(s pubState, out []pubAction) []pubAction {
	for v := range pubVerbs {
		switch {
		case v == pubRewind && !w.rewinds, v == pubRead && !w.reads,
			(v == pubDeafStep || v == pubDeafPrune) && !w.deaf:
		case v >= pubExport && v <= pubDie:
			if out = append(out, pubAction{v, 0}); !w.alone {
				out = append(out, pubAction{v, 1})
			}
		case v == pubPrune && s.pruner.step == 0:
			all := s.payloads | s.manifests
			if w.forge.pruneLogFirst {
				all = 1<<(2*w.logs*w.revs+1) - 1 // they are listed later
			}
			for ; all != 0; all &= all - 1 {
				out = append(out, pubAction{v, uint8(all.lowest())})
			}
		default:
			out = append(out, pubAction{verb: v})
		}
	}
	return out
}

func (w *pubWorld) next(s pubState, a pubAction) (pubState, bool) {
	switch a.verb {
	case pubWrite:
		s.live.rev++
		return s, s.live.rev <= w.revs
	case pubReplace:
		s.live = pubAt{log: s.live.log + 1}
		return s, s.live.log <= w.logs
	case pubRewind:
		if s.rewound || s.live.rev == 0 {
			return s, false
		}
		s.rewound, s.live.rev = true, s.live.rev-1
	case pubExport:
		return w.export(s, a.n)
	case pubStep:
		return w.exporterOn(s, a.n, s.live)
	case pubDeafStep:
		if p := s.exporters[a.n].phase; p != pubExported && p != pubSaw {
			return s, false
		}
		return w.exporterOn(s, a.n, pubAt{})
	case pubDie: // elsewhere it has done nothing since; a payload alone is nothing to a bootstrap
		if p := s.exporters[a.n].phase; p != pubAnnounced && (p != pubUploaded || w.reads) {
			return s, false
		}
		s.exporters[a.n] = pubExporter{}
	case pubPrune:
		return w.pruneOn(s, pubID(a.n), s.live)
	case pubDeafPrune:
		if s.pruner.step != 2 {
			return s, false
		}
		return w.pruneOn(s, 0, pubAt{})
	case pubStopPrune: // elsewhere it has done nothing
		if !s.pruner.half {
			return s, false
		}
		s.pruner = pubPruner{}
	case pubRead:
		return w.readOn(s)
	}
	return s, true
}

// export takes an artifact at the log's end. An exporter that is behind took it earlier, and waits. Each export has a name
// of its own, so none has one that a prune is at.
func (w *pubWorld) export(s pubState, n uint8) (pubState, bool) {
	if s.exporters[n].phase != pubIdle || s.live.rev == 0 {
		return s, false
	}
	id := w.id(s.live, n)
	if p := &s.pruner; p.id == id && (p.step > 1 || p.step == 1 && !w.forge.pruneLogFirst) {
		return s, false
	}
	s.exporters[n] = pubExporter{phase: pubExported, at: id}
	return s, true
}

// upload stores a payload. Where a name is the rank alone, it takes the place of another.
func (w *pubWorld) upload(s *pubState, id pubID) {
	for other := pubID(1); w.forge.byRank && other <= pubMost; other++ {
		if w.at(other).rev == w.at(id).rev {
			s.payloads.drop(other)
		}
	}
	s.payloads.put(id)
}

// exporterOn makes an exporter's next request.
func (w *pubWorld) exporterOn(s pubState, n uint8, live pubAt) (pubState, bool) {
	e := &s.exporters[n]
	switch e.phase {
	case pubIdle:
		return s, false
	case pubExported: // what would be refused is not worth an upload
		if s.pointer == e.at || !w.mayPublish(s.pointer, e.at, live.position()) {
			*e = pubExporter{}
			return s, true
		}
		if e.phase = pubUploaded; w.forge.manifestFirst {
			s.manifests.put(e.at)
		} else if !w.forge.swapFirst {
			w.upload(&s, e.at)
		}
		if !w.announces {
			e.phase = pubAnnounced
		}
	case pubUploaded:
		if e.phase = pubAnnounced; w.forge.manifestFirst {
			w.upload(&s, e.at)
		} else {
			s.manifests.put(e.at)
		}
	case pubAnnounced:
		if e.phase = pubSaw; w.forge.logFirst {
			e.live = live
			break
		}
		if e.saw = s.pointer; e.saw == e.at { // it is published
			*e = pubExporter{}
		} else if w.coarse {
			e.phase = pubSaw
			return w.exporterOn(s, n, live)
		}
	case pubSaw:
		if w.forge.logFirst {
			e.saw, live, e.live = s.pointer, e.live, pubAt{}
		}
		if e.phase = pubMaySwap; !w.mayPublish(e.saw, e.at, live.position()) {
			*e = pubExporter{}
		} else if w.coarse {
			return w.exporterOn(s, n, live)
		}
	case pubMaySwap:
		if e.saw != s.pointer && !w.forge.blindSwap {
			*e = pubExporter{phase: pubAnnounced, at: e.at}
			return s, true
		}
		s.pointer = e.at
		if w.forge.swapFirst {
			*e = pubExporter{phase: pubSwapped, at: e.at}
			return s, true
		}
		*e = pubExporter{}
	case pubSwapped:
		w.upload(&s, e.at)
		*e = pubExporter{}
	}
	return s, true
}
