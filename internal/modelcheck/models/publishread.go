package models

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// pruneOn makes the prune's next request.
func (w *pubWorld) pruneOn(s pubState, id pubID, live pubAt) (pubState, bool) {
	p := &s.pruner
	switch p.step {
	case 0:
		if p.id = id; w.forge.pruneLogFirst {
			p.live = live
		} else if !w.list(&s) {
			return s, false
		}
	case 1:
		if p.pointer = s.pointer; w.forge.pruneLogFirst && !w.list(&s) {
			s.pruner = pubPruner{}
			return s, true
		}
	case 2:
		if w.forge.pruneLogFirst {
			live = p.live
		}
		if !w.doomed(&s, live.position()) {
			s.pruner = pubPruner{}
			return s, !w.coarse
		}
		s.pruner = pubPruner{step: 2, id: p.id}
	default:
		w.deleteOn(&s)
		return s, true
	}
	if p.step++; w.coarse && p.step < 3 {
		return w.pruneOn(s, id, live)
	}
	return s, true
}

// list notes what a listing shows of the object; found is false when it is not there.
func (w *pubWorld) list(s *pubState) (found bool) {
	p := &s.pruner
	p.known, p.young = s.manifests.has(p.id), s.someone(func(e pubExporter) bool { return e.phase != pubIdle && e.at == p.id })
	return p.known || s.payloads.has(p.id)
}

// deleteOn deletes the next object: the manifest first.
func (w *pubWorld) deleteOn(s *pubState) {
	p := &s.pruner
	first, second := &s.manifests, &s.payloads
	if w.forge.payloadFirst {
		first, second = second, first
	}
	if !p.half && first.has(p.id) {
		first.drop(p.id)
		p.half = true
		return
	}
	second.drop(p.id)
	*p = pubPruner{}
}

// doomed reports whether the prune may delete it.
func (w *pubWorld) doomed(s *pubState, live protocol.Position) bool {
	p := &s.pruner
	known := s.manifests
	if p.pointer != pubNone && p.pointer != pubDamaged {
		known.put(p.pointer)
	}
	facts := protocol.Payload{Ranked: p.id != 0, At: w.at(p.id).position(), AgedOut: !w.graced || !p.young, LongAgedOut: !p.young}
	if p.id != 0 {
		facts.Target = p.id == p.pointer
		facts.Kept = w.isKept(p.id, w.order(known, p.pointer, live), s.payloads)
	}
	nameless := facts // its name does not say its log
	nameless.At.Log = 0
	switch {
	case p.known || facts.Target:
		return w.mayPrune(facts, p.pointer, live)
	case w.announces:
		return w.mayPrune(nameless, p.pointer, live)
	}
	return w.mayPrune(facts, p.pointer, live) || w.mayPrune(nameless, p.pointer, live)
}

// isKept reports whether it is one of the newest whole generations.
func (w *pubWorld) isKept(id pubID, newest []pubID, payloads pubSet) bool {
	left := w.keep
	for _, g := range newest {
		if left > 0 && payloads.has(g) {
			left--
			if g == id {
				return true
			}
		}
	}
	return false
}

// readOn makes the bootstrap's next request. What it reads before the download is read at once: an answer of the log that
// is out of date by then is asked for again after it.
func (w *pubWorld) readOn(s pubState) (pubState, bool) {
	r := &s.reader
	switch r.step {
	case pubNotReading:
		if r.gens = s.manifests; s.pointer != pubNone && s.pointer != pubDamaged {
			r.gens.put(s.pointer)
		}
		w.choose(&s)
		return s, r.step != pubNotReading
	case pubChosen:
		w.download(&s)
	case pubArrived:
		if r.step = pubInstalled; !w.forge.logOnce && !w.fit(r.at, s.live) {
			*r = pubReader{had: r.had}
		}
	case pubInstalled: // another one begins
		*r = pubReader{had: r.at}
	}
	return s, true
}

// choose takes the newest generation that is left and that the log can be followed from, and notes the next one; without
// any the bootstrap has failed.
func (w *pubWorld) choose(s *pubState) {
	r := &s.reader
	for _, id := range w.order(r.gens, s.pointer, s.live.position()) {
		switch {
		case !w.fit(id, s.live):
		case r.step == pubChosen:
			r.gens = 1 << id // the others are not tried here
			return
		default:
			r.step, r.at = pubChosen, id
		}
	}
	if r.gens = 0; r.step != pubChosen {
		*r = pubReader{had: r.had}
	}
}

// download reads the payload. One that is announced and not there is no good; one that was pruned has all begin again.
func (w *pubWorld) download(s *pubState) {
	r := &s.reader
	got := pubNone
	for id := pubID(1); id <= pubMost; id++ {
		if s.payloads.has(id) && (id == r.at || w.forge.byRank && w.at(id).rev == w.at(r.at).rev) {
			got = id
		}
	}
	switch {
	case got != pubNone:
		r.step, r.got, r.gens = pubArrived, got, 0
	case s.manifests.has(r.at) || s.pointer == r.at:
		r.step, r.at = pubNotReading, pubNone
		w.choose(s)
	default:
		*r = pubReader{had: r.had}
	}
}

