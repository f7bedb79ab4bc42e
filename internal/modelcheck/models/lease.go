package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// The export lease: nodes that take turns by a key with conditional writes, in the order of lease.TryAcquire and of
// rounds.Round.Run, and prunes with PruneGrace. Time goes by in whole seconds, which is what a record counts, and is told
// from now, so it has no end. A node may stop at any step, for ever too, and die. Answers that are lost are deaths: nobody
// has the lease then until it expires.
//
// Left out: what is exported, and the pointer (see publish.go); the scheduler's pauses.

// leasePhase is where a node's round is.
type leasePhase uint8

const (
	leaseIdle     leasePhase = iota
	leaseDecided             // to write the key
	leaseHeld                // as the node believes
	leaseUploaded            // a payload
	leasePublished
)

type leaseNode struct {
	phase leasePhase
	// age is how long the round takes already.
	age uint8
	// fresh: the key still has the version that the node saw or wrote.
	fresh bool
	// robbed: a stranger wrote the key since.
	robbed bool
	// stored is how long the payload lies there; pruned is that it was taken.
	stored uint8
	pruned bool
	// ahead: its clock is a second ahead of the others.
	ahead bool
}

// leaseKey is what the key holds.
type leaseKey uint8

const (
	leaseNever leaseKey = iota
	leaseGone           // a tombstone
	leaseRecord
	leaseCorrupt // what is no record
)

type leaseState struct {
	key    leaseKey
	holder uint8
	left   uint8 // until it expires, by a clock that is not ahead; 0 is past
	lain   uint8 // since it was stored; counted while it has not expired
	harmed bool  // a stranger has written the key, once
	nodes  [3]leaseNode
}

type leaseWorld struct {
	name  string
	deep  bool
	nodes int
	ttl   uint8
	// steps: clocks may be put a second on, and back. Then no prune is judged, which tells age by its own clock.
	steps bool
	forge leaseForge
}

// leaseForge is what a mutation does to it.
type leaseForge struct {
	seen func(*protocol.LeaseSeen)
	ttl  func(int64) int64 // of PruneGrace

	blindWrite, blindWord, endless bool
	// agree: clocks are taken to agree, though they don't.
	agree bool
}

func (w *leaseWorld) grace() uint8 { return graceOf(int64(w.ttl)) }

func graceOf(ttl int64) uint8 {
	short, _ := protocol.PruneGrace(ttl * 1e9)
	return uint8(short / 1e9)
}

// pruneGrace is the grace as a prune has it.
func (w *leaseWorld) pruneGrace() uint8 {
	if w.forge.ttl != nil {
		return graceOf(w.forge.ttl(int64(w.ttl)))
	}
	return w.grace()
}

type leaseVerb uint8

const (
	leaseTick leaseVerb = iota
	leaseRead
	leaseWrite
	leaseUpload
	leasePublish
	leaseComplete
	leaseAbandon
	leaseDie
	leasePrune
	leaseClock
	leaseStrange
	leaseVerbs
)

type leaseAction struct {
	verb leaseVerb
	n    uint8
}

func (a leaseAction) String() string {
	name := [...]string{"a second goes by", "reads the key", "writes it", "uploads", "publishes", "completes", "abandons", "dies",
		"has its payload pruned", "has its clock put on or back", "a stranger writes the key"}[a.verb]
	if a.verb == leaseTick || a.verb == leaseStrange {
		return name
	}
	return fmt.Sprintf("node %d %s", a.n, name)
}

func (w *leaseWorld) actions(_ leaseState, out []leaseAction) []leaseAction {
	out = append(out, leaseAction{verb: leaseTick}, leaseAction{verb: leaseStrange})
	for v := leaseRead; v <= leaseClock; v++ {
		if v == leaseClock && !w.steps {
			continue
		}
		for n := range uint8(w.nodes) {
			out = append(out, leaseAction{v, n})
		}
	}
	return out
}

