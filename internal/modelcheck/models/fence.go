package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// The fence of a bucket: writers that present a token, or none, and Fences, in the order of fold's writers. The log does
// what a replicated JetStream stream was seen to do: a leader proposes messages, which are applied later and in order, or
// discarded when another one takes over; a check of a key looks at what is applied, and is refused while a message that
// writes or checks the same key is proposed. Messages to it arrive in any order and as late as it pleases. Reads are answered
// from a log of any age, since a leader that is cut off answers them.
//
// A record is one entry of the log, as it is written in one batch; its keys have consecutive revisions. Two of the keys are
// told apart.
//
// Left out: revisions of rows, batches of several rows, and records that can't be read.

const (
	fcLog      = 8
	fcRequests = 4
	fcSlots    = 2
	fcApart    = 1000 // between the revisions of two entries
	fcNone     = 0    // the token of who presents none
)

type fcKind uint8

const (
	fcNothing fcKind = iota
	fcRecord
	fcWrite
	fcProof
)

// fcEntry is one message of the log; the ith has revision fcRevision(i).
type fcEntry struct {
	kind  fcKind
	of    uint8 // the request
	token uint8 // of a record
	keys  uint8 // of a record, by bit: those that it writes
	slot  uint8 // the key that is checked, and one; 0 is none
}

func fcRevision(i uint8) uint64 { return uint64(i)*fcApart + 1 }

// fcMessage is the message of a request that is on its way, or its answer.
type fcMessage struct {
	kind fcKind
	wait bool // its request waits for the answer
	sent bool // on its way to the log
	// in is the entry that it became, and one; told is its answer.
	in     uint8
	told   fcTold
	slot   uint8 // and one
	expect uint8 // the entry, and one
	last   uint8 // the entry that has to be the log's last, and one; 0 is any
	token  uint8
}

type fcTold uint8

const (
	fcSilent fcTold = iota
	fcStored
	fcRefused
)

type fcAnswer uint8

const (
	fcOpen fcAnswer = iota
	fcAcked
	fcUnknown
	fcFenced    // told that it is fenced out
	fcAbsent    // told that there is no fence
	fcUnwritten // told that nothing was written, and no more
	fcSame      // a Fence that changed nothing
)

type fcRequest struct {
	began  bool
	answer fcAnswer
	seen   uint8 // the record that it read, and one; 0 is none
	told   uint8 // the token that it was told
	stood  uint8 // the tokens that stood since it came, by bit
	tries  uint8
}

// fcSaw are things that the last action has shown.
type fcSaw uint8

const (
	fcSawLate     fcSaw = 1 << iota // a message of a replaced token is refused
	fcSawBusy                       // one is refused only since another one is proposed
	fcSawOldRead                    // a read of an older log shows another token than stands
	fcSawDisprove                   // a proof is refused
	fcSawAdopt                      // a writer goes on under a record that was written anew
	fcSawDropped                    // a proposed message is discarded
	fcSawEvicted                    // a write under a record that is gone is refused
)

type fcState struct {
	n, applied uint8
	gone       uint8 // records before this entry are gone
	drops      uint8 // discards that are left
	evictions  uint8
	saw        fcSaw
	log        [fcLog]fcEntry
	net        [fcRequests]fcMessage
	req        [fcRequests]fcRequest
}

// fcAsk is a request: a Fence of a token, or a write that presents one.
type fcAsk struct {
	fence bool
	token uint8
	// follows: it writes right behind a proof, and asks for the log's end in place of the record.
	follows bool
}

type fcWorld struct {
	name      string
	deep      bool
	fresh     bool // the bucket was never fenced; else token 1 is installed
	drops     uint8
	evictions uint8
	asks      []fcAsk
	witnesses []fcSaw
	forge     fcForge
}

