package main

import (
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
)

// counter counts to 3, and at most to most.
func counter(name string, most int) modelcheck.Model[int, int] {
	return modelcheck.Model[int, int]{
		Name:    name,
		Init:    []int{0},
		Actions: func(_ int, out []int) []int { return append(out, 1) },
		Next:    func(s, a int) (int, bool) { return s + a, s < 3 },
		Encode:  func(s int, out []byte) []byte { return append(out, byte(s)) },
		Properties: []modelcheck.Property[int]{
			modelcheck.Always("small", func(s int) bool { return s <= most }),
			modelcheck.Sometimes("one", func(s int) bool { return s == 1 }),
		},
	}
}

func TestCases(t *testing.T) {
	right := modelcheck.CaseOf(counter("right", 3), modelcheck.Options{})
	wrong := modelcheck.CaseOf(counter("wrong", 1), modelcheck.Options{})
	deep := modelcheck.DeepCaseOf(counter("deep", 3), modelcheck.Options{})
	all := []modelcheck.Case{right, wrong, deep}
	for _, c := range []struct {
		o        options
		has      []string
		last, is string
	}{
		{options{}, []string{"model right states 4 transitions 3 depth 3 elapsed ", `"small" is violated in 2 steps`}, "models 2 states 7 wrong 1", "1 of 2 models are wrong"},
		{options{only: "^right$", witnesses: true}, []string{"  one: in 1 steps"}, "models 1 states 4 wrong 0", ""},
		{options{only: "right|deep", deep: true}, []string{"model deep "}, "models 2 states 8 wrong 0", ""},
		{options{only: "deep"}, nil, "models 0 states 0 wrong 0", "nothing was run"},
		{options{only: "("}, nil, "", "flag run"},
	} {
		var w strings.Builder
		judge(t, &w, runCases(&w, c.o, all), c.has, c.last, c.is)
	}
}

func TestMutations(t *testing.T) {
	caught := modelcheck.MutationOf("caught", counter("counter", 1), modelcheck.Options{}, "small", 2)
	late := modelcheck.MutationOf("late", counter("counter", 1), modelcheck.Options{}, "small", 1)
	survives := modelcheck.MutationOf("survives", counter("counter", 3), modelcheck.Options{}, "small", 9)
	all := []modelcheck.Mutation{caught, late, survives}
	for _, c := range []struct {
		o        options
		has      []string
		last, is string
	}{
		{options{}, []string{"caught caught by small in 2 steps", "not caught: mutation late", "not caught: mutation survives"}, "mutations 3 caught 1", "2 of 3 mutations are not caught"},
		{options{only: "^caught$"}, nil, "mutations 1 caught 1", ""},
		{options{only: "none"}, nil, "mutations 0 caught 0", "nothing was run"},
		{options{only: "("}, nil, "", "flag run"},
	} {
		var w strings.Builder
		judge(t, &w, runMutations(&w, c.o, all), c.has, c.last, c.is)
	}
}

func judge(t *testing.T, w *strings.Builder, err error, has []string, last, is string) {
	t.Helper()
	if (err == nil) != (is == "") || err != nil && !strings.Contains(err.Error(), is) {
		t.Errorf("the error is %v, not %q", err, is)
	}
	if lines := strings.Split(strings.TrimSpace(w.String()), "\n"); lines[len(lines)-1] != last {
		t.Errorf("the last line is %q, not %q", lines[len(lines)-1], last)
	}
	for _, text := range has {
		if !strings.Contains(w.String(), text) {
			t.Errorf("%q is not in:\n%s", text, w)
		}
	}
}
