package pebblestore

import (
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// TestHydrateHoldsCompactions: tables pile up while batches are Bulk, and no longer.
func TestHydrateHoldsCompactions(t *testing.T) {
	const tables = 9
	s := mustOpen(t, t.TempDir(), Options{BulkMinUpdates: 1})
	defer mustClose(t, s)
	f := newFeed(500)
	apply := func(bulk bool) {
		t.Helper()
		if err := s.Apply(t.Context(), &store.Batch{Updates: f.next(500), Bulk: bulk}, kv.CursorAt(uint64(f.i))); err != nil {
			t.Fatal(err)
		}
	}
	depth := func() int32 { return s.db.Metrics().Levels[0].Sublevels }
	for range tables {
		apply(true)
	}
	if got := depth(); got != tables-1 && got != tables { // the first may go to a lower level
		t.Errorf("depth is %d after %d bulk batches", got, tables)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := depth(); got > 1 {
		t.Errorf("depth is %d after Settle", got)
	}
	for range tables {
		apply(true)
	}
	if got := depth(); got < tables-1 {
		t.Errorf("depth is %d after %d more", got, tables)
	}
	apply(false)
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for depth() > 2 {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("depth is still %d after the hydrate", depth())
		}
	}
}
