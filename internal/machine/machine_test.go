package machine_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

var (
	errBoom  = errors.New("boom")
	errFinal = errors.New("repair refused")
)

func config(t *rapid.T) machine.Config {
	c := machine.Config{
		HasStore: rapid.IntRange(0, 3).Draw(t, "store") > 0, Windowed: rapid.Bool().Draw(t, "windowed"),
		MaxUpdates: rapid.IntRange(1, 4).Draw(t, "max"), BulkUpdates: rapid.IntRange(1, 8).Draw(t, "bulk"),
		QueueUpdates: rapid.IntRange(1, 8).Draw(t, "queue"), MaxFailures: 4,
	}
	c.CanRepair = c.HasStore && rapid.IntRange(0, 3).Draw(t, "repair") > 0
	for _, bytes := range []*int{&c.MaxBytes, &c.BulkBytes, &c.QueueBytes} {
		*bytes = rapid.SampledFrom([]int{15, 35, 1000}).Draw(t, "bytes")
	}
	return c
}

// TestCatchesUp: without faults everything written is committed, and the fold is hydrated.
func TestCatchesUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := config(t)
		m, effects := machine.New(cfg, kv.Cursor{}, kv.Owed{})
		head := uint64(rapid.IntRange(0, 40).Draw(t, "head"))
		at, id, hydrated := uint64(0), uint64(0), false
		for n := 0; m.Committed().Revision() < head || !hydrated; n++ {
			if n > 1000 || len(effects) == 0 {
				t.Fatalf("stuck at %v of %d, hydrated %v", m.Committed(), head, hydrated)
			}
			var inputs []machine.Input
			for _, e := range effects {
				switch e := e.(type) {
				case machine.OpenWatch:
					inputs = append(inputs, machine.Opened{Head: head, Backlog: head - at})
				case machine.Receive:
					k := min(uint64(e.Max), head-at, 3)
					if k == 0 {
						continue // blocks: there is nothing
					}
					at, id = at+k, id+1
					s := machine.Segment{ID: id, Updates: int(k), High: kv.Revision(at)}
					inputs = append(inputs, machine.Received{Segment: s})
				case machine.RunHooks:
					inputs = append(inputs, machine.HooksDone{})
				case machine.ApplyStore:
					inputs = append(inputs, machine.StoreDone{})
				case machine.Arm:
					inputs = append(inputs, machine.TimerFired{Timer: e.Timer})
				case machine.Repair:
					inputs = append(inputs, machine.Repaired{Cursor: e.Committed, Relist: true})
				case machine.CaughtUp:
					if !e.First || !e.Relisted {
						t.Fatalf("%+v of a first watch", e)
					}
					hydrated = true
				}
			}
			effects = nil
			for _, in := range inputs {
				effects = m.Step(in, effects)
			}
		}
	})
}

func flushOnce(t *testing.T, m *machine.M, effects []machine.Effect, in ...machine.Input) []machine.Effect {
	t.Helper()
	for _, i := range in {
		effects = m.Step(i, effects[:0])
	}
	return effects
}

func has[E machine.Effect](effects []machine.Effect) (e E, ok bool) {
	for _, x := range effects {
		if e, ok = x.(E); ok {
			return e, true
		}
	}
	return e, false
}

// TestFailStop: the 16th failure in a row of one flush's store apply stops with a typed error, hooks not run again.
func TestFailStop(t *testing.T) {
	cfg := machine.Config{HasStore: true, MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 16}
	m, effects := machine.New(cfg, kv.CursorAt(5), kv.Owed{})
	effects = flushOnce(t, m, effects, machine.Opened{Head: 6}, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6)}}, machine.HooksDone{})
	for n := 1; ; n++ {
		if _, ok := has[machine.ApplyStore](effects); !ok {
			t.Fatalf("no store apply before failure %d: %v", n, effects)
		}
		effects = m.Step(machine.StoreDone{Err: errBoom}, effects[:0])
		if stop, ok := has[machine.Stop](effects); ok {
			var fs *machine.FailStopError
			if n != 16 || !errors.As(stop.Err, &fs) || fs.Failures != 16 || fs.Cursor != kv.CursorAt(5) || !errors.Is(stop.Err, errBoom) || fs.What != machine.FailedStore {
				t.Fatalf("after %d failures: %v", n, stop.Err)
			}
			return
		}
		arm, ok := has[machine.Arm](effects)
		if !ok || arm.Timer != machine.TimerRetry || arm.Attempt != n-1 {
			t.Fatalf("failure %d armed %+v", n, arm)
		}
		effects = m.Step(machine.TimerFired{Timer: machine.TimerRetry}, effects[:0])
		if _, again := has[machine.RunHooks](effects); again {
			t.Fatal("hooks run again after a store failure")
		}
	}
}

