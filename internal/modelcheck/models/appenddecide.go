package models

import "github.com/typedfold/fold/runtime/protocol"

func apToken(t uint8) string { return []string{"", "a", "b"}[t] }

// append has a batch come to a node, which decides on it at once.
func (w *apWorld) append(s *apState, n, i uint8) bool {
	m, b, r := &s.nodes[n], w.batches[i], &s.batches[i]
	if m.phase != apLeads || r.answer != apNone || m.n == apLinks || b.session && (!s.session.open || s.session.over || s.session.node != n) ||
		b.session && i > 0 && s.batches[i-1].answer == apNone { // a session's batches come in order
		return false
	}
	now := s.force()
	r.other = now.token != b.token || b.session && now.fence != s.session.fence
	switch w.admit(s, n, b) {
	case protocol.AppendAdmitted:
		r.answer = apAdmitted
		m.admit(i)
	case protocol.AppendMissed:
		r.answer = apMissed
	case protocol.AppendFenced:
		if r.answer = apAwaits; w.forge.refusalAtOnce {
			r.answer = apFencedOut
			return true
		}
		if b.session && m.cursor.token == b.token {
			s.saw |= apSawABA
		}
		w.prove(m, 1<<i)
	default:
		r.answer = apNothingWritten
	}
	return true
}

func (w *apWorld) admit(s *apState, n uint8, b apBatch) protocol.Admission {
	m := &s.nodes[n]
	a := protocol.Append{Token: apToken(b.token), InSession: b.session, HasMatch: b.matches, Match: uint64(b.match)}
	if b.session {
		a.SessionFence = uint64(s.session.fence)
	}
	seen := protocol.AppendSeen{Leads: m.phase == apLeads, Installed: apToken(m.cursor.token), Fence: uint64(m.cursor.fence), Cursor: uint64(m.cursor.next)}
	if w.forge.admit != nil {
		w.forge.admit(&a, &seen)
	}
	return protocol.AdmitAppend(a, seen)
}

// admit gives an admitted batch its number and its frame.
func (m *apNode) admit(i uint8) {
	m.links[m.n] = apLink{kind: apRecord, at: m.cursor, of: i}
	m.n++
	m.cursor.next++
}

// prove has somebody wait for a write that is sent from now on.
func (w *apWorld) prove(m *apNode, who uint8) {
	if m.n > 0 && (m.links[m.n-1].reply == apUnsent || w.forge.proofsByOlder) {
		l := &m.links[m.n-1]
		if l.proves |= who; l.reply != apUnsent {
			l.early |= who
		}
		return
	}
	m.links[m.n] = apLink{kind: apRenewal, proves: who}
	m.n++
}

// fence has a fence come to a node.
func (w *apWorld) fence(s *apState, n, i uint8) bool {
	m, r := &s.nodes[n], &s.fences[i]
	if m.phase != apLeads || r.answer != apNone || m.n == apLinks {
		return false
	}
	token, installed := apToken(w.fences[i]), apToken(m.cursor.token)
	if w.forge.installs != nil {
		w.forge.installs(&token, &installed)
	}
	if !protocol.FenceInstalls(token, installed) {
		// The answer waits for a proof, on which nothing else depends.
		r.answer, r.number = apEqual, m.cursor.next
		return true
	}
	m.cursor.token = w.fences[i]
	m.cursor.fence++
	if r.answer = apAdmitted; w.forge.fenceAtOnce {
		r.answer, r.number = apAcked, m.cursor.next
	}
	m.links[m.n] = apLink{kind: apFencing, at: m.cursor, of: i}
	m.n++
	return true
}

// ask has somebody ask what stands.
func (w *apWorld) ask(s *apState, n uint8) bool {
	m := &s.nodes[n]
	if !w.asks || m.phase != apLeads || s.asked.answer != apNone || m.n == apLinks {
		return false
	}
	s.asked.answer, s.asked.seen = apAwaits, 1<<s.force().token
	if w.forge.standsAtOnce {
		w.stands(s, n)
		return true
	}
	w.prove(m, apAsks)
	return true
}

