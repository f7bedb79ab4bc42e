package modelcheck_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
)

// A glass is filled and emptied, may leak, and breaks when it is dropped while full.
type glass struct {
	level  int
	broken bool
}

func glassOf(properties ...modelcheck.Property[glass]) modelcheck.Model[glass, string] {
	return modelcheck.Model[glass, string]{
		Name: "glass",
		Init: []glass{{}},
		Actions: func(s glass, out []string) []string {
			return append(out, "drop", "fill", "leak")
		},
		Next: func(s glass, a string) (glass, bool) {
			switch {
			case s.broken:
				return s, false
			case a == "fill":
				s.level++
				return s, s.level <= 3
			case a == "leak":
				s.level--
				return s, s.level >= 0
			}
			s.broken = true
			return s, s.level == 3
		},
		Encode: func(s glass, out []byte) []byte {
			if s.broken {
				return append(out, 'b')
			}
			return append(out, byte(s.level))
		},
		Properties: properties,
		Fair:       func(a string) bool { return a == "fill" },
	}
}

// TestATerminalWithoutEndsFails: a property of ends says nothing where no run ends. It is not a mutation that is caught, either.
func TestATerminalWithoutEndsFails(t *testing.T) {
	endless := glassOf(modelcheck.Terminal("ends", func(glass) bool { return true }))
	next := endless.Next
	endless.Next = func(s glass, a string) (glass, bool) {
		if s.broken {
			return glass{}, true // a new one
		}
		return next(s, a)
	}
	r := modelcheck.Check(endless, modelcheck.Options{})
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), `"ends" judges nothing`) {
		t.Errorf("without an end: %v", err)
	}
	if _, err := r.Caught("ends"); err == nil {
		t.Error("it counts as caught")
	}
	modelcheck.RequireOK(t, endless, modelcheck.Options{Ignore: []string{"ends"}})
	modelcheck.RequireOK(t, glassOf(endless.Properties...), modelcheck.Options{})
}

func TestEachKindOfProperty(t *testing.T) {
	full := func(s glass) bool { return s.level == 3 }
	whole := func(s glass) bool { return !s.broken }
	for _, c := range []struct {
		holds, violated modelcheck.Property[glass]
		way             string
		loopsTo         int
	}{
		{
			modelcheck.Always("a", func(s glass) bool { return s.level <= 3 }),
			modelcheck.Always("a", func(s glass) bool { return s.level < 2 }), "fill fill", -1,
		},
		{
			modelcheck.Step("s", func(before glass, a string, after glass) bool { return a != "leak" || after.level < before.level }),
			modelcheck.Step("s", func(_ glass, a string, after glass) bool { return a != "leak" || after.level == 0 }), "fill fill leak", -1,
		},
		{
			modelcheck.Terminal("t", func(s glass) bool { return s.broken }),
			modelcheck.Terminal("t", whole), "fill fill fill drop", -1,
		},
		{
			modelcheck.Reachable("r", func(s glass) bool { return s.broken }),
			modelcheck.Reachable("r", func(s glass) bool { return s.level == 1 && !s.broken }), "fill fill fill drop", -1,
		},
		{
			modelcheck.FairEventually("f", full),
			modelcheck.FairEventually("f", func(s glass) bool { return s.level == 2 }), "fill fill fill", -1,
		},
	} {
		modelcheck.RequireOK(t, glassOf(c.holds), modelcheck.Options{})
		r := modelcheck.RequireCaught(t, glassOf(c.violated), modelcheck.Options{}, c.violated.Name, len(strings.Fields(c.way)))
		trace := r.Violations[0].Trace
		var way []string
		for _, s := range trace.Steps[1:] {
			way = append(way, s.Action)
		}
		if strings.Join(way, " ") != c.way || trace.LoopsTo != c.loopsTo {
			t.Errorf("%q is violated by %v, not by %s", c.violated.Name, way, c.way)
		}
	}
	everything := glassOf(modelcheck.FairEventually("f", full))
	everything.Fair = nil
	r := modelcheck.RequireCaught(t, everything, modelcheck.Options{}, "f", 2)
	if trace := r.Violations[0].Trace; trace.LoopsTo != 0 {
		t.Errorf("fill and leak for ever begin at step %d: %v", trace.LoopsTo, trace)
	}
}

