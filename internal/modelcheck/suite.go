package modelcheck

import "fmt"

// TB is what the helpers need of a test.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// RequireOK checks a model and fails the test unless all its properties hold.
func RequireOK[S, A any](t TB, m Model[S, A], o Options) Report {
	t.Helper()
	r := Check(m, o)
	if err := r.Err(); err != nil {
		t.Fatalf("%v", err)
	}
	t.Logf("%s", r)
	return r
}

// RequireCaught checks a model that is wrong on purpose, and fails the test unless the property is violated, in at most
// maxSteps steps, and no other one before it.
func RequireCaught[S, A any](t TB, m Model[S, A], o Options, property string, maxSteps int) Report {
	t.Helper()
	mutation := MutationOf(m.Name, m, o, property, maxSteps)
	r := mutation.Run(o.Workers)
	line, err := mutation.Judge(r)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Logf("%s", line)
	return r
}

// RequireReplay replays a trace and fails the test if it violates a property, or can't be taken.
func RequireReplay[S, A any](t TB, m Model[S, A], steps []int) Trace {
	t.Helper()
	trace, err := Replay(m, steps)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(trace.Violated) > 0 {
		t.Fatalf("model %s: %q is violated:\n%s", m.Name, trace.Violated, trace)
	}
	return trace
}

// Case is a model to check.
type Case struct {
	Name string
	// Deep: it takes too long for every run.
	Deep bool
	Run  func(workers int) Report
}

// CaseOf is a model as a case.
func CaseOf[S, A any](m Model[S, A], o Options) Case {
	return Case{Name: m.Name, Run: func(workers int) Report {
		o := o
		o.Workers = workers
		return Check(m, o)
	}}
}

// DeepCaseOf is a model that is checked when asked for only.
func DeepCaseOf[S, A any](m Model[S, A], o Options) Case {
	c := CaseOf(m, o)
	c.Deep = true
	return c
}

// Mutation is a model that is wrong on purpose, and the property that has to show it.
type Mutation struct {
	Name, Model, Property string
	// MaxSteps is how long the shortest counterexample may be.
	MaxSteps int
	Run      func(workers int) Report
}

// MutationOf is a model that is wrong on purpose as a mutation. Properties that the mistake may violate earlier are named
// in o.Ignore.
func MutationOf[S, A any](name string, m Model[S, A], o Options, property string, maxSteps int) Mutation {
	return Mutation{Name: name, Model: m.Name, Property: property, MaxSteps: maxSteps, Run: CaseOf(m, o).Run}
}

// Judge is the line that says how it was caught, or why it was not.
func (m Mutation) Judge(r Report) (line string, err error) {
	steps, err := r.Caught(m.Property)
	if err != nil {
		return "", fmt.Errorf("mutation %s: %w", m.Name, err)
	}
	if steps > m.MaxSteps {
		return "", fmt.Errorf("mutation %s: %q is caught in %d steps, not in %d", m.Name, m.Property, steps, m.MaxSteps)
	}
	return fmt.Sprintf("caught %s by %s in %d steps", m.Name, m.Property, steps), nil
}
