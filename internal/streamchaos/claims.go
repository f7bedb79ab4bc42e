package streamchaos

import (
	"fmt"
	"math"
	"time"
)

// claims holds what each append was told against what lies in the log.
func (j *judge) claims() {
	for _, o := range j.ops {
		if o.verdict == denied {
			j.find(ruleDenied, "%s: %v", o, o.err)
		}
		if o.verb != verbAppend {
			continue
		}
		at := j.lies[o.id]
		switch o.verdict {
		case told:
			j.acknowledged(o, at)
		case unknown:
			if len(at) > 0 {
				j.tally.Landed++
			}
		case missed:
			j.miss(o, at)
		default:
			if len(at) > 0 && !o.resent {
				j.find(ruleRefused, "%s, and lies at %d", o, at[0].number)
			}
		}
		j.once(o, at)
		for _, a := range at {
			j.session(o, a)
		}
	}
}

func (j *judge) acknowledged(o *op, at []occurrence) {
	if o.end != o.start+uint64(o.records) {
		j.find(ruleLost, "%s has %d records, and lies from %d to %d", o, o.records, o.start, o.end)
	}
	if o.hasMatch && o.start != o.match {
		j.find(ruleMatch, "%s lies at %d", o, o.start)
	}
	if _, ok := acked(o, at); !ok {
		j.find(ruleLost, "%s at %d, and lies at %v", o, o.start, numbersOf(at))
	}
}

// acked is the occurrence that an append was told of.
func acked(o *op, at []occurrence) (occurrence, bool) {
	for _, a := range at {
		if a.number == o.start {
			return a, true
		}
	}
	return occurrence{}, false
}

func numbersOf(at []occurrence) (numbers []uint64) {
	for _, a := range at {
		numbers = append(numbers, a.number)
	}
	return numbers
}

// miss is definitive unless the batch was sent again, and its tail is one that was.
func (j *judge) miss(o *op, at []occurrence) {
	switch {
	case !o.hasMatch:
		j.find(ruleDenied, "%s, and asked for no number", o)
	case len(at) > 0 && !o.resent:
		j.find(ruleRefused, "%s, and lies at %d", o, at[0].number)
	case o.tail == o.match && !o.resent:
		j.tally.FalseMisses++
	}
	if o.session == nil && o.resent {
		j.find(ruleDenied, "%s: a one-shot is never sent again", o)
	}
	j.reached(o)
}

// reached checks that a tail which somebody was told had been reached by then.
func (j *judge) reached(o *op) {
	switch n := uint64(len(j.numbers)); {
	case o.tail > n:
		j.find(ruleTail, "%s tells a tail of %d; the log ends at %d", o, o.tail, n)
	case o.tail == 0:
	case o.tail < n && j.numbers[o.tail].pos == j.numbers[o.tail-1].pos && j.numbers[o.tail].op == j.numbers[o.tail-1].op:
		j.find(ruleTail, "%s tells a tail of %d, within a batch", o, o.tail)
	default:
		if by := j.numbers[o.tail-1].op; by != nil && by.call > o.ret {
			j.find(ruleTail, "%s tells a tail of %d, before %s", o, o.tail, by)
		}
	}
}

// inSessions checks that what a session had acknowledged lies in the order in which it was submitted.
func (j *judge) inSessions() {
	last := map[*session]*op{}
	for _, o := range j.ops { // a writer's calls are in order
		if o.session == nil || o.verb != verbAppend || o.verdict != told {
			continue
		}
		if before := last[o.session]; before != nil && before.end > o.start {
			j.find(ruleOrder, "%s lies at %d, and was submitted behind %s at %d", o, o.start, before, before.start)
		}
		last[o.session] = o
	}
}

// once checks how often an append lies in the log: conditional ones and one-shots once at most, others once for each time
// that they were sent.
func (j *judge) once(o *op, at []occurrence) {
	if len(at) < 2 {
		return
	}
	most := 1
	if o.session != nil && !o.hasMatch {
		most += o.session.opensIn(o.call, o.ret)
	}
	if len(at) > most {
		j.find(ruleTwice, "%s lies at %v, and was sent %d times", o, numbersOf(at), most)
		return
	}
	j.tally.Resent++
}

// session checks that a batch of a session was admitted under the fence that the session was opened under: under a later one only
// if the session was opened again since somebody called for that.
func (j *judge) session(o *op, a occurrence) {
	r := j.reigns[a.reign]
	if o.session != nil && a.reign > 0 && !o.session.openAfter(r.since) {
		j.find(ruleStale, "%s lies at %d, under fence %d, which was called for at %v; its session was opened before", o, a.number, r.fence, r.since)
	}
}

// fences checks each fence frame against the calls for it, and each call against the frames.
func (j *judge) fences() {
	installed := map[string]int{}
	for _, r := range j.reigns[1:] {
		installed[r.token]++
	}
	for token, n := range installed {
		if most := len(j.fenceCalls[token]); n > most {
			j.find(ruleFence, "%q was installed %d times, and asked for %d times", token, n, most)
		}
	}
}

// standing are the reigns that an answer may speak of: of that token, not over before the position low, and not called for
// after a time.
func (j *judge) standing(token string, low int, until time.Duration, fits func(reign) bool) (first int, ok bool) {
	for i := max(j.reignAt(low), 0); i < len(j.reigns); i++ {
		r := j.reigns[i]
		if r.token == token && r.end > low && (i == 0 || r.since <= until) && (fits == nil || fits(r)) {
			return r.pos, true
		}
	}
	return 0, false
}

// fenceHolds checks a fence that was acknowledged: low is the position of the last thing that was settled before it was called. The
// result is where the fence is at the earliest.
func (j *judge) fenceHolds(o *op, low int) int {
	own := len(j.fenceCalls[o.token]) == 1 && o.token != ""
	pos, ok := j.standing(o.token, low, o.ret, func(r reign) bool {
		if own {
			return r.next == o.tail
		}
		return r.next <= o.tail && o.tail <= r.tail
	})
	if !ok {
		j.find(ruleFence, "%s tells a tail of %d; the log has %s", o, o.tail, j.reignsOf(o.token))
	}
	return pos
}

func (j *judge) reignsOf(token string) string {
	text := ""
	for _, r := range j.reigns {
		if r.token == token {
			text += fmt.Sprintf(" %q from %d to %d", token, r.next, r.tail)
		}
	}
	if text == "" {
		return fmt.Sprintf("no %q", token)
	}
	return text[1:]
}

// fencedHolds checks that a refusal told the token that stood at some time of the call, and was one. low is as for fenceHolds.
func (j *judge) fencedHolds(o *op, low int, until time.Duration) int {
	pos, ok := j.standing(o.installed, low, until, nil)
	if !ok {
		j.find(ruleFenced, "%s tells %q, which did not stand then: position %d", o, o.installed, low)
		return 0
	}
	if (o.session == nil || o.verb == verbOpen) && o.installed == o.token {
		j.find(ruleFenced, "%s tells the very token that it presented", o)
	}
	return pos
}

// tailHolds checks an answer to the question for the tail: nothing that was settled before is behind it. The result is the
// position of the last record before it.
func (j *judge) tailHolds(o *op, low int) int {
	j.reached(o)
	next := math.MaxInt
	if o.tail < uint64(len(j.numbers)) {
		next = j.numbers[o.tail].pos
	}
	if low >= next {
		j.find(ruleTail, "%s tells %d, and what lies behind it was settled before the call: position %d, not %d", o, o.tail, low, next)
	}
	if o.tail == 0 || o.tail > uint64(len(j.numbers)) {
		return 0
	}
	return j.numbers[o.tail-1].pos
}
