package streamchaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
)

// story writes a log and what clients say of it, a second a step, with nothing wrong in it.
type story struct {
	evidence
	state frame.State
	epoch uint64
	seq   uint64
	n     uint32
	now   time.Duration
}

func newStory() *story {
	s := &story{seq: 100}
	s.stream = "story"
	s.images = []*image{{replica: "a"}}
	s.put(frame.Frame{})
	s.lead()
	return s
}

func (s *story) tick() time.Duration {
	s.now += time.Second
	return s.now
}

func (s *story) put(f frame.Frame) {
	s.seq++
	f.Epoch = s.epoch
	s.images[0].entries = append(s.images[0].entries, entry{seq: s.seq, Frame: f})
	s.state = f.After()
}

// lead is a takeover and its opening frame.
func (s *story) lead() {
	s.seq += 4
	s.epoch = s.seq
	s.images[0].control = []uint64{s.seq - 3, s.seq - 2, s.seq - 1, s.seq}
	s.put(frame.Frame{State: s.state})
}

func (s *story) op(v verb, token string) *op {
	s.n++
	o := &op{id: idOf(7, s.n), verb: v, token: token, call: s.tick(), verdict: told}
	s.ops = append(s.ops, o)
	return o
}

func (s *story) records(o *op) (all []nova.Record) {
	for i := range o.records {
		all = append(all, nova.Record{Body: body(o.id, i, o.records), Timestamp: s.now.Milliseconds()})
	}
	return all
}

// append is an append of so many records that is admitted; match is one with a match.
func (s *story) append(in *session, n int) *op {
	o := s.op(verbAppend, s.state.Token)
	o.records, o.session = n, in
	s.admit(o)
	o.ret = s.tick()
	return o
}

func (s *story) match(in *session, n int) *op {
	o := s.op(verbAppend, s.state.Token)
	o.records, o.session, o.hasMatch, o.match = n, in, true, s.state.Next
	s.admit(o)
	o.ret = s.tick()
	return o
}

func (s *story) admit(all ...*op) {
	b := frame.Batch{Token: all[0].token, HasMatch: all[0].hasMatch, Match: all[0].match}
	for _, o := range all {
		o.start = s.state.Next + uint64(len(b.Records))
		o.end = o.start + uint64(o.records)
		b.Records = append(b.Records, s.records(o)...)
	}
	s.put(frame.Frame{State: s.state, Batches: []frame.Batch{b}})
}

func (s *story) fence(token string) *op {
	o := s.op(verbFence, token)
	if token != s.state.Token {
		after := s.state
		after.Token, after.Fence = token, after.Fence+1
		s.put(frame.Frame{State: after})
	}
	o.tail, o.ret = s.state.Next, s.tick()
	return o
}

func (s *story) refuse(o *op, v verdict) *op {
	o.verdict, o.ret = v, s.tick()
	return o
}

// opened is a session that was opened just now.
func (s *story) opened(id int) *session {
	return &session{id: id, token: s.state.Token, opens: []span{{s.tick(), s.tick()}}}
}

// parts are a whole story: every kind of call, told as it was. Some are there by name, for those that change it.
type parts struct {
	*story
	plain, pair, single, late, last, missed, locked, lost *op
	first, second, clear                                  *op
	tail, token                                           *op
	one                                                   *session
}

func tell() *parts {
	s := newStory()
	p := &parts{story: s}
	p.one = s.opened(1)
	p.plain = s.append(nil, 3)
	p.pair = s.match(p.one, 2)
	s.lead()
	p.single = s.append(p.one, 1)
	p.missed = s.op(verbAppend, "")
	p.missed.records, p.missed.hasMatch, p.missed.match, p.missed.tail = 1, true, 2, s.state.Next
	s.refuse(p.missed, missed)
	p.first = s.fence("a")
	p.locked = s.op(verbAppend, "")
	p.locked.records, p.locked.installed = 2, "a"
	s.refuse(p.locked, fenced)
	p.late = s.append(nil, 2)
	p.tail = s.op(verbTail, "")
	p.tail.tail, p.tail.ret = s.state.Next, s.tick()
	p.second = s.fence("b")
	p.token = s.op(verbToken, "")
	p.token.installed, p.token.ret = "b", s.tick()
	p.lost = s.op(verbAppend, "b")
	p.lost.records = 4
	s.admit(p.lost)
	s.refuse(p.lost, unknown)
	out := s.opened(2)
	p.clear = s.fence("")
	turned := s.op(verbAppend, "b")
	turned.session, turned.records, turned.installed = out, 1, ""
	s.refuse(turned, fenced)
	p.last = s.match(s.opened(3), 1)
	s.op(verbAppend, "").records = 1
	s.refuse(s.ops[len(s.ops)-1], refused)
	p.tailed()
	return p
}

