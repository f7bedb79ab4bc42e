package models

import (
	"fmt"
	"strings"

	"github.com/typedfold/fold/internal/modelcheck"
)

const (
	apFollows   = "each frame begins where the one before ended"
	apEpochs    = "no frame lies behind the takeover of another epoch"
	apTokens    = "no batch lies in the log under another token than it presented"
	apMatches   = "a batch with a match lies at its match"
	apAcks      = "what was acknowledged is in the log at its number"
	apOnce      = "no batch is in the log twice"
	apNever     = "what was refused is not in the log"
	apFenceTrue = "who is told that it is fenced out was locked out at some moment since it came"
	apBoundary  = "an acknowledged fence is in the log, at the tail that was answered"
	apFenceNo   = "a fence that changed nothing is not in the log"
	apSessionOf = "no batch of a session is in the log under another fence than the session's"
	apInOrder   = "no batch of a session is in the log if one before it was lost"
	apEquals    = "a fence with the token that stands changes nothing"
	apStandsOK  = "the token that was said to stand stood at some moment since it was asked"
	apWhole     = "no log is taken for damaged"
	apLeadable  = "some node can lead and append again"
)

// has is where a batch or a fence lies in the log; 0 is nowhere.
func (s *apState) has(kind apKind, of uint8) (seq uint8, times int) {
	for i, e := range s.log[:s.n] {
		if e.kind == kind && e.of == of {
			seq, times = uint8(i+1), times+1
		}
	}
	return seq, times
}

func (s *apState) follow() bool {
	var last apStanding
	for _, e := range s.log[min(1, s.n):s.n] {
		if !e.kind.isFrame() {
			continue
		}
		want := last
		if e.kind == apFencing {
			want.fence++
			want.token = e.at.token
		}
		if e.at != want {
			return false
		}
		last = e.after()
	}
	return true
}

func (s *apState) epochsFollow() bool {
	epoch := uint8(0)
	for i, e := range s.log[:s.n] {
		if e.kind == apControl {
			epoch = uint8(i + 1)
		} else if e.epoch != epoch {
			return false
		}
	}
	return true
}

// every judges each batch, with where it is in the log.
func (w *apWorld) every(holds func(s *apState, b apBatch, r apRequest, seq uint8, times int) bool) func(apState) bool {
	return func(s apState) bool {
		for i, b := range w.batches {
			seq, times := s.has(apRecord, uint8(i))
			if !holds(&s, b, s.batches[i], seq, times) {
				return false
			}
		}
		return true
	}
}

func (w *apWorld) everyFence(holds func(s *apState, r apRequest, seq uint8, times int) bool) func(apState) bool {
	return func(s apState) bool {
		for i := range w.fences {
			seq, times := s.has(apFencing, uint8(i))
			if !holds(&s, s.fences[i], seq, times) {
				return false
			}
		}
		return true
	}
}

func (w *apWorld) properties() []modelcheck.Property[apState] {
	always := modelcheck.Always[apState]
	all := []modelcheck.Property[apState]{
		always(apFollows, func(s apState) bool { return s.follow() }),
		always(apEpochs, func(s apState) bool { return s.epochsFollow() }),
		always(apTokens, w.every(func(s *apState, b apBatch, _ apRequest, seq uint8, _ int) bool {
			return seq == 0 || s.log[seq-1].at.token == b.token
		})),
		always(apMatches, w.every(func(s *apState, b apBatch, _ apRequest, seq uint8, _ int) bool {
			return seq == 0 || !b.matches || s.log[seq-1].at.next == b.match
		})),
		always(apAcks, w.every(func(s *apState, _ apBatch, r apRequest, seq uint8, _ int) bool {
			return r.answer != apAcked || seq > 0 && s.log[seq-1].at.next == r.number
		})),
		always(apOnce, func(s apState) bool {
			for _, kind := range []apKind{apRecord, apFencing} {
				for of := range uint8(apRequests) {
					if _, times := s.has(kind, of); times > 1 {
						return false
					}
				}
			}
			return true
		}),
		always(apNever, w.every(func(_ *apState, _ apBatch, r apRequest, _ uint8, times int) bool {
			refused := r.answer == apNothingWritten || r.answer == apFencedOut || r.answer == apMissed || r.answer == apAwaits
			return !refused || times == 0
		})),
		always(apFenceTrue, w.every(func(_ *apState, _ apBatch, r apRequest, _ uint8, _ int) bool {
			return r.answer != apFencedOut || r.other
		})),
		always(apBoundary, w.everyFence(func(s *apState, r apRequest, seq uint8, _ int) bool {
			return r.answer != apAcked || seq > 0 && s.log[seq-1].at.next == r.number
		})),
		always(apFenceNo, w.everyFence(func(_ *apState, r apRequest, _ uint8, times int) bool {
			return r.answer != apNothingWritten && r.answer != apEqual || times == 0
		})),
		always(apSessionOf, w.every(func(s *apState, b apBatch, _ apRequest, seq uint8, _ int) bool {
			return seq == 0 || !b.session || s.log[seq-1].at.fence == s.session.fence
		})),
		always(apInOrder, func(s apState) bool {
			lost := false
			for i, b := range w.batches {
				if seq, _ := s.has(apRecord, uint8(i)); b.session && seq > 0 && lost {
					return false
				}
				lost = lost || b.session && s.batches[i].answer == apNothingWritten
			}
			return true
		}),
		modelcheck.Step(apEquals, func(s apState, a apAction, to apState) bool {
			from, m := &s.nodes[a.n], &to.nodes[a.n]
			return a.verb != apFence || w.fences[a.arg] != from.cursor.token || from.cursor == m.cursor && from.n == m.n
		}),
		always(apStandsOK, func(s apState) bool {
			return s.asked.answer != apAcked || s.asked.seen&(1<<s.asked.number) != 0
		}),
		always(apWhole, func(s apState) bool { return !s.damaged }),
		modelcheck.Reachable(apLeadable, func(s apState) bool { return s.done }),
	}
	for _, saw := range w.witnesses {
		all = append(all, modelcheck.Sometimes(apSawNames[saw], func(s apState) bool { return s.saw&saw != 0 }))
	}
	return all
}

