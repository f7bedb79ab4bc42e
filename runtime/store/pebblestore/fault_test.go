package pebblestore

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// smallDisk is a file system with a settable amount of free space, whose writes fail when told to.
type smallDisk struct {
	vfs.FS
	free atomic.Uint64
	full atomic.Bool
}

func newSmallDisk() *smallDisk {
	d := &smallDisk{}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if d.full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpCreate) {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	d.free.Store(10 << 30)
	return d
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 20 << 30}, nil
}

// Remove of the ballast gives its space back.
func (d *smallDisk) Remove(name string) error {
	err := d.FS.Remove(name)
	if err == nil && filepath.Base(name) == ballastName {
		d.full.Store(false)
	}
	return err
}

func TestLowSpaceStopsWritesOnly(t *testing.T) {
	d, script := newSmallDisk(), storetest.Script{Seed: 1}
	s := mustOpen(t, "db", Options{FS: d, Durability: Sync, BallastBytes: -1})
	defer mustClose(t, s)
	mustApply(t, s, script, 1)
	d.free.Store(100 << 20)
	b, c := script.Batch(2)
	refused := false
	for range 4 { // the free space is looked at once in 16 MiB at the latest
		large := kv.Update{Key: "large", Value: make([]byte, 8<<20), Op: kv.OpPut, Version: kv.Revision(2)}
		err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{large}}, s.Cursor())
		var full *DiskFullError
		if errors.As(err, &full) {
			refused = true
			if !errors.Is(err, store.ErrDiskFull) || full.Free != 100<<20 || full.Need <= full.Free || full.Hint() == "" {
				t.Errorf("error is %+v", full)
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if !refused {
		t.Fatal("no Apply was refused")
	}
	before := s.Cursor()
	if err := s.Apply(t.Context(), b, c); !errors.Is(err, store.ErrDiskFull) || s.Cursor() != before {
		t.Fatalf("a small batch on a full disk: %v, cursor %v", err, s.Cursor())
	}
	var v store.Value
	if _, err := s.Get(store.MetaKey("script"), &v); err != nil || string(v.Bytes) != "1" {
		t.Fatalf("get: %q, %v", v.Bytes, err)
	}
	v.Release()
	d.free.Store(10 << 30)
	if err := s.Apply(t.Context(), b, c); err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
}

func TestBallastLetsWritesEnd(t *testing.T) {
	d, script := newSmallDisk(), storetest.Script{Seed: 2}
	s := mustOpen(t, "db", Options{FS: d, Durability: Sync, BallastBytes: 1 << 20})
	if i, err := d.Stat("db/" + ballastName); err != nil || i.Size() != 1<<20 {
		t.Fatalf("ballast: %v, %v", i, err)
	}
	mustApply(t, s, script, 1)
	d.full.Store(true)
	mustApply(t, s, script, 2) // its write fails, the ballast goes, its write is tried again
	if _, err := d.Stat("db/" + ballastName); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the ballast is still there: %v", err)
	}
	mustApply(t, s, script, 3) // there is room again, so the ballast comes back
	if _, err := d.Stat("db/" + ballastName); err != nil {
		t.Fatalf("the ballast is not back: %v", err)
	}
	mustClose(t, s)
	s = mustOpen(t, "db", Options{FS: d, BallastBytes: 1 << 20})
	defer mustClose(t, s)
	if err := script.CheckRecovered(s); err != nil || s.Cursor().Revision() != 3 {
		t.Fatalf("cursor %v: %v", s.Cursor(), err)
	}
}

// TestLogFailurePoisons: where Pebble would end the process, writes stop and reads go on.
func TestLogFailurePoisons(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		d, script := newSmallDisk(), storetest.Script{Seed: 3}
		s := mustOpen(t, "db", Options{FS: d, Durability: Sync, BallastBytes: -1, BulkMinUpdates: 1})
		for n := uint64(1); n <= 5; n++ {
			mustApply(t, s, script, n)
		}
		d.full.Store(true)
		b, c := script.Batch(6)
		b.Bulk = bulk
		err := s.Apply(t.Context(), b, c)
		if bulk { // the table is beside the database: the batch fails, and nothing else
			if err == nil || errors.Is(err, store.ErrPoisoned) {
				t.Fatalf("bulk apply on a failing disk: %v", err)
			}
			if err := script.CheckRecovered(s); err != nil || s.Cursor().Revision() != 5 {
				t.Fatalf("cursor %v: %v", s.Cursor(), err)
			}
			d.full.Store(false)
			if err := s.Apply(t.Context(), b, c); err != nil {
				t.Fatal(err)
			}
			if err := script.CheckRecovered(s); err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
			continue
		}
		if !errors.Is(err, store.ErrPoisoned) {
			t.Fatalf("apply on a failing disk: %v", err)
		}
		// The batch may show or not, but whole and with its cursor; it is not durable.
		if err := script.CheckRecovered(s); err != nil || s.Cursor().Revision() < 5 || s.Durable().Revision() != 5 {
			t.Fatalf("reads after it: cursor %v, durable %v: %v", s.Cursor(), s.Durable(), err)
		}
		d.full.Store(false)
		for what, err := range map[string]error{
			"apply": s.Apply(t.Context(), b, c), "sync": s.Sync(t.Context()), "settle": s.Settle(t.Context()),
			"export": s.Export(t.Context(), "copy"), "close": s.Close(),
		} {
			if !errors.Is(err, store.ErrPoisoned) {
				t.Errorf("%s after it: %v", what, err)
			}
		}
		if _, err := Open("db", Options{FS: d}); !errors.Is(err, store.ErrLocked) {
			t.Errorf("open beside a poisoned store: %v", err)
		}
	}
}

