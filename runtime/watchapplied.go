package fold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// WatchConfig shapes a WatchApplied.
type WatchConfig struct {
	// Watcher is the log to follow. Required.
	Watcher kv.Watcher
	// Scope narrows what is followed; default the whole bucket.
	Scope kv.Scope
	// Store, when there is one, gets every raw update and the cursor, in one atomic commit a batch. Its own cursor is
	// then the one to resume from, and Resume must be none. The caller closes it.
	Store store.Store
	// Reader, with a Store, lets a cursor that is no resume position any more be repaired as Repair says; a kv.Bucket is
	// one. Without it the watch ends with ErrCursorExpired, ErrLogReplaced or ErrLogRewound.
	Reader RepairLog
	Repair RepairOptions
	// Resume is the cursor to resume after, when there is no store; none begins with every current value.
	Resume Cursor
	// Known is what is remembered of the log that Resume belongs to: the Applied.Log that came with it. Without it a
	// bucket that was re-created, and has grown past Resume since, passes for the same one.
	Known kv.Incarnation
	Batch BatchOptions
	// OnApplied is told of each commit that moved the cursor. Without a store, Applied.Cursor and Applied.Log are what to
	// persist for the next Resume and Known; with one, the store has them already.
	OnApplied func(Applied)
	// ShutdownTimeout is how long the last flush may take after ctx has ended; default 10 s.
	ShutdownTimeout time.Duration
	Logger          *slog.Logger
	Events          Events
}

// Validate refuses what can't work.
func (c WatchConfig) Validate() error {
	switch {
	case c.Watcher == nil:
		return errors.New("watch applied: no watcher")
	case c.Store != nil && (!c.Resume.IsNone() || c.Known.CreatedUnixNano != 0):
		return errors.New("watch applied: with a store, the store's cursor is what to resume from; leave Resume and Known out")
	case c.Reader != nil && c.Store == nil:
		return errors.New("watch applied: a repair compares the bucket with a store, and there is none")
	case c.ShutdownTimeout < 0:
		return fmt.Errorf("watch applied: ShutdownTimeout is %v; it is at least 0", c.ShutdownTimeout)
	}
	if err := c.Repair.Validate(); err != nil {
		return fmt.Errorf("watch applied: %w", err)
	}
	return c.Batch.Validate()
}

// WatchApplied follows a log with the caller's own parse and apply, until ctx ends. A cursor that it reports or
// commits implies that apply has returned for every update at or below it. parse extracts what apply wants, and false
// leaves an update out (the cursor covers it all the same); it runs beside apply, on other goroutines, one call at a time.
// apply gets each batch in revision order, in a slice that is its own until it returns; an error or a panic has the same
// batch come again after a while, and after 16 in a row the watch stops with a *FailStopError. A panic of parse stops it at
// once. After a crash a batch may come again.
//
// A lost watch is opened again from where it was. An expired, replaced or rewound log is repaired where WatchConfig.Reader
// and Repair allow it, and otherwise ends with an error that matches ErrCursorExpired, ErrLogReplaced or ErrLogRewound,
// with everything received applied. What a repair or an audit changes comes to parse and apply like all else, a delete with
// ReasonRepair and an unknown version. When ctx ends, what was received is applied and committed within ShutdownTimeout, and
// the error is nil, or a *ShutdownError. The cursor is the last one committed.
func WatchApplied[T any](ctx context.Context, c WatchConfig, parse func(*kv.Update) (T, bool), apply func(context.Context, []T) error) (Cursor, error) {
	if err := c.Validate(); err != nil {
		return c.Resume, err
	}
	if parse == nil || apply == nil {
		return c.Resume, errors.New("watch applied: parse and apply are required")
	}
	log := c.Logger
	if log == nil {
		log = slog.Default()
	}
	resume := c.Resume
	if c.Store != nil {
		resume = c.Store.Cursor()
	}
	l := newLoop(loopConfig{
		watcher: c.Watcher, scope: c.Scope, store: c.Store, resume: resume, known: c.Known, sink: &applySink[T]{parse: parse, apply: apply},
		reader: c.Reader, repair: c.Repair,
		machine: c.Batch.machineConfig(c.Store != nil), window: c.Batch.Window,
		deadline: cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout), onApplied: c.OnApplied, events: c.Events, log: log,
	})
	stop := context.AfterFunc(ctx, l.shutdown)
	defer stop()
	return l.run()
}

// applySink feeds a caller's parse and apply.
type applySink[T any] struct {
	parse func(*kv.Update) (T, bool)
	apply func(context.Context, []T) error
	batch []T

	parsing sync.Mutex // an audit's changes are parsed beside what is received
}

// parsed is what parse made of one segment, or its panic.
type parsed[T any] struct {
	items []T
	err   error
}

// errParsePanicked is fatal: parse is a function of the update, and the same one would come again.
var errParsePanicked = errors.New("parse panicked")

func (k *applySink[T]) prepare(seg *segment, from int) {
	k.parsing.Lock()
	defer k.parsing.Unlock()
	p, _ := seg.parsed.(parsed[T])
	defer func() {
		if r := recover(); r != nil {
			p.err = fmt.Errorf("%w: %v\n%s", errParsePanicked, r, debug.Stack())
		}
		seg.parsed = p
	}()
	for i := from; p.err == nil && i < len(seg.updates); i++ {
		if item, ok := k.parse(&seg.updates[i]); ok {
			p.items = append(p.items, item)
		}
	}
}

func (k *applySink[T]) hooks(ctx context.Context, segs []*segment) (err error) {
	k.batch = k.batch[:0]
	for _, s := range segs {
		p := s.parsed.(parsed[T])
		if p.err != nil {
			return p.err
		}
		k.batch = append(k.batch, p.items...)
	}
	items := k.batch
	if len(items) == 0 {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("apply %w: %v\n%s", errPanicked, p, debug.Stack())
		}
	}()
	if err := k.apply(ctx, items); err != nil {
		return fmt.Errorf("apply of %d updates: %w", len(items), err)
	}
	return nil
}

func (k *applySink[T]) ops(_ []*segment, ops []store.Op) ([]store.Op, error) { return ops, nil }
func (k *applySink[T]) applied(error)                                        {}
func (k *applySink[T]) committed([]*segment, kv.Cursor)                      { clear(k.batch) }
