package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// TestFailedFlushEndsOpening: Pebble's Open alone would wait for a flush that is tried again for ever. A flush of
// nothing, a failed compaction, and a failure of an open store, end nothing.
func TestFailedFlushEndsOpening(t *testing.T) {
	damage, other := errors.New("damage"), errors.New("another")
	for _, c := range []struct {
		opening           bool
		flush, background error
		ends              bool
	}{
		{true, damage, damage, true}, {true, damage, other, false}, {true, nil, other, false}, {true, damage, nil, false}, {false, damage, damage, false},
	} {
		l := newLogger(slog.New(slog.DiscardHandler))
		l.opening.Store(c.opening)
		ev, release := l.events(nil), make(chan struct{})
		err := l.guard(func() error {
			flushed := make(chan struct{})
			go func() {
				defer close(flushed)
				ev.FlushEnd(pebble.FlushInfo{Err: c.flush})
				if c.background != nil {
					ev.BackgroundError(c.background)
				}
			}()
			<-flushed
			if c.ends {
				<-release // as Open waits
			}
			return nil
		})
		close(release)
		if (err != nil) != c.ends || c.ends && !errors.Is(err, damage) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestOpenWithDamagedTable: whatever is damaged in the tables, Open returns, and says that it is damage.
func TestOpenWithDamagedTable(t *testing.T) {
	o := Options{MinFreeBytes: -1, BallastBytes: -1, BulkMinUpdates: 2, Durability: None}
	refused := 0
	for percent := 3; percent < 100; percent += 12 {
		dir := t.TempDir()
		s, err := Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(2) { // the second, bulk one overlaps what is in the memtable
			b := &store.Batch{Bulk: n == 1}
			for i := range 50 {
				b.Updates = append(b.Updates, kv.Update{
					Key: fmt.Sprintf("k.%d", i), Op: kv.OpPut, Value: make([]byte, 50), Version: kv.Revision(n*50 + uint64(i) + 1),
				})
			}
			if err := s.Apply(t.Context(), b, kv.CursorAt(50*(n+1))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		if err != nil || len(tables) == 0 {
			t.Fatalf("no table in %s: %v", dir, err)
		}
		for _, name := range tables {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			raw[len(raw)*percent/100] ^= 0x10
			if err := os.WriteFile(name, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() {
			s, err := Open(dir, o)
			if err == nil {
				err = s.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if errors.Is(err, store.ErrCorrupt) {
				refused++
			} else if err != nil {
				t.Errorf("damage at %d%%: %v, want %v", percent, err, store.ErrCorrupt)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("damage at %d%%: Open does not return", percent)
		}
	}
	if refused == 0 {
		t.Error("no damage was met: the test says too little")
	}
}