var apSawNames = map[apSaw]string{
	apSawStaleOpening: "an opening frame is refused since the newest frame is not the one that was read",
	apSawEpochOnly:    "a late frame of a replaced leader is refused by its epoch, though the chain matches",
	apSawResent:       "what was sent again is acknowledged",
	apSawFoundStored:  "a frame without an answer is found in the log",
	apSawBeyond:       "a frame is known to be absent because the log never came to its place",
	apSawOutdated:     "a read that is to settle frames is too old",
	apSawLedBetween:   "another node has led and written before a node leads anew",
	apSawRemoved:      "what a frame without an answer left was removed",
	apSawABA:          "a session is refused though its token is installed again",
	apSawProofLost:    "a proof that a refusal waits for is not in the log",
	apSawStray:        "a takeover arrives that nobody waits for",
}

func (t apStanding) encode(out []byte) []byte { return append(out, t.next|t.token<<4, t.fence) }

func apEncode(s apState, out []byte) []byte {
	out = append(out, asUint8(s.done)|asUint8(s.damaged)<<1, s.n, s.purged, s.takes|s.strays<<2|s.purges<<4, byte(s.saw), byte(s.saw>>8))
	for _, e := range s.log[:s.n] {
		out = e.at.encode(append(out, byte(e.kind)|e.node<<4|e.of<<5, e.epoch))
	}
	for i := range s.nodes {
		m := &s.nodes[i]
		out = append(out, byte(m.phase)|asUint8(m.troubled)<<3|m.n<<4)
		if m.phase == apIdle {
			continue
		}
		out = append(out, m.epoch, m.control, m.last, m.opened)
		out = m.commit.encode(m.cursor.encode(m.got.encode(out)))
		for _, l := range m.links[:m.n] {
			out = append(out, byte(l.kind)|byte(l.reply)<<4|asUint8(l.again)<<7, l.place, l.epoch, l.of, l.proves, l.early)
			out = l.at.encode(out)
		}
	}
	for _, m := range s.net {
		if out = append(out, byte(m.kind)); m.kind != apNothing {
			out = m.at.encode(append(out, byte(m.reply)|m.node<<4|m.of<<5, m.last, m.check, m.epoch, m.seq))
		}
	}
	request := func(r apRequest) { out = append(out, byte(r.answer)|r.seen<<4|asUint8(r.other)<<7, r.number) }
	for _, r := range s.batches {
		request(r)
	}
	for _, r := range s.fences {
		request(r)
	}
	request(s.asked)
	return append(out, asUint8(s.session.open)|asUint8(s.session.over)<<1|s.session.node<<2, s.session.fence)
}

func apShowAction(a apAction) string {
	node := fmt.Sprintf("node %d ", a.n)
	switch a.verb {
	case apCalm:
		return "all is calm, and a node leads and appends"
	case apStray:
		return "a takeover of " + node + "arrives that it does not wait for"
	case apRead:
		return fmt.Sprintf("%sreads that the newest frame is at %d, and opens", node, a.arg)
	case apDeliver:
		return fmt.Sprintf("message %d arrives", a.arg)
	case apReceive:
		return fmt.Sprintf("the answer to message %d arrives", a.arg)
	case apSettle:
		return fmt.Sprintf("%ssettles its frames by a log that ended at %d", node, a.arg)
	case apAppend:
		return fmt.Sprintf("batch %d comes to node %d", a.arg, a.n)
	case apFence:
		return fmt.Sprintf("fence %d comes to node %d", a.arg, a.n)
	case apPurge:
		return "all frames but the newest are removed"
	}
	return node + map[apVerb]string{apTake: "takes over", apTimeout: "waits no longer", apRetake: "takes over anew", apEnd: "gives up", apAsk: "is asked what stands"}[a.verb]
}

func apShow(s apState) string {
	var b strings.Builder
	for i, e := range s.log[:s.n] {
		name := [...]string{"", "control", "renewal", "opening", "record", "fence"}[e.kind]
		if !e.kind.isFrame() {
			fmt.Fprintf(&b, "%d:%s/node%d ", i+1, name, e.node)
			continue
		}
		fmt.Fprintf(&b, "%d:%s/epoch%d#%d %+v ", i+1, name, e.epoch, e.of, e.at)
	}
	fmt.Fprintf(&b, "\n  damaged %t purged %d", s.damaged, s.purged)
	for i, m := range s.nodes {
		if m.phase != apIdle {
			fmt.Fprintf(&b, "\n  node %d %+v", i, m)
		}
	}
	for i, m := range s.net {
		if m.kind != apNothing {
			fmt.Fprintf(&b, "\n  message %d %+v", i, m)
		}
	}
	fmt.Fprintf(&b, "\n  batches %+v fences %+v asked %+v session %+v", s.batches, s.fences, s.asked, s.session)
	return b.String()
}
