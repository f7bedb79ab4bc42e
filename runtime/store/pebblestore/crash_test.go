package pebblestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// crashImage is what a power cut before one file operation leaves.
type crashImage struct {
	fs *memDisk
	at errorfs.Op
	// durable had been promised before it, and nothing past attempted had been begun.
	durable, attempted uint64
}

// memDisk is a MemFS that can be cloned at any time: a clone that falls into MemFS.Link or ReuseForWrite would deadlock,
// as those take one read lock twice.
type memDisk struct {
	*vfs.MemFS
	twice sync.Mutex
}

func (d *memDisk) Link(from, to string) error {
	d.twice.Lock()
	defer d.twice.Unlock()
	return d.MemFS.Link(from, to)
}

func (d *memDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.twice.Lock()
	defer d.twice.Unlock()
	return d.MemFS.ReuseForWrite(from, to, c)
}

func (d *memDisk) CrashClone(c vfs.CrashCloneCfg) *vfs.MemFS {
	d.twice.Lock()
	defer d.twice.Unlock()
	return d.MemFS.CrashClone(c)
}

// crashTaker takes images before the operations that order what is on disk.
type crashTaker struct {
	*memDisk

	mu        sync.Mutex
	rng       *rand.Rand
	store     store.Store
	attempted uint64
	ops       int
	images    []crashImage
}

// crashEvery is one image for so many ordering operations.
const crashEvery = 5

func (c *crashTaker) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpRename, errorfs.OpLink, errorfs.OpRemove, errorfs.OpCreate, errorfs.OpReuseForWrite:
		c.take(op)
	}
	return nil
}

func (c *crashTaker) String() string { return "crash images" }

func (c *crashTaker) take(op errorfs.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops++; c.ops%crashEvery != 0 {
		return
	}
	i := crashImage{at: op, attempted: c.attempted}
	if c.store != nil {
		i.durable = c.store.Durable().Revision() // before the clone: what is durable only grows
	}
	i.fs = &memDisk{MemFS: c.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: []int{0, 30, 70, 100}[c.rng.IntN(4)],
		RNG:                 rand.New(rand.NewPCG(c.rng.Uint64(), 0)),
	})}
	c.images = append(c.images, i)
}

func (c *crashTaker) begin(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempted = n
}

func (c *crashTaker) opened(s store.Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store = s
}

// TestPowerLoss cuts the power at file operations of a fold's life, and checks each disk that is left.
func TestPowerLoss(t *testing.T) {
	for _, mode := range []storetest.Mode{storetest.ModeSync, storetest.ModeInterval, storetest.ModeNone} {
		for _, bulk := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/bulk=%v", mode, bulk), func(t *testing.T) { powerLoss(t, mode, storetest.Script{Seed: 11, Bulk: bulk}) })
		}
	}
}

func powerLoss(t *testing.T, mode storetest.Mode, script storetest.Script) {
	c := &crashTaker{memDisk: &memDisk{MemFS: vfs.NewCrashableMem()}, rng: rand.New(rand.NewPCG(12, 13))}
	o := crashOptions(mode, errorfs.Wrap(c.memDisk, c))
	s := mustOpen(t, "stores/one", o)
	c.opened(s)
	for n := uint64(1); n <= 150; n++ {
		c.begin(n)
		mustApply(t, s, script, n)
		switch n {
		case 40, 110:
			if err := s.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 75:
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(c.images) < 8 {
		t.Fatalf("only %d images", len(c.images))
	}
	lost := 0
	for _, i := range c.images {
		got := checkImage(t, i, crashOptions(mode, i.fs), script)
		if got < i.attempted {
			lost++
		}
	}
	if mode == storetest.ModeNone && lost == 0 {
		t.Error("no image lost anything: the images prove nothing")
	}
}

func crashOptions(mode storetest.Mode, fs vfs.FS) Options {
	o := testOptions(mode)
	o.FS, o.MemTableBytes = fs, 64<<10
	return o
}

// checkImage opens the image, and then what a second power cut right after that leaves.
func checkImage(t *testing.T, i crashImage, o Options, script storetest.Script) uint64 {
	t.Helper()
	s := mustOpen(t, "stores/one", o)
	got := s.Cursor().Revision()
	if got < i.durable || got > i.attempted {
		t.Errorf("%v: recovered cursor %d; durable %d, attempted %d", i.at, got, i.durable, i.attempted)
	}
	if s.Durable() != s.Cursor() {
		t.Errorf("%v: recovered durable %v, cursor %v", i.at, s.Durable(), s.Cursor())
	}
	if err := script.CheckRecovered(s); err != nil {
		t.Errorf("%v: %v", i.at, err)
	}
	again := i.fs.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	o.FS = again
	s2 := mustOpen(t, "stores/one", o)
	if s2.Cursor().Revision() != got {
		t.Errorf("%v: a second crash moved the cursor from %d to %v", i.at, got, s2.Cursor())
	}
	if err := errors.Join(script.CheckRecovered(s2), s2.Close()); err != nil {
		t.Errorf("%v: second crash: %v", i.at, err)
	}
	return got
}

func mustOpen(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustApply(t *testing.T, s *Store, script storetest.Script, n uint64) kv.Cursor {
	t.Helper()
	b, c := script.Batch(n)
	if err := s.Apply(t.Context(), b, c); err != nil {
		t.Fatal(err)
	}
	return c
}
