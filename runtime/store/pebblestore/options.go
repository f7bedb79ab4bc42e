package pebblestore

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Durability is when an applied batch is safe from the loss of the process and of power. In every mode data and
// cursor stay one: what a crash takes is a tail of whole batches, which the log delivers again.
type Durability int

const (
	// Interval makes what was applied durable within Options.FlushInterval; a crash loses at most that. The default.
	Interval Durability = iota
	// Sync makes each Apply durable before it returns. Batches of 1,000 hide most of its cost, batches of 100 do not.
	Sync
	// None promises durability at Sync and Close only. A killed process loses what it wrote since, as Pebble keeps the
	// log's tail in its own memory.
	None
)

func (d Durability) String() string {
	switch d {
	case Interval:
		return "interval"
	case Sync:
		return "sync"
	case None:
		return "none"
	}
	return fmt.Sprintf("durability(%d)", int(d))
}

// Options shape a store. The zero value is the recommended one.
type Options struct {
	Durability Durability
	// FlushInterval is the longest time between an Apply and its durability in mode Interval; 0 is 100 ms, which is at
	// most ten syncs of the disk a second.
	FlushInterval time.Duration
	// Cache is a block cache to share among stores. The store takes its own reference. Nil makes one of CacheBytes.
	Cache *pebble.Cache
	// CacheBytes is the size of the store's own block cache; 0 is 64 MiB. Size it to the keys that are read often: a
	// read that misses it costs about eight times one that does not.
	CacheBytes int64
	// MemTableBytes is the size of one memtable; 0 is 16 MiB. Up to four stand at once.
	MemTableBytes uint64
	// BulkMinUpdates is the number of updates from which a Bulk batch is written as one sorted table and ingested
	// instead of going through log and memtable; 0 is DefaultBulkMinUpdates, negative never does it.
	BulkMinUpdates int
	// MinFreeBytes is the free disk space below which Apply refuses with a DiskFullError while reads go on; 0 is
	// 256 MiB, negative does not look.
	MinFreeBytes int64
	// BallastBytes is the size of a file that is given back to the disk when it is full all the same, so that what is
	// under way can end; 0 is 16 MiB, negative has none.
	BallastBytes int64
	// Logger takes Pebble's own messages: its account of flushes and compactions at debug level, what it went past or
	// failed on as errors. Nil drops them; what concerns a caller is returned as well.
	Logger *slog.Logger
	// Events, when not nil, hears of flushes, compactions and the like. It is called on Pebble's own goroutines and
	// must not call the store.
	Events *pebble.EventListener
	// ReadOnly opens a store that is there to be read: no file is created, changed or removed, and whatever would write is
	// store.ErrReadOnly, Sync, Settle and Export too. The directory is locked against a writer like by any other open,
	// where it has a lock's file; a copy that no store has had open has none, and must not be opened by a writer meanwhile.
	// Durable is what was read: a tail that a killed process wrote may still be lost with the machine's power.
	ReadOnly bool
	// FS is where the files are; nil is the operating system's.
	FS vfs.FS

	flushPatience time.Duration // 0 is defaultFlushPatience; tests have less
}

const (
	defaultFlushInterval = 100 * time.Millisecond
	defaultCacheBytes    = 64 << 20
	defaultMemTableBytes = 16 << 20
	defaultMinFreeBytes  = 256 << 20
	defaultBallastBytes  = 16 << 20
	// defaultFlushPatience is long enough for a disk that comes back, and an end for a call that waits for a flush: Pebble
	// itself tries it again for ever.
	defaultFlushPatience = 10 * time.Second
)

// Validate reports what can't be used.
func (o *Options) Validate() error {
	switch {
	case o.Durability < Interval || o.Durability > None:
		return fmt.Errorf("pebblestore: %v is not a durability", o.Durability)
	case o.FlushInterval < 0:
		return fmt.Errorf("pebblestore: flush interval %v is negative", o.FlushInterval)
	case o.CacheBytes < 0:
		return fmt.Errorf("pebblestore: cache of %d bytes is negative", o.CacheBytes)
	case o.MemTableBytes != 0 && (o.MemTableBytes < 64<<10 || o.MemTableBytes > 1<<30):
		return fmt.Errorf("pebblestore: memtable of %d bytes is not within 64 KiB and 1 GiB", o.MemTableBytes)
	}
	return nil
}

func (o Options) withDefaults() Options {
	orElse(&o.FlushInterval, defaultFlushInterval)
	orElse(&o.CacheBytes, defaultCacheBytes)
	orElse(&o.MemTableBytes, defaultMemTableBytes)
	orElse(&o.BulkMinUpdates, DefaultBulkMinUpdates)
	orElse(&o.MinFreeBytes, defaultMinFreeBytes)
	orElse(&o.BallastBytes, defaultBallastBytes)
	orElse(&o.flushPatience, defaultFlushPatience)
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// formatVersion is the generation of the files: everything that Pebble 2.1 knows. It is pinned, since a newer one
// can't be read by a build of an older Pebble, which the nodes of a fleet may still be.
const formatVersion = pebble.FormatValueSeparation

// pebbleOptions are the settings of the engine, each with its reason. The measurements are those of a hydrate of a
// million keys (BenchmarkApply) and of reads from what it leaves.
func (o *Options) pebbleOptions(fs vfs.FS, hydrating *atomic.Bool) *pebble.Options {
	p := &pebble.Options{
		FS:                 fs,
		FormatMajorVersion: formatVersion,
		// 16 MiB: a larger skiplist costs more for each insert and read (64 MiB: a tenth more CPU, and four times the
		// memory), smaller ones the same CPU and more tables.
		MemTableSize: o.MemTableBytes,
		// Four memtables let writes go on while one is flushed on a busy machine; memory is taken as it is used.
		MemTableStopWritesThreshold: 4,
		// 4 is compaction at a depth of two: each table more that a read has to ask costs it a quarter of its time, in
		// spite of the filters.
		L0CompactionThreshold: 4,
		// Compaction starts by the depth of level 0, not by its number of files.
		L0CompactionFileThreshold: 1000,
		// Far above hydrateDepth, so that writes are not stopped while a compaction runs.
		L0StopWritesThreshold: 3 * hydrateDepth,
		// One compaction at a time, two when there is much to do: the rest of the machine is the fold's. None while it
		// hydrates, up to hydrateDepth, since what is compacted early is compacted again.
		CompactionConcurrencyRange: func() (int, int) {
			if hydrating.Load() {
				return 0, 2
			}
			return 1, 2
		},
	}
	p.Experimental.L0CompactionConcurrency = hydrateDepth
	// 16 MiB tables at level 0, doubling below: few files for manifests and artifacts even of a large fold.
	for i := range p.TargetFileSizes {
		p.TargetFileSizes[i] = min(int64(16<<20)<<i, 128<<20)
	}
	for i := range p.Levels {
		// A Bloom filter at every level: a read of an absent key costs 1.6 times as much without, a write the same.
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		p.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	// Level 0 is not compressed: it is rewritten soon, and compressing it took an eighth of a hydrate's CPU.
	p.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	return p
}

// hydrateDepth is the depth of level 0 at which it is compacted even during a hydrate. A hydrate of a million keys took
// 4.6 µs of CPU a key with 16, and 3.9 with 32, in three interleaved rounds.
const hydrateDepth = 32
