package streamchaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain makes the test binary one of a run's processes.
func TestMain(m *testing.M) {
	if child, err := Child(context.Background()); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// bounded is the time that a run may take, however busy the machine is.
const bounded = 6 * time.Minute

func run(t *testing.T, o Options) *Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bounded)
	defer cancel()
	o.Progress = func(p Progress) {
		t.Logf("%.0f s: %v, %d faults, last %s", p.Since.Seconds(), p.Calls, p.Faults, p.Last)
	}
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	r.Write(&text)
	t.Logf("\n%s", &text)
	return r
}

// TestChaos breaks everything for some seconds. With what is there for longer, make stream-chaos does the same.
func TestChaos(t *testing.T) {
	t.Parallel()
	r := run(t, Options{Duration: 9 * time.Second, Gap: 500 * time.Millisecond, Settle: 90 * time.Second})
	for _, f := range r.Findings {
		t.Error(f)
	}
	struck := map[Kind]bool{}
	for _, f := range r.Faults {
		struck[f.Kind] = true
	}
	for _, k := range Kinds() {
		if !struck[k] {
			t.Errorf("there was no %s", k)
		}
	}
	for _, s := range r.Streams {
		if s.Records == 0 || s.Reads < s.Records || s.Replicas != int(streamKinds[slices.IndexFunc(streamKinds, func(k streamKind) bool { return k.name == s.Name })].replicas) {
			t.Errorf("hardly anything was looked at: %+v", s)
		}
	}
	if len(r.Streams) != len(streamKinds) {
		t.Errorf("%d streams were judged", len(r.Streams))
	}
}

// TestAPlantedBugIsFound: nodes whose writes to the log have lost the checks of the chain and of the epoch. What a node sent
// before it was cut off comes late then, behind its successor's.
func TestAPlantedBugIsFound(t *testing.T) {
	t.Parallel()
	stalled := func(node int) fault { return fault{Kind: Stall, Target: node, Up: true, Hold: 6500 * time.Millisecond} }
	r := run(t, Options{
		unchecked: []string{"Nats-Expected-Last-Sequence:", "Nats-Expected-Last-Subject-Sequence"},
		faults:    []fault{stalled(0), stalled(1)}, Settle: 15 * time.Second, Dir: t.TempDir(),
	})
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Rule == ruleLog || f.Rule == ruleStale || f.Rule == ruleLost }) {
		t.Errorf("a log without its checks seems to be well: %v", r.Findings)
	}
}
