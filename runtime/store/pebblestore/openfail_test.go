package pebblestore

import (
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// TestOpenOnADiskThatFailsForGood fails every operation of the file system from one on, for each one of an Open and a
// Close of a store with compactions to begin: both return, and say so.
func TestOpenOnADiskThatFailsForGood(t *testing.T) {
	script := storetest.Script{Seed: 23}
	whole := &memDisk{MemFS: vfs.NewCrashableMem()}
	o := crashOptions(storetest.ModeSync, whole)
	s := mustOpen(t, "db", o)
	for n := uint64(1); n <= 8; n++ {
		b, c := script.Batch(n)
		b.Bulk = true
		if err := s.Apply(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
	}
	depth := s.db.Metrics().Levels[0].Sublevels
	whole = &memDisk{MemFS: whole.CrashClone(vfs.CrashCloneCfg{})}
	mustClose(t, s)
	if depth < 3 {
		t.Fatalf("level 0 is %d deep: nothing would be compacted", depth)
	}

	var ops, failFrom atomic.Int64
	lifeOf := func(d vfs.FS) error {
		o.FS = errorfs.Wrap(d, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Path == "db" || path.Ext(op.Path) == ".log" {
				return nil // Pebble ends the process when it can't sync its directory or begin a log
			}
			if n := ops.Add(1); failFrom.Load() != 0 && n >= failFrom.Load() {
				return errors.New("injected")
			}
			return nil
		}))
		s, err := Open("db", o)
		if err != nil {
			return err
		}
		return s.Close()
	}
	if err := lifeOf(&memDisk{MemFS: whole.CrashClone(vfs.CrashCloneCfg{})}); err != nil {
		t.Fatal(err)
	}
	all, failed, poisoned := ops.Load(), 0, 0
	for at := int64(1); at <= all; at++ {
		ops.Store(0)
		failFrom.Store(at)
		done := make(chan error, 1)
		go func() { done <- lifeOf(&memDisk{MemFS: whole.CrashClone(vfs.CrashCloneCfg{})}) }()
		bound := time.NewTimer(20 * time.Second)
		select {
		case err := <-done:
			if err != nil {
				failed++
			}
			if errors.Is(err, store.ErrPoisoned) {
				poisoned++
			}
		case <-bound.C:
			t.Fatalf("operation %d of %d and all after it fail: it is stuck", at, all)
		}
		bound.Stop()
	}
	if failed < int(all)/2 || poisoned == 0 {
		t.Errorf("of %d lives %d failed, %d of them poisoned: the test says too little", all, failed, poisoned)
	}
}
