package modelcheck_test

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
)

// web is a model given by its states and arrows.
type web struct {
	init   []int
	arrows [][]arrow
	broken []bool // an Always is violated
	goal   []bool
}

type arrow struct {
	to            int
	unfair, wrong bool // wrong: a Step is violated
	blocked       bool // Next says that it can't happen
}

func (w web) model() modelcheck.Model[int, arrow] {
	return modelcheck.Model[int, arrow]{
		Name:    "web",
		Init:    w.init,
		Actions: func(s int, out []arrow) []arrow { return append(out, w.arrows[s]...) },
		Next:    func(_ int, a arrow) (int, bool) { return a.to, !a.blocked },
		Encode:  func(s int, out []byte) []byte { return binary.AppendUvarint(out, uint64(s)) },
		Fair:    func(a arrow) bool { return !a.unfair },
		Properties: []modelcheck.Property[int]{
			modelcheck.Always("always", func(s int) bool { return !w.broken[s] }),
			modelcheck.Step("step", func(_ int, a arrow, _ int) bool { return !a.wrong }),
			modelcheck.Sometimes("sometimes", func(s int) bool { return w.goal[s] }),
			modelcheck.Terminal("terminal", func(s int) bool { return w.goal[s] }),
			modelcheck.Reachable("reachable", func(s int) bool { return w.goal[s] }),
			modelcheck.FairEventually("eventually", func(s int) bool { return w.goal[s] }),
		},
	}
}

const far = 1 << 20

func anyArrow(int, arrow) bool { return true }

// distances are the fewest arrows, one at least, from the states to each; over wanted arrows only.
func (w web) distances(from []int, wanted func(s int, a arrow) bool) []int {
	steps := slices.Repeat([]int{far}, len(w.arrows))
	for n, level := 1, from; len(level) > 0; n++ {
		var next []int
		for _, s := range level {
			for _, a := range w.arrows[s] {
				if !a.blocked && wanted(s, a) && steps[a.to] == far {
					steps[a.to] = n
					next = append(next, a.to)
				}
			}
		}
		level = next
	}
	return steps
}

// round is the length of the shortest cycle of fair arrows from s that avoids the goal; 0 if no fair arrow leaves it.
func (w web) round(s int) int {
	if w.goal[s] {
		return far
	}
	if !slices.ContainsFunc(w.arrows[s], func(a arrow) bool { return !a.blocked && !a.unfair }) {
		return 0
	}
	return w.distances([]int{s}, func(_ int, a arrow) bool { return !a.unfair && !w.goal[a.to] })[s]
}

// expected is what a slow and plain search of the web finds.
type expected struct {
	lengths map[string]int // of the shortest ways to where a property is violated
	met     bool           // the Sometimes

	states, transitions, depth int
}

func (w web) expect() expected {
	e := expected{lengths: map[string]int{}}
	note := func(violated bool, name string, n int) {
		if old, ok := e.lengths[name]; violated && (!ok || n < old) {
			e.lengths[name] = n
		}
	}
	steps := w.distances(w.init, anyArrow)
	for _, s := range w.init {
		steps[s] = 0
	}
	for s, n := range steps {
		if n == far {
			continue
		}
		e.met = e.met || w.goal[s]
		e.states, e.depth = e.states+1, max(e.depth, n)
		leaves, comes := false, w.goal[s]
		for _, a := range w.arrows[s] {
			leaves = leaves || !a.blocked
			if !a.blocked {
				e.transitions++
			}
			note(a.wrong && !a.blocked, "step", n+1)
		}
		for to, steps := range w.distances([]int{s}, anyArrow) {
			comes = comes || w.goal[to] && steps < far
		}
		note(w.broken[s], "always", n)
		note(!leaves && !w.goal[s], "terminal", n)
		note(!comes, "reachable", n)
		note(w.round(s) < far, "eventually", n)
	}
	return e
}

// judge compares a report with what is expected, and counts in saw what was violated.
func (w web) judge(t *testing.T, r modelcheck.Report, saw map[string]int) {
	t.Helper()
	e := w.expect()
	names := []string{"always", "step", "terminal"}
	shortest := far
	for _, name := range names {
		if n, ok := e.lengths[name]; ok {
			shortest = min(shortest, n)
		}
	}
	if shortest == far {
		names = []string{"reachable", "eventually"}
	}
	if shortest == far && (r.States != e.states || r.Transitions != e.transitions || r.Depth != e.depth) {
		t.Errorf("%v; want %+v", r, e)
	}
	want := map[string]int{}
	for _, name := range names {
		if n, ok := e.lengths[name]; ok && (shortest == far || n == shortest) {
			want[name] = n
			saw[name]++
		}
	}
	got := map[string]int{}
	for _, v := range r.Violations {
		got[v.Property] = w.judgeTrace(t, v)
	}
	if !maps.Equal(got, want) {
		t.Errorf("violated are %v, not %v", got, want)
	}
	if unmet := shortest == far && !e.met; unmet != (len(r.Unwitnessed) == 1) {
		t.Errorf("unwitnessed is %v, and met %t", r.Unwitnessed, e.met)
	}
	if r.Invalid != nil || r.Truncated {
		t.Errorf("%+v", r)
	}
}

