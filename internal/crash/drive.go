package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// progress is what a store has said so far.
type progress struct {
	// acked is the last batch whose Apply went well, begun the last that was tried, durable the last that was promised.
	acked, begun, durable uint64
	// exported is the batch of the last export that went well; 0 is none.
	exported uint64
}

// driven is a short life of a store whose disk may fail.
type driven struct {
	truth *truth
	mode  storetest.Mode
	open  func() (store.Store, error)
	// exportTo is where the one export goes.
	exportTo string
	// said hears of each change of progress; nil hears nothing.
	said func(progress)

	progress progress
}

const (
	drivenBatches  = 24
	drivenExportAt = 12
	drivenTries    = 3
	settleLimit    = 2 * time.Second
)

func (d *driven) say() {
	if d.said != nil {
		d.said(d.progress)
	}
}

// run opens the store twice and applies the batches, with a sync, an export and a settling. A step that fails is tried
// again, until the store refuses writes. Its error is something wrong, and not that the disk failed.
func (d *driven) run(ctx context.Context) error {
	for _, to := range []uint64{drivenBatches - 6, drivenBatches} {
		s, err := d.open()
		if err != nil {
			return nil // a disk that fails
		}
		n := s.Cursor().Revision()
		if n < d.progress.durable || n > d.progress.begun {
			err = fmt.Errorf("opened at %d, durable was %d", n, d.progress.durable)
		}
		d.progress.acked, d.progress.durable = n, n
		goesOn, wrong := d.batches(ctx, s, to)
		closed := s.Close()
		if err := errors.Join(err, wrong); err != nil {
			return err
		}
		if !goesOn || closed != nil {
			return nil
		}
		d.progress.durable = d.progress.acked
		d.say()
	}
	return nil
}

// batches applies up to batch to. goesOn is false once the store refuses writes.
func (d *driven) batches(ctx context.Context, s store.Store, to uint64) (goesOn bool, err error) {
	for n := d.progress.acked + 1; n <= to; n++ {
		b, c := d.truth.batch(n)
		d.progress.begun = max(d.progress.begun, n)
		d.say()
		if !d.step(s, func() error { return s.Apply(ctx, b, c) }) {
			return false, d.serves(s)
		}
		d.progress.acked = n
		if d.mode == storetest.ModeSync {
			d.progress.durable = n
		}
		d.progress.durable = max(d.progress.durable, s.Durable().Revision())
		d.say()
		if !d.more(ctx, s, n) {
			return false, d.serves(s)
		}
	}
	return true, d.shows(s)
}

// more is what is done after some of the batches.
func (d *driven) more(ctx context.Context, s store.Store, n uint64) bool {
	switch n {
	case 7:
		if !d.step(s, func() error { return s.Sync(ctx) }) {
			return false
		}
		d.progress.durable = n
	case drivenExportAt:
		if s.Export(ctx, d.exportTo) == nil { // what a failed one leaves is for the caller of Export to remove
			d.progress.exported = n
		}
	case 15:
		// Pebble tries a flush that fails again for ever, and Settle waits for it as long as it may.
		ctx, cancel := context.WithTimeout(ctx, settleLimit)
		defer cancel()
		return !errors.Is(s.Settle(ctx), store.ErrPoisoned)
	}
	return true
}

// step does one thing, and again if it fails. It is false when that is no use.
func (d *driven) step(s store.Store, do func() error) bool {
	for range drivenTries {
		err := do()
		if err == nil {
			return true
		}
		if errors.Is(err, store.ErrPoisoned) {
			return false
		}
	}
	return false
}

// serves tells whether reads of a store that refuses writes are right. They may fail.
func (d *driven) serves(s store.Store) error {
	within := func(n uint64) error {
		if n < d.progress.acked || n > d.progress.begun {
			return &rowError{fmt.Sprintf("a store that refuses writes is at %d, want from %d to %d", n, d.progress.acked, d.progress.begun)}
		}
		return nil
	}
	if err := within(s.Cursor().Revision()); err != nil {
		return err
	}
	// A batch that was given up may still become visible, whole, behind the store's own Cursor (store.Store.Apply).
	return rowsOf(d.truth.moment(s, func(at kv.Cursor) error { return within(at.Revision()) }))
}

// shows tells whether reads are right. They may fail.
func (d *driven) shows(s store.Store) error { return rowsOf(d.truth.scan(s)) }

// rowsOf is an error that says that something is wrong, and not that a read failed.
func rowsOf(err error) error {
	var wrong *rowError
	if errors.As(err, &wrong) {
		return err
	}
	return nil
}

// whole tells whether a life without a failure got to its end.
func (p progress) whole() error {
	if p.acked != drivenBatches || p.durable != drivenBatches || p.exported != drivenExportAt {
		return fmt.Errorf("without a failure it got to %+v", p)
	}
	return nil
}