func TestSometimes(t *testing.T) {
	m := glassOf(
		modelcheck.Sometimes("full", func(s glass) bool { return s.level == 3 }),
		modelcheck.Sometimes("overfull", func(s glass) bool { return s.level == 4 }),
	)
	r := modelcheck.Check(m, modelcheck.Options{})
	if !slices.Equal(r.Unwitnessed, []string{"overfull"}) || !slices.Equal(r.Witnesses, []modelcheck.Witness{{Property: "full", Steps: 3}}) {
		t.Errorf("witnesses are %v, and %v are missing", r.Witnesses, r.Unwitnessed)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), `"overfull" never happens in 5 states`) {
		t.Errorf("what never happens gives %v", err)
	}
	if steps, err := r.Caught("overfull"); err != nil || steps != r.Depth {
		t.Errorf("what never happens is caught in %d steps, %v", steps, err)
	}
}

func TestTruncatedSearchFails(t *testing.T) {
	m := twoPhaseOf(3, false)
	modelcheck.RequireOK(t, m, modelcheck.Options{MaxStates: 288})
	for _, workers := range []int{1, 3} {
		r := modelcheck.Check(m, modelcheck.Options{MaxStates: 287, Workers: workers})
		if err := r.Err(); !r.Truncated || err == nil || !strings.Contains(err.Error(), "truncated after") {
			t.Errorf("288 states in 287: %+v, %v", r, err)
		}
		if r.States > 287 || r.Depth > 10 || len(r.Unwitnessed) > 0 {
			t.Errorf("a truncated search says %+v", r)
		}
		if _, err := r.Caught("consistent"); err == nil || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("a truncated search catches something: %v", err)
		}
	}
	m.Init = append(m.Init, twoPhase{coordinator: 'a'})
	if r := modelcheck.Check(m, modelcheck.Options{MaxStates: 1}); !r.Truncated {
		t.Errorf("two first states in one: %+v", r)
	}
	// What is violated before the states are too many is found all the same.
	m = twoPhaseOf(3, false)
	m.Properties = append(m.Properties, modelcheck.Always("no abort", func(s twoPhase) bool { return s.coordinator != 'a' }))
	modelcheck.RequireCaught(t, m, modelcheck.Options{MaxStates: 20}, "no abort", 1)
}

func TestBadModelsAreInvalid(t *testing.T) {
	ok := modelcheck.Always("p", func(glass) bool { return true })
	good := glassOf(ok)
	var calls atomic.Int64
	for what, spoil := range map[string]func(*modelcheck.Model[glass, string]) modelcheck.Options{
		"no name":        func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) { m.Name = ""; return },
		"no first state": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) { m.Init = nil; return },
		"no Actions":     func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) { m.Actions = nil; return },
		"no Next":        func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) { m.Next = nil; return },
		"no Encode":      func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) { m.Encode = nil; return },
		"a name twice": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) {
			m.Properties = append(m.Properties, ok)
			return
		},
		"a property's name": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) { m.Properties[0].Name = ""; return },
		"no such property": func(*modelcheck.Model[glass, string]) modelcheck.Options {
			return modelcheck.Options{Ignore: []string{"q"}}
		},
		"workers below 0": func(*modelcheck.Model[glass, string]) modelcheck.Options { return modelcheck.Options{Workers: -1} },
		"states below 0":  func(*modelcheck.Model[glass, string]) modelcheck.Options { return modelcheck.Options{MaxStates: -1} },
		"more than an int32": func(*modelcheck.Model[glass, string]) modelcheck.Options {
			return modelcheck.Options{MaxStates: 1 << 31}
		},
		"a property's nil": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) {
			m.Properties[0] = modelcheck.Always[glass]("p", nil)
			return
		},
		"a step's nil": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) {
			m.Properties[0] = modelcheck.Step[glass, string]("p", nil)
			return
		},
		"a step of other A": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) {
			m.Properties[0] = modelcheck.Step("p", func(glass, int, glass) bool { return true })
			return
		},
		"65,537 actions": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) {
			m.Actions = func(_ glass, out []string) []string { return append(out, make([]string, 65_537)...) }
			return
		},
		"another encoding": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) {
			m.Encode = func(_ glass, out []byte) []byte { return append(out, byte(calls.Add(1)), byte(calls.Load()>>8)) }
			return
		},
		"a property's memory": func(m *modelcheck.Model[glass, string]) (o modelcheck.Options) {
			m.Properties[0] = modelcheck.Always("p", func(glass) bool { return calls.Add(1) != 3 })
			return
		},
	} {
		m := good
		m.Properties = slices.Clone(good.Properties)
		calls.Store(0)
		o := spoil(&m)
		if r := modelcheck.Check(m, o); r.Invalid == nil || r.Err() == nil {
			t.Errorf("%s: %+v", what, r)
		} else if _, err := r.Caught("p"); err == nil {
			t.Errorf("%s: a model that is no good catches something", what)
		}
	}
	modelcheck.RequireOK(t, good, modelcheck.Options{})
}

