package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

func TestBrokenChain(t *testing.T) {
	for _, c := range []struct {
		links []uint64
		want  string
	}{
		{nil, ""},
		{[]uint64{0, 1}, ""},
		{[]uint64{0, 1 << 60}, ""},
		{[]uint64{0}, "no end"},
		{[]uint64{7}, "the first batches are missing; batch 7 is there"},
		{[]uint64{7, 9}, "the first batches are missing; batch 9 is there"},
		{[]uint64{0, 4, 9}, "missing from batch 5 on; batch 9 is there"},
		{[]uint64{0, 4, 9, 12}, "missing from batch 5 on; batch 12 is there"},
	} {
		if got := brokenChain(c.links); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("links %v: %q, want %q", c.links, got, c.want)
		}
	}
}

// heldFlushes is a disk with a store of three logs of which nothing is in tables yet, and the number of its batches, all
// of them synced.
func heldFlushes(t *testing.T, script storetest.Script) (d *memDisk, logs []string, last uint64) {
	t.Helper()
	d = &memDisk{MemFS: vfs.NewCrashableMem()}
	held, release := &atomic.Bool{}, make(chan struct{})
	o := crashOptions(storetest.ModeSync, errorfs.Wrap(d, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if held.Load() && op.Kind == errorfs.OpCreate && path.Ext(op.Path) == ".sst" {
			<-release
		}
		return nil
	})))
	s := mustOpen(t, "db", o)
	defer mustClose(t, s)
	defer close(release)
	held.Store(true)
	large := kv.Update{Key: "large", Value: make([]byte, 20<<10), Op: kv.OpPut}
	for len(logs) < 3 {
		last++
		b, c := script.Batch(last)
		b.Updates = append(b.Updates, large)
		if err := s.Apply(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
		names, err := d.List("db")
		if err != nil {
			t.Fatal(err)
		}
		logs = logs[:0]
		for _, name := range names {
			if path.Ext(name) == ".log" {
				logs = append(logs, "db/"+name)
			}
		}
	}
	slices.Sort(logs)
	return &memDisk{MemFS: d.CrashClone(vfs.CrashCloneCfg{})}, logs, last
}

func overwrite(t *testing.T, fs vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestEmptiedLogIsMissed: Pebble takes an empty log for one that was closed, whatever is in the logs after it. The store
// is refused, however often and in whatever way it is opened; without its last log it is an older fold.
func TestEmptiedLogIsMissed(t *testing.T) {
	script := storetest.Script{Seed: 21}
	whole, logs, last := heldFlushes(t, script)
	for i, name := range logs {
		d := &memDisk{MemFS: whole.CrashClone(vfs.CrashCloneCfg{})}
		overwrite(t, d, name, nil)
		o := crashOptions(storetest.ModeSync, d)
		readOnly := o
		readOnly.ReadOnly = true
		for _, o := range []Options{readOnly, o, o, readOnly} {
			s, err := Open("db", o)
			if err == nil {
				if i < len(logs)-1 {
					t.Errorf("log %d of %d was emptied, and the store opens at %v", i+1, len(logs), s.Cursor())
				} else if s.Cursor().Revision() == 0 || s.Cursor().Revision() >= last {
					t.Errorf("without the last log it opens at %v", s.Cursor())
				}
				mustClose(t, s)
				continue
			}
			var damage *DamageError
			if i == len(logs)-1 || !errors.As(err, &damage) || !errors.Is(err, store.ErrCorrupt) || damage.Path != "db" || damage.Offset != -1 || damage.Hint() == "" {
				t.Errorf("log %d of %d was emptied: %v", i+1, len(logs), err)
			}
		}
	}
}

// TestLinksOfAllBatches: whatever way batches go, two links are left, of the root and of the last; and nobody sees them.
func TestLinksOfAllBatches(t *testing.T) {
	for _, bulk := range []string{"none", "all", "odd"} {
		t.Run(bulk, func(t *testing.T) {
			dir := t.TempDir()
			o := Options{BulkMinUpdates: 1, Durability: None}
			s := mustOpen(t, dir, o)
			for n := uint64(1); n <= 30; n++ {
				if n%10 == 0 {
					if err := s.Settle(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if n%7 == 0 {
					mustClose(t, s)
					s = mustOpen(t, dir, o)
				}
				b := &store.Batch{
					Updates: []kv.Update{{Key: fmt.Sprint("k", n), Value: []byte("v"), Op: kv.OpPut}}, Bulk: bulk == "all" || bulk == "odd" && n%2 == 1,
				}
				if err := s.Apply(t.Context(), b, kv.CursorAt(n)); err != nil {
					t.Fatal(err)
				}
				if last, err := s.readChain(); last != n || err != nil {
					t.Fatalf("after batch %d: %d, %v", n, last, err)
				}
			}
			defer mustClose(t, s)
			for _, o := range []store.IterOptions{{}, {Reverse: true}, {Lower: []byte{}}, {Lower: []byte{chainSpace}}} {
				it, err := s.Iter(o)
				if err != nil {
					t.Fatal(err)
				}
				for ok := it.SeekTo([]byte{chainSpace}) || it.Next(); ok; ok = it.Next() {
					if it.Key()[0] == chainSpace {
						t.Errorf("%+v: a reader sees the link %x", o, it.Key())
					}
				}
				if err := errors.Join(it.Err(), it.Close()); err != nil {
					t.Error(err)
				}
			}
			op := store.Op{Key: []byte{chainSpace, 1}}
			if err := s.Apply(t.Context(), &store.Batch{Ops: []store.Op{op}}, kv.CursorAt(31)); err == nil {
				t.Error("a batch can write links")
			}
		})
	}
}

// TestStoreWithoutLinks: a store from before there were links goes on, and has them from its next batch on.
func TestStoreWithoutLinks(t *testing.T) {
	fs := vfs.NewMem()
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set(cursorKey, kv.CursorAt(5).AppendBytes(nil), pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	o := Options{FS: fs, BallastBytes: -1}
	for n := uint64(6); n < 9; n++ {
		s := mustOpen(t, "db", o)
		if got := s.Cursor().Revision(); got != n-1 {
			t.Errorf("opened at %d, want %d", got, n-1)
		}
		if err := s.Apply(t.Context(), &store.Batch{}, kv.CursorAt(n)); err != nil {
			t.Fatal(err)
		}
		if last, err := s.readChain(); last != n-5 || err != nil {
			t.Errorf("%d, %v", last, err)
		}
		mustClose(t, s)
	}
}

// TestLinksTakeNoSpace: of links that were removed, a flush leaves nothing.
func TestLinksTakeNoSpace(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{Durability: None})
	defer mustClose(t, s)
	for n := uint64(1); n <= 5000; n++ {
		if err := s.Apply(t.Context(), &store.Batch{}, kv.CursorAt(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	tables, err := s.db.SSTables(pebble.WithProperties())
	if err != nil {
		t.Fatal(err)
	}
	entries := uint64(0)
	for _, level := range tables {
		for _, table := range level {
			entries += table.Properties.NumEntries
			if !bytes.Equal(table.Smallest.UserKey, linkKey(0)) {
				t.Errorf("a table begins with %x", table.Smallest.UserKey)
			}
		}
	}
	if entries > 10 {
		t.Errorf("%d entries are left of 5000 batches of nothing", entries)
	}
}

func linkKey(n uint64) []byte {
	k := make([]byte, linkSize)
	putLink(k, n)
	return k
}