// TestBulkEndsWithTheHydrate: what is far behind is gathered, and nothing after it has caught up.
func TestBulkEndsWithTheHydrate(t *testing.T) {
	cfg := machine.Config{MaxUpdates: 1, MaxBytes: 100, BulkUpdates: 4, BulkBytes: 400, QueueUpdates: 1, QueueBytes: 100, MaxFailures: 16}
	m, effects := machine.New(cfg, kv.CursorAt(5), kv.Owed{})
	effects = flushOnce(t, m, effects, machine.Opened{Head: 9, Backlog: 4})
	if r, ok := has[machine.Receive](effects); !ok || r != (machine.Receive{Max: 4, MaxBytes: 400, Gather: true}) {
		t.Fatalf("far behind: %+v", r)
	}
	flushOnce(t, m, effects, machine.Received{Segment: machine.Segment{ID: 1, Updates: 4, High: kv.Revision(9)}}, machine.HooksDone{})
	effects = m.Step(machine.Received{Segment: machine.Segment{ID: 2, Updates: 1, High: kv.Revision(10)}}, nil)
	if r, ok := has[machine.RunHooks](effects); !ok || r.Flush.Bulk {
		t.Errorf("caught up: %+v", r)
	}
	if r, ok := has[machine.Receive](effects); !ok || r != (machine.Receive{Max: 1, MaxBytes: 100}) {
		t.Errorf("caught up: %+v", r)
	}
}

// TestAFullFlushWaitsForNoWindow: a flush begins as soon as there are as many updates, or bytes, as one may have.
func TestAFullFlushWaitsForNoWindow(t *testing.T) {
	cfg := machine.Config{Windowed: true, MaxUpdates: 2, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 1000, MaxFailures: 16}
	for _, c := range []struct {
		s    machine.Segment
		full bool
	}{
		{machine.Segment{ID: 1, Updates: 1, Bytes: 99}, false}, {machine.Segment{ID: 1, Updates: 1, Bytes: 100}, true},
		{machine.Segment{ID: 1, Updates: 2, Bytes: 9}, true},
	} {
		m, effects := machine.New(cfg, kv.CursorAt(5), kv.Owed{})
		c.s.High = kv.Revision(6)
		effects = flushOnce(t, m, effects, machine.Opened{Head: 9}, machine.Received{Segment: c.s})
		if _, ok := has[machine.RunHooks](effects); ok != c.full {
			t.Errorf("%+v: it is flushed: %v", c.s, ok)
		}
	}
}

// TestUnknownRevision: an update of unknown revision is flushed and moves nothing.
func TestUnknownRevision(t *testing.T) {
	cfg := machine.Config{MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 16}
	m, effects := machine.New(cfg, kv.CursorAt(5), kv.Owed{})
	effects = flushOnce(t, m, effects, machine.Opened{Head: 5}, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1}}, machine.HooksDone{})
	c, ok := has[machine.Committed](effects)
	if !ok || c.Moved || m.Committed() != kv.CursorAt(5) {
		t.Fatalf("committed %+v, cursor %v", c, m.Committed())
	}
}

// TestMemoSurvives: the cursor's memo is carried, with the time of the message that moved it.
func TestMemoSurvives(t *testing.T) {
	cfg := machine.Config{MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 16}
	resume := kv.Cursor{Version: kv.Revision(5), SeenEvicting: true, WrittenAt: 1}
	m, effects := machine.New(cfg, resume, kv.Owed{})
	effects = flushOnce(t, m, effects, machine.Opened{Head: 9}, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6), HighMillis: 77}}, machine.HooksDone{})
	if want := (kv.Cursor{Version: kv.Revision(6), SeenEvicting: true, WrittenAt: 77}); m.Committed() != want {
		t.Fatalf("cursor %+v, want %+v", m.Committed(), want)
	}
	flushOnce(t, m, effects, machine.Received{Segment: machine.Segment{ID: 2, Updates: 1, High: kv.Revision(7), HighMillis: 78, Frontier: 9}}, machine.HooksDone{})
	if want := (kv.Cursor{Version: kv.Revision(9), SeenEvicting: true}); m.Committed() != want {
		t.Fatalf("cursor %+v after a frontier, want %+v", m.Committed(), want)
	}
}

func TestBackoff(t *testing.T) {
	want := []int64{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000}
	for i, ms := range want {
		if got := machine.Backoff(i).Milliseconds(); got != ms {
			t.Errorf("Backoff(%d) = %d ms, want %d", i, got, ms)
		}
	}
	if got := machine.Backoff(-1).Milliseconds(); got != 50 {
		t.Errorf("Backoff(-1) = %d ms, want 50", got)
	}
	if got := machine.Backoff(1 << 40).Milliseconds(); got != 5000 {
		t.Errorf("Backoff(huge) = %d ms, want 5000", got)
	}
}
