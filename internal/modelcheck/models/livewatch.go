package models

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/typedfold/fold/runtime/protocol"
)

// A live watch and the fold behind it, in the order of package natskv: a consumer whose messages are under way, a look at
// the log before what follows a gap, a frontier by probe, a watch that is lost and opened again. Beside them the log is
// written, loses messages by age, by a limit, or by an administrator, and has its settings changed.
//
// What is handed out is committed at once: the loop has models of its own, and so have the steps of a repair, which is one
// here. A watch's buffer is handed out whole.

const (
	liveRevs = 5
	liveKeys = 3
	// liveOld is the age in ticks of 15 minutes from which on a purge of markers takes one.
	liveOld = 2
	// liveOldest is an age that is no longer told apart from older ones.
	liveOldest = 4
)

// liveLog is a bucket of history 1. It remembers what it no longer holds.
type liveLog struct {
	written [liveRevs + 1]liveMessage
	ages    [liveRevs + 1]uint8
	there   revs
	last    uint8
	// evicts: retention can take current values. byLimit: by a limit, so at any age; else when they are limit old.
	evicts, byLimit bool
	limit           uint8
}

// liveMessage is one revision of the log: a key from 1, and whether it is a delete marker.
type liveMessage uint8

func liveMessageOf(key uint8, del bool) liveMessage {
	if del {
		return liveMessage(key+1) | 8
	}
	return liveMessage(key + 1)
}

func (m liveMessage) key() uint8    { return uint8(m&7) - 1 }
func (m liveMessage) deletes() bool { return m&8 != 0 }

// liveRows are the revisions of the values; 0 is none.
type liveRows [liveKeys]uint8

func (l *liveLog) write(m liveMessage) {
	if was := l.latest(m.key()); was != 0 {
		l.there &^= 1 << was
	}
	l.last++
	l.written[l.last] = m
	l.there |= 1 << l.last
}

func (l *liveLog) latest(key uint8) uint8 {
	for r := l.last; r > 0; r-- {
		if l.written[r].key() == key {
			return r
		}
	}
	return 0
}

// truth is every write minus every delete.
func (l *liveLog) truth() liveRows { return l.truthAt(l.last) }

func (l *liveLog) truthAt(last uint8) (t liveRows) {
	for r := uint8(1); r <= last; r++ {
		t.take(r, l.written[r])
	}
	return t
}

func (t *liveRows) take(rev uint8, m liveMessage) {
	if t[m.key()] = rev; m.deletes() {
		t[m.key()] = 0
	}
}

// first is the log's first retained revision, as the server tells it.
func (l *liveLog) first() uint8 {
	if l.there == 0 && l.last > 0 {
		return l.last + 1
	}
	return l.after(0)
}

// after is the next revision that the log holds; 0 is none.
func (l *liveLog) after(rev uint8) uint8 {
	if rest := l.there >> (rev + 1); rest != 0 {
		return rev + 1 + uint8(bits.TrailingZeros16(uint16(rest)))
	}
	return 0
}

func (l *liveLog) retention() protocol.Retention {
	return protocol.Retention{Known: true, Evicts: l.evicts, First: uint64(l.first())}
}

type livePhase uint8

const (
	liveAway livePhase = iota // no watch
	liveOpening
	liveWatching
	liveExpired
)

// liveWatch is a consumer and the client's side of it.
type liveWatch struct {
	// sent is where the consumer is. Of what it sent, flight is not handed out.
	sent   uint8
	flight revs
	// handed is how far everything is handed out, floor where a re-list began, head where the log ended when the watch
	// began; 0 once the fold is there.
	handed, floor, head uint8
	// gapped: a gap was handed out without a look at the log.
	gapped, evicts bool
	// limit is the lowest age limit that was read, age that of what was handed out last.
	limit, age uint8
	probe      liveProbe
	// probed: nothing has happened since a probe that told nothing.
	probed bool
}

type liveProbe struct {
	step                       uint8 // how much of it was read
	head, pending, sent, first uint8
	age                        uint8 // since the head was read
}

type liveState struct {
	log    liveLog
	rows   liveRows
	cursor uint8
	owed   bool
	// noted is the age limit that is kept beside the cursor, age that of the last message that was applied.
	noted, age uint8
	art        uint8 // where the artifact ends

	phase livePhase
	watch liveWatch
	// warm: a watch of this process ended lost ticks ago. whole: it had everything when it was cut off.
	warm, whole bool
	lost        uint8
	// stood is the age of the last time, and one more, at which the cursor was known to be the log's end; 0 is none.
	stood uint8
	// before is the log's first revision when an opening was judged.
	before uint8
	// relist: the next watch begins with every current value, after a listing that began at listed.
	relist bool
	listed uint8

	cuts, crashes, edits, ticks uint8 // that may still happen
	saw                         liveSaw
}

// liveSaw is what has happened, for properties that look at more than one state.
type liveSaw uint16

const (
	sawPhantom liveSaw = 1 << iota
	sawBackward
	sawBrokenContinuation
	sawFalseHydrated
	sawTrip
	sawBenign
	sawMarker
	sawBeyondScope
	sawContinuation
	sawYoung
	sawRestoredPast
	sawClamp
)

