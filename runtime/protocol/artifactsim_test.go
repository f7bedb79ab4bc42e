package protocol

import (
	"slices"
	"testing"
)

// The fleet's life around one pointer, explored whole: exporters that upload, read the pointer, read the log, and swap;
// and prunes with no grace, one payload at a time, at any moment in between. An exporter may stop at every step for as
// long as it likes, and the log may be replaced.

const (
	simLogs      = 3
	simRevs      = 2
	simExporters = 2
)

// spot numbers a position, from 1; 0 is none.
type spot uint8

func spotOf(p Position) spot { return spot((p.Log-1)*simRevs + int64(p.Revision)) }

func (s spot) position() Position {
	return Position{Log: int64(s-1)/simRevs + 1, Revision: uint64(s-1)%simRevs + 1}
}

func (s spot) pointer() PointerState {
	if s == 0 {
		return PointerState{}
	}
	return PointerState{Present: true, Readable: true, At: s.position()}
}

type simPhase uint8

const (
	simIdle simPhase = iota
	simExported
	simUploaded
	simRead  // the pointer
	simKnows // the live log too
)

type simExporter struct {
	phase simPhase
	at    spot // what it exports
	saw   spot // the pointer that it read
	live  Position
}

type fleet struct {
	live      Position
	pointer   spot
	published spot // the one before, a generation to keep
	payloads  uint16
	wentBack  bool
	exporters [simExporters]simExporter
}

func (f fleet) has(s spot) bool { return f.payloads>>s&1 == 1 }

// rules are the decisions; a forged one shows what it is there for.
type rules struct {
	publish func(PointerState, Position, Position) bool
	prune   func(Payload, PointerState, Position) bool
	// liveFirst reads the log before the pointer, which the publish rule forbids.
	liveFirst bool
	// goesBack lets a log lose its end, or a log that was replaced come back, once.
	goesBack bool
	// graced leaves alone what an exporter still holds, as a grace does.
	graced bool
	keep   bool
	// logs is how many logs come one after another.
	logs int64
}

func shipped() rules {
	return rules{publish: PointerPublishAllowed, prune: PayloadPrunable, keep: true, logs: 2}
}

// next are the states that one step leads to.
func (r rules) next(f fleet) (out []fleet) {
	if f.live.Revision < simRevs {
		g := f
		g.live.Revision++
		out = append(out, g)
	}
	if f.live.Log < r.logs {
		g := f
		g.live = Position{Log: f.live.Log + 1}
		out = append(out, g)
	}
	if r.goesBack && !f.wentBack {
		f := f
		f.wentBack = true
		if f.live.Revision > 0 {
			g := f
			g.live.Revision--
			out = append(out, g)
		}
		if f.live.Log > 1 {
			g := f
			g.live = Position{Log: f.live.Log - 1, Revision: simRevs}
			out = append(out, g)
		}
	}
	for i, e := range f.exporters {
		for _, to := range r.export(f, e) {
			g := to.fleet
			g.exporters[i] = to.exporter
			out = append(out, g)
		}
	}
	return append(out, r.prunes(f)...)
}

type exportStep struct {
	fleet    fleet
	exporter simExporter
}

func (r rules) export(f fleet, e simExporter) (out []exportStep) {
	switch e.phase {
	case simIdle:
		if f.live.Revision > 0 {
			out = append(out, exportStep{f, simExporter{phase: simExported, at: spotOf(f.live)}})
		}
		return out
	case simExported:
		f.payloads |= 1 << e.at
		e.phase = simUploaded
	case simUploaded:
		e.phase = simRead
		if r.liveFirst {
			e.live = f.live
		} else {
			e.saw = f.pointer
		}
	case simRead:
		e.phase = simKnows
		if r.liveFirst {
			e.saw = f.pointer
		} else {
			e.live = f.live
		}
	case simKnows:
		switch {
		case e.saw != f.pointer: // the swap is refused, so it reads again
			e = simExporter{phase: simUploaded, at: e.at}
		case r.publish(e.saw.pointer(), e.at.position(), e.live):
			if f.pointer != e.at {
				f.published = f.pointer
			}
			f.pointer = e.at
			e = simExporter{}
		default:
			e = simExporter{}
		}
	}
	return append(out, exportStep{f, e}, exportStep{f, simExporter{}}) // or it dies there
}

// prunes are the states after one payload went, whether its log was known or not.
func (r rules) prunes(f fleet) (out []fleet) {
	for s := spot(1); s <= simLogs*simRevs; s++ {
		if !f.has(s) || r.graced && f.held(s) {
			continue
		}
		known := s.position()
		for _, at := range []Position{known, {Revision: known.Revision}} {
			p := Payload{Ranked: true, At: at, Target: s == f.pointer, Kept: r.keep && s == f.published, AgedOut: true, LongAgedOut: !f.held(s)}
			if r.prune(p, f.pointer.pointer(), f.live) {
				g := f
				g.payloads &^= 1 << s
				out = append(out, g)
			}
		}
	}
	return out
}

func (f fleet) held(s spot) bool {
	for _, e := range f.exporters {
		if e.phase != simIdle && e.at == s {
			return true
		}
	}
	return false
}

// sorted is the same fleet with its exporters, who are alike, in order.
func (f fleet) sorted() fleet {
	a, b := f.exporters[0], f.exporters[1]
	rank := func(e simExporter) [5]int64 {
		return [5]int64{int64(e.phase), int64(e.at), int64(e.saw), e.live.Log, int64(e.live.Revision)}
	}
	left, right := rank(a), rank(b)
	if slices.Compare(left[:], right[:]) > 0 {
		f.exporters = [simExporters]simExporter{b, a}
	}
	return f
}

