package fold

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// Defaults of Options and WatchConfig.
const (
	DefaultBatchMax      = 4096
	DefaultBatchMaxBytes = 4 << 20
	DefaultBulkMax       = 50_000
	DefaultBulkMaxBytes  = 32 << 20
	// DefaultWindow and DefaultWindowMax are what SeedWindow asks for.
	DefaultWindow    = 10 * time.Millisecond
	DefaultWindowMax = 100

	DefaultShutdownTimeout = 10 * time.Second
	// MaxFailures is how many times in a row one batch's hooks or store apply may fail before a fold stops.
	MaxFailures = 16
)

// BatchOptions say when received updates are committed together. The zero value is greedy: a batch is whatever
// arrived while the last one was committed, so it is small when little comes and large when much does.
type BatchOptions struct {
	// Max and MaxBytes bound a batch; defaults 4096 updates and 4 MiB of keys and values.
	Max      int
	MaxBytes int
	// BulkMax and BulkMaxBytes bound a batch while the fold hydrates from at least BulkMax revisions behind; defaults
	// 50,000 and 32 MiB, from which a store gains by taking many keys at once (see pebblestore).
	BulkMax      int
	BulkMaxBytes int
	// Window, when not 0, holds a batch open for so long, or until it has Max updates, instead of being greedy.
	Window time.Duration
	// Queue is how many updates may wait, received and not yet in a batch; default Max.
	Queue int
}

// SeedWindow batches by time instead of greedily: a window of 10 ms, at most 100 updates, as the Rust library slipstream
// does, whose logs logstore reads.
func SeedWindow() BatchOptions {
	return BatchOptions{Window: DefaultWindow, Max: DefaultWindowMax, Queue: 256}
}

// Validate refuses what can't work.
func (b BatchOptions) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"Max", b.Max}, {"MaxBytes", b.MaxBytes}, {"BulkMax", b.BulkMax}, {"BulkMaxBytes", b.BulkMaxBytes}, {"Queue", b.Queue}} {
		if f.value < 0 {
			return fmt.Errorf("batch option %s is %d; it is at least 0, and 0 is the default", f.name, f.value)
		}
	}
	if b.Window < 0 {
		return fmt.Errorf("batch option Window is %v; it is at least 0, and 0 is greedy", b.Window)
	}
	return nil
}

func (b BatchOptions) machineConfig(hasStore bool) machine.Config {
	c := machine.Config{
		HasStore:     hasStore,
		Windowed:     b.Window > 0,
		MaxUpdates:   orDefault(b.Max, DefaultBatchMax),
		MaxBytes:     orDefault(b.MaxBytes, DefaultBatchMaxBytes),
		BulkUpdates:  orDefault(b.BulkMax, DefaultBulkMax),
		BulkBytes:    orDefault(b.BulkMaxBytes, DefaultBulkMaxBytes),
		QueueUpdates: b.Queue,
		MaxFailures:  MaxFailures,
	}
	c.QueueUpdates = orDefault(c.QueueUpdates, c.MaxUpdates)
	c.QueueBytes = c.MaxBytes
	return c
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// Options shape a fold. The zero value follows the whole bucket, greedily.
type Options struct {
	// Bucket is the logical bucket whose tables this fold holds; default the bucket's own name.
	Bucket string
	// Scope narrows what is followed; default the whole bucket. A table whose keys all lie outside of it is refused.
	Scope kv.Scope
	// Repair says what the fold does when its cursor is no resume position any more. By default it re-lists a bucket that
	// keeps its values, and stops on any other, and on one that was re-created, with reads still served.
	Repair RepairOptions
	Batch  BatchOptions
	// Validator judges the values of all tables that say validate: true and were not given their own.
	Validator Validator
	// OnApplied is told of each commit that moved the cursor, on the fold's own goroutine: it must not block for long, and
	// not call Close.
	OnApplied func(Applied)
	// ShutdownTimeout is how long Close may take to commit what was received, and again how long reads that are under way
	// may take to end; default 10 s.
	ShutdownTimeout time.Duration
	// Logger gets state changes and failures, never keys or values; default slog.Default().
	Logger *slog.Logger
	// Events are called at what happens, for metrics and traces.
	Events Events
}

// Validate refuses what can't work.
func (o Options) Validate() error {
	if o.ShutdownTimeout < 0 {
		return fmt.Errorf("option ShutdownTimeout is %v; it is at least 0, and 0 is the default", o.ShutdownTimeout)
	}
	if err := o.Repair.Validate(); err != nil {
		return fmt.Errorf("option Repair: %w", err)
	}
	return o.Batch.Validate()
}

// Applied is one commit.
type Applied struct {
	// Cursor is the committed cursor: hooks have returned, and reads see everything up to it.
	Cursor Cursor
	// Durable is the cursor that survives a crash of this process and of the machine. It is behind Cursor when the
	// store does not sync each commit, and it is Cursor when there is no store.
	Durable Cursor
	// Log is what is remembered of the log that Cursor belongs to. It is given only without a store, which keeps it.
	Log kv.Incarnation
	// Updates is how many updates the commit held, rejected ones included.
	Updates int
}

// Events are nil-safe hooks on a fold's running. Each is called on the goroutine that it happens on, and must neither
// block nor call Close; none is called after Close has returned.
type Events struct {
	// WatchOpened: a watch began, after the cursor, at the log's head.
	WatchOpened func(after Cursor, head uint64)
	// WatchLost: the watch ended, or none could be opened; another try follows unless the error is final.
	WatchLost func(err error)
	// Flushed: a batch was committed.
	Flushed func(Flushed)
	// FlushFailed: a batch's hooks or store apply failed, for the nth time in a row.
	FlushFailed func(err error, failures int)
	// Hydrated: for the first time the fold has all that the log held when its watch began.
	Hydrated func(Cursor)
	// Rebuild: within Start, so much of a table's indexes is built, or so many of its rows are judged anew. It is called
	// after each batch, on Start's goroutine.
	Rebuild func(RebuildProgress)
	// RepairStarted: the cursor is no resume position any more, for this reason, and a repair begins. One of a fold that has
	// no cursor has no reason, and begins without it.
	RepairStarted func(reason error)
	// RepairDone and AuditDone: a repair or an audit that had something to decide has ended, well or not; one that failed
	// for now is tried again, and told of again. The report is shared: don't change it.
	RepairDone func(*RepairReport)
	AuditDone  func(*RepairReport)
	// Rejected: a table refused an update.
	Rejected func(*Rejection)
	// Stopped: the fold has stopped; err is nil after Close.
	Stopped func(cursor Cursor, err error)
}

// Flushed is one committed batch's figures.
type Flushed struct {
	Updates, Bytes int
	Cursor         Cursor
	// Hooks and Store are how long each part took.
	Hooks, Store time.Duration
}

// RebuildProgress is how far a rebuild within Start is.
type RebuildProgress struct {
	Table string
	// Index names the indexes that are built in this pass, joined by commas; "" when rows are judged anew.
	Index string
	// Done and Total are rows.
	Done, Total uint64
}
