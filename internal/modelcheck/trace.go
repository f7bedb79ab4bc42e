package modelcheck

import (
	"bytes"
	"fmt"
	"slices"
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
	// Violated are the properties that it violates, in the model's order.
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
// The trace says what it violates. A Reachable property is judged by a search from the last state on.
func Replay[S, A any](m Model[S, A], steps []int) (Trace, error) {
	return replay(m, steps, m.Properties, defaultMaxStates)
}

// replay judges the given properties only, a Reachable one by at most maxStates.
func replay[S, A any](m Model[S, A], steps []int, props []Property[S], maxStates int) (Trace, error) {
	states, actions, err := follow(m, steps)
	if err != nil {
		return Trace{}, err
	}
	t := m.trace(states, actions, steps)
	for _, p := range props {
		at, violated := m.violates(p, states, actions, maxStates)
		if violated {
			t.Violated = append(t.Violated, p.Name)
			t.LoopsTo = max(t.LoopsTo, at)
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

// violates judges a property on a way; loopsTo is where it is at its end again, when that is what violates it, else -1.
func (m Model[S, A]) violates(p Property[S], states []S, actions []A, maxStates int) (loopsTo int, violated bool) {
	last := states[len(states)-1]
	switch p.kind {
	case always:
		return -1, !all(states, p.holds)
	case step:
		holds, _ := p.step.(func(S, A, S) bool)
		for i, a := range actions {
			if holds != nil && !holds(states[i], a, states[i+1]) {
				return -1, true
			}
		}
	case terminal:
		return -1, !p.holds(last) && !m.leaves(last, func(A) bool { return true })
	case reachable:
		return -1, !m.reaches(last, p.holds, maxStates)
	case fairEventually:
		if !p.holds(last) && !m.leaves(last, m.fair) {
			return -1, true
		}
		loopsTo = m.loop(p.holds, states, actions)
		return loopsTo, loopsTo >= 0
	}
	return -1, false
}

func all[S any](states []S, holds func(S) bool) bool {
	return !slices.ContainsFunc(states, func(s S) bool { return !holds(s) })
}

func (m Model[S, A]) fair(a A) bool { return m.Fair == nil || m.Fair(a) }

// reaches reports whether goal can be reached from s. It is true too when there are too many states to know it.
func (m Model[S, A]) reaches(s S, goal func(S) bool, maxStates int) bool {
	m.Init = []S{s}
	m.Properties = []Property[S]{Always("no goal", func(s S) bool { return !goal(s) })}
	r := Check(m, Options{MaxStates: maxStates})
	return r.Truncated || len(r.Violations) > 0
}

// loop is the first step from which on fair actions lead back to its state, at the end, and avoid the goal; else -1.
func (m Model[S, A]) loop(goal func(S) bool, states []S, actions []A) int {
	end := len(actions)
	encoded := m.Encode(states[end], nil)
	at := -1
	for i := end - 1; i >= 0 && m.fair(actions[i]) && !goal(states[i]); i-- {
		if bytes.Equal(encoded, m.Encode(states[i], nil)) {
			at = i
		}
	}
	return at
}

// leaves reports whether a transition of a wanted action leaves s.
func (m Model[S, A]) leaves(s S, wanted func(A) bool) bool {
	for _, a := range m.Actions(s, nil) {
		if _, ok := m.Next(s, a); ok && wanted(a) {
			return true
		}
	}
	return false
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
