package dst

import (
	"fmt"
	"iter"
	"slices"
)

// unit is one combination of a story with everything but faults. Its schedules are played one after another.
type unit struct {
	schedule
	// pairs: one in so many pairs of faults is played; 0 is none.
	pairs int
	// triples: three faults at once are played too.
	triples bool
}

func (u unit) String() string {
	export := ""
	if u.export {
		export = "/export"
	}
	return fmt.Sprintf("%s/%s/%s/%d%s", u.backend, u.face, u.order, u.max, export)
}

// whole are the combinations of which every pair of faults is played in any run; of the others it is some.
var whole = []string{"logstore/applied/burst/1", "logstore/applied/window/3", "logstore/fold/yield/1"}

const (
	somePairs   = 20 // one in so many
	pebblePairs = 40
)

// units are the combinations of a story. With all, every pair is played in each of them on logstore, and triples too.
func units(st *story, all bool) (us []unit) {
	for _, face := range []string{faceApplied, faceFold} {
		for _, order := range []string{orderBurst, orderYield, orderWindow} {
			for _, size := range []int{1, 3, 100} {
				if order == orderYield && size != 1 {
					continue // there is never more than one
				}
				u := unit{schedule: schedule{story: st, backend: storeLog, face: face, order: order, max: size}, pairs: somePairs, triples: all}
				if all || slices.Contains(whole, u.String()) {
					u.pairs = 1
				}
				us = append(us, u)
				if face == faceFold {
					u.export = true
					if !all {
						u.pairs = 0
					}
					us = append(us, u)
				}
			}
		}
	}
	u := unit{schedule: schedule{story: st, backend: storePebble, face: faceFold, order: orderWindow, max: 3}, pairs: pebblePairs}
	us = append(us, u)
	if all {
		u.order, u.max = orderBurst, 1
		us = append(us, u)
	}
	return us
}

// faulty are the unit's schedules with faults, for a story that went as it did in w without one.
func (u unit) faulty(w *world) iter.Seq[schedule] {
	return func(yield func(schedule) bool) {
		p := planner{u: u, yield: yield}
		p.storeFaults(w.applies)
		p.logFaults(w)
	}
}

// planner enumerates schedules until its yield has enough.
type planner struct {
	u     unit
	yield func(schedule) bool
	pairs int
	done  bool
}

func (p *planner) play(l *logFault, faults ...storeFault) {
	if !p.done {
		s := p.u.schedule
		s.faults, s.atLog = faults, l
		p.done = !p.yield(s)
	}
}

// pair plays a schedule of several faults, if it is its turn.
func (p *planner) pair(l *logFault, faults ...storeFault) {
	if p.pairs++; p.u.pairs > 0 && p.pairs%p.u.pairs == 0 {
		p.play(l, faults...)
	}
}

func (p *planner) storeFaults(applies int) {
	for at := 1; at <= applies && !p.done; at++ {
		for _, kind := range storeFaultKinds {
			p.play(nil, storeFault{kind, at})
		}
		for then := at + 1; then <= applies+1; then++ {
			p.pair(nil, storeFault{transient, at}, storeFault{transient, then})
			for _, crash := range crashes {
				p.pair(nil, storeFault{transient, at}, storeFault{crash, then})
			}
		}
		p.crashPairs(nil, at, 4)
	}
}

// crashPairs are two crashes in consecutive runs, the second at one of the next run's first applies.
func (p *planner) crashPairs(l *logFault, at, applies int) {
	for then := at + 1; then <= at+applies; then++ {
		for _, first := range crashes {
			for _, second := range crashes {
				p.pair(l, storeFault{first, at}, storeFault{second, then})
			}
		}
	}
}

// logFaultKinds are those of logKinds, in a fixed order.
var logFaultKinds = []string{"lost", "no-open", "no-info", "no-list", "cut-list", "duplicate", "stale", "short", "new-info", "new-open", "new-list", "clamp", "unknown", gap}

func (p *planner) logFaults(w *world) {
	for _, kind := range logFaultKinds {
		calls := w.resumed
		if kind != gap {
			calls = w.log.Calls(logKinds[kind].fault.At)
		}
		for n := 1; n <= calls && !p.done; n++ {
			l := &logFault{kind, n}
			p.play(l)
			for at := 1; at <= w.applies; at++ {
				for _, fault := range []string{transient, crashBefore, crashAfter, crashTorn} {
					p.pair(l, storeFault{fault, at})
				}
				if p.u.triples {
					p.crashPairs(l, at, 1)
				}
			}
		}
	}
}