func (w *pubWorld) model() modelcheck.Model[pubState, pubAction] {
	begin := pubState{live: pubAt{log: 1}, payloads: 1}
	damaged := begin
	damaged.pointer = pubDamaged
	return modelcheck.Model[pubState, pubAction]{
		Name: w.name, Init: []pubState{begin, damaged}, Actions: w.actions, Next: w.next, Encode: pubEncode,
		Properties: w.properties(), ShowState: w.show,
	}
}

// pubEncode takes the exporters as alike: it encodes the lesser of the state and of the one with them exchanged.
func pubEncode(s pubState, out []byte) []byte {
	order := s.exporters[0].compare(s.exporters[1])
	if order < 0 {
		return s.encode(out)
	}
	other := s.exchanged()
	if order > 0 {
		return other.encode(out)
	}
	at := len(out)
	out = s.encode(out)
	end := len(out)
	out = other.encode(out)
	if bytes.Compare(out[end:], out[at:end]) < 0 {
		copy(out[at:], out[end:])
	}
	return out[:end]
}

// compare orders exporters by what does not tell whose their artifacts are.
func (e pubExporter) compare(f pubExporter) int {
	key := func(e pubExporter) int { return int(e.phase)<<16 | int(e.at+1)/2<<8 | int(e.saw)/2 + int(e.saw)%2 }
	return key(e) - key(f)
}

func (id pubID) exchanged() pubID {
	if id == pubNone || id == pubDamaged {
		return id
	}
	return (id - 1) ^ 1 + 1
}

func (s pubSet) exchanged() pubSet {
	const odd = 0xaaaa
	return s&1 | s&odd<<1 | s&^odd&^1>>1
}

func (s pubState) exchanged() pubState {
	s.exporters[0], s.exporters[1] = s.exporters[1], s.exporters[0]
	for i := range s.exporters {
		s.exporters[i].at, s.exporters[i].saw = s.exporters[i].at.exchanged(), s.exporters[i].saw.exchanged()
	}
	p, r := &s.pruner, &s.reader
	for _, id := range []*pubID{&s.pointer, &p.id, &p.pointer, &r.at, &r.got, &r.had} {
		*id = id.exchanged()
	}
	for _, set := range []*pubSet{&s.payloads, &s.manifests, &r.gens} {
		*set = set.exchanged()
	}
	return s
}

func (s *pubState) encode(out []byte) []byte {
	flags := byte(0)
	p, r := &s.pruner, s.reader
	for i, b := range [...]bool{s.rewound, p.young, p.known, p.half} {
		if b {
			flags |= 1 << i
		}
	}
	out = append(out, s.live.log, s.live.rev, byte(s.pointer), flags)
	for _, e := range s.exporters {
		out = append(out, byte(e.phase), byte(e.at), byte(e.saw), e.live.log, e.live.rev)
	}
	out = append(out, p.step, byte(p.id), byte(p.pointer), p.live.log, p.live.rev)
	out = append(out, byte(r.step), byte(r.at), byte(r.got), byte(r.had))
	for _, set := range [...]pubSet{s.payloads, s.manifests, r.gens} {
		out = append(out, byte(set), byte(set>>8))
	}
	return out
}

func (w *pubWorld) showID(id pubID) string {
	switch id {
	case pubNone:
		return "-"
	case pubDamaged:
		return "damaged"
	}
	return fmt.Sprintf("%d.%d%c", w.at(id).log, w.at(id).rev, "ab"[(id-1)%2])
}

func (w *pubWorld) showSet(s pubSet) string {
	var all []string
	for s &^= 1; s != 0; s &= s - 1 {
		all = append(all, w.showID(s.lowest()))
	}
	return "[" + strings.Join(all, " ") + "]"
}

func (w *pubWorld) show(s pubState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "log %d ends at %d, pointer %s, payloads %s, manifests %s", s.live.log, s.live.rev, w.showID(s.pointer), w.showSet(s.payloads), w.showSet(s.manifests))
	phases := [...]string{"idle", "exported", "uploaded", "announced", "saw the pointer", "may swap", "swapped"}
	for i, e := range s.exporters {
		if e.phase != pubIdle {
			fmt.Fprintf(&b, "; exporter %d %s %s (saw %s)", i, phases[e.phase], w.showID(e.at), w.showID(e.saw))
		}
	}
	if p := s.pruner; p.step > 0 {
		fmt.Fprintf(&b, "; prune step %d of %s (saw %s)", p.step, w.showID(p.id), w.showID(p.pointer))
	}
	if r := s.reader; r.step > 0 || r.had != pubNone {
		fmt.Fprintf(&b, "; bootstrap step %d of %s (got %s, left %s, had %s)", r.step, w.showID(r.at), w.showID(r.got), w.showSet(r.gens), w.showID(r.had))
	}
	return b.String()
}
