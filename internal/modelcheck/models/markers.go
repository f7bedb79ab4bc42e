package models

import (
	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

const (
	auditTruth    = "a fold that is caught up and owes nothing is the log's truth"
	auditNoDelete = "no audit and no repair deletes a key's current value"
	auditCalm     = "a log that nothing happened to is not taken for another one"
	auditForward  = "the cursor goes back where another log is adopted only"
	auditEnds     = "a fold comes to the truth, to a debt that nothing settles, or stops"
	auditSound    = "each key whose last message is at or below the cursor stands as that left it, or an audit is owed"
	auditNoMarks  = "nobody owes an audit for the markers of a sealed log"
)

// caughtUp: the fold has all that the log has, as far as it knows.
func (s *auditState) caughtUp() bool {
	return s.p.up() && s.p.watching && !s.watch.dead && s.disk.cursor.Revision() == uint64(s.log.last)
}

func (w *auditWorld) isTrue(s *auditState) bool { return s.disk.rows == w.truth(&s.log) }

// isSound looks at what was to be told of at or below the cursor, except amid a repair.
func (w *auditWorld) isSound(s *auditState) bool {
	relists := s.p.has(askedOpen) && s.p.opening.Relist || s.watch.pos < s.watch.floor
	if s.disk.owed.Why != 0 || !s.same || s.p.up() && (s.mend.repair || relists || s.disk.cursor.IsNone()) {
		return true
	}
	truth := w.truth(&s.log)
	for k := range uint8(auditKeys) {
		if r := s.log.latest(k); uint64(r) <= s.disk.cursor.Revision() && s.disk.rows[k] != truth[k] {
			return false
		}
	}
	return true
}

// isSettled: nothing is left to come. What is owed up to a revision that the log has lost waits until it is written again.
func (w *auditWorld) isSettled(s *auditState) bool {
	if s.p.stop == stoppedFinal || !s.caughtUp() {
		return s.p.stop == stoppedFinal
	}
	owed := s.disk.owed
	return owed.Why == 0 && w.isTrue(s) || owed.Why != 0 && (s.unproven() || owed.At > uint64(s.log.last))
}

func (s *auditState) unproven() bool {
	_, unproven := s.p.m.Owed()
	return unproven
}

func (w *auditWorld) properties() []modelcheck.Property[auditState] {
	type state = auditState
	not := func(what auditSaw) func(state) bool { return func(s state) bool { return s.saw&what == 0 } }
	all := []modelcheck.Property[state]{
		modelcheck.Always(auditTruth, func(s state) bool { return !s.caughtUp() || s.disk.owed.Why != 0 || w.isTrue(&s) }),
		modelcheck.Always(auditNoDelete, not(auditSawPhantom)),
		modelcheck.Always(auditCalm, not(auditSawFalseAlarm)),
		modelcheck.Always(auditSound, func(s state) bool { return w.isSound(&s) }),
		modelcheck.Step(auditForward, func(before state, _ auditAct, after state) bool {
			return before.disk.cursor.Revision() <= after.disk.cursor.Revision() || w.adopts && after.disk.cursor.IsNone()
		}),
		modelcheck.FairEventually(auditEnds, func(s state) bool { return w.isSettled(&s) }),
	}
	if w.rules == (protocol.MarkerRules{}) {
		all = append(all, modelcheck.Always(auditNoMarks, func(s state) bool { return s.disk.owed.Why&kv.OwesMarkers == 0 }))
	}
	if w.rules.MessageTTL {
		all = append(all, modelcheck.Sometimes("an audit is owed that no listing settles", func(s state) bool { return s.p.up() && s.unproven() }))
	}
	for _, witness := range w.witnesses {
		all = append(all, modelcheck.Sometimes(auditWitnesses[witness], func(s state) bool { return s.saw&witness != 0 }))
	}
	return all
}

var auditWitnesses = map[auditSaw]string{
	auditSawZombieGone:    "an audit, or a repair, deletes a row whose marker vanished",
	auditSawSuspectSpared: "a key that was listed is found deleted since",
	auditSawIdentityOwed:  "a log is resumed on that nothing proves",
	auditSawReplaced:      "a log that was created anew is told",
	auditSawRewound:       "a log that lost its end is told",
	auditSawContradiction: "an audit finds a row that the log contradicts",
	auditSawMissing:       "an audit finds a value that the fold never had",
	auditSawAdopted:       "another log is adopted",
	auditSawUnsure:        "an audit meets a row of the log before",
	auditSawSkipped:       "a change is left out, since its row has changed",
	auditSawImplausible:   "a listing is not used",
	auditSawSettled:       "an audit settles what is owed",
	auditSawStayed:        "a gap is passed whose markers are still there",
}

var (
	auditUnsealed  = protocol.MarkerRules{Purge: true, Delete: true, Rollup: true}
	auditLongLived = protocol.MarkerRules{MessageTTL: true, MarkerTTL: 2}
	auditValues    = []auditKind{auditPut, auditDel}

	markersVanish = auditWorld{
		name: "markers-vanish", revs: 4, kinds: auditValues, rules: auditUnsealed, bounds: auditState{writes: 3, purges: 1, cuts: 1},
		witnesses: []auditSaw{auditSawZombieGone, auditSawSuspectSpared, auditSawSkipped, auditSawSettled, auditSawIdentityOwed},
	}
	markersCrash = auditWorld{
		name: "markers-crash", revs: 3, kinds: auditValues, rules: auditUnsealed, bounds: auditState{writes: 2, purges: 1, crashes: 1},
		witnesses: []auditSaw{auditSawZombieGone, auditSawSettled},
	}
	markersShort = auditWorld{
		name: "markers-short-listing", revs: 3, kinds: auditValues, rules: auditUnsealed, bounds: auditState{writes: 2, purges: 1, shorts: 2},
		witnesses: []auditSaw{auditSawImplausible, auditSawZombieGone},
	}
	markersUncounted = auditWorld{
		name: "markers-uncounted", revs: 3, kinds: auditValues, rules: auditUnsealed, uncounted: true, bounds: auditState{writes: 2, purges: 1, shorts: 1},
		witnesses: []auditSaw{auditSawZombieGone},
	}
	markersLong = auditWorld{
		name: "markers-long-lived", revs: 4, kinds: auditValues, rules: auditLongLived, bounds: auditState{writes: 2, ageOuts: 2, ticks: 3},
		witnesses: []auditSaw{auditSawStayed},
	}
	markersKinds = auditWorld{
		name: "markers-kinds", revs: 3, kinds: []auditKind{auditPut, auditEmptyPut, auditDel, auditPurgeOp, auditRemoved, auditPurged}, rules: auditUnsealed,
		bounds: auditState{writes: 2, ageOuts: 1},
	}
	markersSealed = auditWorld{name: "markers-sealed", revs: 4, kinds: auditValues, bounds: auditState{writes: 3, cuts: 1, crashes: 1}, witnesses: []auditSaw{auditSawSettled}}
)

// with is the world under a forge.
func (w auditWorld) with(forge auditForge) auditWorld {
	w.forge = forge
	return w
}

// under is the world under other rules for markers.
func (w auditWorld) under(rules protocol.MarkerRules) auditWorld {
	w.rules = rules
	return w
}

func (w auditWorld) oneCase() modelcheck.Case {
	return modelcheck.CaseOf(w.model(w.properties()), modelcheck.Options{})
}

// tombstones is the world of a bucket where an empty value is a delete.
func (w auditWorld) tombstones() auditWorld {
	w.name, w.emptyDeletes = w.name+"-empty-deletes", true
	return w
}

func markerModels() (all []modelcheck.Case) {
	for _, w := range []auditWorld{markersVanish, markersCrash, markersShort, markersUncounted, markersLong, markersKinds, markersKinds.tombstones(), markersSealed} {
		all = append(all, w.oneCase())
	}
	deep := markersVanish
	deep.name, deep.bounds = "markers-deep", auditState{writes: 4, purges: 2, cuts: 1, crashes: 1}
	deep.revs = 5
	return append(all, modelcheck.DeepCaseOf(deep.model(deep.properties()), modelcheck.Options{MaxStates: 60_000_000}))
}

// auditMutation is a world that is wrong on purpose.
func auditMutation(name string, w auditWorld, forge auditForge, property string, ignore ...string) modelcheck.Mutation {
	w = w.with(forge)
	return modelcheck.MutationOf(name, w.model(w.properties()), modelcheck.Options{Ignore: ignore}, property, 40)
}

func markerMutations() (all []modelcheck.Mutation) {
	add := func(w auditWorld, name, property string, forge auditForge, ignore ...string) {
		all = append(all, auditMutation("markers/"+name, w, forge, property, ignore...))
	}
	type (
		op     = protocol.KVOperation
		reason = protocol.MarkerReason
		rules  = protocol.MarkerRules
		seen   = protocol.AuditSeen
	)
	// EventKindOf.
	event := func(forge func(*op, *reason, *bool, *bool)) auditForge { return auditForge{event: forge} }
	add(markersKinds, "a KV operation is not read", auditSound, event(func(o *op, _ *reason, _, _ *bool) { *o = protocol.KVOperationNone }))
	add(markersKinds, "a marker's reason is not read", auditSound, event(func(_ *op, r *reason, _, _ *bool) { *r = protocol.MarkerNone }))
	add(markersKinds, "an aged-out marker is taken for a removal", auditSound, event(func(_ *op, r *reason, _, _ *bool) {
		if *r == protocol.MarkerMaxAge {
			*r = protocol.MarkerRemove
		}
	}))
	add(markersKinds.tombstones(), "an empty value is taken for one with bytes", auditSound, event(func(_ *op, _ *reason, empty, _ *bool) { *empty = false }))
	add(markersKinds.tombstones(), "an empty value is a value everywhere", auditSound, event(func(_ *op, _ *reason, _, t *bool) { *t = false }))
	add(markersKinds, "an empty value is a delete everywhere", auditSound, event(func(_ *op, _ *reason, _, t *bool) { *t = true }))

	// MarkersCanVanish.
	vanish := func(forge func(*rules, *int64)) auditForge { return auditForge{markers: forge} }
	add(markersCrash.under(rules{Purge: true}), "a bucket that can be purged is taken for sealed", auditSound, vanish(func(r *rules, _ *int64) { r.Purge = false }))
	add(markersCrash.under(rules{Delete: true}), "a bucket whose messages can be deleted is taken for sealed", auditSound, vanish(func(r *rules, _ *int64) { r.Delete = false }))
	add(markersCrash.under(rules{Rollup: true}), "a bucket with rollups is taken for sealed", auditSound, vanish(func(r *rules, _ *int64) { r.Rollup = false }))
	add(markersLong, "a bucket of messages with a TTL is taken for sealed", auditSound, vanish(func(r *rules, _ *int64) { r.MessageTTL = false }))
	add(markersLong, "markers are taken for staying longer", auditSound, vanish(func(r *rules, _ *int64) { r.MarkerTTL *= 9 }))
	add(markersLong, "a reader is taken for being back sooner", auditSound, vanish(func(_ *rules, away *int64) { *away = 1 }))
	add(markersSealed, "a sealed bucket is taken for one that can be purged", auditNoMarks, vanish(func(r *rules, _ *int64) { r.Purge = true }))

	// GapNeedsAudit.
	gap := func(forge func(*protocol.Gap)) auditForge { return auditForge{gap: forge} }
	add(markersCrash, "a gap is not seen", auditSound, gap(func(g *protocol.Gap) { g.Missing = false }))
	add(markersCrash, "every log is taken for sealed", auditSound, gap(func(g *protocol.Gap) { g.Markers = protocol.MarkersSealed }))
	add(markersLong, "an aged-out marker behind a gap is not seen", auditSound, gap(func(g *protocol.Gap) { g.AgedOut = false }))
	add(markersVanish, "a re-list that begins later than its repair listed owes nothing", auditTruth, auditForge{relistFree: true})

	// PlanAudit and AuditSettles.
	add(markersCrash, "what is owed is not told to the audit", auditSound, auditForge{plan: func(owed *bool) { *owed = false }})
	add(markersLong, "RelistOnEvicting: the listing is taken for the truth", auditNoDelete, auditForge{truth: func(t *protocol.Truth) { *t = protocol.TruthYes }})
	add(markersVanish, "an audit settles what came after its listing", auditSound, auditForge{audited: func(a *machine.Audited) { a.Before = 99 }})
	add(markersCrash, "an audit settles nothing", auditEnds, auditForge{audited: func(a *machine.Audited) { a.Before = 0 }})

	// AuditKey.
	key := func(forge func(*seen)) auditForge { return auditForge{key: forge} }
	add(markersVanish, "a row that was written since the listing is judged by it", auditCalm, key(func(s *seen) { s.Before = 99 }))
	add(markersVanish, "no row is from before the listing", auditEnds, key(func(s *seen) { s.Before = 0 }), auditTruth, auditSound)
	add(markersCrash, "what is listed is not seen", auditNoDelete, key(func(s *seen) { s.Listed = 0 }))
	add(markersCrash, "a row is taken for older", auditCalm, key(func(s *seen) { s.Row = min(s.Row, 1) }))
	add(markersCrash, "a row is not seen", auditCalm, key(func(s *seen) { s.HasRow = false }))
	add(markersCrash, "a row's time is that of another message", auditCalm, key(func(s *seen) { s.RowTime++ }))

	// SuspectIsMissing.
	suspect := func(forge func(*bool, *uint64, *uint64)) auditForge { return auditForge{suspect: forge} }
	add(markersVanish, "a suspect is missing though it was deleted", auditCalm, suspect(func(value *bool, _, _ *uint64) { *value = true }))
	add(markersVanish, "a suspect is missing though it was written since", auditCalm, suspect(func(_ *bool, last, _ *uint64) { *last = 0 }))
	add(markersVanish, "a suspect is judged by more than was applied", auditCalm, suspect(func(_ *bool, _, applied *uint64) { *applied = 99 }))

	// ListingPlausible and NeedsSecondListing.
	listing := func(forge func(*protocol.Listing)) auditForge { return auditForge{listing: forge} }
	add(markersShort, "a listing is not counted", auditNoDelete, listing(func(l *protocol.Listing) { l.Listed = 99 }))
	add(markersShort, "the log's keys were not counted before", auditNoDelete, listing(func(l *protocol.Listing) { l.KeysBefore = 0 }))
	add(markersShort, "the log's keys were not counted after", auditNoDelete, listing(func(l *protocol.Listing) { l.KeysAfter = 0 }))
	brake := func(forge func(*uint64, *uint64)) auditForge { return auditForge{brake: forge} }
	add(markersUncounted, "what would be deleted is not counted", auditNoDelete, brake(func(deletes, _ *uint64) { *deletes = 0 }))
	add(markersUncounted, "the fold is taken for larger", auditNoDelete, brake(func(_, rows *uint64) { *rows *= 99 }))

	// Steps.
	add(markersVanish, "an audit is judged against rows that were read too early", auditTruth, auditForge{earlyRows: true})
	add(markersVanish, "a delete does not look at its row", auditNoDelete, auditForge{noExpect: true})
	restarts := markersVanish
	restarts.bounds.cuts, restarts.bounds.crashes = 0, 1
	add(restarts, "what is owed is forgotten at a start", auditSound, auditForge{owedLost: true})
	return all
}