// life is what a run through all states met.
type life struct {
	states                     int
	regressed, dangling        bool
	keptGone                   bool
	crossed, refused, oldGone  bool
	staleTookLive, anotherSwap bool
}

func (r rules) explore() life { return r.exploreUntil(func(life) bool { return false }) }

func (r rules) exploreUntil(enough func(life) bool) (l life) {
	start := fleet{live: Position{Log: 1}}
	seen := map[fleet]bool{start: true}
	for queue := []fleet{start}; len(queue) > 0 && !enough(l); {
		f := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		l.look(f)
		for _, g := range r.next(f) {
			l.step(f, g)
			if g = g.sorted(); !seen[g] {
				seen[g] = true
				queue = append(queue, g)
			}
		}
	}
	l.states = len(seen)
	return l
}

func (l *life) look(f fleet) {
	l.dangling = l.dangling || f.pointer != 0 && !f.has(f.pointer)
	l.keptGone = l.keptGone || f.published != 0 && !f.has(f.published)
}

func (l *life) step(f, g fleet) {
	for i, e := range f.exporters {
		done := e.phase == simKnows && g.exporters[i].phase == simIdle
		if !done || e.saw != f.pointer || f.pointer == 0 {
			continue
		}
		now, was := e.at.position(), f.pointer.position()
		if g.pointer == f.pointer && e.at != f.pointer {
			l.refused = true
			continue
		}
		l.anotherSwap = l.anotherSwap || g.pointer != f.pointer
		l.crossed = l.crossed || now.Log > was.Log
		if g.pointer != f.pointer && now.Log == was.Log && now.Revision < was.Revision && e.live.Revision >= was.Revision {
			l.regressed = true
		}
		l.staleTookLive = l.staleTookLive || g.pointer != f.pointer && e.live.Log == was.Log && now.Log < was.Log
	}
	for s := spot(1); s <= simLogs*simRevs; s++ {
		l.oldGone = l.oldGone || f.has(s) && !g.has(s) && s.position().Log < f.live.Log && s.position().Revision >= f.pointer.pointer().At.Revision
	}
}

// check wants that nothing went wrong, and that everything happened.
func (l life) check(t *testing.T) {
	t.Helper()
	t.Logf("%d states", l.states)
	if l.regressed || l.dangling || l.keptGone || l.staleTookLive {
		t.Errorf("something went wrong: %+v", l)
	}
	if !l.crossed || !l.refused || !l.oldGone || !l.anotherSwap {
		t.Errorf("something never happened: %+v", l)
	}
}

// With no grace at all, and logs that are replaced at any moment.
func TestFleetPublishesAndPrunes(t *testing.T) {
	r := shipped()
	r.logs = simLogs
	r.explore().check(t)
}

// A log that goes back makes older positions new again, and there the grace is what keeps an upload.
func TestFleetOnALogThatGoesBack(t *testing.T) {
	r := shipped()
	r.goesBack, r.graced = true, true
	l := r.explore()
	t.Logf("%d states", l.states)
	if l.dangling || l.keptGone {
		t.Errorf("something went wrong: %+v", l)
	}
	r.graced = false
	if l := r.exploreUntil(func(l life) bool { return l.dangling }); !l.dangling {
		t.Error("without a grace it goes wrong nowhere, so the sentence about it is wrong")
	}
}

// Every part of the rules is missed when it is forged.
func TestFleetMissesWhatIsForged(t *testing.T) {
	for name, c := range map[string]struct {
		forge func(*rules)
		bad   func(life) bool
	}{
		"the last one to come wins": {
			func(r *rules) {
				r.publish = func(_ PointerState, c, live Position) bool { return PointerPublishAllowed(PointerState{}, c, live) }
			},
			func(l life) bool { return l.regressed && l.dangling && l.staleTookLive },
		},
		"age alone prunes": {
			func(r *rules) {
				r.prune = func(p Payload, _ PointerState, live Position) bool {
					return PayloadPrunable(p, PointerState{Present: true, Readable: true, At: Position{Log: live.Log, Revision: 1 << 60}}, Position{Log: live.Log, Revision: 1 << 61})
				}
			},
			func(l life) bool { return l.dangling },
		},
		"a lost pointer's revision prunes": {
			func(r *rules) {
				r.prune = func(p Payload, pointer PointerState, live Position) bool {
					pointer.At.Log = live.Log
					live.Revision = max(live.Revision, pointer.At.Revision)
					return PayloadPrunable(p, pointer, live)
				}
			},
			func(l life) bool { return l.dangling },
		},
		"ranks compare without their logs": {
			func(r *rules) {
				r.publish = func(p PointerState, c, _ Position) bool {
					return PointerPublishAllowed(p, Position{Revision: c.Revision}, Position{})
				}
			},
			func(l life) bool { return l.staleTookLive },
		},
		"the pointer's target is not spared": {
			func(r *rules) {
				r.prune = func(p Payload, pointer PointerState, live Position) bool {
					p.Target, p.At.Log = false, 0
					if pointer.At.Revision == p.At.Revision {
						p.At.Log = live.Log + 1
					}
					return PayloadPrunable(p, pointer, live)
				}
			},
			func(l life) bool { return l.dangling },
		},
		"generations are not kept": {
			func(r *rules) { r.keep = false },
			func(l life) bool { return l.keptGone },
		},
		"the log is read before the pointer": {
			func(r *rules) { r.liveFirst = true },
			func(l life) bool { return l.dangling },
		},
	} {
		r := shipped()
		c.forge(&r)
		if l := r.exploreUntil(c.bad); !c.bad(l) {
			t.Errorf("%s: %+v", name, l)
		}
	}
}
