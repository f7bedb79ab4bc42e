package dst

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

// The tests of this file and of failure_restore_test.go are named after the rows of docs/failure-modes.md.

// failing tells a story up to the fold's start, on each store, then hands the world over.
func failing(t *testing.T, st *story, f func(w *world)) {
	t.Helper()
	for _, backend := range []string{storeLog, storePebble} {
		t.Run(backend, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dir, schedule{story: st, backend: backend, face: faceFold, order: orderBurst})
				st.before(w)
				w.measured = true
				if st.during != nil {
					st.during(w)
				}
				f(w)
			})
		})
	}
}

// wantTruth runs the fold until it is at rest, at the truth, after these repairs.
func (w *world) wantTruth(plans string) {
	w.t.Helper()
	w.plans = nil
	rested, err := w.live()
	if got := strings.Join(w.plans, ", "); err != nil || !rested || got != plans {
		w.t.Fatalf("at rest %v, after repairs %q, want %q: %v", rested, got, plans, err)
	}
}

// onDisk are the fold's rows and cursor while it does not run.
func (w *world) onDisk() (map[string]row, kv.Cursor) {
	w.t.Helper()
	s, err := w.disk.open()
	if err != nil {
		w.t.Fatal(err)
	}
	rows, err := rowsOf(s)
	c := s.Cursor()
	if err := errors.Join(err, s.Close()); err != nil {
		w.t.Fatal(err)
	}
	return rows, c
}

// stopped waits until the fold has ended by itself.
func (w *world) stopped() error {
	w.t.Helper()
	select {
	case <-w.f.Done():
		return w.f.Err()
	case <-time.After(time.Hour):
		w.t.Fatalf("the fold goes on: %+v", w.f.Status())
		return nil
	}
}

// wantStop runs the fold, which has to stop with an error that matches and says why, and to serve what it held, which
// stays as it was.
func (w *world) wantStop(match error, why string) {
	w.t.Helper()
	before, at := w.onDisk()
	face, err := w.start()
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.stopped()
	var hint interface{ Hint() string }
	if !errors.Is(err, match) || !strings.Contains(err.Error(), why) || !errors.As(err, &hint) || hint.Hint() == "" {
		w.t.Errorf("stopped with %v, want %v with %q and a hint", err, match, why)
	}
	if s := w.f.Status(); s.State != fold.StateStopped || !strings.Contains(s.Error, why) {
		w.t.Errorf("status %s, error %q", s.State, s.Error)
	}
	for key := range before {
		if row, ok, err := w.routes.GetRow(context.Background(), keyOf(key)); err != nil || !ok || row.Rev.Seq() == 0 {
			w.t.Errorf("read of %s: %v, %v, %v", key, row, ok, err)
		}
	}
	if err := face.stop(); err != nil {
		w.t.Error(err)
	}
	rows, cursor := w.onDisk()
	if !maps.Equal(rows, before) || cursor.Revision() != at.Revision() {
		w.t.Errorf("the fold was at %v, is at %v; changed: %s", at, cursor, differ(rows, before))
	}
}

