package fold_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

func TestWatchOrderAndPrefixes(t *testing.T) {
	feedTest(t, startOptions{fold: fold.Options{Batch: fold.BatchOptions{Window: time.Second}}}, func(t *testing.T, log *kvtest.Log, tb *tables) {
		all := watch(tb.routes.Table, nil, showRoute)
		t1 := watch(tb.routes.Table, []ft.RoutePrefix{ft.RouteByTenant("t1")}, showRoute)
		two := watch(tb.routes.Table, []ft.RoutePrefix{ft.RouteByTenant("t2"), ft.RouteByTenant("t10"), ft.RouteByTenant("t2")}, showRoute)
		synctest.Wait()
		for _, tenant := range []string{"t1", "t10", "t2", "t1"} {
			setRoute(t, log, route(tenant, "d", "n"))
		}
		synctest.Wait() // received, before a purge takes it from the log
		log.Remove("route.t1.d")
		set(t, log, "route.t1.d.meta", &foldtestv1.RouteMeta{Tenant: "t1", Domain: "d"})
		log.Set("route.t1.d", "\xff") // refused, and kept
		if _, err := log.Delete(t.Context(), "route.t2.d", kv.DeleteOptions{Purge: true}); err != nil {
			t.Error(err)
		}
		log.AgeOut("route.t10.d", true)
		tb.caughtUp(t, log)
		for _, c := range []struct {
			name string
			w    *watcher
			want string
		}{
			{"all", all, "1 put t1/d=n, 2 put t10/d=n, 3 put t2/d=n, 4 put t1/d=n, 5 delete t1/d, 8 purge t2/d, 9 aged_out t10/d"},
			{"one tenant", t1, "1 put t1/d=n, 4 put t1/d=n, 5 delete t1/d"},
			{"two tenants", two, "2 put t10/d=n, 3 put t2/d=n, 8 purge t2/d, 9 aged_out t10/d"},
		} {
			if got := c.w.take(); got != c.want {
				t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
			}
			c.w.cancel()
			if err := c.w.end(t); !errors.Is(err, context.Canceled) {
				t.Errorf("%s ended with %v", c.name, err)
			}
		}
	})
}

func TestWatchWithOld(t *testing.T) {
	// One batch holds several changes of one key.
	feedTest(t, startOptions{fold: fold.Options{Batch: fold.BatchOptions{Window: time.Second}}}, func(t *testing.T, log *kvtest.Log, tb *tables) {
		setRoute(t, log, route("t", "a", "1"))
		tb.caughtUp(t, log)
		w := watch(tb.routes.Table, nil, showRoute, fold.WithOld())
		plain := watch(tb.routes.Table, nil, showRoute)
		synctest.Wait()
		setRoute(t, log, route("t", "a", "2"))
		setRoute(t, log, route("t", "a", "3"))
		log.Set("route.t.a", "\xff")
		setRoute(t, log, route("t", "a", "4"))
		log.Remove("route.t.a")
		setRoute(t, log, route("t", "a", "5"))
		tb.caughtUp(t, log)
		setRoute(t, log, route("t", "a", "6"))
		tb.caughtUp(t, log)
		if got, want := w.take(), "2 put t/a=2<1, 3 put t/a=3<2, 5 put t/a=4<3, 6 delete t/a<4, 7 put t/a=5<-, 8 put t/a=6<5"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if got := plain.take(); strings.Contains(got, "<") {
			t.Errorf("a watch without WithOld has old values: %s", got)
		}
		w.cancel()
		plain.cancel()
	})
}

