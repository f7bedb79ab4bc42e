package fold_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

var errHook = errors.New("hook says no")

// recorder is a hook that notes what it sees.
type recorder struct {
	ft.UnimplementedRouteHooks
	mu     sync.Mutex
	loaded []string
	seen   []string
	apply  func(ctx context.Context, call int, events []ft.RouteEvent) error
	calls  int
}

func (r *recorder) LoadRoute(_ context.Context, rows iter.Seq2[ft.RouteRow, error]) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		r.loaded = append(r.loaded, row.Key.Domain)
	}
	return nil
}

func (r *recorder) ApplyRoute(ctx context.Context, events []ft.RouteEvent) error {
	r.mu.Lock()
	r.calls++
	call := r.calls
	r.mu.Unlock()
	if r.apply != nil {
		if err := r.apply(ctx, call, events); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range events {
		e := &events[i]
		old := "-"
		if v, ok, err := e.Old(); err != nil {
			return err
		} else if ok {
			old = v.NodeId
		}
		r.seen = append(r.seen, fmt.Sprintf("%v %s %s<%s", e.Op, e.Key.Domain, e.New.GetNodeId(), old))
	}
	return nil
}

func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := strings.Join(r.seen, ", ")
	r.seen = nil
	return s
}

func TestHooksSeeEveryChangeInOrder(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		setRoute(t, log, route("t", "a", "1"))
		r := &recorder{}
		o := startOptions{routes: []fold.TableOption{ft.WithRouteHooks(r)}}
		tb := start(t, log, openStore(t, b, dir), o)
		tb.hydrated(t)
		if got := r.take(); got != "put a 1<-" || len(r.loaded) != 0 {
			t.Fatalf("hydrating: %q, loaded %v", got, r.loaded)
		}
		setRoute(t, log, route("t", "a", "2"))
		tb.caughtUp(t, log)
		if got := r.take(); got != "put a 2<1" {
			t.Fatalf("live: %q", got)
		}
		tb.close(t)

		setRoute(t, log, route("t", "b", "3"))
		log.Remove(routeKey("t", "a").String())
		r2 := &recorder{}
		o.routes = []fold.TableOption{ft.WithRouteHooks(r2)}
		tb = start(t, log, openStore(t, b, dir), o)
		if strings.Join(r2.loaded, " ") != "a" {
			t.Fatalf("loaded %v", r2.loaded)
		}
		tb.caughtUp(t, log)
		if got := r2.take(); got != "put b 3<-, delete a <2" {
			t.Fatalf("after the restart: %q", got)
		}
	})
}

// TestOldWithinABatch delivers several changes of one key together.
func TestOldWithinABatch(t *testing.T) {
	log := newHistoryLog(8)
	r := &recorder{}
	for _, n := range []string{"1", "2"} {
		setRoute(t, log, route("t", "a", n))
	}
	dir := t.TempDir()
	tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
	tb.hydrated(t)
	tb.close(t)
	setRoute(t, log, route("t", "a", "3"))
	log.Remove(routeKey("t", "a").String())
	setRoute(t, log, route("t", "a", "4"))
	tb = start(t, log, openStore(t, backends[0], dir), startOptions{routes: []fold.TableOption{ft.WithRouteHooks(r)}})
	tb.caughtUp(t, log)
	if got := r.take(); got != "put a 3<2, delete a <3, put a 4<-" {
		t.Fatalf("%q", got)
	}
}

func TestHookErrorBringsTheBatchAgain(t *testing.T) {
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("panics=%v", panics), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				log := newLog()
				r := &recorder{apply: func(_ context.Context, call int, _ []ft.RouteEvent) error {
					if call < 4 && panics {
						panic("at the disco")
					}
					if call < 4 {
						return errHook
					}
					return nil
				}}
				var failed []int
				tb := start(t, log, openStore(t, backends[0], dir), startOptions{
					routes: []fold.TableOption{ft.WithRouteHooks(r)},
					fold:   fold.Options{Events: fold.Events{FlushFailed: func(_ error, n int) { failed = append(failed, n) }}},
				})
				tb.hydrated(t)
				began := time.Now()
				setRoute(t, log, route("t", "a", "1"))
				tb.caughtUp(t, log)
				if waited := time.Since(began); waited < 350*time.Millisecond || waited > 600*time.Millisecond {
					t.Errorf("three failures took %v of backoff, want 350 ms and up to half of it again", waited)
				}
				if got := r.take(); got != "put a 1<-" || fmt.Sprint(failed) != "[1 2 3]" {
					t.Errorf("seen %q, failures %v", got, failed)
				}
				tb.close(t)
			})
		})
	}
}

