package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// forgePublish, forgePrune and forgeNewer make the mutations of one kernel's inputs.
func forgePublish(forge func(current *protocol.PointerState, candidate, live *protocol.Position)) func(*pubWorld) {
	return func(w *pubWorld) { w.forge.publish = forge }
}

func forgePrune(forge func(p *protocol.Payload, pointer *protocol.PointerState, live *protocol.Position)) func(*pubWorld) {
	return func(w *pubWorld) { w.forge.prune = forge }
}

func forgeNewer(forge func(a, b, live *protocol.Position)) func(*pubWorld) {
	return func(w *pubWorld) { w.forge.newer = forge }
}

// publishMutations has one for each input of PointerPublishAllowed, PayloadPrunable and GenerationIsNewer, but for
// Payload.Target: the pointer's target is not below the pointer, so it stays without that too.
func publishMutations() []modelcheck.Mutation {
	short := pubPlain
	short.name, short.logs, short.deaf = "publish, one log", 1, false
	hearing := pubPlain
	hearing.name, hearing.deaf = "publish, answers only", false
	reads := pubReaders
	reads.revs = 2
	var all []modelcheck.Mutation
	add := func(w pubWorld, name string, change func(*pubWorld), property string, steps int, ignore ...string) {
		change(&w)
		all = append(all, modelcheck.MutationOf(name, w.model(), modelcheck.Options{Ignore: ignore}, property, steps))
	}
	type (
		pointer = protocol.PointerState
		at      = protocol.Position
		payload = protocol.Payload
	)
	// PointerPublishAllowed.
	add(short, "LwwPointer: the pointer is taken for absent", forgePublish(func(p *pointer, _, _ *at) { p.Present = false }), pubForward, 24)
	add(short, "a sound pointer is taken for a damaged one", forgePublish(func(p *pointer, _, _ *at) { p.Readable = false }), pubForward, 24)
	add(short, "a damaged pointer is taken for the newest", forgePublish(func(p *pointer, _, live *at) {
		if !p.Readable {
			p.Readable, p.At = true, at{Log: live.Log, Revision: live.Revision}
		}
	}), pubNoWedge, 24)
	add(short, "the pointer's revision is not compared", forgePublish(func(p *pointer, _, _ *at) { p.At.Revision = 0 }), pubForward, 24)
	add(short, "an artifact's revision is taken for the highest", forgePublish(func(_ *pointer, c, live *at) { c.Revision = live.Revision }), pubForward, 24)
	add(hearing, "the pointer's log is not known", forgePublish(func(p *pointer, _, _ *at) { p.At.Log = 0 }), pubNoWedge, 24)
	add(hearing, "an artifact's log is not known", forgePublish(func(_ *pointer, c, _ *at) { c.Log = 0 }), pubOfLive, 24, pubNoWedge)
	add(hearing, "the log is never read", forgePublish(func(_ *pointer, _, live *at) { *live = at{} }), pubNoWedge, 24)
	add(hearing, "the log is taken for empty", forgePublish(func(_ *pointer, _, live *at) { live.Revision = 0 }), pubNoWedge, 24)
	add(pubRewound, "the log is taken for endless", forgePublish(func(_ *pointer, _, live *at) { live.Revision = 99 }), pubNoWedge, 24)

	// PayloadPrunable.
	add(short, "an object that is no artifact is taken for one", forgePrune(func(p *payload, _ *pointer, _ *at) { p.Ranked = true }), pubNotOurs, 24)
	add(hearing, "a payload is taken for another log's", forgePrune(func(p *payload, _ *pointer, live *at) { p.At.Log = live.Log + 1 }), pubFetchable, 24)
	add(short, "a payload's revision is not compared", forgePrune(func(p *payload, _ *pointer, _ *at) { p.At.Revision = 0 }), pubFetchable, 24)
	add(short, "a prune takes what is at the pointer too", forgePrune(func(_ *payload, p *pointer, _ *at) { p.At.Revision++ }), pubFetchable, 24)
	add(reads, "the generations to keep are not spared", forgePrune(func(p *payload, _ *pointer, _ *at) { p.Kept = false }), pubKept, 24)
	add(pubRewound, "age is not waited for", forgePrune(func(p *payload, _ *pointer, _ *at) { p.AgedOut = true }), pubFetchable, 24)
	add(pubPlain, "the long age is not waited for", forgePrune(func(p *payload, _ *pointer, _ *at) { p.LongAgedOut = true }), pubFetchable, 24)
	add(hearing, "without a pointer a prune goes on", forgePrune(func(_ *payload, p *pointer, _ *at) { p.Present, p.Readable = true, true }), pubFetchable, 24)
	add(hearing, "a damaged pointer is pruned by", forgePrune(func(_ *payload, p *pointer, _ *at) { p.Readable = p.Present }), pubFetchable, 24)
	add(hearing, "the pointer is taken for one of the live log", forgePrune(func(_ *payload, p *pointer, live *at) {
		p.At = at{Log: live.Log, Revision: min(p.At.Revision, live.Revision)}
	}), pubFetchable, 24)
	add(short, "PruneAgeOnly: age alone prunes", forgePrune(func(p *payload, c *pointer, live *at) {
		p.Target = false
		c.At.Revision, live.Revision = 99, 99
	}), pubFetchable, 24)
	add(hearing, "the log is taken for the pointer's", forgePrune(func(_ *payload, p *pointer, live *at) { *live = p.At }), pubFetchable, 24)
	add(reads, "a prune takes the log for empty", forgePrune(func(_ *payload, _ *pointer, live *at) { live.Revision = 0 }), "what a log that is gone left is pruned above the pointer's revision", 60)

	// GenerationIsNewer.
	add(reads, "generations are ordered backwards", forgeNewer(func(a, b, _ *at) { *a, *b = *b, *a }), pubKept, 24)
	add(reads, "generations are ordered without the log", forgeNewer(func(_, _, live *at) { *live = at{} }), pubKept, 24)

	// Steps.
	add(short, "the swap does not ask what is there", func(w *pubWorld) { w.forge.blindSwap = true }, pubForward, 24)
	add(hearing, "the log is read before the pointer", func(w *pubWorld) { w.forge.logFirst = true }, pubOfLive, 24, pubNoWedge, pubForward)
	add(short, "the swap comes before the payload", func(w *pubWorld) { w.forge.swapFirst = true }, pubFetchable, 24)
	add(reads, "the manifest comes before the payload", func(w *pubWorld) { w.forge.manifestFirst = true }, pubWhole, 24)
	add(hearing, "a prune reads the log before the pointer", func(w *pubWorld) { w.revs, w.forge.pruneLogFirst = 1, true }, pubFetchable, 24)
	add(reads, "a prune deletes the payload before the manifest", func(w *pubWorld) { w.forge.payloadFirst = true }, pubWhole, 24)
	add(reads, "a payload is named by its revision alone", func(w *pubWorld) { w.forge.byRank = true }, pubUnmixed, 24, pubKept, pubFetchable, pubWhole)
	add(reads, "the log is not read again after the download", func(w *pubWorld) { w.forge.logOnce = true }, pubFollowed, 24)

	// RestoreAllowed, as a bootstrap asks it.
	allowed := func(forge func(a *at, log *protocol.LogBounds)) func(*pubWorld) {
		return func(w *pubWorld) { w.forge.allowed = forge }
	}
	add(reads, "a bootstrap does not know an artifact's log", allowed(func(a *at, _ *protocol.LogBounds) { a.Log = 0 }), pubFollowed, 24)
	add(reads, "a bootstrap does not know the log", allowed(func(_ *at, log *protocol.LogBounds) { log.Log = 0 }), pubFollowed, 24)
	return all
}
