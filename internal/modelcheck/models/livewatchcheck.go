package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

const (
	liveCovers     = "each key whose last message is at or below the cursor stands as that left it, or an audit is owed"
	livePhantoms   = "no repair deletes a key's current value"
	liveForward    = "the cursor never goes back"
	liveRowsOn     = "no row goes back"
	liveHydrates   = "caught up is having all that the log held when the watch began"
	liveWhole      = "what a watch is opened past was superseded"
	liveEnds       = "the watch comes to the head, and the fold to the truth"
	liveOwesLittle = "a log that evicts nothing, and whose markers stay, has nothing audited"
)

func (w *liveWorld) properties() []modelcheck.Property[liveState] {
	type state = liveState
	saw := func(what liveSaw) func(state) bool { return func(s state) bool { return s.saw&what != 0 } }
	not := func(what liveSaw) func(state) bool { return func(s state) bool { return s.saw&what == 0 } }
	all := []modelcheck.Property[state]{
		modelcheck.Always(liveCovers, func(s state) bool { return w.covers(&s, s.cursor) }),
		modelcheck.Always(livePhantoms, not(sawPhantom)),
		modelcheck.Step(liveForward, func(before state, _ liveAct, after state) bool { return before.cursor <= after.cursor }),
		modelcheck.Always(liveRowsOn, not(sawBackward)),
		modelcheck.Always(liveHydrates, not(sawFalseHydrated)),
		modelcheck.Always(liveWhole, not(sawBrokenContinuation)),
		modelcheck.Always(liveOwesLittle, func(s state) bool { return w.purges || !s.owed }),
		modelcheck.FairEventually(liveEnds, func(s state) bool {
			return s.phase == liveWatching && s.cursor == s.log.last && s.watch.head == 0 && w.covers(&s, s.cursor)
		}),
		modelcheck.Sometimes("a marker is delivered", saw(sawMarker)),
		modelcheck.Sometimes("a gap of superseded messages is passed", saw(sawBenign)),
	}
	if w.scope < w.keys {
		all = append(all, modelcheck.Sometimes("the frontier moves past a write out of scope", saw(sawBeyondScope)))
	}
	switch {
	case w.evicts && !w.ages:
		all = append(all,
			modelcheck.Sometimes("the guard trips", saw(sawTrip)),
			modelcheck.Sometimes("a restore brings a value back that is gone from the log", saw(sawRestoredPast)))
	case w.ages:
		all = append(all,
			modelcheck.Sometimes("the guard trips", saw(sawTrip)),
			modelcheck.Sometimes("a gap is passed that is too young", saw(sawYoung)))
	case w.turnsOn:
		all = append(all, modelcheck.Sometimes("the guard trips", saw(sawTrip)))
	default:
		all = append(all, modelcheck.Sometimes("a watch is opened past a gap within the grace", saw(sawContinuation)))
	}
	if w.cuts > 0 {
		all = append(all, modelcheck.Sometimes("the server clamps a start", saw(sawClamp)))
	}
	return all
}

func (w *liveWorld) first() (all []liveState) {
	for _, byLimit := range []bool{false, true} {
		if !w.ages && byLimit != w.evicts {
			continue
		}
		s := liveState{cuts: w.cuts, crashes: w.crashes, edits: w.edits, ticks: w.ticks}
		s.log.evicts, s.log.byLimit = w.evicts, byLimit
		if w.ages && !byLimit {
			s.log.limit, s.noted = 2, 2
		}
		s.log.write(liveMessageOf(0, false))
		s.rows[0], s.cursor = 1, 1
		all = append(all, s)
	}
	return all
}

func (w *liveWorld) model() modelcheck.Model[liveState, liveAct] {
	return modelcheck.Model[liveState, liveAct]{
		Name: w.name, Init: w.first(), Actions: w.actions, Next: w.next,
		Encode:     func(s liveState, out []byte) []byte { return s.appendState(out) },
		Properties: w.properties(), Fair: fairLive,
		ShowState: liveState.String, ShowAction: liveAct.String,
	}
}

