package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

var (
	incarnationStops = auditWorld{
		name: "incarnation-stops", revs: 3, kinds: auditValues, bounds: auditState{writes: 4, rewinds: 1},
		witnesses: []auditSaw{auditSawIdentityOwed, auditSawRewound, auditSawContradiction, auditSawMissing, auditSawSettled},
	}
	incarnationYoung = auditWorld{
		name: "incarnation-young", revs: 3, kinds: auditValues, young: true, bounds: auditState{writes: 4, rewinds: 1},
		witnesses: []auditSaw{auditSawIdentityOwed, auditSawRewound, auditSawContradiction, auditSawMissing},
	}
	incarnationAnew = auditWorld{
		name: "incarnation-anew", revs: 3, kinds: auditValues, bounds: auditState{writes: 3, recreates: 1, crashes: 1},
		witnesses: []auditSaw{auditSawIdentityOwed, auditSawReplaced},
	}
	incarnationPurges = auditWorld{
		name: "incarnation-purges", revs: 3, kinds: auditValues, rules: auditUnsealed, bounds: auditState{writes: 3, purges: 1, rewinds: 1},
		witnesses: []auditSaw{auditSawIdentityOwed, auditSawRewound},
	}
	incarnationAdopts = auditWorld{
		name: "incarnation-adopts", revs: 3, kinds: auditValues, adopts: true, bounds: auditState{writes: 3, recreates: 1, crashes: 1},
		witnesses: []auditSaw{auditSawAdopted, auditSawReplaced},
	}
	incarnationAdoptsTwice = auditWorld{
		name: "incarnation-adopts-twice", revs: 2, kinds: auditValues, adopts: true, bounds: auditState{writes: 3, recreates: 2},
		witnesses: []auditSaw{auditSawAdopted, auditSawImplausible},
	}
)

func incarnationModels() (all []modelcheck.Case) {
	for _, w := range []auditWorld{incarnationStops, incarnationYoung, incarnationAnew, incarnationPurges, incarnationAdopts, incarnationAdoptsTwice} {
		all = append(all, w.oneCase())
	}
	return all
}

func incarnationMutations() (all []modelcheck.Mutation) {
	add := func(w auditWorld, name, property string, forge auditForge, ignore ...string) {
		all = append(all, auditMutation("incarnation/"+name, w, forge, property, ignore...))
	}
	type (
		log  = protocol.LogSeen
		seen = protocol.AuditSeen
	)
	// LogIsSame.
	same := func(forge func(*log)) auditForge { return auditForge{same: forge} }
	add(incarnationAnew, "the log's creation was not noted", auditTruth, same(func(s *log) { s.NotedCreated = 0 }))
	add(incarnationAnew, "the log's creation is not read", auditTruth, same(func(s *log) { s.Created = s.NotedCreated }))
	add(incarnationAnew, "the log's creation is read wrong", auditCalm, same(func(s *log) { s.Created++ }))
	add(incarnationStops, "the cursor is not compared with the log's end", auditTruth, same(func(s *log) { s.Cursor = 0 }))
	add(incarnationStops, "the log's end is not read", auditTruth, same(func(s *log) { s.Last = 99 }))
	add(incarnationStops, "the cursor's message is not looked at", auditTruth, same(func(s *log) { s.AtCursor = protocol.SampleMatches }))
	add(incarnationStops, "a superseded message is taken for another one", auditCalm, same(func(s *log) {
		if s.AtCursor == protocol.SampleAbsent {
			s.AtCursor = protocol.SampleDiffers
		}
	}))
	add(incarnationStops, "an older message proves the log", auditTruth, same(func(s *log) {
		for _, found := range s.Samples {
			if found == protocol.SampleMatches && s.AtCursor == protocol.SampleAbsent {
				s.AtCursor = found
			}
		}
	}))
	add(incarnationStops, "an older message that is gone is taken for another one", auditCalm, same(func(s *log) {
		for i, found := range s.Samples {
			if found == protocol.SampleAbsent {
				s.Samples[i] = protocol.SampleDiffers
			}
		}
	}))

	// AuditKey and SuspectIsMissing.
	add(incarnationYoung, "a row's time is not read", auditTruth, auditForge{key: func(s *seen) { s.RowTime = 0 }})
	add(incarnationYoung, "a listed message's time is not read", auditTruth, auditForge{key: func(s *seen) { s.ListedTime = 0 }})
	add(incarnationStops, "what is listed is taken for later than the audit", auditTruth, auditForge{key: func(s *seen) { s.After = 0 }})
	add(incarnationStops, "a suspect is not read", auditTruth, auditForge{suspect: func(value *bool, _, _ *uint64) { *value = false }})
	add(incarnationStops, "a suspect is taken for later", auditTruth, auditForge{suspect: func(_ *bool, last, _ *uint64) { *last = 99 }})
	add(incarnationStops, "a suspect is judged by less than was applied", auditTruth, auditForge{suspect: func(_ *bool, _, applied *uint64) { *applied = 0 }})

	// ListingPlausible and PlanRepair.
	add(incarnationAdoptsTwice, "a listing is not of the log that was planned for", auditTruth, auditForge{listing: func(l *protocol.Listing) { l.CreatedAfter = l.CreatedPlanned }})
	add(incarnationAnew, "another log is adopted unasked", auditForward, auditForge{repair: func(p *protocol.PlanInput) { p.Adopt = true }})
	add(incarnationAnew, "another log is taken for an expiry", auditEnds, auditForge{repair: func(p *protocol.PlanInput) { p.Cause = protocol.CauseExpired }})

	// Steps.
	add(incarnationStops, "a log that nothing proves owes nothing", auditTruth, auditForge{identityFree: true})
	add(incarnationAnew, "what is known of the log is forgotten at a start", auditTruth, auditForge{knownLost: true})
	add(incarnationStops, "an audit outlives its watch", auditNoDelete, auditForge{auditsOn: true})
	add(incarnationAdopts, "an adopted log is not remembered", auditCalm, auditForge{adoptKeepsKnown: true})
	return all
}