// judgeTrace replays a trace and returns how long it is up to where it is wrong, or a cycle begins.
func (w web) judgeTrace(t *testing.T, v modelcheck.Violation) int {
	t.Helper()
	again, err := modelcheck.Replay(w.model(), v.Trace.Indices())
	if err != nil || !slices.Contains(again.Violated, v.Property) || !reflect.DeepEqual(again.Steps, v.Trace.Steps) {
		t.Errorf("the trace of %q replays to %+v, %v", v.Property, again, err)
	}
	if v.Property != "eventually" {
		return v.Trace.Len()
	}
	n := v.Trace.Len()
	if v.Trace.LoopsTo >= 0 {
		n = v.Trace.LoopsTo
	}
	s, err := strconv.Atoi(v.Trace.Steps[n].State)
	if err != nil || w.round(s) != v.Trace.Len()-n {
		t.Errorf("a cycle has %d steps, where %d are the fewest: %v", v.Trace.Len()-n, w.round(s), err)
	}
	return n
}

// randomWeb has something wrong in so many states; without, some lead nowhere all the same.
func randomWeb(r *rand.Rand, states int, wrong float64) web {
	w := web{init: []int{0}, arrows: make([][]arrow, states), broken: make([]bool, states), goal: make([]bool, states)}
	if r.IntN(4) == 0 {
		w.init = append(w.init, r.IntN(states), 0)
	}
	for s := range states {
		w.broken[s] = r.Float64() < wrong
		w.goal[s] = r.IntN(4) == 0
		for range r.IntN(4) {
			a := arrow{to: r.IntN(states), unfair: r.IntN(3) == 0, wrong: r.Float64() < wrong, blocked: r.IntN(10) == 0}
			w.arrows[s] = append(w.arrows[s], a)
		}
		if len(w.arrows[s]) == 0 && wrong == 0 {
			w.arrows[s] = append(w.arrows[s], arrow{to: s})
		}
	}
	return w
}

// Reports on small webs are what a slow and plain search finds.
func TestReportsOfSmallWebs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	saw, right := map[string]int{}, 0
	for range 4_000 {
		w := randomWeb(r, 2+r.IntN(9), []float64{0, 0.05}[r.IntN(2)])
		report := modelcheck.Check(w.model(), modelcheck.Options{Workers: 1})
		exact := modelcheck.Check(w.model(), modelcheck.Options{Workers: 2, Exact: true})
		w.judge(t, report, saw)
		requireSame(t, report, exact)
		if report.Err() == nil {
			right++
		}
		if t.Failed() {
			t.Fatalf("the web is %+v\n%v", w, report.Err())
		}
	}
	for _, name := range []string{"always", "step", "terminal", "reachable", "eventually"} {
		if saw[name] < 100 {
			t.Errorf("%q was violated %d times only", name, saw[name])
		}
	}
	if right < 100 {
		t.Errorf("%d webs only were right", right)
	}
}

func requireSame(t *testing.T, a, b modelcheck.Report) {
	t.Helper()
	a.Elapsed, b.Elapsed = 0, 0
	if !reflect.DeepEqual(a, b) {
		t.Errorf("reports differ:\n%+v\n%+v", a, b)
	}
}

// The report does not depend on how many workers there are, and is the same with hashes and whole encodings.
func TestReportsOfLargeWebs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	violated := map[string]bool{}
	for i := range 24 {
		w := randomWeb(r, 20_000, []float64{0, 0.001, 0.0002}[i%3])
		m := w.model()
		o := modelcheck.Options{Workers: 1}
		if i%4 == 0 {
			o.Ignore = []string{"terminal"}
		}
		alone := modelcheck.Check(m, o)
		for _, v := range alone.Violations {
			violated[v.Property] = true
		}
		for _, o.Workers = range []int{2, 5} {
			o.Exact = o.Workers == 5
			requireSame(t, alone, modelcheck.Check(m, o))
		}
	}
	if len(violated) < 5 {
		t.Errorf("only %v were violated", violated)
	}
}