var (
	liveKeeps    = liveWorld{name: "livewatch-keeps", keys: 2, scope: 2, revs: 4, cuts: 1, crashes: 1}
	livePurges   = liveWorld{name: "livewatch-purges", keys: 2, scope: 2, revs: 3, cuts: 1, crashes: 1, ticks: 3, purges: true}
	liveEvicts   = liveWorld{name: "livewatch-evicts", keys: 2, scope: 2, revs: 3, cuts: 1, evicts: true}
	liveAges     = liveWorld{name: "livewatch-ages", keys: 2, scope: 2, revs: 3, cuts: 1, edits: 1, ticks: 3, coarse: true, evicts: true, ages: true, raises: true}
	liveTurnsOn  = liveWorld{name: "livewatch-turns-on", keys: 2, scope: 2, revs: 3, turnsOn: true}
	livePrefix   = liveWorld{name: "livewatch-prefix-keeps", keys: 2, scope: 1, revs: 4, cuts: 1, crashes: 1}
	livePrefixEv = liveWorld{name: "livewatch-prefix-evicts", keys: 2, scope: 1, revs: 4, cuts: 1, evicts: true}
)

func liveModels() (all []modelcheck.Case) {
	for _, w := range []liveWorld{liveKeeps, livePurges, liveEvicts, liveAges, liveTurnsOn, livePrefix, livePrefixEv} {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{}))
	}
	deep := liveEvicts
	deep.name, deep.revs, deep.crashes = "livewatch-deep", 4, 1
	return append(all, modelcheck.DeepCaseOf(deep.model(), modelcheck.Options{MaxStates: 60_000_000}))
}

