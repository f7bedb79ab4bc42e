package fold_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// createdIn is the log's creation time that a batch commits; 0 when it has none.
func createdIn(t *testing.T, b *store.Batch) int64 {
	t.Helper()
	for _, op := range b.Ops {
		if string(op.Key) != string(store.MetaKey(store.MetaLog)) {
			continue
		}
		i, err := kv.ParseIncarnation(op.Value)
		if err != nil {
			t.Error(err)
		}
		return i.CreatedUnixNano
	}
	return 0
}

// TestLogAndCursorMoveTogether: the memo that a repair learned is committed before its outcome, at a second try, and does
// not yet name the log that the outcome moves to.
func TestLogAndCursorMoveTogether(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			log := newLog()
			for _, domain := range []string{"a", "b", "c"} {
				setRoute(t, log, route("t", domain, "1"))
			}
			tb := start(t, log, openStore(t, b, dir), startOptions{})
			tb.caughtUp(t, log)
			tb.close(t)

			log.Recreate()
			log.SetLimits(kvtest.Limits{Evicts: true})
			setRoute(t, log, route("t", "a", "2"))
			setRoute(t, log, route("t", "b", "2"))
			log.EvictTo(2)
			info, err := log.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			failed := false
			s := &faultStore{Store: openStore(t, b, dir), apply: func(_ int, b *store.Batch, c kv.Cursor) error {
				if c.Revision() == 3 && createdIn(t, b) == info.Created.UnixNano() {
					t.Errorf("the new log is committed with the old one's cursor %v", c)
				}
				if c.Revision() == 3 && c.SeenEvicting && !failed {
					failed = true
					return errors.New("no room")
				}
				return nil
			}}
			tb = start(t, log, s, startOptions{fold: fold.Options{Repair: fold.RepairOptions{AdoptNewLog: true}}})
			time.Sleep(time.Minute)
			tb.caughtUp(t, log)
			wantRoute(t, tb, "t", "a", "")
			wantRoute(t, tb, "t", "b", "2")
			tb.close(t)
			if known, err := store.LogOf(openAgain(t, b, dir)); err != nil || known.CreatedUnixNano != info.Created.UnixNano() || !failed {
				t.Errorf("the store knows a log of %d, %v, and the memo failed: %v", known.CreatedUnixNano, err, failed)
			}
		})
	})
}

// TestEachTryOfARepairIsTold, with its end, and Status has the last one.
func TestEachTryOfARepairIsTold(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		setRoute(t, log, route("t", "a", "1"))
		tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
		tb.caughtUp(t, log)
		tb.close(t)
		for range 3 {
			setRoute(t, log, route("t", "b", "1"))
		}
		log.EvictTo(4)
		log.Inject(kvtest.Fault{At: kvtest.PointList, Fail: true})
		var started int
		var done []string
		tb = start(t, log, openStore(t, backends[0], dir), startOptions{fold: fold.Options{Events: fold.Events{
			RepairStarted: func(error) { started++ },
			RepairDone:    func(r *fold.RepairReport) { done = append(done, r.Error) },
		}}})
		time.Sleep(time.Minute)
		tb.caughtUp(t, log)
		r := tb.f.Status().Repair
		tb.close(t)
		if started != 2 || len(done) != 2 || done[0] == "" || done[1] != "" {
			t.Errorf("%d repairs started, ended with %q", started, done)
		}
		if r == nil || r.Error != "" || r.Deleted != 1 {
			t.Errorf("status has %+v", r)
		}
	})
}

// TestRepairHeedsAnEvictionToldMeanwhile: while a re-list lists, the log begins to evict, loses a value, is seen to have, and
// evicts nothing any more before the listing ends: what is not listed was not deleted.
func TestRepairHeedsAnEvictionToldMeanwhile(t *testing.T) {
	for name, folded := range map[string]bool{"of a key that the fold has": true, "of a key that is new to it": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				log := newLog()
				setRoute(t, log, route("t", "a", "1"))
				if folded {
					setRoute(t, log, route("t", "b", "1"))
				}
				tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
				tb.caughtUp(t, log)
				tb.close(t)
				for _, v := range []string{"2", "3"} {
					setRoute(t, log, route("t", "b", v))
					setRoute(t, log, route("t", "a", v))
				}
				log.Inject(
					kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) {
						l.SetLimits(kvtest.Limits{Evicts: true})
						l.EvictTo(l.Bounds().Last)
					}, Delay: 2 * time.Minute},
					kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) { l.SetLimits(kvtest.Limits{}) }},
				)
				tb = start(t, log, openStore(t, backends[0], dir), startOptions{})
				time.Sleep(3 * time.Minute)
				ended(t, tb)
				if err := tb.f.Err(); !errors.Is(err, fold.ErrRepairRefused) {
					t.Errorf("it stopped with %v", err)
				}
				if folded {
					wantRoute(t, tb, "t", "b", "1")
				}
				tb.close(t)
			})
		})
	}
}

// openAgain opens a store that was closed; the test's end closes it.
func openAgain(t *testing.T, b backend, dir string) store.Store {
	t.Helper()
	s := openStore(t, b, dir)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