// fcForge is what a mutation does to it.
type fcForge struct {
	plan    func(presents *bool, s *protocol.FenceSeen)
	install func(*protocol.FenceSeen)
	proof   func(*protocol.FenceSeen, *protocol.FenceProof)

	wildcard, unchecked, freeProofs bool
	fencedAtOnce, sameAtOnce        bool
	conditional, oneKey             bool
	expectsNothing                  bool
	followsRead, foresees           bool
	lostIsNothing                   bool
}

type fcVerb uint8

const (
	fcBegin fcVerb = iota
	fcRead
	fcDeliver
	fcApply
	fcDiscard
	fcReceive
	fcTimeout
	fcEvict
)

type fcAction struct {
	verb fcVerb
	r    uint8
	arg  uint8 // how much of the log a read sees; the key that is checked
	slot uint8
}

func (w *fcWorld) actions(s fcState, out []fcAction) []fcAction {
	out = append(out, fcAction{verb: fcApply}, fcAction{verb: fcDiscard}, fcAction{verb: fcEvict})
	for r := range uint8(len(w.asks)) {
		out = append(out, fcAction{fcBegin, r, 0, 0}, fcAction{fcDeliver, r, 0, 0}, fcAction{fcReceive, r, 0, 0}, fcAction{fcTimeout, r, 0, 0})
		for seen := range s.applied + 1 {
			for slot := range uint8(fcSlots) {
				out = append(out, fcAction{fcRead, r, seen, slot})
			}
		}
	}
	return out
}

// standing is the newest record among the first n entries that writes the key, and one; 0 is none. With gone, those that
// the log has lost count too.
func (s *fcState) standing(n, slot uint8, gone bool) uint8 {
	for i := n; i > 0; i-- {
		if e := s.log[i-1]; e.kind == fcRecord && e.keys&(1<<slot) != 0 {
			if !gone && i <= s.gone {
				return 0
			}
			return i
		}
	}
	return 0
}

// token is the one that is installed among the first n entries.
func (s *fcState) token(n uint8) uint8 {
	if at := s.standing(n, 0, true); at > 0 {
		return s.log[at-1].token
	}
	return fcNone
}

func (w *fcWorld) next(s fcState, a fcAction) (fcState, bool) {
	s.saw = 0
	ok := false
	q := &s.req[a.r]
	switch a.verb {
	case fcBegin:
		if ok = !q.began; ok {
			*q = fcRequest{began: true}
		}
	case fcRead:
		if ok = q.began && q.answer == fcOpen && !s.net[a.r].wait; ok {
			w.plan(&s, a)
		}
	case fcDeliver:
		ok = w.deliver(&s, a.r)
	case fcApply:
		if ok = s.applied < s.n; ok {
			s.apply()
		}
	case fcDiscard:
		if ok = s.drops > 0 && s.applied < s.n; ok {
			s.drops--
			s.saw |= fcSawDropped
			for i := range s.net {
				if s.net[i].in > s.applied {
					s.net[i].in = 0
				}
			}
			clear(s.log[s.applied:s.n])
			s.n = s.applied
		}
	case fcReceive:
		ok = s.net[a.r].wait && s.net[a.r].told != fcSilent && w.receive(&s, a.r)
	case fcTimeout:
		if m := &s.net[a.r]; m.wait && m.told == fcSilent {
			ok, m.wait = true, false
			if q.answer = fcUnknown; m.kind == fcProof || w.forge.lostIsNothing {
				q.answer = fcUnwritten
			}
		}
	case fcEvict:
		if ok = s.evictions > 0 && s.standing(s.applied, 0, false) > 0; ok {
			s.evictions--
			s.gone = s.applied
		}
	}
	for r := range s.req {
		if q := &s.req[r]; ok && q.began && q.answer == fcOpen {
			q.stood |= 1 << s.token(s.applied)
		}
	}
	s.tidy()
	return s, ok
}

// tidy forgets messages that can't have an effect any more.
func (s *fcState) tidy() {
	for i := range s.net {
		if m := &s.net[i]; !m.wait && !m.sent {
			*m = fcMessage{}
		}
	}
}