type liveWorld struct {
	name string
	// keys are written, of them the first scope are in scope.
	keys, scope, revs           uint8
	cuts, crashes, edits, ticks uint8
	// coarse: a probe is one step, and exporters wait until the watch has expired.
	coarse bool
	// evicts, ages and purges say how messages leave the log: by a limit, by age, by a purge of markers.
	evicts, ages, purges bool
	// turnsOn: it begins to evict, by a limit. raises: the age limit is raised.
	turnsOn, raises bool
	forge           liveForge
}

// liveForge is what a mutation does to it.
type liveForge struct {
	gap      func(evicts *bool, base, first *uint64)
	reopen   func(*protocol.Reopen)
	age      func(*protocol.GapAge, *liveState)
	frontier func(*protocol.Frontier, *liveState)
	cursor   func(*protocol.CursorStep)
	hydrated func(cursor, head *uint64)
	start    func(cursor *uint64)
	owes     func(*protocol.Gap)
	truth    func(*protocol.Retention)
	allowed  func(art, local *protocol.Position, log *protocol.LogBounds)

	guardLate, noGuard, noWindow, noProbeGuard                              bool
	countsFirst, boundsFirst, receivedResume                                bool
	clampIgnored, pollRaises, countUnread, usedEarly, stoodNow, looksRarely bool
}

type liveKind uint8

const (
	livePut liveKind = iota
	liveDelete
	liveEvict
	livePurge
	liveTick
	liveTurnOn
	liveRaise
	livePublish
	livePoll
	liveCut
	liveCrash
	liveJudge
	liveCreate
	liveCreateStale
	liveSend
	liveHand
	liveHandOne
	liveHandUnlooked
	liveAsk
	liveClaim
	liveRepair
)

var liveNames = [...]string{"put", "delete", "evict", "purge the marker", "a tick passes", "eviction is turned on", "the age limit is raised",
	"publish", "settings are read", "cut", "crash", "judge the log", "create a consumer", "create a consumer, with old news of the log",
	"send", "hand out", "hand out one", "hand out without a look", "probe", "use the probe", "repair"}

type liveAct struct {
	kind liveKind
	n    uint8
}

func (a liveAct) String() string {
	switch a.kind {
	case livePut, liveDelete:
		return fmt.Sprintf("%s %c", liveNames[a.kind], 'a'+a.n)
	case livePurge:
		return fmt.Sprintf("%s %d", liveNames[a.kind], a.n)
	}
	return liveNames[a.kind]
}

func fairLive(a liveAct) bool {
	return a.kind >= livePublish && a.kind != liveCut && a.kind != liveCrash
}

func (w *liveWorld) actions(s liveState, out []liveAct) []liveAct {
	for kind := livePut; kind <= liveRepair; kind++ {
		switch kind {
		case livePut, liveDelete:
			for k := range w.keys {
				out = append(out, liveAct{kind, k})
			}
		case livePurge:
			for r := uint8(1); w.purges && r <= s.log.last; r++ {
				out = append(out, liveAct{kind, r})
			}
		default:
			out = append(out, liveAct{kind: kind})
		}
	}
	return out
}

// next begins with nothing seen, so that what is seen is of one step, and multiplies no states.
func (w *liveWorld) next(s liveState, a liveAct) (liveState, bool) {
	s.saw = 0
	was := s
	if !w.outside(&s, a) {
		w.inside(&s, a.kind)
	}
	for r := uint8(1); r <= s.log.last; r++ {
		if (s.log.there|s.watch.flight)>>r&1 == 0 {
			s.log.ages[r] = 0 // which counts for nothing from now on
		}
	}
	saw := s.saw
	s.saw = 0
	moved := s != was
	s.saw = saw
	return s, moved
}

// outside is what others do. false: it is none of that.
func (w *liveWorld) outside(s *liveState, a liveAct) bool {
	l := &s.log
	s.watch.probed = s.watch.probed && a.kind >= liveTick
	switch a.kind {
	case livePut, liveDelete:
		if was := l.latest(a.n); l.last < w.revs && (a.kind == livePut || was != 0 && !l.written[was].deletes()) {
			l.write(liveMessageOf(a.n, a.kind == liveDelete))
		}
	case liveEvict:
		if r := l.after(0); r != 0 && l.evicts && (l.byLimit || l.ages[r] >= l.limit) {
			l.there &^= 1 << r
		}
	case livePurge:
		if l.written[a.n].deletes() && l.ages[a.n] >= liveOld {
			l.there &^= 1 << a.n
		}
	case liveTick:
		if s.ticks > 0 {
			s.ticks--
			w.tick(s)
		}
	case liveTurnOn:
		if w.turnsOn && !l.evicts && s.watch.handed >= s.watch.floor && !s.relist {
			l.evicts, l.byLimit = true, true
		}
	case liveRaise:
		if w.raises && l.limit == 2 && s.edits > 0 {
			l.limit, s.edits = 4, s.edits-1
		}
	case livePublish:
		if l.evicts && (!w.coarse || s.phase == liveExpired) {
			s.art = l.last
		}
	default:
		return false
	}
	return true
}