// told is one of the stories that TestSchedules tells.
func told(t *testing.T, name string) *story {
	t.Helper()
	for _, s := range stories() {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no story %q", name)
	return nil
}

func TestFailure_StoreApply_Transient(t *testing.T) {
	failing(t, &story{before: func(w *world) { w.write("n.a") }}, func(w *world) {
		w.faults = []storeFault{{stuck, 3}}
		face, err := w.start()
		if err != nil {
			w.t.Fatal(err)
		}
		synctest.Wait()
		w.write("n.b", "n.a")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		s := w.f.Status()
		if s.Failures < 1 || s.Applied != 1 || s.State == fold.StateStopped {
			w.t.Errorf("after a failed apply: %+v", s)
		}
		w.mu.Lock()
		w.faults = nil
		w.mu.Unlock()
		w.write("n.c")
		if err := w.f.WaitApplied(hour(w.t), fold.Seq(4)); err != nil {
			w.t.Fatal(err)
		}
		if s := w.f.Status(); s.Failures != 0 || s.Updates != 4 {
			w.t.Errorf("once it works: %d failures, %d updates", s.Failures, s.Updates)
		}
		if err := face.stop(); err != nil {
			w.t.Error(err)
		}
		if rows, _ := w.onDisk(); differ(rows, w.truth()) != "" {
			w.t.Error(differ(rows, w.truth()))
		}
	})
}

func TestFailure_StoreApply_SixteenInARow(t *testing.T) {
	failing(t, &story{before: func(w *world) {
		w.write("n.a")
		w.follow()
		w.write("n.b", "-n.a")
	}}, func(w *world) {
		w.faults = []storeFault{{stuck, 1}}
		w.wantStop(errDisk, "failed 16 consecutive times")
		var failStop *fold.FailStopError
		if err := w.f.Err(); !errors.As(err, &failStop) || failStop.Failures != fold.MaxFailures || failStop.Cursor.Revision() != 1 {
			w.t.Errorf("stopped with %v", err)
		}
		w.faults = nil
		w.wantTruth("") // a restart folds on from the last good cursor
	})
}

func TestFailure_LiveOverrun_WholeBucket(t *testing.T) {
	failing(t, told(t, "expired while it watched, restored"), func(w *world) { w.wantTruth("restore") })
}

// TestFailure_LiveOverrun_PrefixScope: it is noticed at once, by the frontier that a scope's watch keeps.
func TestFailure_LiveOverrun_PrefixScope(t *testing.T) {
	failing(t, told(t, "a prefix expired while it watched, restored"), func(w *world) {
		w.wantTruth("restore")
		if w.lives != 2 {
			w.t.Errorf("it took %d starts", w.lives)
		}
	})
}

// TestFailure_Listing: a listing that fails is tried again, and nothing moves until one works.
func TestFailure_Listing(t *testing.T) {
	failing(t, &story{before: relisted}, func(w *world) {
		w.log.Inject(kvtest.Fault{At: kvtest.PointList, Fail: true, Times: 1 << 20})
		before, at := w.onDisk()
		opens := w.log.Calls(kvtest.PointOpen)
		face, err := w.start()
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s := w.f.Status()
		if s.State != fold.StateWaiting && s.State != fold.StateRepairing || !strings.Contains(s.WatchError, kvtest.ErrInjected.Error()) || s.Applied != at.Revision() {
			w.t.Errorf("while listings fail: %+v", s)
		}
		if row, ok, err := w.routes.GetRow(hour(w.t), keyOf("route.n.dead")); err != nil || !ok {
			w.t.Errorf("a read meanwhile: %v %v %v", row, ok, err)
		}
		rows, err := rowsOf(w.store)
		if err != nil || !maps.Equal(rows, before) {
			w.t.Errorf("the fold changed: %s (%v)", differ(rows, before), err)
		}
		lists := w.log.Calls(kvtest.PointList)
		if lists < 60 || lists > 700 { // every 5 to 7.5 s
			w.t.Errorf("%d listings in ten minutes", lists)
		}
		if n := w.log.OpenWatches(); n != 0 {
			w.t.Errorf("%d watches are open, after %d more calls of Open", n, w.log.Calls(kvtest.PointOpen)-opens)
		}
		w.log.ClearFaults()
		if err := w.f.WaitApplied(hour(w.t), fold.Seq(w.head())); err != nil {
			w.t.Fatal(err)
		}
		if rows, err := rowsOf(w.store); err != nil || differ(rows, w.truth()) != "" {
			w.t.Errorf("%s (%v)", differ(rows, w.truth()), err)
		}
		if err := face.stop(); err != nil {
			w.t.Error(err)
		}
	})
}

func TestFailure_CursorExpired_BucketKeepsCurrentValues(t *testing.T) {
	failing(t, &story{before: relisted}, func(w *world) { w.wantTruth("relist") })
}

func TestFailure_CursorExpired_RepairsOff(t *testing.T) {
	off := fold.RepairOptions{Mode: fold.RepairOff}
	failing(t, &story{repair: off, before: relisted}, func(w *world) { w.wantStop(fold.ErrCursorExpired, "repairs are off") })
}

func TestFailure_DataWithoutCursor(t *testing.T) {
	failing(t, told(t, "data without a cursor, re-listed"), func(w *world) { w.wantTruth("relist") })
}

// TestFailure_DataWithoutCursor_RepairsOff: it stops, where a re-list would keep what was deleted.
func TestFailure_DataWithoutCursor_RepairsOff(t *testing.T) {
	off := *told(t, "data without a cursor, re-listed")
	off.repair.Mode = fold.RepairOff
	failing(t, &off, func(w *world) { w.wantStop(fold.ErrRepairRefused, "repairs are off") })
}

// TestFailure_WatchLost: the watch is opened again by itself, from where it was.
func TestFailure_WatchLost(t *testing.T) {
	failing(t, &story{
		before: func(w *world) { w.write("n.a", "n.b", "n.c", "-n.b") },
		during: func(w *world) { w.deliver(1, (*kvtest.Log).LoseWatches) },
	}, func(w *world) {
		w.arm(kvtest.Fault{At: kvtest.PointOpen, Skip: 1, Fail: true, Times: 3})
		w.wantTruth("")
	})
}

// TestFailure_Shutdown: what was received is committed, and a repair that is cut short is begun again.
func TestFailure_Shutdown(t *testing.T) {
	failing(t, told(t, "asked to end within a listing, re-listed at the next start"), func(w *world) {
		if rested, err := w.live(); rested || err != nil {
			w.t.Fatalf("at rest %v: %v", rested, err)
		}
		w.wantTruth("relist")
	})
}

func hour(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// waitUntil waits until something holds, for an hour at most.
func waitUntil(w *world, holds func() bool) {
	w.t.Helper()
	for range 720 {
		synctest.Wait()
		if holds() {
			return
		}
		time.Sleep(5 * time.Second)
	}
	w.t.Errorf("it does not come to that: %+v", w.f.Status())
}
