package dst

import (
	"fmt"
	"iter"
)

// unit is one combination of a story with everything but faults. Its schedules are played one after another.
type unit struct {
	schedule
	pairs bool // of faults too
}

func (u unit) String() string {
	export := ""
	if u.export {
		export = "/export"
	}
	return fmt.Sprintf("%s/%s/%s/%d%s", u.backend, u.face, u.order, u.max, export)
}

// units are the combinations of a story.
func units(st *story, all bool) (us []unit) {
	for _, face := range []string{faceApplied, faceFold} {
		for _, order := range []string{orderBurst, orderYield, orderWindow} {
			for _, size := range []int{1, 3, 100} {
				if order == orderYield && size != 1 {
					continue // there is never more than one
				}
				us = append(us, unit{schedule{story: st, backend: storeLog, face: face, order: order, max: size}, true})
				if face == faceFold {
					us = append(us, unit{schedule{story: st, backend: storeLog, face: face, order: order, max: size, export: true}, all})
				}
			}
		}
	}
	return us
}

// faulty are the unit's schedules with faults, for a story that went as it did in w without one.
func (u unit) faulty(w *world) iter.Seq[schedule] {
	return func(yield func(schedule) bool) {
		with := func(l *logFault, faults ...storeFault) bool {
			s := u.schedule
			s.faults, s.atLog = faults, l
			return yield(s)
		}
		_ = u.storeFaults(w.applies, with) && u.logFaults(w, with)
	}
}

var singles = []string{transient, crashBefore, crashAfter, crashTorn, shutdown, stuck}

func (u unit) storeFaults(applies int, with func(*logFault, ...storeFault) bool) bool {
	for at := 1; at <= applies; at++ {
		for _, kind := range singles {
			if !with(nil, storeFault{kind, at}) {
				return false
			}
		}
		if !u.pairs {
			continue
		}
		for then := at + 1; then <= applies+1; then++ {
			if !with(nil, storeFault{transient, at}, storeFault{transient, then}) {
				return false
			}
			for _, crash := range crashes {
				if !with(nil, storeFault{transient, at}, storeFault{crash, then}) {
					return false
				}
			}
		}
		for then := at + 1; then <= at+4; then++ {
			for _, first := range crashes {
				for _, second := range crashes {
					if !with(nil, storeFault{first, at}, storeFault{second, then}) {
						return false
					}
				}
			}
		}
	}
	return true
}

func (u unit) logFaults(w *world, with func(*logFault, ...storeFault) bool) bool {
	for _, kind := range []string{"lost", "no-open", "no-info", "no-list", "cut-list", "duplicate", "stale", "short", "clamp", "unknown", gap} {
		calls := w.resumed
		if kind != gap {
			calls = w.log.Calls(logKinds[kind].fault.At)
		}
		for at := 1; at <= calls; at++ {
			if !with(&logFault{kind, at}) {
				return false
			}
			if !u.pairs {
				continue
			}
			for apply := 1; apply <= w.applies; apply++ {
				for _, fault := range []string{transient, crashBefore, crashAfter, crashTorn} {
					if !with(&logFault{kind, at}, storeFault{fault, apply}) {
						return false
					}
				}
			}
		}
	}
	return true
}