// TestWatchThatBeginsWithinACommit: whatever it is told of, it knows the old value of.
func TestWatchThatBeginsWithinACommit(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		s := &faultStore{Store: openStore(t, backends[0], dir)}
		tb := start(t, log, s, startOptions{})
		tb.hydrated(t)
		setRoute(t, log, route("t", "a", "1"))
		tb.caughtUp(t, log)
		held, release := make(chan struct{}), make(chan struct{})
		s.mu.Lock()
		s.apply = func(int, *store.Batch, kv.Cursor) error {
			if held != nil {
				close(held)
				held = nil
				<-release
			}
			return nil
		}
		s.mu.Unlock()
		began := held
		setRoute(t, log, route("t", "a", "2"))
		<-began
		w := watch(tb.routes.Table, nil, showRoute, fold.WithOld())
		late := watch(tb.routes.Table, nil, showRoute, fold.WithOld(), fold.WithInitial())
		for range 100 {
			runtime.Gosched() // lets them come as far as they can
		}
		close(release)
		tb.caughtUp(t, log)
		synctest.Wait() // both have begun
		setRoute(t, log, route("t", "a", "3"))
		tb.caughtUp(t, log)
		// Each began before the commit or after it, and knows all old values either way.
		if got := w.take(); got != "3 put t/a=3<2" && got != "2 put t/a=2<1, 3 put t/a=3<2" {
			t.Error(got)
		}
		if got := late.take(); got != "2 put t/a=2<- hydrating, 3 put t/a=3<2" && got != "1 put t/a=1<- hydrating, 2 put t/a=2<1, 3 put t/a=3<2" {
			t.Error(got)
		}
		w.cancel()
		late.cancel()
		tb.close(t)
	})
}