// tailed has a follower read all there is.
func (p *parts) tailed() {
	r := &reading{what: "follower", follow: true}
	for _, e := range p.images[0].entries {
		number := e.State.Next
		for _, b := range e.Batches {
			for _, rec := range b.Records {
				r.got = append(r.got, seen{number: number, hash: hashOf(rec.Body), time: rec.Timestamp})
				number++
			}
		}
	}
	p.readings, p.evidence.tail = []*reading{r}, p.state.Next
}

func (p *parts) frames() []entry { return p.images[0].entries }

// holding is the index of the frame with an append's records.
func (p *parts) holding(o *op) int {
	return slices.IndexFunc(p.frames(), func(e entry) bool {
		return len(e.Batches) > 0 && slices.ContainsFunc(e.Batches[0].Records, func(r nova.Record) bool {
			id, _, _, _ := readBody(r.Body)
			return id == o.id
		})
	})
}

// rechain gives all frames the heads that follow from the batches and fences in them, and the clients' numbers stay as they are.
func (p *parts) rechain() {
	state := frame.State{}
	for i := range p.frames() {
		e := &p.frames()[i]
		token, fence := e.State.Token, e.State.Fence
		e.State = state
		if len(e.Batches) == 0 && fence > state.Fence {
			e.State.Token, e.State.Fence = token, state.Fence+1
		}
		state = e.After()
	}
}

func TestTheTruthIsBelieved(t *testing.T) {
	p := tell()
	findings, tally := judgeStream(p.evidence)
	for _, f := range findings {
		t.Error(f)
	}
	want := Tally{Frames: 12, Records: 13, Epochs: 2, Fences: 3, Replicas: 1, Reads: 13, Landed: 1}
	if tally != want {
		t.Errorf("%+v, not %+v", tally, want)
	}
}