// A Next that changes the state that it was given is found out.
func TestNextThatChangesItsState(t *testing.T) {
	m := modelcheck.Model[[]byte, int]{
		Name:    "slices",
		Init:    [][]byte{{0, 0}},
		Actions: func(_ []byte, out []int) []int { return append(out, 0, 1) },
		Next: func(s []byte, a int) ([]byte, bool) {
			if s[a] == 2 {
				return nil, false
			}
			s[a]++
			return slices.Clone(s), true
		},
		Encode: func(s, out []byte) []byte { return append(out, s...) },
	}
	for _, exact := range []bool{false, true} {
		if r := modelcheck.Check(m, modelcheck.Options{Exact: exact}); r.Invalid == nil || !strings.Contains(r.Invalid.Error(), "a state was changed") {
			t.Errorf("exact %t: %+v", exact, r)
		}
	}
}

// Two coins are alike. The trace is one of states that the model really comes to, the cycle closes up to the symmetry.
func TestSymmetry(t *testing.T) {
	type coins [2]byte
	m := modelcheck.Model[coins, int]{
		Name:    "coins",
		Init:    []coins{{}},
		Actions: func(_ coins, out []int) []int { return append(out, 0, 1) },
		Next: func(s coins, a int) (coins, bool) {
			// Each of the two goes from 0 to 1, and then they take turns.
			switch {
			case s[a] == 0:
				s[a] = 1
			case s[1-a] == 1:
				s[a] = 2
			case s[1-a] == 2:
				s[a], s[1-a] = 2, 1
			default:
				return s, false
			}
			return s, true
		},
		Encode: func(s coins, out []byte) []byte { return append(out, min(s[0], s[1]), max(s[0], s[1])) },
		Properties: []modelcheck.Property[coins]{
			modelcheck.FairEventually("both", func(s coins) bool { return s == coins{2, 2} }),
		},
	}
	r := modelcheck.RequireCaught(t, m, modelcheck.Options{}, "both", 4)
	if trace := r.Violations[0].Trace; r.States != 4 || trace.LoopsTo != 3 {
		t.Errorf("%v: the trace is\n%v", r, trace)
	}
}

// fakeTest keeps what a helper says.
type fakeTest struct{ logged, failed []string }

func (f *fakeTest) Helper() {}
func (f *fakeTest) Logf(format string, args ...any) {
	f.logged = append(f.logged, fmt.Sprintf(format, args...))
}
func (f *fakeTest) Fatalf(format string, args ...any) {
	f.failed = append(f.failed, fmt.Sprintf(format, args...))
}

func (f *fakeTest) require(t *testing.T, what string, failed string) {
	t.Helper()
	if all := strings.Join(f.failed, "\n"); (all == "") != (failed == "") || !strings.Contains(all, failed) {
		t.Errorf("%s fails with %q, not %q", what, all, failed)
	}
	*f = fakeTest{}
}

