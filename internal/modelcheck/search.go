package modelcheck

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// maxID is the highest number that a state has.
const maxID = math.MaxInt32

// Check searches the model.
func Check[S, A any](m Model[S, A], o Options) Report {
	begin := time.Now()
	r := Report{Name: m.Name}
	if r.Invalid = validate(m, o); r.Invalid == nil {
		search(m, o, &r)
	}
	r.Elapsed = time.Since(begin)
	return r
}

func validate[S, A any](m Model[S, A], o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if m.Name == "" || len(m.Init) == 0 || m.Actions == nil || m.Next == nil || m.Encode == nil {
		return fmt.Errorf("a model needs Name, Init, Actions, Next and Encode")
	}
	names := map[string]bool{}
	for _, p := range m.Properties {
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("property %q has no name, or one that another has", p.Name)
		}
		names[p.Name] = true
		if _, ok := p.step.(func(S, A, S) bool); p.kind == step && !ok {
			return fmt.Errorf("property %q is of %T; it takes the model's states and actions", p.Name, p.step)
		} else if p.kind != step && p.holds == nil {
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

type node[S any] struct {
	state S
	way   []int
}

func search[S, A any](m Model[S, A], o Options, r *Report) {
	seen := map[string]bool{}
	met := map[string]int{}
	var level []node[S]
	for i, s := range m.Init {
		if k := string(m.Encode(s, nil)); !seen[k] {
			seen[k] = true
			level = append(level, node[S]{s, []int{i}})
		}
	}
	var props []Property[S]
	for _, p := range m.Properties {
		if !slices.Contains(o.Ignore, p.Name) {
			props = append(props, p)
		}
	}
	violated := func(p Property[S], way []int) {
		if slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Property == p.Name }) {
			return
		}
		if t, err := Replay(m, way); err == nil {
			r.Violations = append(r.Violations, Violation{p.Name, t})
		}
	}
	for depth := 0; len(level) > 0 && len(r.Violations) == 0; depth++ {
		r.Depth = depth
		var next []node[S]
		for _, n := range level {
			r.States++
			leaves := false
			for i, a := range m.Actions(n.state, nil) {
				s, ok := m.Next(n.state, a)
				if !ok {
					continue
				}
				leaves = true
				r.Transitions++
				way := append(slices.Clone(n.way), i)
				for _, p := range props {
					if p.kind == step && !p.step.(func(S, A, S) bool)(n.state, a, s) {
						violated(p, way)
					}
				}
				if k := string(m.Encode(s, nil)); !seen[k] {
					seen[k] = true
					next = append(next, node[S]{s, way})
				}
			}
			for _, p := range props {
				switch {
				case p.kind == always && !p.holds(n.state), p.kind == terminal && !leaves && !p.holds(n.state):
					violated(p, n.way)
				case p.kind == sometimes && p.holds(n.state):
					if _, ok := met[p.Name]; !ok {
						met[p.Name] = depth
						r.Witnesses = append(r.Witnesses, Witness{p.Name, depth})
					}
				}
			}
		}
		if len(seen) > o.maxStates() {
			r.Truncated = true
			return
		}
		level = next
	}
	for _, p := range props {
		if _, ok := met[p.Name]; p.kind == sometimes && !ok && len(r.Violations) == 0 {
			r.Unwitnessed = append(r.Unwitnessed, p.Name)
		}
	}
}
