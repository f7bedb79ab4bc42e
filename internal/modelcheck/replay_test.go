package modelcheck_test

import (
	"slices"
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
)

// A replay judges whole runs by what the way shows: a cycle at its end, or that nothing fair leaves its last state.
func TestReplayOfWholeRuns(t *testing.T) {
	const fill, leak = 1, 2
	at := func(level int) func(glass) bool { return func(s glass) bool { return s.level == level } }
	leaks := func(a string) bool { return a == "leak" }
	for _, c := range []struct {
		goal     int
		fair     func(string) bool
		way      []int
		violated bool
	}{
		{3, nil, []int{0, fill, leak}, true},
		{3, nil, []int{0, fill}, false},
		{3, leaks, []int{0, fill, fill, leak}, false}, // fill is not fair
		{3, leaks, []int{0, fill, leak}, true},        // and in the empty glass nothing is
		{0, leaks, []int{0, fill, leak}, false},
		{1, nil, []int{0, fill, fill, leak}, false}, // at the goal twice
		{2, nil, []int{0, fill, fill, leak}, false}, // the goal is on the cycle
		{2, nil, []int{0, fill, fill, leak, leak, fill}, true},
	} {
		m := glassOf(modelcheck.FairEventually("f", at(c.goal)))
		m.Fair = c.fair
		trace, err := modelcheck.Replay(m, c.way)
		if err != nil || slices.Contains(trace.Violated, "f") != c.violated {
			t.Errorf("goal %d, way %v: %v, %v", c.goal, c.way, trace.Violated, err)
		}
	}
	m := glassOf(modelcheck.Reachable("r", at(1)))
	for level, way := range [][]int{{0}, {0, fill}, {0, fill, fill}, {0, fill, fill, fill, 0}} {
		trace, err := modelcheck.Replay(m, way)
		if err != nil || len(trace.Violated) > 0 != (level == 3) {
			t.Errorf("way %v: %v, %v", way, trace.Violated, err)
		}
	}
}
