package fold_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// lateStore says that less is durable than is applied.
type lateStore struct {
	store.Store
	durable kv.Cursor
}

func (s *lateStore) Durable() kv.Cursor { return s.durable }

// TestDurableIsTheStoresWord: what is applied is not told as durable before the store says so.
func TestDurableIsTheStoresWord(t *testing.T) {
	log := newLog()
	var last atomic.Pointer[fold.Applied]
	s := &lateStore{Store: openStore(t, backends[0], t.TempDir()), durable: kv.CursorAt(1)}
	tb := start(t, log, s, startOptions{fold: fold.Options{OnApplied: func(a fold.Applied) { last.Store(&a) }}})
	for _, name := range []string{"a", "b", "c"} {
		setRoute(t, log, route("t", name, "n"))
	}
	tb.caughtUp(t, log)
	if st := tb.f.Status(); st.Applied != 3 || st.Durable != 1 {
		t.Errorf("status: applied %d, durable %d; want 3 and 1", st.Applied, st.Durable)
	}
	tb.close(t)
	if a := last.Load(); a == nil || a.Cursor != kv.CursorAt(3) || a.Durable != kv.CursorAt(1) {
		t.Errorf("last applied: %+v", a)
	}
}

// TestCountAfterAFoldWithoutTheTable: a fold that lacks a table leaves no row count of it that is out of date.
func TestCountAfterAFoldWithoutTheTable(t *testing.T) {
	log, dir := newLog(), t.TempDir()
	count := func(want uint64) {
		t.Helper()
		tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
		tb.hydrated(t)
		tb.caughtUp(t, log)
		for range 2 { // the first one may be what begins to count
			if n, err := tb.routes.Count(bounded(t), ft.RouteAll()); err != nil || n != want {
				t.Errorf("%d rows, %v; want %d", n, err, want)
			}
		}
		setRoute(t, log, route("t", "again", "n")) // commits the number
		tb.caughtUp(t, log)
		tb.close(t)
	}
	setRoute(t, log, route("t", "again", "n"))
	count(1)

	s := openStore(t, backends[0], dir)
	b := fold.NewBuilder(log, s, fold.Options{Logger: quiet})
	if _, err := ft.RegisterRouteMeta(b); err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	rev := setRoute(t, log, route("t", "more", "n"))
	if err := f.WaitApplied(bounded(t), fold.Seq(rev)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	count(2)
}

// TestPoisonedStoreStopsTheFoldAtOnce: only a re-open helps, so nothing is tried again.
func TestPoisonedStoreStopsTheFoldAtOnce(t *testing.T) {
	log, tries := newLog(), 0
	s := &faultStore{Store: openStore(t, backends[0], t.TempDir())}
	tb := start(t, log, s, startOptions{})
	tb.hydrated(t)
	s.mu.Lock()
	s.apply = func(int, *store.Batch, kv.Cursor) error {
		tries++
		return store.ErrPoisoned
	}
	s.mu.Unlock()
	setRoute(t, log, route("t", "a", "n"))
	select {
	case <-tb.f.Done():
	case <-bounded(t).Done():
		t.Fatal("the fold goes on")
	}
	var retried *fold.FailStopError
	if err := tb.f.Err(); tries != 1 || !errors.Is(err, store.ErrPoisoned) || errors.As(err, &retried) {
		t.Errorf("%d tries, then %v", tries, err)
	}
}

// settledStore counts how often it is asked to settle.
type settledStore struct {
	store.Store
	n atomic.Int32
}

func (s *settledStore) Settle(ctx context.Context) error {
	s.n.Add(1)
	return s.Store.Settle(ctx)
}

// TestSettlesAfterABulkHydrate: and not after a start that was less far behind.
func TestSettlesAfterABulkHydrate(t *testing.T) {
	log, dir := newLog(), t.TempDir()
	settles := func(want int32) {
		t.Helper()
		s := &settledStore{Store: openStore(t, backends[0], dir)}
		tb := start(t, log, s, startOptions{fold: fold.Options{Batch: fold.BatchOptions{BulkMax: 3}}})
		tb.hydrated(t)
		tb.close(t) // waits for what settles
		if n := s.n.Load(); n != want {
			t.Errorf("settled %d times, want %d", n, want)
		}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		setRoute(t, log, route("t", name, "n"))
	}
	settles(1)
	setRoute(t, log, route("t", "a", "m"))
	settles(0)
}