// tick makes everything older, as far as that makes a difference.
func (w *liveWorld) tick(s *liveState) {
	oldest := uint8(liveOld)
	if w.ages {
		oldest = liveOldest
	}
	for r := uint8(1); r <= s.log.last; r++ {
		s.log.ages[r] = min(s.log.ages[r]+1, oldest)
	}
	if s.warm && w.purges {
		s.lost = min(s.lost+1, 2)
	}
	if !w.ages {
		return
	}
	s.age = min(s.age+1, oldest)
	if s.stood > 0 {
		s.stood = min(s.stood+1, oldest+1)
	}
	if c := &s.watch; s.phase == liveWatching {
		if c.age = min(c.age+1, oldest); c.probe.step > 0 {
			c.probe.age = min(c.probe.age+1, oldest)
		}
	}
}

func (w *liveWorld) inside(s *liveState, kind liveKind) {
	watching := s.phase == liveWatching
	switch kind {
	case livePoll:
		w.poll(s)
	case liveCut:
		if watching && s.cuts > 0 {
			s.cuts--
			s.whole = s.cursor == s.log.last && s.watch.handed == s.log.last
			switch {
			case w.forge.stoodNow:
				s.stood = 1
			case w.ages:
				s.stood = s.watch.age + 1
			}
			s.phase, s.watch, s.warm, s.lost = liveAway, liveWatch{}, true, 0
		}
	case liveCrash:
		if s.crashes > 0 {
			s.crashes--
			got := s.watch.sent
			s.gone()
			if w.forge.receivedResume {
				s.cursor = max(s.cursor, got)
			}
		}
	case liveJudge:
		if s.phase == liveAway {
			w.judge(s)
		}
	case liveCreate, liveCreateStale:
		if s.phase == liveOpening {
			w.create(s, kind == liveCreateStale)
		}
	case liveSend:
		if watching {
			w.send(s)
		}
	case liveHand, liveHandOne, liveHandUnlooked:
		if watching && s.watch.flight != 0 {
			w.hand(s, kind)
		}
	case liveAsk:
		for range 3 {
			if watching && !s.watch.probed && (s.log.last > s.watch.handed || s.watch.age > 0) {
				w.ask(s)
			}
			if !w.coarse {
				break
			}
		}
	case liveClaim:
		if watching && s.watch.probe.step == 3 && (w.forge.usedEarly || s.watch.flight&upTo(s.watch.probe.sent) == 0) {
			w.claim(s)
		}
	case liveRepair:
		if s.phase == liveExpired {
			w.repair(s)
		}
	}
}

// poll reads the log's settings beside the watch.
func (w *liveWorld) poll(s *liveState) {
	if w.raises && s.noted != 0 {
		if w.forge.pollRaises {
			s.noted = s.log.limit
		}
		s.noted = min(s.noted, s.log.limit)
	}
}

// gone forgets what a process has in memory.
func (s *liveState) gone() {
	s.phase, s.watch, s.warm, s.whole, s.lost, s.stood, s.before, s.relist, s.listed = liveAway, liveWatch{}, false, false, 0, 0, 0, false, 0
}

func (w *liveWorld) expire(s *liveState) {
	s.saw |= sawTrip
	s.phase, s.watch, s.warm, s.whole, s.lost, s.stood, s.before = liveExpired, liveWatch{}, false, false, 0, 0, 0
}

func (s liveState) appendState(out []byte) []byte {
	l, c, p := &s.log, &s.watch, &s.watch.probe
	for r := uint8(1); r <= l.last; r++ {
		out = append(out, byte(l.written[r])|l.ages[r]<<4)
	}
	out = append(out, byte(l.there), l.last, l.limit, flags(l.evicts, l.byLimit, s.owed, s.warm, s.whole, s.relist), s.cursor, s.noted, s.age, s.art,
		byte(s.phase), s.lost, s.stood, s.before, s.listed, s.cuts, s.crashes, s.edits, s.ticks, byte(s.saw), byte(s.saw>>8))
	out = append(out, s.rows[:]...)
	if s.phase != liveWatching {
		return out
	}
	return append(out, c.sent, byte(c.flight), c.handed, c.floor, c.head, flags(c.gapped, c.evicts, c.probed),
		c.limit, c.age, p.step, p.head, p.pending, p.sent, p.first, p.age)
}

func (s liveState) String() string {
	var b strings.Builder
	for r := uint8(1); r <= s.log.last; r++ {
		c := changeOf(s.log.written[r].key(), r, s.log.written[r].deletes())
		if s.log.there>>r&1 == 1 {
			fmt.Fprintf(&b, " %v", c)
		} else {
			fmt.Fprintf(&b, " (%v)", c)
		}
	}
	c := &s.watch
	return fmt.Sprintf("log%s, fold %v at %d, owed %v, %s, watch: sent %d, under way %b, handed out %d, probe %+v, saw %b", b.String(), s.rows, s.cursor, s.owed,
		[...]string{"away", "opening", "watching", "expired"}[s.phase], c.sent, c.flight, c.handed, c.probe, s.saw)
}
