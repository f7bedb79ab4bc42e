package models

import (
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// breaks checks a model that is wrong on purpose by one of its properties alone, which has to be violated.
func breaks[S, A any](t *testing.T, m modelcheck.Model[S, A], property string) {
	t.Helper()
	var others []string
	for _, p := range m.Properties {
		if p.Name != property {
			others = append(others, p.Name)
		}
	}
	modelcheck.RequireCaught(t, m, modelcheck.Options{Ignore: others, MaxStates: 20_000_000}, property, 60)
}

// TestPropertiesThatNoMutationNames: most of them can be violated by a mutation too, which another property shows as soon.
// Those that are not here are of steps that no mutation forges: hooks that run twice, a domain that is not what the store
// holds, a row that goes back, and a bootstrap that takes an older artifact than the one before.
func TestPropertiesThatNoMutationNames(t *testing.T) {
	t.Run(appliedClean, func(t *testing.T) {
		w := appliedWorlds()[1]
		w.forge.dropsFailed = true
		breaks(t, w.model(), appliedClean)
	})
	t.Run(fleetArtifacts, func(t *testing.T) {
		w := fleetEvicts
		w.fresh = 0
		w.forge.key = func(_, _ *protocol.KeyState, same, _ *bool) { *same = true }
		breaks(t, w.model(), fleetArtifacts)
	})
	t.Run(pubReaches, func(t *testing.T) {
		w := pubPlain
		w.logs, w.deaf = 1, false
		w.forge.publish = func(_ *protocol.PointerState, c, live *protocol.Position) { c.Log = live.Log + 1 }
		breaks(t, w.model(), pubReaches)
	})
	reads := pubReaders
	reads.revs = 2
	t.Run(pubBoots, func(t *testing.T) {
		w := reads
		w.forge.allowed = func(a *protocol.Position, log *protocol.LogBounds) { a.Revision = log.Last + 1 }
		breaks(t, w.model(), pubBoots)
	})
	t.Run(pubStaleMiss, func(t *testing.T) {
		w := reads
		w.forge.prune = func(p *protocol.Payload, _ *protocol.PointerState, _ *protocol.Position) {
			p.Target, p.Kept, p.At.Revision = false, false, 0
		}
		breaks(t, w.model(), pubStaleMiss)
	})
}