// TestLiesAreFound: each lie, of the log or of an answer, breaks the rule that it is about.
func TestLiesAreFound(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		lie        func(p *parts)
	}{
		{"an acknowledged batch is gone", ruleLost, func(p *parts) { p.drop(p.plain) }},
		{"the end of the log is gone", ruleLost, func(p *parts) { p.images[0].entries = p.frames()[:len(p.frames())-1] }},
		{"an acknowledged batch is at another number", ruleLost, func(p *parts) { p.single.start, p.single.end = 4, 5 }},
		{"an acknowledged batch moved", ruleLost, func(p *parts) { p.swap(p.holding(p.late), p.holding(p.lost)) }},
		{"two records changed places", ruleTorn, func(p *parts) { r := p.batch(p.plain).Records; r[0], r[1] = r[1], r[0] }},
		{"a record of a batch is gone", ruleTorn, func(p *parts) { p.batch(p.plain).Records = p.batch(p.plain).Records[:2]; p.rechain() }},
		{"a body is another one", ruleMade, func(p *parts) { p.batch(p.plain).Records[1].Body[20]++ }},
		{"a body of nobody", ruleMade, func(p *parts) { p.batch(p.single).Records[0].Body = []byte("x") }},
		{"a one-shot twice", ruleTwice, func(p *parts) { p.again(p.plain) }},
		{"a conditional batch twice", ruleTwice, func(p *parts) { p.again(p.pair) }},
		{"a plain batch twice that was sent once", ruleTwice, func(p *parts) { p.again(p.single) }},
		{"a miss that is there", ruleRefused, func(p *parts) { p.single.verdict, p.single.hasMatch, p.single.tail = missed, true, 0 }},
		{"a refusal that is there", ruleRefused, func(p *parts) { p.late.verdict, p.late.installed = fenced, "a" }},
		{"unavailable, and there", ruleRefused, func(p *parts) { p.plain.verdict, p.plain.err = refused, errors.New("unavailable") }},
		{"a match at another number", ruleMatch, func(p *parts) { p.pair.match--; p.batch(p.pair).Match-- }},
		{"a match that was not passed on", ruleMatch, func(p *parts) { p.batch(p.pair).HasMatch = false }},
		{"a match that nobody asked for", ruleMatch, func(p *parts) { p.pair.hasMatch = false }},
		{"two appends in a conditional batch", ruleTorn, func(p *parts) { p.merge(p.plain, p.pair) }},
		{"a token that does not stand is admitted", ruleStale, func(p *parts) { p.batch(p.late).Token, p.late.token = "z", "z" }},
		{"a token that was not presented is admitted", ruleStale, func(p *parts) { p.late.token = "z" }},
		{"a batch that was called for behind a fence lies before it", ruleStale, func(p *parts) { p.swap(p.holding(p.lost), p.fenceAt("b")) }},
		{"a fence moved before what was acknowledged", ruleFence, func(p *parts) { p.move(p.fenceAt("b"), p.fenceAt("a")+1) }},
		{"a fence is gone", ruleFence, func(p *parts) { p.remove(p.fenceAt("b")) }},
		{"a fence that nobody asked for", ruleFence, func(p *parts) { p.first.token = "z" }},
		{"a fence that was refused", ruleFence, func(p *parts) { p.first.verdict = refused }},
		{"a fence tells another tail", ruleFence, func(p *parts) { p.second.tail++ }},
		{"a question tells the token before", ruleFence, func(p *parts) { p.token.installed = "a" }},
		{"a question tells a token before it was asked for", ruleFence, func(p *parts) { p.token.call, p.token.ret, p.token.installed = 1, 2, "a" }},
		{"a session of before a fence is admitted behind it", ruleStale, func(p *parts) { p.last.session = p.one }},
		{"locked out by a token that does not stand yet", ruleFenced, func(p *parts) { p.locked.installed = "b" }},
		{"locked out by a token that stood before", ruleFenced, func(p *parts) { p.locked.installed, p.locked.token = "", "z" }},
		{"locked out by its own token", ruleFenced, func(p *parts) { p.locked.token = "a" }},
		{"a session locked out by what stood before it", ruleFenced, func(p *parts) { p.out().installed = "a" }},
		{"a tail behind what was acknowledged", ruleTail, func(p *parts) { p.tail.tail -= 2 }},
		{"a tail within a batch", ruleTail, func(p *parts) { p.tail.tail-- }},
		{"a tail that was not reached yet", ruleTail, func(p *parts) { p.missed.tail = 12 }},
		{"a tail that was never reached", ruleTail, func(p *parts) { p.missed.tail = 99 }},
		{"an append before one that had ended", ruleOrder, func(p *parts) { p.single.call, p.plain.call, p.plain.ret = 1, p.single.ret+1, p.single.ret+2 }},
		{"a session's batches changed places", ruleOrder, func(p *parts) {
			p.pair.hasMatch, p.batch(p.pair).HasMatch, p.pair.ret = false, false, p.single.ret // both were on their way
			p.swap(p.holding(p.pair), p.holding(p.single))
			p.single.start, p.single.end, p.pair.start, p.pair.end = 3, 4, 4, 6
		}},
		{"a reader saw another record", ruleReaders, func(p *parts) { p.readings[0].got[2].hash++ }},
		{"a reader saw another time", ruleReaders, func(p *parts) { p.readings[0].got[2].time++ }},
		{"a reader saw what is not there", ruleReaders, func(p *parts) { p.readings[0].got = append(p.readings[0].got, seen{number: 13}) }},
		{"a reader saw less", ruleReaders, func(p *parts) { p.readings[0].got = p.readings[0].got[:12] }},
		{"a reader saw a gap", ruleReaders, func(p *parts) { p.readings[0].wrong = append(p.readings[0].wrong, "a gap") }},
		{"a replica differs", ruleReplicas, func(p *parts) { p.images = append(p.images, &image{replica: "b", digest: 1}) }},
		{"a frame of an epoch that was over", ruleStale, func(p *parts) { f := p.frames(); f[len(f)-1].Epoch = f[1].Epoch }},
		{"an epoch that was not opened", ruleLog, func(p *parts) { p.remove(p.opening()) }},
		{"a frame behind a takeover that did not open", ruleLog, func(p *parts) { c := p.seq - 1; p.images[0].control = []uint64{c} }},
		{"records left out between frames", ruleLog, func(p *parts) { p.images[0].entries = slices.Delete(p.frames(), 3, 4) }},
		{"a time that goes back", ruleLog, func(p *parts) { p.batch(p.late).Records[1].Timestamp = 1 }},
		{"a message that is no frame", ruleLog, func(p *parts) { p.images[0].wrong = []string{"sequence 3"} }},
		{"no stream of that name", ruleDenied, func(p *parts) { p.locked.verdict = denied }},
		{"a plain batch misses", ruleDenied, func(p *parts) { p.missed.hasMatch = false }},
		{"a one-shot that was sent again", ruleDenied, func(p *parts) { p.missed.resent = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := tell()
			c.lie(p)
			findings, _ := judgeStream(p.evidence)
			if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Rule == c.rule }) {
				t.Errorf("%q is not broken; found: %v", c.rule, findings)
			}
		})
	}
}