func TestWatchWithInitial(t *testing.T) {
	feedTest(t, startOptions{}, func(t *testing.T, log *kvtest.Log, tb *tables) {
		setRoute(t, log, route("t1", "a", "1"))
		setRoute(t, log, route("t2", "a", "2"))
		setRoute(t, log, route("t1", "b", "3"))
		log.Set("route.t1.b", "\xff")
		tb.caughtUp(t, log)
		all := watch(tb.routes.Table, nil, showRoute, fold.WithInitial())
		both := watch(tb.routes.Table, []ft.RoutePrefix{ft.RouteByTenant("t1"), ft.RouteAll(), ft.RouteByTenant("t1")}, showRoute, fold.WithInitial())
		t2 := watch(tb.routes.Table, []ft.RoutePrefix{ft.RouteByTenant("t2")}, showRoute, fold.WithInitial())
		synctest.Wait()
		setRoute(t, log, route("t2", "a", "5"))
		tb.caughtUp(t, log)
		for _, w := range []*watcher{all, both} {
			if got, want := w.take(), "1 put t1/a=1 hydrating, 3 put t1/b=3 hydrating, 2 put t2/a=2 hydrating, 5 put t2/a=5"; got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		if got, want := t2.take(), "2 put t2/a=2 hydrating, 5 put t2/a=5"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		all.cancel()
		both.cancel()
		t2.cancel()
	})
}

// TestWatchWithInitialUnderWrites begins watches while writes go on: each must see exactly one value after the other.
func TestWatchWithInitialUnderWrites(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		const writes = 2000
		log := newHistoryLog(writes + 1)
		tb := start(t, log, openStore(t, b, t.TempDir()), startOptions{})
		setRoute(t, log, route("t", "n", "0"))
		tb.caughtUp(t, log)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range writes {
				setRoute(t, log, route("t", "n", fmt.Sprint(i+1)))
			}
		})
		ctx := bounded(t)
		for range 8 {
			wg.Go(func() {
				next, began := 0, false
				for e, err := range tb.routes.Watch(ctx, nil, fold.WithInitial(), fold.WithOld(), fold.WithBuffer(writes+1)) {
					if err != nil {
						t.Error(err)
						return
					}
					var n int
					if _, err := fmt.Sscan(e.New.NodeId, &n); err != nil || began && n != next {
						t.Errorf("value %d (%v), want %d", n, err, next)
						return
					}
					if old, had, err := e.Old(); err != nil || had != began || had && old.NodeId != fmt.Sprint(n-1) {
						t.Errorf("old value of %d: %v %v %v", n, old, had, err)
						return
					}
					if next, began = n+1, true; n == writes {
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestWatchThatLags(t *testing.T) {
	feedTest(t, startOptions{}, func(t *testing.T, log *kvtest.Log, tb *tables) {
		gate := make(chan struct{})
		first := true
		w := watch(tb.routes.Table, nil, func(e *ft.RouteEvent) string {
			if first {
				first = false
				<-gate
			}
			return showRoute(e)
		}, fold.WithBuffer(3))
		synctest.Wait()
		for i := range 8 {
			setRoute(t, log, route("t", "a", fmt.Sprint(i)))
			tb.caughtUp(t, log)
			synctest.Wait()
		}
		close(gate)
		if got, want := w.take(), "1 put t/a=0, 2 put t/a=1, 3 put t/a=2, 4 put t/a=3"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		var lagged *fold.LaggedError
		if err := w.end(t); !errors.As(err, &lagged) || lagged.Buffer != 3 || lagged.Table != "Route" || !errors.Is(err, fold.ErrLagged) || lagged.Hint() == "" {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestWatchThatBreaks: the next range begins anew, and nothing was kept for the one that broke off.
func TestWatchThatBreaks(t *testing.T) {
	feedTest(t, startOptions{}, func(t *testing.T, log *kvtest.Log, tb *tables) {
		seq := tb.routes.Watch(t.Context(), nil, fold.WithBuffer(1), fold.WithOld())
		for range 3 {
			done := make(chan string)
			go func() {
				for e, err := range seq {
					done <- fmt.Sprint(showRoute(&e), err)
					break
				}
				close(done)
			}()
			synctest.Wait()
			rev := setRoute(t, log, route("t", "a", "x"))
			if got := <-done; !strings.HasPrefix(got, fmt.Sprintf("%d put t/a=x", rev)) {
				t.Errorf("%s, want revision %d", got, rev)
			}
			<-done
			for range 5 { // more than the buffer holds: nobody may lag
				setRoute(t, log, route("t", "a", "y"))
				tb.caughtUp(t, log)
			}
		}
	})
}

func TestWatchEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		s := openStore(t, backends[0], dir)
		tb := start(t, log, s, startOptions{})
		tb.hydrated(t)
		closed := watch(tb.routes.Table, nil, showRoute)
		synctest.Wait()
		tb.close(t)
		var stopped *fold.StoppedError
		if err := closed.end(t); !errors.As(err, &stopped) || stopped.Err != nil || !errors.Is(err, fold.ErrStopped) {
			t.Errorf("after Close: %v", err)
		}
		if err := watch(tb.routes.Table, nil, showRoute).end(t); !errors.Is(err, fold.ErrStopped) {
			t.Errorf("a watch that begins after Close: %v", err)
		}
		if err := watch(tb.routes.Table, nil, showRoute, fold.WithInitial()).end(t); !errors.Is(err, fold.ErrStopped) {
			t.Errorf("a watch of the rows that begins after Close: %v", err)
		}

		tb = start(t, log, openStore(t, backends[0], dir), startOptions{})
		tb.hydrated(t)
		setRoute(t, log, route("t", "a", "1"))
		tb.caughtUp(t, log)
		failed := watch(tb.routes.Table, nil, showRoute)
		synctest.Wait()
		log.Set("halted.AB", "\xff")
		<-tb.f.Done()
		var halt *fold.HaltError
		if err := failed.end(t); !errors.Is(err, fold.ErrStopped) || !errors.As(err, &halt) {
			t.Errorf("after a halt: %v", err)
		}
		late := watch(tb.routes.Table, nil, showRoute, fold.WithInitial())
		if got := late.take(); got != "1 put t/a=1 hydrating" {
			t.Errorf("the rows of a stopped fold: %s", got)
		}
		if err := late.end(t); !errors.Is(err, fold.ErrStopped) {
			t.Errorf("and then %v", err)
		}
		tb.close(t)
	})
}

// TestWatchHeedsItsContext while events keep coming.
func TestWatchHeedsItsContext(t *testing.T) {
	feedTest(t, startOptions{}, func(t *testing.T, log *kvtest.Log, tb *tables) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		go func() {
			synctest.Wait()
			setRoute(t, log, route("t", "a", "0"))
		}()
		var last error
		for _, err := range tb.routes.Watch(ctx, nil) {
			if last = err; err != nil {
				break
			}
			n++
			cancel()
			setRoute(t, log, route("t", "a", fmt.Sprint(n)))
			tb.caughtUp(t, log)
		}
		if n != 1 || !errors.Is(last, context.Canceled) {
			t.Errorf("%d events, then %v", n, last)
		}
	})
}

func TestWatchDroppedRowsAndHydrating(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newHistoryLog(8)
		set(t, log, "dropped.a1", &foldtestv1.Dropped{Id: 1, Text: "x"})
		gate := make(chan struct{})
		log.Inject(kvtest.Fault{At: kvtest.PointOpen, Do: func(*kvtest.Log) { <-gate }})
		tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
		w := watch(tb.dropped.Table, nil, func(e *fold.Event[ft.DroppedKey, *foldtestv1.Dropped]) string {
			old, had, err := e.Old()
			return fmt.Sprintf("%v %v %d %v old=%s/%v/%v hydrating=%v", e.Op, e.Reason, e.Key.ID, e.New.GetText(), old.GetText(), had, err, e.Hydrating)
		}, fold.WithOld())
		gone := watch(tb.sessions.Table, nil, func(e *fold.Event[ft.SessionKey, *foldtestv1.Session]) string {
			return fmt.Sprintf("%v %v %v", e.Op, e.Reason, e.Key)
		})
		synctest.Wait()
		close(gate)
		tb.hydrated(t)
		log.Set("dropped.a1", "\xff")
		set(t, log, "dropped.a1", &foldtestv1.Dropped{Id: 1, Text: "y"})
		set(t, log, "session.eu.pa5", &foldtestv1.Session{User: "u"})
		log.AgeOut("session.eu.pa5", true)
		tb.caughtUp(t, log)
		if got, want := w.take(), "put user 1 x old=/false/<nil> hydrating=true, delete user 1  old=x/true/<nil> hydrating=false, put user 1 y old=/false/<nil> hydrating=false"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if got, want := gone.take(), "aged_out max_age session.eu.pa5"; !strings.HasSuffix(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
		tb.close(t)
	})
}

func TestWatchOfASnapshotIsRefused(t *testing.T) {
	tb := start(t, newLog(), openStore(t, backends[0], t.TempDir()), startOptions{})
	snap, err := tb.f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snap.Close() }()
	n := 0
	for _, err := range tb.routes.At(snap).Watch(bounded(t), nil) {
		if n++; err == nil || !strings.Contains(err.Error(), "snapshot") {
			t.Errorf("watch of a snapshot: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d yields", n)
	}
	broken := fold.NewPrefix[ft.RouteKey](nil, errHook)
	for _, err := range tb.routes.Watch(bounded(t), []ft.RoutePrefix{broken}) {
		if !errors.Is(err, errHook) {
			t.Errorf("watch of a broken prefix: %v", err)
		}
	}
}

// TestAgedOutKeepsTheLastAcceptedValue: retention's marker for a key whose newest value was rejected takes neither the
// row that is kept for it nor the rejection.
func TestAgedOutKeepsTheLastAcceptedValue(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newHistoryLog(4)
		good := setRoute(t, log, route("t", "a", "1"))
		tb := start(t, log, openStore(t, b, t.TempDir()), startOptions{})
		tb.caughtUp(t, log)
		bad := log.Set("route.t.a", "\xff")
		tb.caughtUp(t, log)
		log.AgeOut("route.t.a", true)
		tb.caughtUp(t, log)
		if row, ok := get(t, tb.routes.Table, routeKey("t", "a")); !ok || row.Value.NodeId != "1" || row.Rev.Seq() != good || row.Stale == nil || row.Stale.Revision != bad {
			t.Errorf("row %+v %v", row, ok)
		}
		if rejs := collect(t, tb.routes.Rejected(bounded(t))); len(rejs) != 1 || tb.f.Status().RejectedKeys != 1 {
			t.Errorf("rejected %v", rejs)
		}
	})
}