func liveMutations() (all []modelcheck.Mutation) {
	add := func(w liveWorld, name, property string, forge liveForge, ignore ...string) {
		w.forge = forge
		all = append(all, modelcheck.MutationOf("livewatch/"+name, w.model(), modelcheck.Options{Ignore: ignore}, property, 20))
	}
	// LiveGapIsExpiry.
	gap := func(forge func(evicts *bool, base, first *uint64)) liveForge { return liveForge{gap: forge} }
	add(liveEvicts, "a log that evicts is taken for one that does not", liveCovers, gap(func(evicts *bool, _, _ *uint64) { *evicts = false }))
	add(liveEvicts, "a gap is judged from what arrived", liveCovers, gap(func(_ *bool, base, _ *uint64) { *base = 99 }))
	add(liveEvicts, "the log's first revision is not read", liveCovers, gap(func(_ *bool, _, first *uint64) { *first = 1 }))

	// ReopenIsWhole.
	reopen := func(forge func(*protocol.Reopen)) liveForge { return liveForge{reopen: forge} }
	add(liveEvicts, "a watch is opened after what the log has", liveWhole, reopen(func(r *protocol.Reopen) { r.Cursor = max(r.Cursor, r.First) }))
	add(liveEvicts, "a watch is opened on an endless log", liveWhole, reopen(func(r *protocol.Reopen) { r.First = 1 }))
	add(liveEvicts, "a watch that was cut off takes an evicting log for one that keeps", liveWhole, reopen(func(r *protocol.Reopen) { r.Evicts = false }))
	add(livePurges, "a watch that was cut off long ago is a continuation", liveWhole, reopen(func(r *protocol.Reopen) { r.Lost = min(r.Lost, 1) }))
	add(livePurges, "a cold start is taken for a continuation", liveWhole, reopen(func(r *protocol.Reopen) { r.Lost = max(r.Lost, 1) }))
	add(liveKeeps, "a watch that was cut off is a cold start", "a watch is opened past a gap within the grace", reopen(func(r *protocol.Reopen) { r.Lost = 0 }))

	// GapHoldsNoEviction.
	age := func(forge func(*protocol.GapAge, *liveState)) liveForge { return liveForge{age: forge} }
	add(liveAges, "age counts where a limit evicts", liveWhole, age(func(g *protocol.GapAge, _ *liveState) {
		g.AgeOnly, g.MaxAge, g.Noted = true, 2, 2
	}))
	add(liveAges, "the age limit is taken for a higher one", liveWhole, age(func(g *protocol.GapAge, _ *liveState) { g.MaxAge, g.Noted = 2*g.MaxAge, 2*g.MaxAge }))
	add(liveAges, "the age limit before is forgotten", liveWhole, age(func(g *protocol.GapAge, _ *liveState) { g.Noted = g.MaxAge }))
	add(liveAges, "a message is taken for younger", liveWhole, age(func(g *protocol.GapAge, _ *liveState) { g.WrittenAt = min(g.WrittenAt+1, g.Now) }))
	add(liveAges, "the server's time is read late", liveWhole, age(func(g *protocol.GapAge, _ *liveState) { g.Now = max(g.Now-1, g.WrittenAt) }))
	add(liveAges, "a watch that is cut off counts as at the log's end until then", liveWhole, liveForge{stoodNow: true})
	add(liveAges, "a poll raises the age limit that is kept", liveWhole, liveForge{pollRaises: true})

	// FrontierMayAdvance.
	frontier := func(forge func(*protocol.Frontier, *liveState)) liveForge { return liveForge{frontier: forge} }
	add(livePrefix, "the head is read with the probe's end", liveCovers, frontier(func(f *protocol.Frontier, s *liveState) { f.Head = uint64(s.log.last) }))
	add(livePrefix, "what is pending is not asked for", liveCovers, frontier(func(f *protocol.Frontier, _ *liveState) { f.Pending = 0 }))
	add(livePrefix, "what is on its way counts as there", liveCovers, liveForge{usedEarly: true, frontier: func(f *protocol.Frontier, _ *liveState) { f.Received = f.Delivered }})
	add(livePrefix, "what is delivered is not asked for", liveCovers, liveForge{countUnread: true})
	add(livePrefix, "the frontier is taken for the head", liveEnds, frontier(func(f *protocol.Frontier, _ *liveState) { f.Current = f.Head }))
	add(livePrefix, "the head is not read", liveEnds, frontier(func(f *protocol.Frontier, _ *liveState) { f.Head = 0 }))

	// NextCursor, Hydrated and ResumeStart.
	cursor := func(forge func(*protocol.CursorStep)) liveForge { return liveForge{cursor: forge} }
	add(livePrefix, "a batch does not know the frontier", liveEnds, cursor(func(c *protocol.CursorStep) { c.Frontier = c.High }))
	add(liveKeeps, "a batch ends one later than it does", liveCovers, cursor(func(c *protocol.CursorStep) { c.High++ }))
	add(liveKeeps, "the head is taken for earlier", liveHydrates, liveForge{hydrated: func(_, head *uint64) { *head = 0 }})
	add(liveKeeps, "the cursor is taken for the head", liveHydrates, liveForge{hydrated: func(cursor, head *uint64) { *cursor = *head }})
	add(liveKeeps, "a resume leaves out one message", liveCovers, liveForge{start: func(cursor *uint64) { *cursor++ }})

	// GapNeedsAudit, ListingTruth and RestoreAllowed.
	owes := func(forge func(*protocol.Gap)) liveForge { return liveForge{owes: forge} }
	add(livePurges, "a gap is not seen", liveCovers, owes(func(g *protocol.Gap) { g.Missing = false }))
	add(livePurges, "a log is taken for sealed", liveCovers, owes(func(g *protocol.Gap) { g.Markers = protocol.MarkersSealed }))
	add(liveKeeps, "a sealed log is taken for unsealed", liveOwesLittle, owes(func(g *protocol.Gap) { g.Markers = protocol.MarkersUnsealed }))
	add(liveEvicts, "RelistOnEvicting: the listing is taken for the truth", livePhantoms, liveForge{truth: func(r *protocol.Retention) { r.Evicts = false }})
	add(liveEvicts, "RestoreUnguarded: an artifact is taken for newer", liveForward, liveForge{
		allowed: func(art, local *protocol.Position, _ *protocol.LogBounds) {
			art.Revision = max(art.Revision, local.Revision+1)
		},
	}, liveCovers, liveRowsOn)

	// Steps.
	add(liveEvicts, "the guard looks after it has handed out", liveCovers, liveForge{guardLate: true})
	add(liveEvicts, "the guard looks at probes only", liveCovers, liveForge{noGuard: true})
	add(livePrefixEv, "a probe does not look at the log", liveCovers, liveForge{noProbeGuard: true})
	add(liveEvicts, "a watch is opened without a look at the log", liveWhole, liveForge{noWindow: true})
	add(liveEvicts, "a clamped start is not looked at", liveWhole, liveForge{clampIgnored: true})
	add(liveTurnsOn, "eviction is turned on while the guard does not look", liveCovers, liveForge{looksRarely: true}, liveHydrates)
	add(livePrefix, "a probe reads what is pending before the head", liveCovers, liveForge{countsFirst: true})
	add(livePrefixEv, "a probe reads the log's bounds first", liveCovers, liveForge{boundsFirst: true})
	add(liveKeeps, "a start resumes after what was sent", liveCovers, liveForge{receivedResume: true})
	return all
}