func (w *leaseWorld) next(s leaseState, a leaseAction) (leaseState, bool) {
	switch a.verb {
	case leaseTick:
		return w.tick(s)
	case leaseStrange:
		if s.harmed {
			return s, false
		}
		s.harmed = true
		s.wrote(leaseCorrupt, 0, 0)
		for i := range s.nodes {
			s.nodes[i].robbed = s.nodes[i].phase >= leaseHeld
		}
		return s, true
	}
	m := &s.nodes[a.n]
	switch a.verb {
	case leaseRead:
		return w.read(s, a.n)
	case leaseClock:
		m.ahead = !m.ahead
		return s, true
	case leaseDie, leaseAbandon:
		if m.phase == leaseIdle || a.verb == leaseAbandon && m.phase != leaseHeld && m.phase != leaseUploaded {
			return s, false
		}
		if a.verb == leaseAbandon && (m.fresh || w.forge.blindWord) {
			s.wrote(leaseGone, 0, 0)
		}
		*m = leaseNode{ahead: m.ahead}
		return s, true
	}
	if m.age >= w.grace() && !w.forge.endless && a.verb != leaseComplete {
		return s, false // the round's time is over, but for the last word
	}
	switch {
	case a.verb == leaseWrite && m.phase == leaseDecided:
		w.write(&s, a.n)
	case a.verb == leaseUpload && m.phase == leaseHeld:
		m.phase = leaseUploaded
	case a.verb == leasePrune && m.phase == leaseUploaded && !m.pruned && m.stored >= w.pruneGrace() && !w.steps:
		m.pruned = true
	case a.verb == leasePublish && m.phase == leaseUploaded:
		m.phase = leasePublished
	case a.verb == leaseComplete && m.phase == leasePublished:
		if m.fresh || w.forge.blindWord {
			s.wrote(leaseRecord, a.n, w.expiry(m))
		}
		*m = leaseNode{ahead: m.ahead}
	default:
		return s, false
	}
	return s, true
}

// expiry is when the record expires that the node wrote as its round began.
func (w *leaseWorld) expiry(m *leaseNode) uint8 {
	end := w.ttl + asUint8(m.ahead)
	return end - min(end, m.age)
}