// TestWhatIsAllowedIsBelieved: what looks like a lie and is none.
func TestWhatIsAllowedIsBelieved(t *testing.T) {
	for name, change := range map[string]func(p *parts){
		"a plain batch twice that its session sent twice": func(p *parts) {
			p.one.opens = append(p.one.opens, span{p.single.call, p.single.ret})
			p.twice(p.single)
		},
		"a resent match that landed": func(p *parts) { p.pair.verdict, p.pair.resent, p.pair.tail = missed, true, 5 },
		"a lost batch that landed":   func(p *parts) { p.plain.verdict = unknown },
		"a lost batch that did not":  func(p *parts) { p.locked.verdict = unknown },
		"a false miss":               func(p *parts) { p.missed.match = p.missed.tail },
		"a session that was opened again under the later fence": func(p *parts) {
			p.last.session = p.one
			p.one.opens = append(p.one.opens, span{p.clear.call, p.clear.ret})
		},
		"a fence whose answer was lost": func(p *parts) { p.first.verdict = unknown },
	} {
		p := tell()
		change(p)
		if findings, _ := judgeStream(p.evidence); len(findings) > 0 {
			t.Errorf("%s: %v", name, findings)
		}
	}
}

func (p *parts) batch(o *op) *frame.Batch { return &p.frames()[p.holding(o)].Batches[0] }

func (p *parts) out() *op {
	return p.ops[slices.IndexFunc(p.ops, func(o *op) bool { return o.session != nil && o.session.id == 2 })]
}

func (p *parts) fenceAt(token string) int {
	return slices.IndexFunc(p.frames(), func(e entry) bool { return e.State.Token == token && len(e.Batches) == 0 })
}

// opening is the opening frame of the second epoch.
func (p *parts) opening() int {
	return slices.IndexFunc(p.frames(), func(e entry) bool { return e.Epoch == p.epoch })
}

func (p *parts) remove(i int) {
	p.images[0].entries = slices.Delete(p.frames(), i, i+1)
	p.rechain()
}

func (p *parts) drop(o *op) { p.remove(p.holding(o)) }

// swap changes the contents of two frames.
func (p *parts) swap(a, b int) {
	f := p.frames()
	f[a].Batches, f[b].Batches = f[b].Batches, f[a].Batches
	f[a].State, f[b].State = f[b].State, f[a].State
	p.rechain()
	p.retoken()
}

// move puts the contents of a frame at another place.
func (p *parts) move(from, to int) {
	for ; from > to; from-- {
		p.swap(from, from-1)
	}
}