// settle gives the links of a node that leads anew their fates, by a log that ended at seq.
func (w *apWorld) settle(s *apState, n, seq uint8) bool {
	m := &s.nodes[n]
	unled := w.forge.settlesUnled && m.phase == apLeads && m.troubled && m.answered()
	if m.phase != apSettles && !unled {
		return false
	}
	if unled {
		m.got, m.opened, m.last = s.log[s.newest(seq)-1].after(), seq+1, s.n
	}
	fates, stored, ok := w.fates(s, m, seq)
	if !ok {
		s.saw |= apSawOutdated
		m.phase = apLeads // to lead anew once more
		return !unled
	}
	for range stored {
		w.complete(s, n)
	}
	s.damaged = s.damaged || m.got.next < m.commit.next || m.got.fence < m.commit.fence
	m.phase, m.troubled = apLeads, false
	if m.got == m.commit || w.forge.resendsAlways || w.forge.renumbers {
		w.again(m)
		return true
	}
	for i, l := range m.links[:m.n] {
		unknown := i+stored < apLinks && fates[i+stored] == protocol.FateUnknown
		if unknown {
			s.saw |= apSawRemoved
		}
		w.abandon(s, l, unknown && !w.forge.unknownIsNothing)
	}
	s.saw |= apSawLedBetween
	if w.forge.leadsOn {
		m.cursor, m.commit = m.got, m.got
		m.n, m.links = 0, [apLinks]apLink{}
		return true
	}
	s.over(n)
	return true
}

// again has links sent again that are not in the log.
func (w *apWorld) again(m *apNode) {
	at := m.got
	for i := range m.links[:m.n] {
		l := &m.links[i]
		l.again = l.again || l.reply != apUnsent
		if l.reply, l.place, l.epoch, l.early = apUnsent, 0, 0, 0; w.forge.renumbers && l.kind == apRecord {
			l.at.next = at.next
			at.next++
			m.cursor.next = at.next
		}
	}
	if w.forge.renumbers || w.forge.resendsAlways {
		m.commit = m.got
	}
}

// fates are those of a node's links, of which the first stored ones are in the log. Not ok: another read is needed.
func (w *apWorld) fates(s *apState, m *apNode, seq uint8) (fates [apLinks]protocol.FrameFate, stored int, ok bool) {
	for i := int(m.n) - 1; i >= 0; i-- {
		l := m.links[i]
		switch {
		case l.reply == apUnsent, l.kind == apRenewal && l.reply == apUnknown:
			fates[i] = protocol.FateAbsent
			continue
		}
		var readable bool
		if fates[i], readable = w.fate(s, m, l, seq); !readable {
			return fates, 0, false
		}
		if fates[i] == protocol.FateStored {
			stored = i + 1
			break
		}
	}
	for i := range stored {
		s.damaged = s.damaged || m.links[i].reply == apRefused
		fates[i] = protocol.FateStored
	}
	return fates, stored, true
}

// fate is what the kernel makes of a link and a read of its place. Not readable: the read is of an older log.
func (w *apWorld) fate(s *apState, m *apNode, l apLink, seq uint8) (fate protocol.FrameFate, readable bool) {
	f := protocol.PendingFrame{
		Reply: map[apReply]protocol.FrameReply{apUnknown: protocol.FrameUnknown, apStored: protocol.FrameStored, apRefused: protocol.FrameRefused}[l.reply],
		Place: uint64(l.place), Epoch: uint64(l.epoch), Base: uint64(l.at.next), Fences: l.kind == apFencing, Fence: uint64(l.at.fence),
	}
	at := protocol.PlaceSeen{Opened: uint64(m.opened)}
	for i := max(l.place, s.purged, 1); i <= seq; i++ {
		if e := s.log[i-1]; e.kind.isFrame() {
			at.Found, at.Epoch, at.Base, at.Fence = uint64(i), uint64(e.epoch), uint64(e.at.next), uint64(e.at.fence)
			break
		}
	}
	outdated := f.Reply == protocol.FrameUnknown && f.Place < at.Opened && at.Found < f.Place
	if w.forge.settle != nil {
		w.forge.settle(&f, &at)
	}
	fate = protocol.SettleFrame(f, at)
	if fate == protocol.FateUnknown && outdated {
		return fate, false
	}
	switch {
	case l.reply == apUnknown && fate == protocol.FateStored:
		s.saw |= apSawFoundStored
	case l.reply == apUnknown && l.place >= m.opened:
		s.saw |= apSawBeyond
	}
	return fate, true
}

// recovers reports whether some other node, while all is calm, takes the log over, leads it and appends to it.
func (w *apWorld) recovers(s apState) bool {
	const n = 0
	s.nodes[n], s.net, s.takes = apNode{}, [apNet]apMessage{}, 1
	if !s.take(n) || !s.read(n, s.newest(s.n)) || !w.deliver(&s, 0) || !w.receive(&s, 0) || s.nodes[n].phase != apLeads {
		return false
	}
	b := apBatch{token: s.nodes[n].cursor.token, matches: true, match: s.nodes[n].cursor.next}
	if w.admit(&s, n, b) != protocol.AppendAdmitted {
		return false
	}
	s.nodes[n].admit(apProbe)
	w.flush(&s, n)
	return w.deliver(&s, 0) && w.receive(&s, 0) && s.batches[apProbe].answer == apAcked
}
