package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

var (
	// fcRace: a writer of the token that goes and one of the token that comes.
	fcRace = fcWorld{
		name: "fence/race", drops: 1, asks: []fcAsk{{token: 1}, {token: 2}, {fence: true, token: 2}},
		witnesses: []fcSaw{fcSawLate, fcSawBusy, fcSawOldRead, fcSawDisprove, fcSawDropped},
	}
	// fcBack: a token that goes and comes again.
	fcBack = fcWorld{
		name: "fence/back", asks: []fcAsk{{token: 1}, {fence: true, token: 2}, {fence: true, token: 1}},
		witnesses: []fcSaw{fcSawLate, fcSawBusy, fcSawOldRead, fcSawDisprove, fcSawAdopt},
	}
	// fcFirst: a bucket that was never fenced.
	fcFirst = fcWorld{
		name: "fence/first", fresh: true, asks: []fcAsk{{}, {token: 1}, {fence: true, token: 1}},
		witnesses: []fcSaw{fcSawBusy},
	}
	// fcTwice: Fences at once.
	fcTwice = fcWorld{
		name: "fence/twice", drops: 1, asks: []fcAsk{{fence: true, token: 1}, {fence: true, token: 2}, {token: 2}},
		witnesses: []fcSaw{fcSawBusy, fcSawOldRead, fcSawDisprove, fcSawDropped},
	}
	// fcFollow: a writer that asks for the log's end.
	fcFollow = fcWorld{
		name: "fence/follow", drops: 1, asks: []fcAsk{{token: 1, follows: true}, {fence: true, token: 2}},
		witnesses: []fcSaw{fcSawLate, fcSawBusy, fcSawOldRead, fcSawDisprove, fcSawDropped},
	}
	// fcLost: a log that loses its record.
	fcLost = fcWorld{
		name: "fence/lost", evictions: 1, asks: []fcAsk{{token: 1}, {fence: true, token: 2}},
		witnesses: []fcSaw{fcSawEvicted, fcSawLate},
	}
)

func fenceModels() (all []modelcheck.Case) {
	wide := fcBack
	wide.name, wide.deep, wide.drops, wide.evictions = "fence/back, discards and a loss", true, 1, 1
	for _, w := range []fcWorld{fcRace, fcBack, fcFirst, fcTwice, fcFollow, fcLost, wide} {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{MaxStates: 20_000_000}))
		all[len(all)-1].Deep = w.deep
	}
	return all
}

func fenceMutations() (all []modelcheck.Mutation) {
	add := func(w fcWorld, name, property string, forge fcForge, ignore ...string) {
		w.forge, w.witnesses = forge, nil
		o := modelcheck.Options{Ignore: ignore, MaxStates: 20_000_000}
		all = append(all, modelcheck.MutationOf("fence/"+name, w.model(), o, property, 14))
	}
	type (
		seen  = protocol.FenceSeen
		proof = protocol.FenceProof
	)
	// PlanFenced.
	plan := func(f func(*bool, *seen)) fcForge { return fcForge{plan: f} }
	add(fcRace, "the installed token is not read", fcTokens, plan(func(_ *bool, s *seen) { s.Holds = true }))
	add(fcRace, "its own token is not read", fcTrue, plan(func(_ *bool, s *seen) { s.Holds = false }))
	add(fcFirst, "a writer's token is not read", fcTokens, plan(func(presents *bool, _ *seen) { *presents = false }))
	add(fcFirst, "no token is taken for one", fcNoFence, plan(func(presents *bool, s *seen) {
		if *presents = true; s.Present {
			s.Present = false
		}
	}), fcTokens)
	add(fcFirst, "a record is not seen by who presents nothing", fcTokens, plan(func(presents *bool, s *seen) { s.Present = *presents && s.Present }))
	// PlanFence.
	install := func(f func(*seen)) fcForge { return fcForge{install: f} }
	add(fcRace, "a Fence takes another token for its own", fcSameTrue, install(func(s *seen) { s.Holds = true }))
	// FenceProved.
	add(fcBack, "a proof that is not stored is believed", fcTrue, fcForge{proof: func(_ *seen, p *proof) { p.Stored = true }}, fcToldTrue, fcSameTrue)

	// Steps of the log's checks.
	add(fcRace, "a wildcard is checked", fcTokens, fcForge{wildcard: true})
	add(fcRace, "a write does not check", fcTokens, fcForge{unchecked: true})
	add(fcRace, "a Fence writes one of its keys", fcTokens, fcForge{oneKey: true})
	add(fcBack, "a Fence asks for the record that it read", fcInstalls, fcForge{conditional: true})
	add(fcLost, "no record is asked for where none was read", fcTokens, fcForge{expectsNothing: true})
	// Steps of the writers.
	add(fcBack, "a refusal is told without a proof", fcTrue, fcForge{fencedAtOnce: true}, fcToldTrue)
	add(fcBack, "a token is told without a proof", fcToldTrue, fcForge{fencedAtOnce: true}, fcTrue)
	add(fcTwice, "a Fence says without a proof that nothing is to be changed", fcSameTrue, fcForge{sameAtOnce: true})
	add(fcBack, "proofs don't check", fcTrue, fcForge{freeProofs: true}, fcToldTrue, fcSameTrue)
	add(fcFollow, "the log's end is asked for as it was read", fcTokens, fcForge{followsRead: true})
	add(fcFollow, "the log's end is foreseen", fcTokens, fcForge{foresees: true})
	add(fcRace, "what may be stored is said not to be", fcNever, fcForge{lostIsNothing: true})
	return all
}