// retoken has each batch, and its append, present what stands: only its place is wrong.
func (p *parts) retoken() {
	for i := range p.frames() {
		e := &p.frames()[i]
		for b := range e.Batches {
			e.Batches[b].Token = e.State.Token
			id, _, _, _ := readBody(e.Batches[b].Records[0].Body)
			for _, o := range p.ops {
				if o.id == id {
					o.token = e.State.Token
				}
			}
		}
	}
}

// again puts an append into the log once more, at its end.
func (p *parts) again(o *op) {
	b := *p.batch(o)
	b.Token = p.state.Token
	b.Records = slices.Clone(b.Records)
	for i := range b.Records {
		b.Records[i].Timestamp = p.state.Timestamp
	}
	p.put(frame.Frame{State: p.state, Batches: []frame.Batch{b}})
}

// twice has an append twice in its frame, and all that comes later where it lies then.
func (p *parts) twice(o *op) {
	e := &p.frames()[p.holding(o)]
	e.Batches = append(e.Batches, e.Batches[0])
	p.rechain()
	n := uint64(o.records)
	for _, other := range p.ops {
		if other.call > o.call && other.verb == verbAppend && other.verdict == told {
			other.start, other.end = other.start+n, other.end+n
			if other.hasMatch {
				other.match += n
				p.batch(other).Match += n
			}
		} else if other.call > o.call && (other.verb == verbFence || other.verb == verbTail || other.verdict == missed) {
			other.tail += n
		}
	}
	p.state = p.frames()[len(p.frames())-1].After()
	p.tailed()
}

// merge has the second append in the batch of the first, under a match.
func (p *parts) merge(a, b *op) {
	second := *p.batch(b)
	p.drop(b)
	first := p.batch(a)
	first.Records = append(first.Records, second.Records...)
	first.HasMatch, first.Match = true, a.start
}

func TestBodiesAreReadBack(t *testing.T) {
	for _, id := range []uint64{idOf(0, 1), idOf(15, 1<<31)} {
		for i := range 3 {
			b := body(id, i, 3)
			if got, at, n, ok := readBody(b); !ok || got != id || at != i || n != 3 {
				t.Errorf("%q is %d, %d of %d, %v", b, got, at, n, ok)
			}
			b[len(b)-1]++
			if _, _, _, ok := readBody(b); ok {
				t.Errorf("%q is taken", b)
			}
		}
	}
	for _, text := range []string{"", "x", "1.2.3 ", "1.2.3.4", "1.2.3.x "} {
		if _, _, _, ok := readBody([]byte(text)); ok {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestTheLongestTimeIsThatOfItsFault: it begins with a fault, or just before it is noted.
func TestTheLongestTimeIsThatOfItsFault(t *testing.T) {
	at := []time.Duration{1 * time.Second, 2 * time.Second, 9 * time.Second, 10 * time.Second, 13 * time.Second}
	for _, c := range []struct{ from, to, want time.Duration }{
		{2100 * time.Millisecond, 2100 * time.Millisecond, 7 * time.Second}, {1900 * time.Millisecond, 3 * time.Second, 7 * time.Second},
		{1500 * time.Millisecond, 1600 * time.Millisecond, 0}, {10 * time.Second, 20 * time.Second, 3 * time.Second},
		{20 * time.Second, 30 * time.Second, 0}, {5 * time.Second, 6 * time.Second, 0},
	} {
		if got := longest(at, c.from, c.to); got != c.want {
			t.Errorf("from %v to %v: %v, not %v", c.from, c.to, got, c.want)
		}
	}
}

func TestAPlanIsItsSeeds(t *testing.T) {
	o := Options{Duration: time.Minute}.withDefaults()
	text := func(seed uint64) string {
		var all []string
		for _, f := range plan(seed, o) {
			all = append(all, fmt.Sprint(f.At, " ", f))
		}
		return strings.Join(all, "\n")
	}
	if first, again := text(3), text(3); first != again || first == text(4) {
		t.Error("a plan is not that of its seed")
	}
	for _, k := range Kinds() {
		if !strings.Contains(text(3), string(k)) {
			t.Errorf("a minute has no %s", k)
		}
	}
	if err := (Options{Kinds: []Kind{"flood"}}).Validate(); err == nil {
		t.Error("a fault that is not there is taken")
	}
}
