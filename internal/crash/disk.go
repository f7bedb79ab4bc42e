package main

import (
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// disk is a disk in memory, with the stores of one kind on it, whose power can be cut at any operation.
type disk interface {
	// open opens the store in dir. tell hears of each operation that changes the disk, before it; nil hears nothing. Its
	// error is that operation's.
	open(dir string, m storetest.Mode, tell teller) (store.Store, error)
	// openCopy opens what an export left in dir, to read it only.
	openCopy(dir string) (store.Store, error)
	// cut is what a power cut now leaves: all that was synced, and of the rest so many percent.
	cut(percent int, rng *rand.Rand) disk
	// has reports whether there is anything in dir.
	has(dir string) bool
}

type teller func(op, path string) error

var (
	pebbleModes = map[storetest.Mode]pebblestore.Durability{
		storetest.ModeSync: pebblestore.Sync, storetest.ModeInterval: pebblestore.Interval, storetest.ModeNone: pebblestore.None,
	}
	logModes = map[storetest.Mode]logstore.Durability{
		storetest.ModeSync: logstore.Sync, storetest.ModeInterval: logstore.Interval, storetest.ModeNone: logstore.None,
	}
)

// pebbleDisk is Pebble's crashable file system. It must not be cloned while an operation of it waits for a lock that the
// operation has already: Link and ReuseForWrite take one twice.
type pebbleDisk struct {
	*vfs.MemFS
	cache *pebble.Cache
	twice sync.Mutex
}

func newPebbleDisk(cache *pebble.Cache) *pebbleDisk {
	return &pebbleDisk{MemFS: vfs.NewCrashableMem(), cache: cache}
}

func (d *pebbleDisk) Link(from, to string) error {
	d.twice.Lock()
	defer d.twice.Unlock()
	return d.MemFS.Link(from, to)
}

func (d *pebbleDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.twice.Lock()
	defer d.twice.Unlock()
	return d.MemFS.ReuseForWrite(from, to, c)
}

// GetDiskUsage says that there is room, so that the store keeps its ballast.
func (d *pebbleDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}, nil
}

func (d *pebbleDisk) cut(percent int, rng *rand.Rand) disk {
	d.twice.Lock()
	defer d.twice.Unlock()
	return &pebbleDisk{MemFS: d.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), cache: d.cache}
}

func (d *pebbleDisk) has(dir string) bool {
	names, err := d.List(dir)
	return err == nil && len(names) > 0
}

func (d *pebbleDisk) open(dir string, m storetest.Mode, tell teller) (store.Store, error) {
	o := pebbleOptions(m)
	o.Cache, o.FS = d.cache, d
	if tell != nil {
		o.FS = errorfs.Wrap(d, told{tell})
	}
	return opened(pebblestore.Open(dir, o))
}

// pebbleOptions make a store flush, compact and ingest on a few batches.
func pebbleOptions(m storetest.Mode) pebblestore.Options {
	return pebblestore.Options{
		Durability: pebbleModes[m], FlushInterval: intervalFlush, MemTableBytes: 64 << 10, BulkMinUpdates: 8, BallastBytes: 5000,
		CacheBytes: 1 << 20,
	}
}

func (d *pebbleDisk) openCopy(dir string) (store.Store, error) {
	return opened(pebblestore.Open(dir, pebblestore.Options{ReadOnly: true, FS: d, Cache: d.cache}))
}

// told is an injector that tells of what changes the disk.
type told struct{ tell teller }

func (told) String() string { return "told" }

func (t told) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpLink, errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpRename, errorfs.OpReuseForWrite,
		errorfs.OpMkdirAll, errorfs.OpFileWrite, errorfs.OpFileWriteAt:
		return t.tell("change", op.Path)
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return t.tell(opSync, op.Path)
	}
	return nil
}

// opSync is the operation that makes a file or a directory durable.
const opSync = "sync"

// opened keeps a failed Open's nil a nil.
func opened[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// logDisk is a tree in memory as a logstore's file system.
type logDisk struct {
	tree *tree
}

func newLogDisk() *logDisk { return &logDisk{tree: newTree()} }

func (d *logDisk) cut(percent int, rng *rand.Rand) disk {
	return &logDisk{tree: d.tree.cut(percent, rng)}
}

func (d *logDisk) has(dir string) bool {
	names, err := treeFS{tree: d.tree}.ReadDir(dir)
	return err == nil && len(names) > 0
}

func (d *logDisk) open(dir string, m storetest.Mode, tell teller) (store.Store, error) {
	o := logOptions(m)
	o.FS = treeFS{tree: d.tree, tell: tell}
	return opened(logstore.Open(dir+"/log", o))
}

// logOptions make a log be rewritten every some batches.
func logOptions(m storetest.Mode) logstore.Options {
	return logstore.Options{Durability: logModes[m], FlushInterval: intervalFlush, CompactBytes: 40 << 10}
}

func (d *logDisk) openCopy(dir string) (store.Store, error) {
	if !d.has(dir) {
		return nil, fs.ErrNotExist
	}
	return opened(logstore.Open(dir, logstore.Options{ReadOnly: true, FS: treeFS{tree: d.tree}}))
}