func TestHookThatNeverWorksStopsTheFold(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		setRoute(t, log, route("t", "kept", "0"))
		r := &recorder{apply: func(_ context.Context, call int, _ []ft.RouteEvent) error {
			if call > 1 {
				return errHook
			}
			return nil
		}}
		tb := start(t, log, openStore(t, backends[0], dir), startOptions{routes: []fold.TableOption{ft.WithRouteHooks(r)}})
		tb.hydrated(t)
		setRoute(t, log, route("t", "a", "1"))
		<-tb.f.Done()
		var fs *fold.FailStopError
		var he *fold.HookError
		if err := tb.f.Err(); !errors.As(err, &fs) || fs.Failures != 16 || !errors.As(err, &he) || he.Table != "Route" || he.First != 2 || he.Last != 2 || !errors.Is(err, errHook) || !strings.Contains(err.Error(), "16 consecutive times") {
			t.Errorf("stopped with %v", err)
		}
		if st := tb.f.Status(); st.State != fold.StateStopped || st.Applied != 1 {
			t.Errorf("status %+v", st)
		}
		wantRoute(t, tb, "t", "kept", "0")
		wantRoute(t, tb, "t", "a", "")
		if err := tb.f.WaitApplied(bounded(t), fold.Seq(2)); !errors.Is(err, fold.ErrStopped) || !errors.Is(err, errHook) {
			t.Errorf("waiting for what never comes: %v", err)
		}
		tb.close(t)
	})
}

func TestStoreFailureLeavesNoGap(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		r := &recorder{}
		var applied []fold.Applied
		s := &faultStore{Store: openStore(t, backends[0], dir)}
		tb := start(t, log, s, startOptions{
			routes: []fold.TableOption{ft.WithRouteHooks(r)},
			fold:   fold.Options{OnApplied: func(a fold.Applied) { applied = append(applied, a) }},
		})
		tb.hydrated(t)
		s.mu.Lock()
		s.n = 0
		s.apply = func(n int, _ *store.Batch, _ kv.Cursor) error {
			if n <= 5 {
				return errors.New("disk is sulking")
			}
			return nil
		}
		s.mu.Unlock()
		for i := range 5 {
			setRoute(t, log, route("t", fmt.Sprint(i), "n"))
			time.Sleep(20 * time.Millisecond) // virtual: lets each become a batch of its own
		}
		tb.caughtUp(t, log)
		if got := r.take(); got != "put 0 n<-, put 1 n<-, put 2 n<-, put 3 n<-, put 4 n<-" {
			t.Errorf("hooks saw %q: none may run again for a store's failure", got)
		}
		last := uint64(0)
		for _, a := range applied {
			if a.Cursor.Revision() <= last {
				t.Errorf("applied %v after %d", a.Cursor, last)
			}
			last = a.Cursor.Revision()
		}
		if rows := collect(t, tb.routes.List(bounded(t), ft.RouteAll())); len(rows) != 5 || last != 5 {
			t.Errorf("%d rows, last applied %d", len(rows), last)
		}
		tb.close(t)
	})
}

func TestStoreThatNeverWorksStopsTheFold(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		setRoute(t, log, route("t", "kept", "0"))
		s := &faultStore{Store: openStore(t, backends[0], dir)}
		tb := start(t, log, s, startOptions{})
		tb.hydrated(t)
		s.mu.Lock()
		s.apply = func(int, *store.Batch, kv.Cursor) error { return store.ErrDiskFull }
		s.mu.Unlock()
		began := time.Now()
		setRoute(t, log, route("t", "a", "1"))
		<-tb.f.Done()
		if took := time.Since(began); took < 40*time.Second || took > 80*time.Second {
			t.Errorf("16 failures took %v of backoff", took)
		}
		var fs *fold.FailStopError
		if err := tb.f.Err(); !errors.As(err, &fs) || !errors.Is(err, store.ErrDiskFull) || fs.Cursor != kv.CursorAt(1) || fs.Hint() == "" {
			t.Errorf("stopped with %v", err)
		}
		wantRoute(t, tb, "t", "kept", "0")
		tb.close(t)
	})
}

func TestCloseFlushesWhatWasReceived(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		tb := start(t, log, openStore(t, backends[0], dir), startOptions{fold: fold.Options{Batch: fold.BatchOptions{Window: time.Hour}}})
		tb.hydrated(t)
		setRoute(t, log, route("t", "a", "1"))
		synctest.Wait()
		wantRoute(t, tb, "t", "a", "")
		if err := tb.f.Close(); err != nil {
			t.Error(err)
		}
		s := openStore(t, backends[0], dir)
		if s.Cursor() != kv.CursorAt(1) {
			t.Errorf("cursor %v after Close", s.Cursor())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSlowHookAndClose(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		t.Run(fmt.Sprintf("heeds its context=%v", heeds), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				log := newLog()
				r := &recorder{apply: func(ctx context.Context, _ int, _ []ft.RouteEvent) error {
					if !heeds {
						ctx = context.Background()
					}
					select {
					case <-time.After(time.Minute):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}}
				tb := start(t, log, openStore(t, backends[0], dir), startOptions{routes: []fold.TableOption{ft.WithRouteHooks(r)}, fold: fold.Options{ShutdownTimeout: 5 * time.Second}})
				tb.hydrated(t)
				setRoute(t, log, route("t", "a", "1"))
				synctest.Wait()
				began := time.Now()
				err := tb.f.Close()
				if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
					t.Errorf("Close took %v", took)
				}
				var late *fold.ShutdownError
				if !errors.As(err, &late) || late.Pending != 1 || !late.Committed.IsNone() {
					t.Errorf("Close gave %v", err)
				}
				if again := tb.f.Close(); !errors.Is(again, err) {
					t.Errorf("the second Close gave %v", again)
				}
				time.Sleep(time.Minute) // virtual: the hook ends by itself
			})
		})
	}
}

func TestSlowHookIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		r := &recorder{apply: func(context.Context, int, []ft.RouteEvent) error {
			time.Sleep(time.Minute) // virtual
			return nil
		}}
		tb := start(t, log, openStore(t, backends[0], dir), startOptions{routes: []fold.TableOption{ft.WithRouteHooks(r)}})
		tb.hydrated(t)
		for i := range 200 {
			setRoute(t, log, route("t", fmt.Sprint(i), "n"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := tb.f.WaitApplied(ctx, fold.Seq(200)); err != nil {
			t.Error(err)
		}
		if r.calls > 3 {
			t.Errorf("%d calls for 200 updates that came while the hook was busy", r.calls)
		}
		tb.close(t)
	})
}

func TestLoadHookFailureFailsStart(t *testing.T) {
	s := openStore(t, backends[0], t.TempDir())
	defer func() { _ = s.Close() }()
	h := ft.RouteHookFuncs{Load: func(context.Context, iter.Seq2[ft.RouteRow, error]) error { return errHook }}
	_, err := tryStart(t, newLog(), s, startOptions{routes: []fold.TableOption{ft.WithRouteHooks(h)}})
	var he *fold.HookError
	if !errors.As(err, &he) || !errors.Is(err, errHook) || he.Table != "Route" {
		t.Fatalf("start with a failing Load hook: %v", err)
	}
}

// TestCloseIsNoLoss: an orderly end is told to nobody as a lost watch.
func TestCloseIsNoLoss(t *testing.T) {
	var lost []error
	tb := start(t, newLog(), openStore(t, backends[0], t.TempDir()), startOptions{
		fold: fold.Options{Events: fold.Events{WatchLost: func(err error) { lost = append(lost, err) }}},
	})
	tb.hydrated(t)
	tb.close(t)
	if len(lost) > 0 {
		t.Fatalf("Close told of %v", lost)
	}
}

// TestCutAndBurst: a watch of a small bucket is lost, and every key is rewritten before the next one is there. On a log
// that evicts nothing the fold goes on; on one that does, and at a cold start, it is an expiry.
func TestCutAndBurst(t *testing.T) {
	for _, evicts := range []bool{false, true} {
		t.Run(fmt.Sprintf("evicts=%v", evicts), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				log := kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: kvtest.Limits{Evicts: evicts}})
				setRoute(t, log, route("t", "a", "0"))
				tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
				tb.hydrated(t)
				cut := func() {
					log.LoseWatches()
					for i := range 50 {
						setRoute(t, log, route("t", "a", fmt.Sprint(i)))
					}
				}
				cut()
				if evicts {
					ended(t, tb)
					if err := tb.f.Err(); !errors.Is(err, fold.ErrCursorExpired) {
						t.Errorf("stopped with %v", err)
					}
					wantRoute(t, tb, "t", "a", "0")
					tb.close(t)
					return
				}
				tb.caughtUp(t, log)
				wantRoute(t, tb, "t", "a", "49")
				tb.close(t)
				cut()
				off := fold.Options{Repair: fold.RepairOptions{Mode: fold.RepairOff}}
				tb = start(t, log, openStore(t, backends[0], dir), startOptions{fold: off})
				ended(t, tb)
				if err := tb.f.Err(); !errors.Is(err, fold.ErrCursorExpired) {
					t.Errorf("a cold start over a hole stopped with %v", err)
				}
				tb.close(t)
				tb = start(t, log, openStore(t, backends[0], dir), startOptions{})
				tb.caughtUp(t, log)
				wantRoute(t, tb, "t", "a", "49")
				tb.close(t)
			})
		})
	}
}

// TestCutOnALogThatEvicted: a watch of a log that evicts is lost, a value ages out, and nothing is evicted any more when the
// next watch is opened: what is missing was not superseded, so it is an expiry.
func TestCutOnALogThatEvicted(t *testing.T) {
	for name, turnOn := range map[string]func(log *kvtest.Log){
		"when the watch began": func(*kvtest.Log) {},
		"at a reading since": func(log *kvtest.Log) {
			log.SetLimits(kvtest.Limits{Evicts: true})
			time.Sleep(2 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				log := kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: kvtest.Limits{Evicts: name == "when the watch began"}})
				setRoute(t, log, route("t", "a", ""))
				setRoute(t, log, route("t", "a", "0"))
				tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
				tb.hydrated(t)
				turnOn(log)
				log.LoseWatches()
				setRoute(t, log, route("t", "b", "1"))
				setRoute(t, log, route("t", "a", "2"))
				log.EvictTo(4)
				log.SetLimits(kvtest.Limits{})
				ended(t, tb)
				if err := tb.f.Err(); !errors.Is(err, fold.ErrRepairRefused) {
					t.Errorf("it stopped with %v", err)
				}
				wantRoute(t, tb, "t", "a", "0")
				tb.close(t)
			})
		})
	}
}
