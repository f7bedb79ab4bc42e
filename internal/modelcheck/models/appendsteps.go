package models

import (
	"cmp"
	"slices"

	"github.com/typedfold/fold/runtime/protocol"
)

// newest is the sequence of the newest frame of a log that ends at seq.
func (s *apState) newest(seq uint8) uint8 {
	for seq > 0 && !s.log[seq-1].kind.isFrame() {
		seq--
	}
	return seq
}

// control is the sequence of the newest control entry. A renewal lies on another subject.
func (w *apWorld) control(s *apState) uint8 {
	seq := s.n
	for seq > 0 && s.log[seq-1].kind != apControl && !(w.forge.renewsControl && s.log[seq-1].kind == apRenewal) {
		seq--
	}
	return seq
}

// force is what stands in the log.
func (s *apState) force() apStanding { return s.log[s.newest(s.n)-1].after() }

func (s *apState) store(w *apWorld, e apEntry) bool {
	if s.n == apLog {
		return false
	}
	s.log[s.n] = e
	s.n++
	if e.kind.isFrame() {
		s.noteForce(w)
	}
	return true
}

// noteForce notes for those who wait what stands now.
func (s *apState) noteForce(w *apWorld) {
	now := s.force()
	for i, b := range w.batches {
		if r := &s.batches[i]; r.answer == apAwaits {
			r.other = r.other || now.token != b.token || b.session && now.fence != s.session.fence
		}
	}
	if s.asked.answer == apAwaits {
		s.asked.seen |= 1 << now.token
	}
}

// take writes the takeover, unconditionally.
func (s *apState) take(n uint8) bool {
	if s.n == apLog {
		return false
	}
	s.takes--
	s.log[s.n] = apEntry{kind: apControl, node: n}
	s.n++
	m := &s.nodes[n]
	m.phase, m.epoch, m.control, m.last = apTook, s.n, s.n, s.n
	return true
}

// send puts a message on its way, if the network takes more.
func (s *apState) send(m apMessage) bool {
	for i := range s.net {
		if s.net[i].kind == apNothing {
			m.reply = apWaits
			s.net[i] = m
			return true
		}
	}
	return false
}

// read reads the newest frame of a log that ended at seq, and sends the opening frame.
func (s *apState) read(n, seq uint8) bool {
	m := &s.nodes[n]
	if m.phase != apTook || !s.log[seq-1].kind.isFrame() {
		return false
	}
	m.got = s.log[seq-1].after()
	m.phase = apOpens
	return s.send(apMessage{kind: apOpening, node: n, last: m.epoch, check: seq, epoch: m.epoch, at: m.got})
}

// deliver has a message arrive.
func (w *apWorld) deliver(s *apState, i uint8) bool {
	m := &s.net[i]
	if m.kind == apNothing || m.reply != apWaits {
		return false
	}
	chain, check := s.n == m.last, w.control(s) == m.check
	if m.kind == apOpening {
		check = s.newest(s.n) == m.check || w.forge.noNewest
		chain = chain || w.forge.noOpeningLast
		if chain && !check || !chain && s.newest(s.n) != m.check {
			s.saw |= apSawStaleOpening
		}
	} else {
		if chain && !check {
			s.saw |= apSawEpochOnly
		}
		chain, check = chain || w.forge.noChain, check || w.forge.noEpoch
	}
	if m.reply = apRefused; chain && check {
		m.reply = apStored
		if !s.store(w, apEntry{kind: m.kind, node: m.node, epoch: m.epoch, at: m.at, of: m.of}) {
			return false
		}
		m.seq = s.n
	}
	return true
}

// waits is the link that waits for the message's answer.
func (s *apState) waits(m apMessage) *apLink {
	owner := &s.nodes[m.node]
	for i := range owner.links[:owner.n] {
		l := &owner.links[i]
		if l.reply == apWaits && l.epoch == m.epoch && l.place == m.last+1 {
			return l
		}
	}
	return nil
}

// receive has an answer arrive.
func (w *apWorld) receive(s *apState, i uint8) bool {
	m := s.net[i]
	if m.kind == apNothing || m.reply == apWaits {
		return false
	}
	s.net[i] = apMessage{}
	owner := &s.nodes[m.node]
	if m.kind == apOpening {
		w.openingAnswered(s, owner, m)
		return true
	}
	l := s.waits(m)
	l.reply = m.reply
	if m.reply == apRefused {
		owner.troubled = true
		return true
	}
	s.damaged = s.damaged || m.seq != l.place
	for owner.n > 0 && owner.links[0].reply == apStored {
		w.complete(s, m.node)
	}
	return true
}

func (w *apWorld) openingAnswered(s *apState, m *apNode, msg apMessage) {
	switch {
	case msg.reply == apRefused:
		m.failOpening()
		return
	case m.troubled:
		m.phase = apSettles
	default:
		m.phase, m.cursor, m.commit = apLeads, m.got, m.got
	}
	m.opened, m.last = msg.seq, msg.seq
}

// failOpening goes back to where it can take over again.
func (m *apNode) failOpening() {
	if m.troubled {
		m.phase = apLeads
		return
	}
	*m = apNode{}
}