func asUint8(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func (w *leaseWorld) tick(s leaseState) (leaseState, bool) {
	was := s
	if s.left > 0 {
		s.lain = min(s.lain+1, w.ttl+2)
	}
	if s.left -= min(s.left, 1); s.left == 0 {
		s.lain = 0
	}
	for i := range s.nodes {
		m := &s.nodes[i]
		if m.phase == leaseIdle {
			continue
		}
		m.age = min(m.age+1, w.grace()+1)
		if m.phase == leaseUploaded && !w.steps {
			m.stored = min(m.stored+1, w.grace()+1)
		}
	}
	return s, s != was
}

// wrote puts something in the key's place: whatever version was seen, it is another one now.
func (s *leaseState) wrote(key leaseKey, holder, left uint8) {
	s.key, s.holder, s.left, s.lain = key, holder, left, 0
	for i := range s.nodes {
		s.nodes[i].fresh = false
	}
}

// read decides what to do about the key; the node's round, and its time, begin with it.
func (w *leaseWorld) read(s leaseState, n uint8) (leaseState, bool) {
	m := &s.nodes[n]
	if m.phase != leaseIdle {
		return s, false
	}
	if w.decide(s, m.ahead) == protocol.LeaseLost {
		return s, false
	}
	m.phase, m.fresh = leaseDecided, true
	return s, true
}

// decide is what a node makes of the key, by a clock that is ahead or not.
func (w *leaseWorld) decide(s leaseState, ahead bool) protocol.LeaseStep {
	const now = 100
	seen := protocol.LeaseSeen{Present: s.key == leaseRecord || s.key == leaseCorrupt, Now: now + uint64(asUint8(ahead))}
	if seen.Readable = s.key == leaseRecord; seen.Readable {
		seen.Expires, seen.Stored = now+uint64(s.left), now-uint64(s.lain)
		seen.Acquired = seen.Expires - uint64(w.ttl)
	}
	if w.forge.seen != nil {
		w.forge.seen(&seen)
	}
	return protocol.NextLeaseStep(seen)
}

func (w *leaseWorld) write(s *leaseState, n uint8) {
	m := &s.nodes[n]
	if !m.fresh && !w.forge.blindWrite {
		*m = leaseNode{ahead: m.ahead} // somebody was faster
		return
	}
	s.wrote(leaseRecord, n, w.expiry(m))
	m.phase, m.fresh, m.robbed = leaseHeld, true, false
}

const (
	leaseOne    = "at most one node holds the lease within its TTL"
	leaseWords  = "a last word touches nobody else's lease"
	leaseFree   = "the lease can always be taken again"
	leaseUnhurt = "no round publishes what was pruned"
	leaseOver   = "a lease that has lain there for its TTL holds nobody up, whatever its holder's clock said"
)

// holds reports whether the node's belief is one that its TTL vouches for, by clocks that differ by as much as they may.
func (w *leaseWorld) holds(m leaseNode) bool {
	return m.phase >= leaseHeld && !m.robbed && m.age < w.ttl-asUint8(w.steps && !w.forge.agree)
}

func (w *leaseWorld) properties() []modelcheck.Property[leaseState] {
	always, sometimes := modelcheck.Always[leaseState], modelcheck.Sometimes[leaseState]
	some := func(s leaseState, is func(leaseNode) bool) bool { return slices.ContainsFunc(s.nodes[:], is) }
	all := []modelcheck.Property[leaseState]{
		always(leaseOne, func(s leaseState) bool {
			holders := 0
			for _, m := range s.nodes {
				holders += int(asUint8(w.holds(m)))
			}
			return holders < 2
		}),
		modelcheck.Step(leaseWords, func(s leaseState, a leaseAction, to leaseState) bool {
			word := a.verb == leaseComplete || a.verb == leaseAbandon
			return !word || s.holder == a.n && s.key == leaseRecord || s.key == to.key && s.holder == to.holder && s.left == to.left
		}),
		always(leaseOver, func(s leaseState) bool {
			return s.key != leaseRecord || s.lain < w.ttl || w.decide(s, false) != protocol.LeaseLost
		}),
		modelcheck.Reachable(leaseFree, func(s leaseState) bool { return some(s, w.holds) }),
		sometimes("a node that died is followed by another", func(s leaseState) bool {
			return s.key == leaseRecord && s.left == 0 && s.nodes[s.holder].phase == leaseIdle &&
				some(s, func(m leaseNode) bool { return m.phase == leaseDecided })
		}),
		sometimes("two nodes are about to write", func(s leaseState) bool {
			return s.nodes[0].phase == leaseDecided && s.nodes[1].phase == leaseDecided
		}),
		sometimes("a round goes on when another has begun", func(s leaseState) bool {
			return s.nodes[0].phase == leaseUploaded && s.nodes[1].phase == leaseHeld && !s.nodes[0].robbed
		}),
		sometimes("a round that is over holds the lease", func(s leaseState) bool {
			return s.key == leaseRecord && s.left > 0 && s.nodes[s.holder].phase == leaseIdle
		}),
		sometimes("what is no record is about to be replaced", func(s leaseState) bool {
			return s.key == leaseCorrupt && some(s, func(m leaseNode) bool { return m.phase == leaseDecided && m.fresh })
		}),
	}
	if w.steps {
		return all
	}
	return append(all,
		modelcheck.Step(leaseUnhurt, func(s leaseState, a leaseAction, _ leaseState) bool {
			return a.verb != leasePublish || !s.nodes[a.n].pruned
		}),
		sometimes("a payload lies there as long as its round may", func(s leaseState) bool {
			return some(s, func(m leaseNode) bool { return m.stored >= w.grace() })
		}))
}

func (w *leaseWorld) model() modelcheck.Model[leaseState, leaseAction] {
	return modelcheck.Model[leaseState, leaseAction]{
		Name: w.name, Init: []leaseState{{}}, Actions: w.actions, Next: w.next, Encode: leaseEncode, Properties: w.properties(), ShowState: leaseShow,
	}
}

func leaseEncode(s leaseState, out []byte) []byte {
	out = append(out, byte(s.key), s.holder, s.left, s.lain, asUint8(s.harmed))
	for _, m := range s.nodes {
		flags := asUint8(m.fresh) | asUint8(m.robbed)<<1 | asUint8(m.pruned)<<2 | asUint8(m.ahead)<<3
		out = append(out, byte(m.phase), m.age, m.stored, flags)
	}
	return out
}

func leaseShow(s leaseState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "key %s", [...]string{"never written", "deleted", "record", "corrupt"}[s.key])
	if s.key == leaseRecord {
		fmt.Fprintf(&b, " of node %d, %ds left", s.holder, s.left)
	}
	for i, m := range s.nodes {
		if m != (leaseNode{}) {
			phase := [...]string{"idle", "decided", "holds", "uploaded", "published"}[m.phase]
			fmt.Fprintf(&b, "; node %d %s for %ds fresh %t robbed %t stored %d pruned %t ahead %t", i, phase, m.age, m.fresh, m.robbed, m.stored, m.pruned, m.ahead)
		}
	}
	return b.String()
}