// plan reads the record from a log of some age, and takes the next step.
func (w *fcWorld) plan(s *fcState, a fcAction) {
	q, ask := &s.req[a.r], w.asks[a.r]
	was := q.seen
	q.seen = 0
	if a.arg > 0 {
		q.seen = s.standing(a.arg, 0, a.arg < s.applied)
	}
	var seen protocol.FenceSeen
	if q.seen > 0 {
		token := s.log[q.seen-1].token
		seen = protocol.FenceSeen{Present: true, Readable: true, Holds: token == ask.token, Revision: fcRevision(q.seen)}
		if token != s.token(s.applied) {
			s.saw |= fcSawOldRead
		}
	}
	if ask.fence {
		w.planFence(s, a, seen)
		return
	}
	presents := ask.token != fcNone
	if f := w.forge.plan; f != nil {
		f(&presents, &seen)
	}
	switch protocol.PlanFenced(presents, seen) {
	case protocol.FencedAbsent:
		if q.answer = fcAbsent; w.forge.expectsNothing {
			q.answer = fcOpen
			s.send(a, fcWrite, 0, a.slot+1)
		}
	case protocol.FencedUnchecked:
		s.send(a, fcWrite, 0, 0)
	case protocol.FencedWrite:
		if was > 0 && was < q.seen && q.tries > 0 {
			s.saw |= fcSawAdopt
		}
		switch {
		case ask.follows && w.forge.followsRead:
			w.follow(s, a.r, seen.Revision, s.applied)
		case ask.follows:
			w.check(s, a, fcProof, seen.Revision)
		default:
			w.check(s, a, fcWrite, seen.Revision)
		}
	case protocol.FencedProve:
		w.prove(s, a, seen)
	default:
		q.answer = fcUnwritten
	}
}

func (w *fcWorld) planFence(s *fcState, a fcAction, seen protocol.FenceSeen) {
	if f := w.forge.install; f != nil {
		f(&seen)
	}
	if protocol.PlanFence(seen) == protocol.FenceProves {
		w.prove(s, a, seen)
		return
	}
	s.send(a, fcRecord, s.req[a.r].seen, 0)
	s.net[a.r].token = w.asks[a.r].token
}

func (s *fcState) send(a fcAction, kind fcKind, expect, slot uint8) {
	s.net[a.r] = fcMessage{kind: kind, wait: true, sent: true, expect: expect, slot: slot}
}

// follow sends a write that asks for the log's end.
func (w *fcWorld) follow(s *fcState, r uint8, fence uint64, tail uint8) {
	if !protocol.FenceFollows(protocol.FenceTail{Fence: fence, Tail: fcRevision(tail)}, fence) && !w.forge.followsRead {
		s.req[r].answer = fcUnwritten
		return
	}
	s.send(fcAction{r: r}, fcWrite, 0, 0)
	s.net[r].last = tail
}

// check sends a message that checks the record of a revision.
func (w *fcWorld) check(s *fcState, a fcAction, kind fcKind, revision uint64) {
	key, expect := protocol.FenceCheck(revision, uint64(a.slot))
	if w.forge.unchecked && kind == fcWrite || w.forge.freeProofs && kind == fcProof {
		s.send(a, kind, 0, 0)
		return
	}
	s.send(a, kind, uint8((expect-1)/fcApart), uint8(key)+1)
}

func (w *fcWorld) prove(s *fcState, a fcAction, seen protocol.FenceSeen) {
	if w.forge.fencedAtOnce && !w.asks[a.r].fence || w.forge.sameAtOnce && w.asks[a.r].fence {
		w.proved(s, a.r)
		return
	}
	w.check(s, a, fcProof, seen.Revision)
}

// proved answers what a proof was for.
func (w *fcWorld) proved(s *fcState, r uint8) {
	q := &s.req[r]
	if q.seen > 0 {
		q.told = s.log[q.seen-1].token
	}
	if q.answer = fcFenced; w.asks[r].fence {
		q.answer = fcSame
	}
}