// timeout gives up waiting.
func (s *apState) timeout(n uint8) bool {
	m := &s.nodes[n]
	switch m.phase {
	case apOpens, apTook:
		m.failOpening()
		return true
	case apLeads:
		late := false
		for i := range m.links[:m.n] {
			if l := &m.links[i]; l.reply == apWaits {
				l.reply, late = apUnknown, true
			}
		}
		m.troubled = m.troubled || late
		return late
	}
	return false
}

// answered reports whether no link waits any more.
func (m *apNode) answered() bool {
	return !slices.ContainsFunc(m.links[:m.n], func(l apLink) bool { return l.reply == apWaits })
}

// drop removes the first link.
func (m *apNode) drop() {
	copy(m.links[:], m.links[1:])
	m.n--
	m.links[m.n] = apLink{}
}

// complete gives out what waited for the first link, which is in the log.
func (w *apWorld) complete(s *apState, n uint8) {
	m := &s.nodes[n]
	l := m.links[0]
	m.drop()
	if l.again && l.kind != apRenewal {
		s.saw |= apSawResent
	}
	switch l.kind {
	case apRecord:
		s.batches[l.of].answer, s.batches[l.of].number = apAcked, l.at.next
	case apFencing:
		if r := &s.fences[l.of]; r.answer == apAdmitted {
			r.answer, r.number = apAcked, l.at.next
		}
	}
	if l.kind != apRenewal {
		m.commit = l.after()
	}
	for i := range w.batches {
		if l.proves&(1<<i) != 0 {
			s.batches[i].answer = apNothingWritten
			if w.covers(l, 1<<i) {
				s.batches[i].answer = apFencedOut
			}
		}
	}
	if l.proves&apAsks != 0 {
		s.asked.answer = apNothingWritten
		if w.covers(l, apAsks) {
			w.stands(s, n)
		}
	}
}

// covers asks the kernel whether a link proves the lead to who waits for it.
func (w *apWorld) covers(l apLink, who uint8) bool {
	proof, requested := protocol.Proof{Sent: 2}, uint64(1)
	if l.early&who != 0 {
		requested = 2
	}
	if w.forge.proof != nil {
		w.forge.proof(&proof, &requested)
	}
	return protocol.ProofCovers(proof, requested)
}

// stands answers who asked, and opens the session if the token is the one that stands.
func (w *apWorld) stands(s *apState, n uint8) {
	m := &s.nodes[n]
	s.asked.answer, s.asked.number = apAcked, m.commit.token
	if m.commit.token == w.asksToken {
		s.session = apSession{open: true, node: n, fence: m.commit.fence}
	}
}

// abandon fails what waited for a link.
func (w *apWorld) abandon(s *apState, l apLink, indefinite bool) {
	answer := apNothingWritten
	if indefinite {
		answer = apIndefinite
	}
	switch l.kind {
	case apRecord:
		s.batches[l.of].answer = answer
	case apFencing:
		if r := &s.fences[l.of]; r.answer == apAdmitted {
			r.answer = answer
		}
	}
	for i := range w.batches {
		if l.proves&(1<<i) != 0 {
			s.batches[i].answer = apNothingWritten
			s.saw |= apSawProofLost
		}
	}
	if l.proves&apAsks != 0 {
		s.asked.answer = apNothingWritten
	}
}

// end is a leader that gives up: another one leads, or the log can't be had.
func (w *apWorld) end(s *apState, n uint8) bool {
	m := &s.nodes[n]
	if m.phase == apIdle || !m.troubled || !m.answered() {
		return false
	}
	for _, l := range m.links[:m.n] {
		w.abandon(s, l, l.reply == apUnknown || l.reply == apStored)
	}
	s.over(n)
	return true
}

// over is the end of a lead, and of its sessions.
func (s *apState) over(n uint8) {
	s.nodes[n] = apNode{}
	if s.session.node == n {
		s.session.over = s.session.open
	}
}

// flush sends what the window has room for.
func (w *apWorld) flush(s *apState, n uint8) {
	m := &s.nodes[n]
	for i := range m.links[:m.n] {
		l := &m.links[i]
		if l.reply != apUnsent {
			continue
		}
		if m.phase != apLeads || m.troubled || i >= int(w.window) {
			return
		}
		if !s.send(apMessage{kind: l.kind, node: n, last: m.last, check: m.control, epoch: m.epoch, at: l.at, of: l.of}) {
			return
		}
		m.last++
		l.reply, l.place, l.epoch = apWaits, m.last, m.epoch
		if l.kind == apRenewal && w.forge.renewsControl {
			m.control = m.last
		}
	}
}

// tidy forgets answers that nobody waits for, and puts the network in an order, which means nothing.
func (s *apState) tidy() {
	for i := range s.net {
		m := &s.net[i]
		if m.kind == apNothing || m.reply == apWaits {
			continue
		}
		owner := &s.nodes[m.node]
		if m.kind == apOpening && (owner.phase != apOpens || owner.epoch != m.epoch) || m.kind != apOpening && s.waits(*m) == nil {
			*m = apMessage{}
		}
	}
	slices.SortFunc(s.net[:], func(a, b apMessage) int {
		return cmp.Or(cmp.Compare(b.kind, a.kind), cmp.Compare(a.node, b.node), cmp.Compare(a.last, b.last), cmp.Compare(a.epoch, b.epoch),
			cmp.Compare(a.reply, b.reply), cmp.Compare(a.of, b.of), cmp.Compare(a.check, b.check), cmp.Compare(a.at.next, b.at.next))
	})
}
