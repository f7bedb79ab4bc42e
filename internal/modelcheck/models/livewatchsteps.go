package models

import (
	"math/bits"

	"github.com/typedfold/fold/runtime/protocol"
)

const liveNow = 100 // the server's time, in ticks

// judge puts the window kernel to the log before a consumer is created.
func (w *liveWorld) judge(s *liveState) {
	s.before = s.log.first()
	if w.ages && s.log.last == s.cursor {
		s.stood = 1
	}
	if s.relist || w.resumes(s, s.before) {
		s.phase = liveOpening
		return
	}
	w.expire(s)
}

// resumes reports whether a watch after the cursor will deliver what is missing.
func (w *liveWorld) resumes(s *liveState, first uint8) bool {
	r := protocol.Reopen{Cursor: uint64(s.cursor), First: uint64(first), Evicts: s.log.evicts}
	if s.warm {
		r.Lost = max(int64(s.lost)*protocol.ReopenGrace, 1)
	}
	if w.forge.reopen != nil {
		w.forge.reopen(&r)
	}
	return w.forge.noWindow || protocol.ReopenIsWhole(r) || w.young(s, s.since(), s.noted)
}

// since is the age of the last time before which nothing after the cursor was written.
func (s *liveState) since() uint8 {
	if s.stood > 0 {
		return min(s.age, s.stood-1)
	}
	return s.age
}

// young reports whether nothing can have aged out after what has this age.
func (w *liveWorld) young(s *liveState, age, noted uint8) bool {
	g := protocol.GapAge{AgeOnly: s.log.evicts && !s.log.byLimit, MaxAge: int64(s.log.limit), Noted: int64(noted), WrittenAt: liveNow - int64(age), Now: liveNow}
	if w.forge.age != nil {
		w.forge.age(&g, s)
	}
	return protocol.GapHoldsNoEviction(g)
}

// create makes the consumer, and looks at the log again. Old news are those from before it was there.
func (w *liveWorld) create(s *liveState, stale bool) {
	first := s.log.first()
	if stale {
		first = s.before
	}
	s.before = 0
	c := liveWatch{evicts: s.log.evicts, limit: s.log.limit, head: s.log.last, age: s.since()}
	if s.relist {
		c.floor = s.log.last
		gap := protocol.Gap{Missing: s.listed != 0 && s.log.last > s.listed, Markers: w.markers()}
		s.owed = s.owed || protocol.GapNeedsAudit(gap)
	} else if !w.starts(s, &c, first) {
		w.expire(s)
		return
	}
	s.noted = s.log.limit
	s.phase, s.watch, s.warm, s.whole, s.lost, s.stood, s.relist, s.listed = liveWatching, c, false, false, 0, 0, false, 0
	w.catchUp(s)
}

// starts places a consumer after the cursor: the server starts it later, without a word, where the log does.
func (w *liveWorld) starts(s *liveState, c *liveWatch, first uint8) bool {
	cursor := uint64(s.cursor)
	if w.forge.start != nil {
		w.forge.start(&cursor)
	}
	start, ok := protocol.ResumeStart(cursor)
	delivered := max(uint8(start), s.log.first()) - 1
	if !protocol.ConsumerStartsAt(cursor, uint64(delivered)) {
		s.saw |= sawClamp
	}
	if !w.forge.clampIgnored {
		first = max(first, delivered+1)
	}
	if !ok || !w.resumes(s, first) {
		return false
	}
	if s.log.first() > s.cursor+1 {
		w.continues(s)
	}
	c.sent, c.handed = delivered, s.cursor
	return true
}

// continues looks at a watch that is opened past a gap. Markers that were purged while it was cut off, and that it had not
// been given before, are for an audit.
func (w *liveWorld) continues(s *liveState) {
	switch {
	case s.log.evicts:
		s.saw |= sawYoung
	case s.warm:
		s.saw |= sawContinuation
	}
	rows, truth := s.rows, s.log.truth()
	for r := s.log.after(s.cursor); r != 0; r = s.log.after(r) {
		rows.take(r, s.log.written[r])
	}
	for k := range w.scope {
		if rows[k] != truth[k] && (!s.warm || s.whole || !w.purges) {
			s.saw |= sawBrokenContinuation
		}
	}
}

func (w *liveWorld) inScope(rev uint8, l *liveLog) bool { return l.written[rev].key() < w.scope }

// nextFor is the next revision that the consumer will send; 0 is none.
func (w *liveWorld) nextFor(s *liveState) uint8 {
	r := s.log.after(s.watch.sent)
	for r != 0 && !w.inScope(r, &s.log) {
		r = s.log.after(r)
	}
	return r
}

