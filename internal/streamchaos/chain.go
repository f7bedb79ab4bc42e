package streamchaos

import (
	"fmt"
	"math"

	"github.com/typedfold/fold/internal/nova/frame"
)

// chain walks the log: each frame behind the one before, in its epoch, with the token that stands.
func (j *judge) chain() {
	entries := j.images[0].entries
	j.reigns = []reign{{}}
	var before frame.State
	var epoch, seq uint64
	for i := range entries {
		e := &entries[i]
		j.tally.Frames++
		j.follows(e, before, epoch, seq)
		if e.State.Fence != before.Fence || e.State.Token != before.Token {
			j.install(e, before)
		}
		for b := range e.Batches {
			j.batch(e, &e.Batches[b], i)
		}
		before, epoch, seq = e.After(), e.Epoch, e.seq
	}
	last := &j.reigns[len(j.reigns)-1]
	last.end, last.tail = math.MaxInt, uint64(len(j.numbers))
	if control := j.images[0].control; len(control) > 0 && len(entries) > 0 {
		if newest := control[0]; epoch < newest && seq > newest {
			j.find(ruleLog, "the frame at %d is of epoch %d, behind the takeover at %d", seq, epoch, newest)
		}
	}
}

// follows checks a frame's head against what is in front of it.
func (j *judge) follows(e *entry, before frame.State, epoch, seq uint64) {
	fences := e.State.Fence == before.Fence+1 && len(e.Batches) == 0
	switch s := e.State; {
	case e.seq <= seq, e.Epoch >= e.seq:
		j.find(ruleLog, "frame %d of epoch %d lies behind %d", e.seq, e.Epoch, seq)
	case s.Next != before.Next || s.Timestamp != before.Timestamp:
		j.find(ruleLog, "frame %d begins at record %d, time %d; the one before ends at %d, %d", e.seq, s.Next, s.Timestamp, before.Next, before.Timestamp)
	case (s.Fence != before.Fence || s.Token != before.Token) && (!fences || s.Token == before.Token):
		j.find(ruleLog, "frame %d has fence %d of %q behind fence %d of %q", e.seq, s.Fence, s.Token, before.Fence, before.Token)
	case e.Epoch < epoch:
		j.find(ruleStale, "frame %d is of epoch %d, behind a frame of epoch %d", e.seq, e.Epoch, epoch)
	}
	if e.Epoch > epoch {
		j.tally.Epochs++
		if e.seq != e.Epoch+1 || len(e.Batches) > 0 || fences {
			j.find(ruleLog, "epoch %d does not begin with an opening frame behind its takeover, but at %d", e.Epoch, e.seq)
		}
	}
}

// install begins a reign.
func (j *judge) install(e *entry, before frame.State) {
	j.events++
	j.tally.Fences++
	last := &j.reigns[len(j.reigns)-1]
	last.end, last.tail = j.events, before.Next
	r := reign{token: e.State.Token, fence: e.State.Fence, pos: j.events, next: e.State.Next, since: j.earliest(e.State.Token, last.since)}
	if r.since == math.MaxInt64 {
		j.find(ruleFence, "nobody has asked for fence %d of %q, at frame %d", r.fence, r.token, e.seq)
	}
	j.reigns = append(j.reigns, r)
}

// batch takes one admitted batch: one append that has a match, or some that have none, of one writer.
func (j *judge) batch(e *entry, b *frame.Batch, at int) {
	number := uint64(len(j.numbers))
	j.events++
	where := fmt.Sprintf("the batch at %d, in frame %d", number, e.seq)
	if b.Token != e.State.Token {
		j.find(ruleStale, "%s presented %q while %q stood", where, b.Token, e.State.Token)
	}
	if b.HasMatch && b.Match != number {
		j.find(ruleMatch, "%s asked for %d", where, b.Match)
	}
	time := e.State.Timestamp
	if number > 0 {
		time = j.numbers[number-1].time
	}
	for _, rec := range b.Records {
		if rec.Timestamp < time {
			j.find(ruleLog, "%s has a time of %d behind %d", where, rec.Timestamp, time)
		}
		time = rec.Timestamp
	}
	appends := 0
	for rest := b.Records; len(rest) > 0; appends++ {
		id, i, n, ok := readBody(rest[0].Body)
		o := j.byID[id]
		if !ok || o == nil || o.verb != verbAppend || n != o.records {
			j.find(ruleMade, "%s: nobody has sent record %d, %.40q", where, len(j.numbers), rest[0].Body)
			j.record(rest[0].Body, rest[0].Timestamp, nil)
			rest = rest[1:]
			continue
		}
		whole := i == 0 && len(rest) >= n
		for k := 0; whole && k < n; k++ {
			other, place, _, ok := readBody(rest[k].Body)
			whole = ok && other == id && place == k
		}
		if !whole {
			j.find(ruleTorn, "%s has record %d of %d of %s alone", where, i, n, o)
			n = 1
		} else {
			j.lies[id] = append(j.lies[id], occurrence{pos: j.events, number: uint64(len(j.numbers)), reign: len(j.reigns) - 1, frame: at})
			j.asked(o, b, where)
		}
		for _, rec := range rest[:n] {
			j.record(rec.Body, rec.Timestamp, o)
		}
		rest = rest[n:]
	}
	if b.HasMatch && appends != 1 {
		j.find(ruleTorn, "%s has a match and %d appends", where, appends)
	}
}

func (j *judge) record(body []byte, time int64, o *op) {
	j.tally.Records++
	j.numbers = append(j.numbers, place{hash: hashOf(body), time: time, op: o, pos: j.events})
}

// asked checks that a batch is what its append asked for.
func (j *judge) asked(o *op, b *frame.Batch, where string) {
	if o.hasMatch != b.HasMatch || o.match != b.Match && o.hasMatch {
		j.find(ruleMatch, "%s, match %v %d, is of %s", where, b.HasMatch, b.Match, o)
	}
	if o.token != b.Token {
		j.find(ruleStale, "%s, token %q, is of %s", where, b.Token, o)
	}
}
