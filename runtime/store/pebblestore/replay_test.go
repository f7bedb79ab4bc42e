package pebblestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
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
		l := quiet()
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

// TestFlushesThatFailForLongPoison: not the ones of a disk that comes back in time, or that is full.
func TestFlushesThatFailForLongPoison(t *testing.T) {
	damage := errors.New("damage")
	for what, c := range map[string]struct {
		err       error
		succeeds  bool
		pause     time.Duration
		poisonous bool
	}{
		"for long":         {err: damage, pause: defaultFlushPatience / 2, poisonous: true},
		"with a good one":  {err: damage, pause: defaultFlushPatience / 2, succeeds: true},
		"for a short time": {err: damage, pause: defaultFlushPatience/2 - time.Millisecond},
		"full":             {err: syscall.ENOSPC, pause: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := quiet()
			ev := l.events(nil)
			for try := range 3 {
				if try > 0 {
					time.Sleep(c.pause)
				}
				flushed := make(chan struct{})
				go func() {
					defer close(flushed)
					ev.FlushEnd(pebble.FlushInfo{Err: c.err})
					ev.BackgroundError(c.err)
				}()
				<-flushed
				if try == 1 && c.succeeds {
					ev.FlushEnd(pebble.FlushInfo{})
				}
			}
			err := l.fatalError()
			if c.poisonous != (err != nil) || c.poisonous && (!errors.Is(err, store.ErrPoisoned) || !errors.Is(err, damage)) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// TestApplyOnADiskThatFailsForGood: a bulk batch waits for the flush of what is below it, and that never ends well.
func TestApplyOnADiskThatFailsForGood(t *testing.T) {
	var bad atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if bad.Load() && op.Kind == errorfs.OpCreate && filepath.Ext(op.Path) == ".sst" {
			return damageOf(op)
		}
		return nil
	}))
	script := storetest.Script{Seed: 24}
	s := mustOpen(t, "db", Options{FS: fs, BallastBytes: -1, Durability: Sync, BulkMinUpdates: 1, flushPatience: 50 * time.Millisecond})
	mustApply(t, s, script, 1)
	bad.Store(true)
	done := make(chan error, 1)
	go func() {
		var err error
		for n := uint64(2); n < 30 && err == nil; n++ { // the first few find room in Pebble's queue
			b, c := script.Batch(n)
			b.Bulk = n%2 == 0
			err = s.Apply(t.Context(), b, c)
		}
		done <- err
	}()
	bound := time.NewTimer(30 * time.Second)
	defer bound.Stop()
	select {
	case err := <-done:
		if !errors.Is(err, store.ErrPoisoned) {
			t.Errorf("apply: %v", err)
		}
	case <-bound.C:
		t.Fatal("Apply does not return")
	}
	if err := script.CheckRecovered(s); err != nil {
		t.Errorf("reads after it: %v", err)
	}
	if err := s.Close(); !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("close: %v", err)
	}
}

func damageOf(op errorfs.Op) error {
	return &os.PathError{Op: "create", Path: op.Path, Err: errors.New("damage")}
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