// deliver has a message arrive at the leader.
func (w *fcWorld) deliver(s *fcState, r uint8) bool {
	m := &s.net[r]
	if !m.sent || s.n == fcLog {
		return false
	}
	m.sent = false
	e := fcEntry{kind: m.kind, of: r, token: m.token, slot: m.slot}
	refused := false
	switch {
	case m.kind == fcRecord:
		e.keys = 1<<fcSlots - 1
		if w.forge.oneKey {
			e.keys = 1
		}
		for slot := range uint8(fcSlots) {
			refused = refused || w.forge.conditional && !w.passes(s, slot, m.expect)
		}
	case m.last > 0:
		refused = s.n != m.last
	case m.slot > 0:
		refused = !w.passes(s, m.slot-1, m.expect)
	}
	if refused {
		m.told = fcRefused
		if m.kind == fcProof {
			s.saw |= fcSawDisprove
		}
		if m.last == 0 && s.standing(s.applied, m.slot-min(m.slot, 1), false) == m.expect && m.expect > 0 {
			s.saw |= fcSawBusy
		} else if m.kind == fcWrite {
			s.saw |= fcSawLate
			if s.gone > 0 && m.expect > 0 && m.expect <= s.gone {
				s.saw |= fcSawEvicted
			}
		}
		return true
	}
	s.log[s.n] = e
	s.n++
	m.in = s.n
	return true
}

// passes is the log's check of a key.
func (w *fcWorld) passes(s *fcState, slot, expect uint8) bool {
	if w.forge.wildcard {
		return s.standing(s.applied, slot, false) == expect
	}
	for _, e := range s.log[s.applied:s.n] {
		if e.kind == fcRecord && e.keys&(1<<slot) != 0 || e.slot == slot+1 {
			return false
		}
	}
	return s.standing(s.applied, slot, false) == expect
}

func (s *fcState) apply() {
	s.applied++
	for i := range s.net {
		if m := &s.net[i]; m.in == s.applied {
			m.told = fcStored
		}
	}
}

// receive has a request learn what came of its message. After a refusal it reads again, or says that nothing was written.
func (w *fcWorld) receive(s *fcState, r uint8) bool {
	q, m := &s.req[r], s.net[r]
	s.net[r] = fcMessage{}
	switch {
	case m.kind == fcProof && m.told == fcStored && w.asks[r].follows && q.seen > 0 && s.log[q.seen-1].token == w.asks[r].token:
		tail := m.in
		if w.forge.foresees {
			tail++
		}
		w.follow(s, r, fcRevision(q.seen), tail)
	case m.kind == fcProof && w.settles(q, m):
		w.proved(s, r)
	case m.told == fcRefused:
		if q.tries++; q.tries > 1 {
			q.answer = fcUnwritten
		}
	case m.kind == fcProof:
		q.answer = fcUnwritten
	default:
		q.answer, q.told = fcAcked, m.in
	}
	return true
}

// settles is what the answer to a proof proves.
func (w *fcWorld) settles(q *fcRequest, m fcMessage) bool {
	seen := protocol.FenceSeen{Present: q.seen > 0, Readable: q.seen > 0, Revision: fcRevision(q.seen)}
	proof := protocol.FenceProof{Stored: m.told == fcStored, Expected: seen.Revision}
	if f := w.forge.proof; f != nil {
		f(&seen, &proof)
	}
	return protocol.FenceProved(seen, proof)
}

func (w *fcWorld) initial() fcState {
	s := fcState{drops: w.drops, evictions: w.evictions}
	if !w.fresh {
		s.log[0] = fcEntry{kind: fcRecord, token: 1, keys: 1<<fcSlots - 1, of: fcRequests}
		s.n, s.applied = 1, 1
	}
	return s
}

func (w *fcWorld) model() modelcheck.Model[fcState, fcAction] {
	return modelcheck.Model[fcState, fcAction]{
		Name: w.name, Init: []fcState{w.initial()}, Actions: w.actions, Next: w.next, Encode: fcEncode, Properties: w.properties(), ShowState: fcShow,
	}
}