func (w *liveWorld) send(s *liveState) {
	if r := w.nextFor(s); r != 0 {
		s.watch.sent, s.watch.probed = r, false
		s.watch.flight |= 1 << r
	}
}

func (c *liveWatch) mustGuard(rev uint8) bool { return rev > c.floor }

// look reads the log's settings for the watch.
func (c *liveWatch) look(l *liveLog) {
	c.evicts, c.limit = c.evicts || l.evicts, min(c.limit, l.limit)
}

// overrun reports whether the log has lost something that the watch was not given.
func (w *liveWorld) overrun(s *liveState, first uint8) bool {
	c := &s.watch
	evicts, base, f := c.evicts, uint64(max(c.handed, c.floor)), uint64(first)
	if w.forge.gap != nil {
		w.forge.gap(&evicts, &base, &f)
	}
	if !protocol.LiveGapIsExpiry(evicts, base, f) {
		return false
	}
	if w.young(s, c.age, c.limit) {
		s.saw |= sawYoung
		return false
	}
	return true
}

// hand hands out what is under way, or the first of it, and the fold commits it. Package natskv leaves the look out for up to
// a second on a log that evicted nothing at the last one. The axiom: eviction that is turned on takes nothing undelivered
// within it. A mutation shows what it is for.
func (w *liveWorld) hand(s *liveState, kind liveKind) {
	c := &s.watch
	var batch []uint8
	gapped, due := c.gapped, c.handed+1
	for rest := c.flight; rest != 0 && (kind != liveHandOne || len(batch) == 0); rest &= rest - 1 {
		r := uint8(bits.TrailingZeros16(uint16(rest)))
		batch = append(batch, r)
		gapped, due = gapped || r != due, r+1
	}
	high := batch[len(batch)-1]
	guard := gapped && c.mustGuard(high) && !w.forge.noGuard
	if kind == liveHandUnlooked {
		if !guard || c.evicts || !w.forge.looksRarely {
			return
		}
		c.gapped, guard = true, false
	} else {
		c.gapped = false
	}
	if guard && !w.passes(s, high) {
		return
	}
	missing, next := false, max(c.handed, c.floor)+1
	for _, r := range batch {
		if r > c.floor {
			missing, next = missing || r != next, r+1
		}
		w.apply(s, r)
	}
	c.flight &^= upTo(high)
	c.handed, c.age, c.probed = high, s.age, false
	w.commit(s, protocol.CursorStep{High: uint64(high), Frontier: uint64(high)}, missing)
}

// passes looks at the log before what follows a gap.
func (w *liveWorld) passes(s *liveState, high uint8) bool {
	c := &s.watch
	handed := c.handed
	if w.forge.guardLate {
		c.handed = high
	}
	c.look(&s.log)
	if w.overrun(s, s.log.first()) {
		w.expire(s)
		return false
	}
	c.handed = handed
	s.saw |= sawBenign
	return true
}

func (w *liveWorld) apply(s *liveState, rev uint8) {
	m := s.log.written[rev]
	if s.rows[m.key()] > rev {
		s.saw |= sawBackward
	}
	if m.deletes() && s.rows[m.key()] != 0 {
		s.saw |= sawMarker
	}
	s.rows.take(rev, m)
	s.age = s.log.ages[rev]
}

// commit moves the cursor, and notes what is owed with it.
func (w *liveWorld) commit(s *liveState, step protocol.CursorStep, missing bool) {
	step.Current = uint64(s.cursor)
	if w.forge.cursor != nil {
		w.forge.cursor(&step)
	}
	s.cursor = uint8(protocol.NextCursor(step))
	gap := protocol.Gap{Missing: missing && w.scope == w.keys, Markers: w.markers()}
	if w.forge.owes != nil {
		w.forge.owes(&gap)
	}
	s.owed = s.owed || protocol.GapNeedsAudit(gap)
	w.catchUp(s)
}

func (w *liveWorld) markers() protocol.MarkerSafety {
	return protocol.MarkersCanVanish(protocol.MarkerRules{Purge: w.purges}, 0)
}

func (w *liveWorld) catchUp(s *liveState) {
	cursor, head := uint64(s.cursor), uint64(s.watch.head)
	if w.forge.hydrated != nil {
		w.forge.hydrated(&cursor, &head)
	}
	if s.watch.head == 0 || !protocol.Hydrated(cursor, head) {
		return
	}
	if !w.covers(s, s.watch.head) {
		s.saw |= sawFalseHydrated
	}
	s.watch.head = 0
}

// covers reports whether each key in scope whose last message is at or below rev stands as that left it, or the fold owes
// an audit.
func (w *liveWorld) covers(s *liveState, rev uint8) bool {
	truth := s.log.truth()
	for k := range w.scope {
		if s.log.latest(k) <= rev && s.rows[k] != truth[k] && !s.owed {
			return false
		}
	}
	return true
}

