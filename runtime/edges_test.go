package fold_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// TestRejectedEventMayAskForStatus: no lock is held while a user's event runs.
func TestRejectedEventMayAskForStatus(t *testing.T) {
	log := newLog()
	var tb atomic.Pointer[tables]
	told := make(chan fold.Status, 1)
	tb.Store(start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{fold: fold.Options{Events: fold.Events{
		Rejected: func(*fold.Rejection) { told <- tb.Load().f.Status() },
	}}}))
	log.Set("route.t.a", "\xff")
	select {
	case <-told:
	case <-bounded(t).Done():
		t.Fatal("the event could not ask for the fold's status")
	}
}

// TestStorePanicCountsNothing: a batch whose apply panics was not committed, and nothing counts it.
func TestStorePanicCountsNothing(t *testing.T) {
	log := newLog()
	s := &faultStore{Store: openStore(t, backends[0], t.TempDir())}
	setRoute(t, log, route("t", "a", "1"))
	tb := start(t, log, s, startOptions{})
	tb.hydrated(t)
	for range 2 {
		if n, err := tb.routes.Count(bounded(t), ft.RouteAll()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	s.mu.Lock()
	s.apply = func(int, *store.Batch, kv.Cursor) error { panic("a store's bug") }
	s.mu.Unlock()
	setRoute(t, log, route("t", "b", "1"))
	<-tb.f.Done()
	if n, err := tb.routes.Count(bounded(t), ft.RouteAll()); err != nil || n != 1 {
		t.Errorf("%d rows are counted (%v), want the one that is there", n, err)
	}
	if err := tb.f.Err(); err == nil {
		t.Error("the fold does not say why it stopped")
	}
}

// TestFailedApplyCountsOnce: a batch that fails to be applied and comes again is counted once.
func TestFailedApplyCountsOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		s := &faultStore{Store: openStore(t, backends[0], dir)}
		setRoute(t, log, route("t", "a", "1"))
		tb := start(t, log, s, startOptions{})
		tb.hydrated(t)
		want := func(rows, rejected uint64) {
			t.Helper()
			tb.caughtUp(t, log)
			for range 2 { // the first question begins to count
				if n, err := tb.routes.Count(bounded(t), ft.RouteAll()); err != nil || n != rows {
					t.Fatalf("%d rows are counted (%v), want %d", n, err, rows)
				}
			}
			if st := tb.f.Status(); st.RejectedKeys != rejected {
				t.Fatalf("%d rejected keys, want %d", st.RejectedKeys, rejected)
			}
		}
		want(1, 0)
		for n, write := range []func(){
			func() { setRoute(t, log, route("t", "b", "1")) },
			func() { log.Set(routeKey("t", "a").String(), "\xff") },
			func() { log.Remove(routeKey("t", "b").String()) },
			func() { setRoute(t, log, route("t", "a", "2")) },
		} {
			s.mu.Lock()
			s.n = 0
			s.apply = func(n int, _ *store.Batch, _ kv.Cursor) error {
				if n <= 2 {
					return errors.New("disk is sulking")
				}
				return nil
			}
			s.mu.Unlock()
			write()
			want([]uint64{2, 2, 1, 1}[n], []uint64{0, 1, 1, 0}[n])
		}
		tb.close(t)
	})
}

// TestCloseWaitsForReads that are under way.
func TestCloseWaitsForReads(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		for i := range 10 {
			setRoute(t, log, route("t", fmt.Sprint(i), "1"))
		}
		tb := start(t, log, openStore(t, b, dir), startOptions{})
		tb.hydrated(t)
		began, goOn, read := make(chan struct{}), make(chan struct{}), make(chan int)
		go func() {
			n := 0
			for _, err := range tb.routes.List(context.Background(), ft.RouteAll()) {
				if n++; n == 1 {
					close(began)
					<-goOn
				}
				if err != nil {
					t.Error(err)
				}
			}
			read <- n
		}()
		<-began
		closed := make(chan error, 1)
		go func() { closed <- tb.f.Close() }()
		<-tb.f.Done()
		close(goOn)
		if n := <-read; n != 10 {
			t.Errorf("the read ended after %d rows", n)
		}
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		s := openStore(t, b, dir) // the lock is given back
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseSaysWhatIsLeftOpen after its timeout.
func TestCloseSaysWhatIsLeftOpen(t *testing.T) {
	s := openStore(t, backends[0], t.TempDir())
	tb := start(t, newLog(), s, startOptions{fold: fold.Options{ShutdownTimeout: 20 * time.Millisecond}})
	tb.hydrated(t)
	snap, err := tb.f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := tb.f.Close(); err == nil || errors.Is(err, store.ErrClosed) {
		t.Errorf("Close with an open snapshot: %v", err)
	}
	if err := errors.Join(snap.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
