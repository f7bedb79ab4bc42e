package modelcheck

import (
	"fmt"
	"strconv"
	"strings"
)

// Trace is a way through a model.
type Trace struct {
	Model string
	// Steps begins with a first state, which has no action.
	Steps []TraceStep
	// LoopsTo is the step whose state the last one is again, for a cycle; else -1.
	LoopsTo int
	// Violated are the Always, Step and Terminal properties that it violates, in the model's order.
	Violated []string
}

// TraceStep is one action and the state after it, printed. Index is the action's place among what Actions gave; of the
// first step, the state's place in Init.
type TraceStep struct {
	Index  int
	Action string
	State  string
}

// Len is how many actions it has.
func (t Trace) Len() int { return max(len(t.Steps)-1, 0) }

// Indices are what Replay takes.
func (t Trace) Indices() []int {
	var all []int
	for _, s := range t.Steps {
		all = append(all, s.Index)
	}
	return all
}

// String is one line a step, and at the end the Go call that replays it.
func (t Trace) String() string {
	var b strings.Builder
	for i, s := range t.Steps {
		if i == 0 {
			fmt.Fprintf(&b, "  %3d  %s\n", i, s.State)
			continue
		}
		fmt.Fprintf(&b, "  %3d  %s  =>  %s\n", i, s.Action, s.State)
	}
	if t.LoopsTo >= 0 {
		fmt.Fprintf(&b, "       and again from step %d\n", t.LoopsTo)
	}
	b.WriteString("  replay: " + t.Snippet())
	return b.String()
}

// Snippet is the call that replays it in a test, where m is the model.
func (t Trace) Snippet() string {
	var list []string
	for _, i := range t.Indices() {
		list = append(list, strconv.Itoa(i))
	}
	return "modelcheck.RequireReplay(t, m, []int{" + strings.Join(list, ", ") + "}) // m: " + t.Model
}

// Replay takes the given steps: first the place of a state in Init, then each action's place among what Actions gives.
// The trace says what it violates.
func Replay[S, A any](m Model[S, A], steps []int) (Trace, error) {
	states, actions, err := follow(m, steps)
	if err != nil {
		return Trace{}, err
	}
	t := m.trace(states, actions, steps)
	for _, p := range m.Properties {
		if m.violates(p, states, actions) {
			t.Violated = append(t.Violated, p.Name)
		}
	}
	return t, nil
}

func follow[S, A any](m Model[S, A], steps []int) (states []S, actions []A, err error) {
	if len(steps) == 0 || steps[0] < 0 || steps[0] >= len(m.Init) {
		return nil, nil, fmt.Errorf("replay model %s: %v begins in none of its %d first states", m.Name, steps, len(m.Init))
	}
	s := m.Init[steps[0]]
	states = append(states, s)
	for n, i := range steps[1:] {
		can := m.Actions(s, nil)
		if i < 0 || i >= len(can) {
			return nil, nil, fmt.Errorf("replay model %s: step %d is action %d of %d", m.Name, n+1, i, len(can))
		}
		next, ok := m.Next(s, can[i])
		if !ok {
			return nil, nil, fmt.Errorf("replay model %s: step %d, %s, cannot happen", m.Name, n+1, m.showAction(can[i]))
		}
		s = next
		states, actions = append(states, s), append(actions, can[i])
	}
	return states, actions, nil
}

// violates looks at the way alone, so it says nothing of what lies beside it.
func (m Model[S, A]) violates(p Property[S], states []S, actions []A) bool {
	switch p.kind {
	case always:
		for _, s := range states {
			if !p.holds(s) {
				return true
			}
		}
	case step:
		holds, _ := p.step.(func(S, A, S) bool)
		for i, a := range actions {
			if holds != nil && !holds(states[i], a, states[i+1]) {
				return true
			}
		}
	case terminal:
		last := states[len(states)-1]
		return m.ends(last) && !p.holds(last)
	}
	return false
}

// ends reports whether no transition leaves s.
func (m Model[S, A]) ends(s S) bool {
	for _, a := range m.Actions(s, nil) {
		if _, ok := m.Next(s, a); ok {
			return false
		}
	}
	return true
}

func (m Model[S, A]) trace(states []S, actions []A, steps []int) Trace {
	t := Trace{Model: m.Name, LoopsTo: -1}
	for i, s := range states {
		step := TraceStep{Index: steps[i], State: m.showState(s)}
		if i > 0 {
			step.Action = m.showAction(actions[i-1])
		}
		t.Steps = append(t.Steps, step)
	}
	return t
}

func (m Model[S, A]) showState(s S) string {
	if m.ShowState == nil {
		return fmt.Sprintf("%+v", s)
	}
	return m.ShowState(s)
}

func (m Model[S, A]) showAction(a A) string {
	if m.ShowAction == nil {
		return fmt.Sprintf("%+v", a)
	}
	return m.ShowAction(a)
}
