package machine_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// walker is a machine with what its effects have asked for and nobody has answered.
type walker struct {
	m   *machine.M
	out [12]bool
}

const (
	outOpen = iota
	outReceive
	outHooks
	outStore
	outRepair
	outAudit
	outStopped
	outTimers // and those after it
)

func (w *walker) carry(effects []machine.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.OpenWatch:
			w.out[outOpen] = true
		case machine.Receive:
			w.out[outReceive] = true
		case machine.RunHooks:
			w.out[outHooks] = true
		case machine.ApplyStore:
			w.out[outStore] = true
		case machine.Repair:
			w.out[outRepair] = true
		case machine.Audit:
			w.out[outAudit] = true
		case machine.Stop:
			w.out = [12]bool{outStopped: true}
		case machine.Arm:
			w.out[outTimers+e.Timer] = true
		}
	}
}

// answer is an input, and which effect it answers; below 0 is none.
type answer struct {
	in machine.Input
	to int
}

func (w *walker) answers() (all []answer) {
	if w.out[outStopped] {
		return nil
	}
	add := func(to int, ins ...machine.Input) {
		for _, in := range ins {
			if to < 0 || w.out[to] {
				all = append(all, answer{in, to})
			}
		}
	}
	segment := func(id, rev uint64) machine.Segment {
		return machine.Segment{ID: id, Updates: 1, High: kv.Revision(rev), Owes: kv.Owes(id) & kv.OwesMarkers, Evicted: rev == 3}
	}
	add(-1, machine.RetentionRead{Evicted: true}, machine.RetentionRead{Owes: kv.OwesListing, Head: 2}, machine.RetentionRead{Whole: true})
	add(outOpen, machine.Opened{Head: 1}, machine.Opened{Head: 3, Backlog: 3, Owes: kv.OwesIdentity})
	add(outOpen, machine.OpenFailed{End: machine.EndTransient, Err: errBoom}, machine.OpenFailed{End: machine.EndExpired, Err: errBoom})
	add(outReceive, machine.Received{Segment: segment(1, 1)}, machine.Received{Segment: segment(2, 3)}, machine.Received{Segment: machine.Segment{Frontier: 2}})
	add(outReceive, machine.WatchEnded{End: machine.EndTransient, Err: errBoom}, machine.WatchEnded{End: machine.EndLogChanged, Err: errBoom})
	add(outHooks, machine.HooksDone{}, machine.HooksDone{Err: errBoom})
	add(outStore, machine.StoreDone{}, machine.StoreDone{Err: errBoom})
	add(outRepair, machine.Injected{Segment: segment(3, 1)}, machine.RepairFailed{Err: errBoom}, machine.Repaired{Err: errBoom})
	add(outRepair, machine.Repaired{NewLog: true, Relist: true}, machine.Repaired{Cursor: kv.CursorAt(3), Owed: kv.Owed{Why: kv.OwesMarkers, At: 1}})
	add(outAudit, machine.Audited{Before: 2}, machine.Audited{Unproven: true}, machine.Audited{Contradiction: errBoom}, machine.Audited{Err: errBoom})
	for t := machine.TimerOpen; t <= machine.TimerAudit; t++ {
		add(outTimers+int(t), machine.TimerFired{Timer: t})
	}
	return all
}

// take is the walker after an answer, and what it asked for.
func (w *walker) take(a answer) (next walker, effects []machine.Effect) {
	next = walker{m: w.m.Clone(), out: w.out}
	if _, more := a.in.(machine.Injected); a.to >= 0 && !more {
		next.out[a.to] = false
	}
	effects = next.m.Step(a.in, nil)
	for i, e := range effects {
		if arm, ok := e.(machine.Arm); ok {
			effects[i] = machine.Arm{Timer: arm.Timer}
		}
	}
	next.carry(effects)
	return next, effects
}

// TestEqualStatesGoOnAlike: two machines of one encoding answer each input with the same effects, and are of one
// encoding again.
func TestEqualStatesGoOnAlike(t *testing.T) {
	type key struct {
		windowed bool
		state    string
		out      [12]bool
	}
	met, alike := map[key][]walker{}, 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		cfg := machine.Config{HasStore: true, Windowed: seed%4 > 1, CanRepair: true, MaxUpdates: 2, MaxBytes: 1, BulkUpdates: 3, BulkBytes: 1,
			QueueUpdates: 2, QueueBytes: 1, MaxFailures: 3}
		m, effects := machine.New(cfg, kv.CursorAt(seed%2), kv.Owed{})
		w := walker{m: m}
		w.carry(effects)
		for range 100 {
			k := key{cfg.Windowed, string(w.m.AppendState(nil)), w.out}
			answers := w.answers()
			unlike := true
			for _, other := range met[k] {
				if reflect.DeepEqual(other.m, w.m) {
					unlike = false
					break
				}
				alike++
				for _, a := range answers {
					got, did := w.take(a)
					want, should := other.take(a)
					if !reflect.DeepEqual(did, should) || string(got.m.AppendState(nil)) != string(want.m.AppendState(nil)) {
						t.Fatalf("%T %+v: %+v from\n%+v\n%+v from\n%+v", a.in, a.in, did, w.m, should, other.m)
					}
				}
			}
			if unlike && len(met[k]) < 3 {
				met[k] = append(met[k], w)
			}
			if len(answers) == 0 {
				break
			}
			next := answers[r.IntN(len(answers))]
			if r.IntN(60) == 0 {
				next = answer{machine.Shutdown{}, -1}
			}
			w, _ = w.take(next)
		}
	}
	if alike < 1000 {
		t.Errorf("only %d pairs of unlike machines of one encoding were met", alike)
	}
}

// TestStateHasAllFields: a new field goes into AppendState, or is dead where it is left out.
func TestStateHasAllFields(t *testing.T) {
	if n := reflect.TypeFor[machine.M]().NumField(); n != 40 {
		t.Errorf("the machine has %d fields; see to AppendState, and count again", n)
	}
}
