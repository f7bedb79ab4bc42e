package modelcheck_test

import (
	"slices"
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
)

// Two-phase commit as Gray and Lamport have it in "Consensus on Transaction Commit"; its counts are published.

type manager struct {
	state         byte // w(orking), p(repared), c(ommitted), a(borted)
	sent, counted bool // its Prepared message; by the coordinator
}

type twoPhase struct {
	coordinator byte // i(nit), c(ommitted), a(borted), which are sent as messages too
	managers    [8]manager
}

type twoPhaseAction struct {
	kind byte // c(ommit), a(bort), count (r), p(repare), x: choose to abort, C and A: receive
	rm   int
}

func twoPhaseOf(n int, symmetric bool) modelcheck.Model[twoPhase, twoPhaseAction] {
	first := twoPhase{coordinator: 'i'}
	for i := range n {
		first.managers[i].state = 'w'
	}
	return modelcheck.Model[twoPhase, twoPhaseAction]{
		Name: "two-phase commit",
		Init: []twoPhase{first},
		Actions: func(s twoPhase, out []twoPhaseAction) []twoPhaseAction {
			if s.coordinator == 'i' {
				out = append(out, twoPhaseAction{kind: 'a'})
				if !slices.ContainsFunc(s.managers[:n], func(m manager) bool { return !m.counted }) {
					out = append(out, twoPhaseAction{kind: 'c'})
				}
			}
			for i, m := range s.managers[:n] {
				if s.coordinator == 'i' && m.sent {
					out = append(out, twoPhaseAction{'r', i})
				}
				if m.state == 'w' {
					out = append(out, twoPhaseAction{'p', i}, twoPhaseAction{'x', i})
				}
				switch s.coordinator {
				case 'c':
					out = append(out, twoPhaseAction{'C', i})
				case 'a':
					out = append(out, twoPhaseAction{'A', i})
				}
			}
			return out
		},
		Next: func(s twoPhase, a twoPhaseAction) (twoPhase, bool) {
			m := &s.managers[a.rm]
			switch a.kind {
			case 'a', 'c':
				s.coordinator = a.kind
			case 'r':
				m.counted = true
			case 'p':
				m.state, m.sent = 'p', true
			case 'x', 'A':
				m.state = 'a'
			case 'C':
				m.state = 'c'
			}
			return s, true
		},
		Encode: func(s twoPhase, out []byte) []byte {
			out = append(out, s.coordinator)
			at := len(out)
			for _, m := range s.managers[:n] {
				b := m.state << 2
				if m.sent {
					b |= 1
				}
				if m.counted {
					b |= 2
				}
				out = append(out, b)
			}
			if symmetric {
				slices.Sort(out[at:])
			}
			return out
		},
		Properties: []modelcheck.Property[twoPhase]{
			modelcheck.Always("consistent", func(s twoPhase) bool {
				return !s.has(n, 'c') || !s.has(n, 'a')
			}),
			modelcheck.Sometimes("all commit", func(s twoPhase) bool { return s.all(n, 'c') }),
			modelcheck.Sometimes("all abort", func(s twoPhase) bool { return s.all(n, 'a') }),
		},
	}
}

func (s twoPhase) has(n int, state byte) bool {
	return slices.ContainsFunc(s.managers[:n], func(m manager) bool { return m.state == state })
}

func (s twoPhase) all(n int, state byte) bool {
	return !slices.ContainsFunc(s.managers[:n], func(m manager) bool { return m.state != state })
}

func TestTwoPhaseCommitHasItsKnownStates(t *testing.T) {
	for _, c := range []struct {
		n, states int
		symmetric bool
	}{{3, 288, false}, {5, 8_832, false}, {7, 296_448, false}, {5, 314, true}} {
		for _, exact := range []bool{false, true} {
			r := modelcheck.RequireOK(t, twoPhaseOf(c.n, c.symmetric), modelcheck.Options{Exact: exact})
			if r.States != c.states {
				t.Errorf("%d managers, symmetric %t, exact %t: %d states, not %d", c.n, c.symmetric, exact, r.States, c.states)
			}
		}
	}
}

func BenchmarkTwoPhaseCommit(b *testing.B) {
	for _, c := range []struct {
		name string
		o    modelcheck.Options
	}{
		{"one worker", modelcheck.Options{Workers: 1}},
		{"all workers", modelcheck.Options{}},
		{"exact", modelcheck.Options{Exact: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var states, transitions int
			for b.Loop() {
				r := modelcheck.RequireOK(b, twoPhaseOf(8, false), c.o)
				if r.States != 1_745_408 {
					b.Fatalf("%d states", r.States)
				}
				states, transitions = states+r.States, transitions+r.Transitions
			}
			b.ReportMetric(float64(states)/b.Elapsed().Seconds(), "states/s")
			b.ReportMetric(float64(transitions)/b.Elapsed().Seconds(), "transitions/s")
		})
	}
}