func TestHelpersFail(t *testing.T) {
	low := modelcheck.Always("low", func(s glass) bool { return s.level < 2 })
	lower := modelcheck.Always("lower", func(s glass) bool { return s.level < 1 })
	whole := modelcheck.Always("whole", func(s glass) bool { return !s.broken })
	never := modelcheck.Sometimes("never", func(glass) bool { return false })
	o, f := modelcheck.Options{}, &fakeTest{}
	modelcheck.RequireOK(f, glassOf(low), o)
	f.require(t, "a wrong model", `"low" is violated in 2 steps`)
	modelcheck.RequireOK(f, glassOf(never), o)
	f.require(t, "a model without its witness", `"never" never happens`)
	modelcheck.RequireCaught(f, glassOf(low), o, "low", 2)
	f.require(t, "a mutation that is caught", "")
	modelcheck.RequireCaught(f, glassOf(low), o, "low", 1)
	f.require(t, "a mutation that is caught late", `in 2 steps, not in 1`)
	modelcheck.RequireCaught(f, glassOf(modelcheck.Always("high", func(glass) bool { return true })), o, "high", 9)
	f.require(t, "a mutation that survives", `"high" survives`)
	modelcheck.RequireCaught(f, glassOf(low, lower), o, "low", 2)
	f.require(t, "a mutation that another property catches first", `"low" is not what is caught`)
	modelcheck.RequireCaught(f, glassOf(low, lower), modelcheck.Options{Ignore: []string{"lower"}}, "low", 2)
	f.require(t, "a mutation whose other property is ignored", "")
	modelcheck.RequireCaught(f, glassOf(whole, never), o, "never", 9)
	f.require(t, "a mutation that another property catches before what never happens", `"never" is not what is caught`)
	modelcheck.RequireCaught(f, glassOf(modelcheck.Always("high", func(glass) bool { return true }), never), o, "high", 9)
	f.require(t, "a mutation that keeps its property and makes a witness impossible", `"high" is not what is caught`)
	modelcheck.RequireCaught(f, glassOf(low, never), o, "low", 2)
	f.require(t, "a mutation that also ends before its witness", "")
	modelcheck.RequireReplay(f, glassOf(low), []int{0, 1})
	f.require(t, "a replay of one step", "")
	modelcheck.RequireReplay(f, glassOf(low), []int{0, 1, 1})
	f.require(t, "a replay", `["low"] is violated`)
	modelcheck.RequireReplay(f, glassOf(low), []int{0, 3})
	f.require(t, "a replay of an action that is not there", "step 1 is action 3 of 3")
	modelcheck.RequireReplay(f, glassOf(low), []int{0, 1, 0})
	f.require(t, "a replay of what cannot happen", "step 2, drop, cannot happen")
	modelcheck.RequireReplay(f, glassOf(low), []int{1})
	f.require(t, "a replay from nowhere", "begins in none")
	modelcheck.RequireReplay(f, glassOf(low), nil)
	f.require(t, "a replay of nothing", "begins in none")
}

func TestTracePrints(t *testing.T) {
	m := glassOf(modelcheck.FairEventually("eventually", func(s glass) bool { return s.level == 3 }))
	m.Fair = nil
	r := modelcheck.Check(m, modelcheck.Options{})
	if len(r.Violations) != 1 {
		t.Fatalf("%+v", r)
	}
	const want = `    0  {level:0 broken:false}
    1  fill  =>  {level:1 broken:false}
    2  leak  =>  {level:0 broken:false}
       and again from step 0
  replay: modelcheck.RequireReplay(t, m, []int{0, 1, 2}) // m: glass`
	if got := r.Violations[0].Trace.String(); got != want {
		t.Errorf("it prints\n%s\nnot\n%s", got, want)
	}
	m.ShowState = func(s glass) string { return strings.Repeat("~", s.level) }
	m.ShowAction = strings.ToUpper
	trace, err := modelcheck.Replay(m, []int{0, 1, 1})
	if err != nil || trace.Steps[2] != (modelcheck.TraceStep{Index: 1, Action: "FILL", State: "~~"}) || len(trace.Violated) > 0 {
		t.Errorf("%+v, %v", trace, err)
	}
}
