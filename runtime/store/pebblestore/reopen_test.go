package pebblestore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// TestOpenBeginsNoCompaction: Pebble's Open waits for the compactions that it begins, so none may begin in it. The one
// that is due here waits for Open to return.
func TestOpenBeginsNoCompaction(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{Durability: None, BulkMinUpdates: 1})
	f := newFeed(2000)
	for i := range 12 {
		b := &store.Batch{Updates: f.next(2000), Bulk: true}
		if err := s.Apply(t.Context(), b, kv.CursorAt(uint64(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)

	opened, compacted := make(chan struct{}), make(chan bool, 100)
	s = mustOpen(t, dir, Options{Durability: None, Events: &pebble.EventListener{TableCreated: func(i pebble.TableCreateInfo) {
		if i.Reason != "compacting" {
			return
		}
		bound := time.NewTimer(5 * time.Second)
		defer bound.Stop()
		select {
		case <-opened:
			compacted <- true
		case <-bound.C:
			compacted <- false
		}
	}}})
	close(opened)
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	select {
	case after := <-compacted:
		if !after {
			t.Fatal("Open waited for a compaction that waited for it")
		}
	default:
		t.Fatal("nothing was compacted after the open")
	}
}
