package modelcheck

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Check searches the model, until a property is violated or every state was visited.
func Check[S, A any](m Model[S, A], o Options) Report {
	begin := time.Now()
	r := Report{Name: m.Name}
	if r.Invalid = validate(m, o); r.Invalid == nil {
		s := newSearch(m, o)
		s.run(&r)
	}
	r.Elapsed = time.Since(begin)
	return r
}

func validate[S, A any](m Model[S, A], o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if m.Name == "" || len(m.Init) == 0 || m.Actions == nil || m.Next == nil || m.Encode == nil {
		return errors.New("a model needs Name, Init, Actions, Next and Encode")
	}
	names := map[string]bool{}
	for _, p := range m.Properties {
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("property %q has no name, or one that another has", p.Name)
		}
		names[p.Name] = true
		if holds, ok := p.step.(func(S, A, S) bool); p.kind == step && (!ok || holds == nil) {
			return fmt.Errorf("property %q is a %T; it takes the model's states and actions", p.Name, p.step)
		}
		if p.kind != step && p.holds == nil {
			return fmt.Errorf("property %q has no function", p.Name)
		}
	}
	for _, name := range o.Ignore {
		if !names[name] {
			return fmt.Errorf("the model has no property %q to ignore", name)
		}
	}
	return nil
}

// run searches level by level. What is violated in a level is found before the next one is met.
func (s *search[S, A]) run(r *Report) {
	s.begin()
	for len(s.level) > 0 {
		r.States, r.Depth = s.first+len(s.level), s.depth
		found := append(s.pending, s.judge()...)
		if len(found) > 0 {
			s.violations(append(found, s.judgeEnds()...), r)
			return
		}
		e := s.expand()
		if e.invalid != nil || e.truncated {
			r.Invalid, r.Truncated = e.invalid, e.truncated
			return
		}
		r.Transitions += e.transitions
		s.ended = s.ended || e.ended
		if len(e.ends) > 0 {
			s.violations(e.ends, r)
			return
		}
		s.pending = e.steps
	}
	if len(s.pending) > 0 {
		s.violations(s.pending, r)
		return
	}
	s.witnesses(r)
	s.judgeGraph(r)
}

func (s *search[S, A]) witnesses(r *Report) {
	for i, p := range s.props {
		switch {
		case p.kind == terminal && !s.ended:
			r.Unjudged = append(r.Unjudged, p.Name)
		case p.kind != sometimes:
		case s.met[i] < 0:
			r.Unwitnessed = append(r.Unwitnessed, p.Name)
		default:
			r.Witnesses = append(r.Witnesses, Witness{p.Name, s.met[i]})
		}
	}
}

// found is a violated property: in a state, or by an action that leaves it.
type found struct {
	prop, state, action int // action -1: the state itself
}

// add keeps the first of each property; they come in order.
func add(all []found, f found) []found {
	if slices.ContainsFunc(all, func(g found) bool { return g.prop == f.prop }) {
		return all
	}
	return append(all, f)
}

func (s *search[S, A]) violations(all []found, r *Report) {
	for _, f := range all {
		way := s.way(f.state)
		if f.action >= 0 {
			way = append(way, f.action)
		}
		s.violation(f.prop, way, r)
	}
}

// violation adds the trace of a way.
func (s *search[S, A]) violation(prop int, way []int, r *Report) {
	p := s.props[prop]
	t, err := replay(s.m, way, []Property[S]{p}, s.max)
	if err == nil && len(t.Violated) == 0 {
		err = errors.New("it is not violated when replayed: Actions, Next, Encode or the property depend on more than their arguments")
	}
	if err != nil {
		r.Invalid = fmt.Errorf("the trace of %q: %w", p.Name, err)
		return
	}
	r.Violations = append(r.Violations, Violation{Property: p.Name, Trace: t})
}

// way leads to a state: a place in Init, then the actions.
func (s *search[S, A]) way(state int) []int {
	var way []int
	for s.parents[state] != noParent {
		way = append(way, int(s.actions[state]))
		state = int(s.parents[state])
	}
	way = append(way, int(s.roots[state]))
	slices.Reverse(way)
	return way
}

// judgeGraph looks at whole runs, once every state is known.
func (s *search[S, A]) judgeGraph(r *Report) {
	for i, p := range s.props {
		switch p.kind {
		case reachable:
			if state := s.graph.stuck(s.graph.goals[i]); state >= 0 {
				s.violation(i, s.way(state), r)
			}
		case fairEventually:
			if state := s.graph.avoids(s.graph.goals[i]); state >= 0 {
				s.violation(i, s.lasso(state, s.graph.goals[i]), r)
			}
		}
	}
}

// lasso is the way to a state and, if it lies on a cycle of fair actions that avoids the goal, once round it. Up to a
// symmetry, the states on the way are others than those that were met, with the same encodings.
func (s *search[S, A]) lasso(state int, goal []bool) []int {
	way := s.way(state)
	states, _, err := follow(s.m, way)
	if err != nil {
		return way // which violation reports
	}
	at := states[len(states)-1]
	var enc []byte
	for _, to := range s.graph.round(state, goal) {
		for n, a := range s.m.Actions(at, nil) {
			next, ok := s.m.Next(at, a)
			if !ok || !s.m.fair(a) {
				continue
			}
			enc = s.m.Encode(next, enc[:0])
			if key, ok := s.seen.find(enc); ok && s.seen.at(key) == uint64(to) {
				at, way = next, append(way, n)
				break
			}
		}
	}
	return way
}