var (
	leasePlain = leaseWorld{name: "lease", nodes: 2, ttl: 2}
	leaseSteps = leaseWorld{name: "lease, clocks that step", nodes: 2, ttl: 3, steps: true}
)

func leaseModels() []modelcheck.Case {
	deep := leasePlain
	deep.name, deep.nodes, deep.ttl, deep.deep = "lease, three nodes", 3, 1, true
	var all []modelcheck.Case
	for _, w := range []leaseWorld{leasePlain, leaseSteps, deep} {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{MaxStates: 20_000_000}))
		all[len(all)-1].Deep = w.deep
	}
	return all
}

func leaseMutations() []modelcheck.Mutation {
	var all []modelcheck.Mutation
	add := func(name, property string, steps int, forge leaseForge) {
		w := leasePlain
		w.forge = forge
		all = append(all, modelcheck.MutationOf(name, w.model(), modelcheck.Options{}, property, steps))
	}
	seen := func(f func(*protocol.LeaseSeen)) leaseForge { return leaseForge{seen: f} }
	add("a lease that is there is not seen", leaseOne, 8, seen(func(s *protocol.LeaseSeen) { s.Present = false }))
	add("a lease is taken for no record", leaseOne, 8, seen(func(s *protocol.LeaseSeen) { s.Readable = false }))
	add("what is no record is taken for a lease", leaseFree, 8, seen(func(s *protocol.LeaseSeen) {
		if !s.Readable {
			s.Readable, s.Expires = true, s.Now+1
		}
	}))
	add("a lease never lasts", leaseOne, 8, seen(func(s *protocol.LeaseSeen) { s.Expires = 0 }))
	add("a lease never ends", leaseFree, 8, seen(func(s *protocol.LeaseSeen) { s.Expires = s.Now + 1 }))
	add("the time is not known", leaseFree, 8, seen(func(s *protocol.LeaseSeen) { s.Now = 0 }))
	add("the lease is written without its version", leaseOne, 8, leaseForge{blindWrite: true})
	add("the last word is written without its version", leaseWords, 16, leaseForge{blindWord: true})
	add("a round has no end", leaseUnhurt, 24, leaseForge{endless: true})
	add("PruneGrace is given half of the TTL", leaseUnhurt, 24, leaseForge{ttl: func(ttl int64) int64 { return ttl / 2 }})
	add("a lease is taken for one of no time", leaseOne, 8, seen(func(s *protocol.LeaseSeen) { s.Acquired = s.Expires }))
	add("a lease has lain there for ever", leaseOne, 8, seen(func(s *protocol.LeaseSeen) { s.Stored = 1 }))
	stepping := func(name, property string, forge leaseForge) {
		w := leaseSteps
		w.forge = forge
		all = append(all, modelcheck.MutationOf(name, w.model(), modelcheck.Options{}, property, 16))
	}
	stepping("clocks that differ cost nothing of a lease", leaseOne, leaseForge{agree: true})
	stepping("when a lease was stored is not known", leaseOver, seen(func(s *protocol.LeaseSeen) { s.Stored = 0 }))
	stepping("a lease is taken for one of all time", leaseOver, seen(func(s *protocol.LeaseSeen) { s.Acquired = 0 }))
	return all
}
