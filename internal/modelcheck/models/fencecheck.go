package models

import (
	"fmt"
	"strings"

	"github.com/typedfold/fold/internal/modelcheck"
)

const (
	fcTokens   = "no write lies in the log under another token than it presented"
	fcTrue     = "who is told that it is fenced out was locked out at some moment since it came"
	fcToldTrue = "the token that a writer is told stood at some moment since it came"
	fcSameTrue = "a Fence that changed nothing found its token installed at some moment since it came"
	fcNever    = "what was refused is not in the log"
	fcIn       = "what was acknowledged is in the log"
	fcInstalls = "a Fence that comes to the log is never refused"
	fcNoFence  = "who is told that there is no fence has read none"
)

// wrote is where the log has a request's message; 0 is nowhere. What is only proposed counts.
func (s *fcState) wrote(kind fcKind, r uint8) (at uint8) {
	for i, e := range s.log[:s.n] {
		if e.kind == kind && e.of == r {
			at = uint8(i + 1)
		}
	}
	return at
}

// tokensHold judges each write. One without a check is outside: it is of a writer that presents none and has seen none.
func (w *fcWorld) tokensHold(s fcState) bool {
	for i, e := range s.log[:s.n] {
		if e.kind != fcWrite {
			continue
		}
		ask := w.asks[e.of]
		if e.slot == 0 && ask.token == fcNone && s.req[e.of].seen == 0 {
			continue
		}
		if s.token(uint8(i)) != ask.token {
			return false
		}
	}
	return true
}

func (w *fcWorld) properties() []modelcheck.Property[fcState] {
	every := func(name string, holds func(s *fcState, r uint8, q fcRequest, ask fcAsk) bool) modelcheck.Property[fcState] {
		return modelcheck.Always(name, func(s fcState) bool {
			for r, ask := range w.asks {
				if !holds(&s, uint8(r), s.req[r], ask) {
					return false
				}
			}
			return true
		})
	}
	all := []modelcheck.Property[fcState]{
		modelcheck.Always(fcTokens, w.tokensHold),
		every(fcTrue, func(_ *fcState, _ uint8, q fcRequest, ask fcAsk) bool {
			return q.answer != fcFenced || q.stood&^(1<<ask.token) != 0
		}),
		every(fcToldTrue, func(_ *fcState, _ uint8, q fcRequest, _ fcAsk) bool {
			return q.answer != fcFenced || q.stood&(1<<q.told) != 0
		}),
		every(fcSameTrue, func(_ *fcState, _ uint8, q fcRequest, ask fcAsk) bool {
			return q.answer != fcSame || q.stood&(1<<ask.token) != 0
		}),
		every(fcNever, func(s *fcState, r uint8, q fcRequest, ask fcAsk) bool {
			refused := q.answer == fcUnwritten || q.answer == fcFenced || q.answer == fcAbsent || q.answer == fcSame
			return !refused || s.wrote(fcWrite, r) == 0 && s.wrote(fcRecord, r) == 0
		}),
		every(fcIn, func(s *fcState, r uint8, q fcRequest, ask fcAsk) bool {
			kind := fcWrite
			if ask.fence {
				kind = fcRecord
			}
			return q.answer != fcAcked || s.wrote(kind, r) == q.told && q.told <= s.applied && q.told > 0
		}),
		modelcheck.Step(fcInstalls, func(s fcState, a fcAction, to fcState) bool {
			return a.verb != fcDeliver || s.net[a.r].kind != fcRecord || to.n == s.n+1
		}),
		every(fcNoFence, func(_ *fcState, _ uint8, q fcRequest, _ fcAsk) bool { return q.answer != fcAbsent || q.seen == 0 }),
	}
	for _, saw := range w.witnesses {
		all = append(all, modelcheck.Sometimes(fcSawNames[saw], func(s fcState) bool { return s.saw&saw != 0 }))
	}
	return all
}

var fcSawNames = map[fcSaw]string{
	fcSawLate:     "a write of a replaced token is refused",
	fcSawBusy:     "a message is refused only since another one is under way",
	fcSawOldRead:  "a read of an older log shows another token than stands",
	fcSawDisprove: "a proof is refused",
	fcSawAdopt:    "a writer goes on under a record that was written anew",
	fcSawDropped:  "a message that was proposed is discarded",
	fcSawEvicted:  "a write under a record that is gone is refused",
}

func fcEncode(s fcState, out []byte) []byte {
	out = append(out, s.n, s.applied, s.gone|s.drops<<4|s.evictions<<6, byte(s.saw))
	for _, e := range s.log[:s.n] {
		out = append(out, byte(e.kind)|e.of<<4, e.token|e.keys<<2|e.slot<<4)
	}
	for i := range s.net {
		m, q := &s.net[i], &s.req[i]
		out = append(out, asUint8(q.began)|byte(q.answer)<<1|q.tries<<4, q.seen|q.told<<4, q.stood)
		if out = append(out, byte(m.kind)); m.kind != fcNothing {
			out = append(out, asUint8(m.wait)|asUint8(m.sent)<<1|byte(m.told)<<2|m.slot<<4|m.token<<6, m.in|m.expect<<4, m.last)
		}
	}
	return out
}

func fcShow(s fcState) string {
	var b strings.Builder
	for i, e := range s.log[:s.n] {
		switch e.kind {
		case fcRecord:
			fmt.Fprintf(&b, "%d:token %d of #%d keys %b ", i+1, e.token, e.of, e.keys)
		default:
			fmt.Fprintf(&b, "%d:%s of #%d key %d ", i+1, map[fcKind]string{fcWrite: "write", fcProof: "proof"}[e.kind], e.of, int(e.slot)-1)
		}
	}
	fmt.Fprintf(&b, "\n  applied %d gone %d", s.applied, s.gone)
	for i := range s.req {
		if s.req[i].began {
			fmt.Fprintf(&b, "\n  #%d %+v %+v", i, s.req[i], s.net[i])
		}
	}
	return b.String()
}