func TestRefusesOtherFiles(t *testing.T) {
	t.Run("newer format", func(t *testing.T) {
		fs := vfs.NewMem()
		mustClose(t, mustOpen(t, "db", Options{FS: fs}))
		names, err := fs.List("db")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, n := range names {
			if strings.HasPrefix(n, "marker.format-version.") {
				found = true
				if err := fs.Rename("db/"+n, "db/marker.format-version.000099.999"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !found {
			t.Fatalf("no format marker among %q", names)
		}
		if _, err := Open("db", Options{FS: fs}); !errors.Is(err, store.ErrFormat) {
			t.Errorf("open: %v, want ErrFormat", err)
		}
	})
	t.Run("foreign database", func(t *testing.T) {
		fs := vfs.NewMem()
		db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Set([]byte("x"), nil, pebble.Sync), db.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Open("db", Options{FS: fs}); !errors.Is(err, store.ErrFormat) {
			t.Errorf("open: %v, want ErrFormat", err)
		}
	})
	t.Run("bad cursor", func(t *testing.T) {
		fs := vfs.NewMem()
		db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Set(store.CursorKey(), []byte("a cursor of 21 bytes!"), pebble.Sync), db.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Open("db", Options{FS: fs}); !errors.Is(err, store.ErrFormat) {
			t.Errorf("open: %v, want ErrFormat", err)
		}
	})
}

// TestDamagedTable: a read that meets a damaged block says so; the process goes on.
func TestDamagedTable(t *testing.T) {
	dir, script := t.TempDir(), storetest.Script{Seed: 4}
	s := mustOpen(t, dir, Options{})
	for n := uint64(1); n <= 50; n++ {
		mustApply(t, s, script, n)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %q, %v", tables, err)
	}
	for _, name := range tables {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(b) / 4 {
			b[i] ^= 0x55
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err = Open(dir, Options{})
	if err == nil {
		err = errors.Join(script.CheckRecovered(s), s.Close())
	}
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("error is %v, want ErrCorrupt", err)
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, bulkName)
	if err := os.WriteFile(left, []byte("half a table"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, dir, Options{}))
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat: %v", err)
	}
}

func TestLockSeesThroughLinks(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir, Options{})
	defer mustClose(t, s)
	if _, err := Open(link, Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("open by another name: %v, want ErrLocked", err)
	}
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{{Durability: 3}, {Durability: -1}, {FlushInterval: -1}, {CacheBytes: -1}, {MemTableBytes: 1}, {MemTableBytes: 2 << 30}} {
		if _, err := Open(t.TempDir(), o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestSharedCache(t *testing.T) {
	c := pebble.NewCache(1 << 20)
	a := mustOpen(t, t.TempDir(), Options{Cache: c})
	b := mustOpen(t, t.TempDir(), Options{Cache: c})
	c.Unref()
	for _, s := range []*Store{a, b} {
		mustApply(t, s, storetest.Script{Seed: 5}, 1)
		mustClose(t, s)
	}
}

// TestAllocations holds the hot paths to what they promise: no allocation for each update, and two a read.
func TestAllocations(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{Durability: None})
	defer mustClose(t, s)
	f := newFeed(8000)
	b := &store.Batch{Updates: f.next(8000)}
	for _, bulk := range []bool{false, true} {
		b.Bulk = bulk
		s.opts.BulkMinUpdates = 1
		n := testing.AllocsPerRun(10, func() {
			if err := s.Apply(t.Context(), b, kv.CursorAt(1)); err != nil {
				t.Error(err)
			}
		})
		if n > 1600*poolSlack {
			t.Errorf("bulk %v: %v allocations for a batch of 8000 updates", bulk, n)
		}
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := store.AppendKey(nil, store.SpaceData, b.Updates[7].Key)
	var v store.Value
	n := testing.AllocsPerRun(100, func() {
		ok, err := s.Get(key, &v)
		if err != nil || !ok {
			t.Error(ok, err)
		}
		v.Release()
	})
	if n > 2*poolSlack {
		t.Errorf("%v allocations for a Get", n)
	}
	runtime.KeepAlive(b)
}

func quiet() *logger { return newLogger(slog.New(slog.DiscardHandler), defaultFlushPatience) }

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
