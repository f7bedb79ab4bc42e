package logstore

import (
	"fmt"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

// Durability is when an applied batch survives the loss of power. In all modes a batch survives the end of the
// process as soon as Apply has returned, since it is in the page cache by then, and a batch and its cursor stand or
// fall together.
type Durability uint8

const (
	// Interval syncs at most FlushInterval after an Apply, in the background. A failed sync poisons the store.
	Interval Durability = iota
	// Sync syncs before Apply returns.
	Sync
	// None syncs when the file is rewritten, at Sync and at Close.
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
	return fmt.Sprintf("durability(%d)", uint8(d))
}

// Defaults of Options.
const (
	DefaultFlushInterval = 100 * time.Millisecond
	DefaultCompactBytes  = 10 << 20
)

// Limits of the format.
const (
	// MaxValue is the longest value: NATS's largest payload.
	MaxValue = 64 << 20
	// MaxKey is the longest key, without its space byte.
	MaxKey = 1<<16 - 1
)

// Options shape a store. The zero value is good.
type Options struct {
	Durability Durability
	// FlushInterval is how long an applied batch may wait for its sync under Interval; 0 is DefaultFlushInterval.
	FlushInterval time.Duration
	// CompactBytes is how much the log grows, at least, before it is rewritten; 0 is DefaultCompactBytes. It must also
	// have grown by more than the live data, so rewriting costs at most one byte for each byte applied.
	CompactBytes int64
	// ReadOnly opens a log that is there to be read: no file is created, changed or removed, a torn tail is left where it
	// is and counts for nothing, and whatever would write is store.ErrReadOnly, Sync, Settle and Export too. It takes the
	// log's lock like any other open, where its file is there; a copy that no store has had open has none, and must not be
	// opened by a writer meanwhile. Durable is what was read: a tail that a killed process wrote may still be lost with
	// the machine's power.
	ReadOnly bool
	// FS is the file system; nil is the operating system's.
	FS    FS
	Hooks Hooks
}

// Hooks tell of the store's own work. They run on the goroutine that does it, and must not call the store.
type Hooks struct {
	// Compacted: the log was rewritten.
	Compacted func(Compaction)
	// CompactionFailed: a rewrite that Apply had begun failed. The store goes on with the log it has, and tries again
	// after another CompactBytes.
	CompactionFailed func(error)
}

// Compaction is one rewrite of the log.
type Compaction struct {
	Before, After int64 // bytes of the file
	Keys          int
	Cursor        kv.Cursor
	Took          time.Duration
}

func (h *Hooks) compacted(c Compaction) {
	if h.Compacted != nil {
		h.Compacted(c)
	}
}

func (h *Hooks) compactionFailed(err error) {
	if h.CompactionFailed != nil {
		h.CompactionFailed(err)
	}
}

// Validate reports settings that mean nothing.
func (o *Options) Validate() error {
	if o.Durability > None {
		return fmt.Errorf("logstore: unknown %v", o.Durability)
	}
	if o.FlushInterval < 0 || o.CompactBytes < 0 {
		return fmt.Errorf("logstore: flush interval %v and compact bytes %d must not be negative", o.FlushInterval, o.CompactBytes)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.FlushInterval == 0 {
		o.FlushInterval = DefaultFlushInterval
	}
	if o.CompactBytes == 0 {
		o.CompactBytes = DefaultCompactBytes
	}
	if o.FS == nil {
		o.FS = osFS{}
	}
	return o
}
