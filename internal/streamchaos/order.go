package streamchaos

import (
	"cmp"
	"slices"
	"time"
)

// settled is something that was settled at a time: nothing that was called later lies before its position.
type settled struct {
	at  time.Duration
	pos int
	by  *op
}

// asking is a call as the sweep meets it. A session that was locked out is met as a whole, at the time from which on it can have been
// told so.
type asking struct {
	at    time.Duration
	o     *op
	until time.Duration // by when a session was told; 0 of a call
	low   int           // what was told lies behind this position
}

// order sweeps over the calls in the order of time. The log gives the one order in which all happened; it has to agree with
// every call that ended before another one began. That is linearizability, with the log for the witness.
func (j *judge) order() {
	calls := j.lockedOut()
	for _, o := range j.ops {
		calls = append(calls, asking{at: o.call, o: o})
	}
	slices.SortFunc(calls, func(a, b asking) int { return cmp.Compare(a.at, b.at) })
	acks := j.acks()
	high, done := settled{}, 0
	var more []settled // by answers, whose turn comes when they were given
	for _, c := range calls {
		for ; done < len(acks) && acks[done].at < c.at; done++ {
			if acks[done].pos > high.pos {
				high = acks[done]
			}
		}
		more = slices.DeleteFunc(more, func(s settled) bool {
			if s.at >= c.at {
				return false
			}
			if s.pos > high.pos {
				high = s
			}
			return true
		})
		if c.until > 0 {
			j.fencedHolds(c.o, max(high.pos, c.low), c.until)
		} else if pos := j.ordered(c.o, high); pos > 0 {
			more = append(more, settled{at: c.o.ret, pos: pos, by: c.o})
		}
	}
}

// acks are the appends that were acknowledged, by the time of that.
func (j *judge) acks() (all []settled) {
	for _, o := range j.ops {
		if o.verb != verbAppend || o.verdict != told {
			continue
		}
		if a, ok := acked(o, j.lies[o.id]); ok {
			all = append(all, settled{at: o.ret, pos: a.pos, by: o})
		}
	}
	slices.SortFunc(all, func(a, b settled) int { return cmp.Compare(a.at, b.at) })
	return all
}

// ordered judges one call, before which all up to a position was settled. The result is what it settles itself; 0 is nothing.
func (j *judge) ordered(o *op, high settled) int {
	for _, a := range j.lies[o.id] {
		if a.pos < high.pos {
			rule := ruleOrder
			if a.reign < j.reignAt(high.pos) {
				rule = ruleStale // a fence is between them
			}
			j.find(rule, "%s lies at %d, before what %s settled", o, a.number, high.by)
		}
	}
	switch {
	case o.verb == verbFence && o.verdict == told:
		return j.fenceHolds(o, high.pos)
	case o.verb == verbTail && o.verdict == told:
		return j.tailHolds(o, high.pos)
	case o.verb == verbToken && o.verdict == told:
		pos, ok := j.standing(o.installed, high.pos, o.ret, nil)
		if !ok {
			j.find(ruleFence, "%s tells %q, which did not stand then: position %d", o, o.installed, high.pos)
		}
		return pos
	case o.verdict == fenced && (o.session == nil || o.verb == verbOpen):
		return j.fencedHolds(o, high.pos, o.ret)
	}
	return 0
}

// lockedOut are the sessions that were told so. All that was refused tells the token that stood at some time from the last
// attempt to open the session on until the first refusal, and behind the last batch that was admitted.
func (j *judge) lockedOut() (all []asking) {
	outs := map[*session]*asking{}
	for _, o := range j.ops {
		if o.verb != verbAppend || o.verdict != fenced || o.session == nil {
			continue
		}
		out := outs[o.session]
		if out == nil {
			out = &asking{at: o.call, o: o, until: o.ret}
			outs[o.session] = out
		}
		if out.o.installed != o.installed {
			j.find(ruleFenced, "%s tells %q, and another batch of its session %q", o, o.installed, out.o.installed)
		}
		out.until = min(out.until, o.ret)
	}
	for s, out := range outs {
		for _, open := range s.opens {
			if open.from < out.until {
				out.at = open.from // an idle session is told at any time from then on
			}
		}
	}
	last := map[*session]int{}
	for _, o := range j.ops {
		if a, ok := acked(o, j.lies[o.id]); ok && o.verdict == told && o.session != nil {
			last[o.session] = max(last[o.session], a.pos)
		}
	}
	for s, out := range outs {
		out.low = last[s]
		all = append(all, *out)
	}
	return all
}

// reads holds what readers saw against the log.
func (j *judge) reads() {
	n := uint64(len(j.numbers))
	for _, r := range j.readings {
		for _, text := range r.wrong {
			j.find(ruleReaders, "%s: %s", r.what, text)
		}
		for _, s := range r.got {
			j.tally.Reads++
			if s.number >= n {
				j.find(ruleReaders, "%s saw record %d; the log ends at %d", r.what, s.number, n)
			} else if at := j.numbers[s.number]; at.hash != s.hash || at.time != s.time {
				j.find(ruleReaders, "%s saw another record %d than the log holds, of time %d and not %d", r.what, s.number, s.time, at.time)
			}
		}
		if r.follow && uint64(len(r.got)) < j.tail {
			j.find(ruleReaders, "%s saw %d records; the tail was %d", r.what, len(r.got), j.tail)
		}
	}
}