// ask takes a probe's next reading: the head, then the consumer's counts, then the log's bounds.
func (w *liveWorld) ask(s *liveState) {
	c, p := &s.watch, &s.watch.probe
	if p.step == 3 {
		return
	}
	order := [...]uint8{0, 1, 2}
	switch {
	case w.forge.countsFirst:
		order = [...]uint8{1, 0, 2}
	case w.forge.boundsFirst:
		order = [...]uint8{2, 0, 1}
	}
	switch order[p.step] {
	case 0:
		p.head, p.age = s.log.last, 0
	case 1:
		if p.sent = c.sent; w.forge.countUnread {
			p.sent = 0
		}
		if w.nextFor(s) != 0 {
			p.pending = 1
		}
	case 2:
		c.look(&s.log)
		p.first = s.log.first()
	}
	p.step++
}

// claim moves the frontier when what the probe saw has all been handed out.
func (w *liveWorld) claim(s *liveState) {
	c, p := &s.watch, s.watch.probe
	f := protocol.Frontier{Head: uint64(p.head), Pending: uint64(p.pending), Delivered: 1, Received: 1, Current: uint64(c.handed)}
	if late := bits.OnesCount16(uint16(c.flight & upTo(p.sent))); late > 0 {
		f.Delivered += uint64(late)
	} else if c.handed > p.sent {
		f.Received++
	}
	if w.forge.frontier != nil {
		w.forge.frontier(&f, s)
	}
	c.probe = liveProbe{}
	if p.head <= c.handed { // the next one was written after that was read
		c.age = min(c.age, p.age)
		return
	}
	if !protocol.FrontierMayAdvance(f) {
		c.probed = c.flight != 0 || w.nextFor(s) != 0
		return
	}
	if c.mustGuard(p.head) && !w.forge.noProbeGuard && w.overrun(s, p.first) {
		w.expire(s)
		return
	}
	head := uint8(f.Head)
	missing := head > max(c.handed, c.floor)
	if head > c.handed {
		c.handed, c.age = head, p.age
	}
	if w.scope < w.keys && !w.inScope(head, &s.log) {
		s.saw |= sawBeyondScope
	}
	w.commit(s, protocol.CursorStep{Frontier: uint64(c.handed)}, missing)
}

// repair is one step here: a re-list's deletes, or a restore from what was published.
func (w *liveWorld) repair(s *liveState) {
	retention := s.log.retention()
	if w.forge.truth != nil {
		w.forge.truth(&retention)
	}
	switch protocol.PlanRepair(protocol.PlanInput{Source: true, Truth: protocol.ListingTruth(retention, false)}) {
	case protocol.PlanRelist:
		truth := s.log.truth()
		for k := range w.scope {
			if s.rows[k] != 0 && !s.log.lists(k) {
				if s.rows[k] == truth[k] {
					s.saw |= sawPhantom
				}
				s.rows[k] = 0
			}
		}
		s.phase, s.relist, s.listed = liveAway, true, s.log.last
	case protocol.PlanRestore:
		w.restore(s)
	}
}

// lists reports whether the log has a value of the key.
func (l *liveLog) lists(key uint8) bool {
	r := l.latest(key)
	return r != 0 && l.there>>r&1 == 1 && !l.written[r].deletes()
}

func (w *liveWorld) restore(s *liveState) {
	art, local := protocol.Position{Revision: uint64(s.art)}, protocol.Position{Revision: uint64(s.cursor)}
	log := protocol.LogBounds{First: uint64(s.log.first()), Last: uint64(s.log.last)}
	if w.forge.allowed != nil {
		w.forge.allowed(&art, &local, &log)
	}
	if !protocol.RestoreAllowed(art, local, log) {
		return
	}
	rows := s.log.truthAt(s.art)
	for k := range w.scope {
		l, a := protocol.KeyState{Present: s.rows[k] != 0, Revision: uint64(s.rows[k])}, protocol.KeyState{Present: rows[k] != 0, Revision: uint64(rows[k])}
		switch protocol.RestoreKey(l, a, l == a && l.Present, s.log.lists(k)) {
		case protocol.RestoreTake:
			if rows[k] < s.rows[k] {
				s.saw |= sawBackward
			}
			if r := rows[k]; s.log.there>>r&1 == 0 && s.log.latest(k) == r {
				s.saw |= sawRestoredPast
			}
			s.rows[k] = rows[k]
		case protocol.RestoreDelete:
			s.rows[k] = 0
		}
	}
	s.cursor, s.owed, s.phase, s.age = s.art, false, liveAway, liveOldest
}
