package dst

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

var (
	replayLine = flag.String("replay", "", "play only this schedule of TestSchedules")
	every      = flag.Int("every", defaultEvery, "play one in so many of TestSchedules' schedules with faults")
	deep       = flag.Bool("deep", false, "play every combination of TestSchedules: more than two million")
)

// stories are all of them.
func stories() []*story { return slices.Concat(seedStories, ownStories, moreStories) }

// thinnest is the sample that still has every kind of fault of each story.
const thinnest = 20

// mostLives is how often a schedule may have to start its fold.
const mostLives = 20

// play runs the schedule to its end in a bubble, and gives its world with what it counted.
func (o *origin) play(t *testing.T, s schedule, p plant) (w *world, err error) {
	synctest.Test(t, func(t *testing.T) {
		if w, err = o.world(t, s); err != nil {
			return
		}
		w.plant = p
		err = w.play()
	})
	return w, err
}

func (w *world) play() error {
	w.measured = true
	if w.story.during != nil {
		w.story.during(w)
	}
	w.strike()
	for range mostLives {
		rested, err := w.live()
		switch {
		case w.broken != nil:
			return w.broken
		case rested && err == nil && w.plain() && strings.Join(w.plans, ", ") != w.story.plans:
			return fmt.Errorf("repairs were %q, want %q", w.plans, w.story.plans)
		case rested && err == nil && w.plain() && w.owed != w.story.owes:
			return fmt.Errorf("without a fault it ends with %v owed, want %v", w.owed, w.story.owes)
		case rested && err == nil:
			return w.checkExports()
		case rested:
			return err
		case w.mayEnd(err):
		case w.bent && failsClosed(err):
			w.tally.stopped++
			return w.checkExports()
		default:
			return fmt.Errorf("life %d ended: %w", w.tally.lives, err)
		}
	}
	return fmt.Errorf("still not at rest after %d lives", mostLives)
}

// plain reports whether nothing goes wrong but what the story tells.
func (w *world) plain() bool { return len(w.faults) == 0 && w.atLog == nil }

// mayEnd reports whether a life may end so, to be followed by another one.
func (w *world) mayEnd(err error) bool {
	var failStop *fold.FailStopError
	switch {
	case err == nil:
		return w.has(shutdown) || w.story.quits
	case errors.Is(err, errCrash):
		return w.has(crashes...)
	case errors.As(err, &failStop):
		w.tally.failStops++
		return w.has(stuck)
	}
	return errors.Is(err, errDisk) && len(w.faults) > 0 // while it started
}

// failsClosed reports whether a fold that was lied to stopped because it could not be sure.
func failsClosed(err error) bool {
	for _, refusal := range []error{kv.ErrLogRewound, kv.ErrLogReplaced, kv.ErrCursorExpired, fold.ErrRepairRefused} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// replayHint is the command that plays a schedule again.
func replayHint(s schedule) string {
	return fmt.Sprintf("go test ./internal/dst -run '^TestSchedules$' -args -replay '%v'", s)
}

// TestSchedules tells each story with each fault. All end at the truth.
func TestSchedules(t *testing.T) {
	dir := scratch(t)
	if *replayLine != "" {
		replay(t, dir)
		return
	}
	counted.begin()
	t.Run("stories", func(t *testing.T) {
		for _, st := range stories() {
			for _, u := range units(st, *deep) {
				t.Run(fmt.Sprintf("%s/%v", st.id(), u), func(t *testing.T) {
					t.Parallel()
					u.playAll(t, dir)
				})
			}
		}
	})
	counted.check(t)
}

// playAll plays a unit's schedules. After the first that is wrong it goes on, up to a few.
func (u unit) playAll(t *testing.T, dir string) {
	o := begin(t, dir, u.story)
	w, err := o.play(t, u.schedule, plant{})
	if !counted.add(t, w, err) {
		return
	}
	wrong, n := 0, len(u.String()) // so that units begin at different ones
	for s := range u.faulty(w) {
		if n++; n%*every != 0 {
			continue
		}
		w, err := o.play(t, s, plant{})
		if !counted.add(t, w, err) {
			if wrong++; wrong == 5 {
				return
			}
		}
	}
}

// counter adds up what the schedules of each story had.
type counter struct {
	mu    sync.Mutex
	n     map[string]*counts
	began bool
}

type counts struct {
	tally
	schedules, wrong, faulty, hit int
	lies                          map[string]*lieCounts
}

var counted counter

func (c *counter) begin() { c.n, c.began = map[string]*counts{}, true }

// add counts a schedule, and reports whether it was right.
func (c *counter) add(t *testing.T, w *world, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n[w.story.id()]
	if n == nil {
		n = &counts{tally: newTally(), lies: map[string]*lieCounts{}}
		c.n[w.story.id()] = n
	}
	n.schedules++
	n.lives += w.tally.lives
	n.failStops += w.tally.failStops
	n.exports += w.tally.exports
	n.owed += w.tally.owed
	n.stopped += w.tally.stopped
	for plan, times := range w.tally.plans {
		n.plans[plan] += times
	}
	for kind, times := range w.tally.hits {
		n.hits[kind] += times
	}
	if w.bent {
		n.lie(w.atLog.kind, &w.tally)
	}
	if !w.plain() {
		n.faulty++
		if w.tally.fired > 0 {
			n.hit++
		}
	}
	if err != nil {
		n.wrong++
		t.Errorf("%v: %v\nreplay: %s", w.schedule, err, replayHint(w.schedule))
	}
	return err == nil
}

// total is how many schedules were played, and how many of them were wrong.
func (c *counter) total() (schedules, wrong int) {
	for _, n := range c.n {
		schedules += n.schedules
		wrong += n.wrong
	}
	return schedules, wrong
}

// check refuses a story that did not come to what it is told for.
func (c *counter) check(t *testing.T) {
	hits := map[string]int{}
	for _, st := range stories() {
		n := c.n[st.id()]
		if n == nil {
			t.Errorf("%s: no schedule was played", st.name)
			continue
		}
		for kind, times := range n.hits {
			hits[kind] += times
		}
		for _, err := range n.vacuous(st) {
			t.Errorf("%s: %v", st.name, err)
		}
	}
	if *every <= thinnest {
		for _, kind := range slices.Concat(storeFaultKinds, logFaultKinds) {
			if hits[kind] == 0 {
				t.Errorf("no schedule met the fault %q", kind)
			}
		}
		for kind, l := range c.lies() {
			if err := l.check(kind); err != nil {
				t.Error(err)
			}
		}
	}
}

// vacuous is what a story promises and its schedules did not have.
func (n *counts) vacuous(st *story) (problems []error) {
	missing := func(what string) { problems = append(problems, fmt.Errorf("no schedule had %s", what)) }
	for _, plan := range strings.Split(st.plans, ", ") {
		if plan != "" && n.plans[plan] == 0 {
			missing("the repair " + plan)
		}
	}
	if *every > thinnest {
		return problems
	}
	if n.failStops == 0 {
		missing("a fail-stop")
	}
	if n.lives <= n.schedules {
		missing("a second life")
	}
	if n.exports == 0 {
		missing("an export")
	}
	if n.hit < n.faulty/2 {
		problems = append(problems, fmt.Errorf("of %d schedules with faults only %d met one", n.faulty, n.hit))
	}
	return problems
}
