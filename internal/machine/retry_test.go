package machine_test

import (
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// TestFailuresCountOneStage: what hooks failed before they returned is not held against the store.
func TestFailuresCountOneStage(t *testing.T) {
	cfg := machine.Config{HasStore: true, MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 3}
	m, effects := machine.New(cfg, kv.CursorAt(5), kv.Owed{})
	effects = flushOnce(t, m, effects, machine.Opened{Head: 6}, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6)}})
	for range 2 {
		effects = flushOnce(t, m, effects, machine.HooksDone{Err: errBoom}, machine.TimerFired{Timer: machine.TimerRetry})
	}
	effects = flushOnce(t, m, effects, machine.HooksDone{}, machine.StoreDone{Err: errBoom})
	if stop, ok := has[machine.Stop](effects); ok {
		t.Fatalf("the store's first failure stops: %v", stop.Err)
	}
	if arm, ok := has[machine.Arm](effects); !ok || arm.Attempt != 0 || m.Failures() != 1 {
		t.Errorf("the store's first failure armed %+v and is number %d", arm, m.Failures())
	}
}

// TestReopenBeginsAnewAfterAReceive: the pause before a new watch grows while none delivers, and is short again for one
// that did.
func TestReopenBeginsAnewAfterAReceive(t *testing.T) {
	cfg := machine.Config{MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 3}
	m, effects := machine.New(cfg, kv.CursorAt(5), kv.Owed{})
	fails := func(attempt int) {
		t.Helper()
		effects = flushOnce(t, m, effects, machine.OpenFailed{Err: errBoom})
		if arm, ok := has[machine.Arm](effects); !ok || arm.Timer != machine.TimerOpen || arm.Attempt != attempt {
			t.Errorf("armed %+v, want attempt %d", arm, attempt)
		}
		effects = flushOnce(t, m, effects, machine.TimerFired{Timer: machine.TimerOpen})
	}
	for attempt := range 3 {
		fails(attempt)
	}
	received := machine.Received{Segment: machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6)}}
	effects = flushOnce(t, m, effects, machine.Opened{Head: 6}, received, machine.HooksDone{}, machine.WatchEnded{Err: errBoom})
	if arm, ok := has[machine.Arm](effects); !ok || arm.Attempt != 0 {
		t.Errorf("after a watch that delivered: armed %+v, want attempt 0", arm)
	}
}
