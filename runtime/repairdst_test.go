package fold_test

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	fold "github.com/typedfold/fold/runtime"
)

var repairRun = flag.String("fold.repair", "", "run only the schedules of TestRepairSchedules whose name begins with this")

// mostLives is how often a schedule may have to start its fold.
const mostLives = 50

// TestRepairSchedules tells each story on both stores, as a fold with a table and as a WatchApplied: first without a fault,
// then with each fault at each apply of the store. All end at the truth.
func TestRepairSchedules(t *testing.T) {
	for _, story := range slices.Concat(dstStories, dstOwnStories) {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			dir, n := t.TempDir(), 0
			play := func(run dstRun) (applies int) {
				if !strings.HasPrefix(run.String(), *repairRun) {
					return 0
				}
				n++
				at := filepath.Join(dir, fmt.Sprint(n))
				synctest.Test(t, func(t *testing.T) {
					var err error
					if applies, err = run.play(t, at); err != nil {
						t.Fatalf("%v\nreplay: go test ./runtime -run TestRepairSchedules -fold.repair='%v'", err, run)
					}
				})
				return applies
			}
			for _, run := range []dstRun{
				{backend: "logstore", face: "applied", max: 1},
				{backend: "logstore", face: "fold"},
				{backend: "pebble", face: "fold", max: 1},
				{backend: "pebble", face: "applied"},
			} {
				run.story = story
				applies := play(run)
				if *repairRun != "" {
					applies = 40
				}
				for _, run.fault.kind = range run.kinds() {
					for run.fault.at = 1; run.fault.at <= applies && !t.Failed(); run.fault.at++ {
						play(run)
					}
				}
			}
			t.Logf("%d schedules", n)
		})
	}
}

// kinds are the faults that a run is tried with: all of them one by one, and fewer where other things vary.
func (r dstRun) kinds() []string {
	switch {
	case r.face == "applied" && r.backend == "logstore":
		return []string{dstTransient, dstCrashBefore, dstCrashAfter, dstShutdown, dstStuck}
	case r.face == "fold" && r.backend == "logstore":
		return []string{dstTransient, dstCrashBefore, dstShutdown}
	case r.face == "fold":
		return []string{dstTransient, dstCrashBefore, dstCrashAfter}
	}
	return nil
}

// play runs the schedule, and tells how many applies of the store it took.
func (r dstRun) play(t *testing.T, dir string) (applies int, err error) {
	w := newDst(t, dir, r)
	r.story.before(w)
	w.measured = true
	if r.story.during != nil {
		r.story.during(w)
	}
	for w.lives = 1; w.lives <= mostLives; {
		rested, err := w.live()
		var stuck *fold.FailStopError
		switch {
		case w.broken != nil:
			return w.applies, w.broken
		case rested && err == nil && r.fault.kind == "" && strings.Join(w.plans, ", ") != r.story.plans:
			return w.applies, fmt.Errorf("repairs were %q, want %q", w.plans, r.story.plans)
		case rested:
			return w.applies, err
		case errors.Is(err, errDstCrash) && (r.fault.kind == dstCrashBefore || r.fault.kind == dstCrashAfter):
		case errors.As(err, &stuck) && r.fault.kind == dstStuck:
		case errors.Is(err, errDstDisk) && r.fault.kind != "": // while it started
		case err == nil && (r.fault.kind == dstShutdown || r.story.quits):
		default:
			return w.applies, fmt.Errorf("life %d ended: %w", w.lives, err)
		}
	}
	return w.applies, fmt.Errorf("still not at rest after %d lives", mostLives)
}
