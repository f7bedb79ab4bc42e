package pebblestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const (
	// batchRetained is the largest batch buffer that is kept for the next one.
	batchRetained = 4 << 20
	// batchLimit is the largest batch, in bytes: half of what Pebble can hold in one.
	batchLimit = 2 << 30
	// batchOverhead is at least what a batch needs for one write beside key and value.
	batchOverhead = 16
)

// Apply commits the batch and the cursor together. A batch of more than 2 GiB is refused.
func (s *Store) Apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	s.write.Lock()
	defer s.write.Unlock()
	size, err := s.mayApply(ctx, b)
	if err != nil {
		return fmt.Errorf("pebblestore: apply at %v: %w", c, err)
	}
	if err := s.setHydrating(b.Bulk); err != nil {
		return fmt.Errorf("pebblestore: apply at %v: %w", c, err)
	}
	durable := s.opts.Durability == Sync
	if b.Bulk && s.opts.BulkMinUpdates > 0 && len(b.Updates) >= s.opts.BulkMinUpdates {
		durable = true
		err = s.applyBulk(ctx, b, c, s.applied.n+1)
	} else {
		err = s.applyBatch(b, c, s.applied.n+1, durable)
	}
	if err != nil {
		s.showPoisoned(err)
		return fmt.Errorf("pebblestore: apply %d updates of %d bytes at %v: %w", len(b.Updates), size, c, err)
	}
	s.mu.Lock()
	s.applied = position{n: s.applied.n + 1, cursor: c}
	if durable {
		s.durable = s.applied
	}
	s.mu.Unlock()
	if s.opts.Durability == Interval && !durable {
		s.kickFlusher()
	}
	return nil
}

// setHydrating holds compactions back from the first Bulk batch to the first other one. Pebble looks at that when its
// tables change, so the end of a hydrate begins a flush.
func (s *Store) setHydrating(on bool) error {
	if s.hydrating.Swap(on) == on || on {
		return nil
	}
	return s.log.guard(func() error { _, err := s.db.AsyncFlush(); return err })
}

// mayApply is everything that can refuse the batch before a byte of it is written. It returns the batch's size.
func (s *Store) mayApply(ctx context.Context, b *store.Batch) (uint64, error) {
	if s.closed.Load() {
		return 0, store.ErrClosed
	}
	if s.opts.ReadOnly {
		return 0, store.ErrReadOnly
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := s.log.fatalError(); err != nil {
		return 0, err
	}
	size := uint64(batchOverhead)
	for i := range b.Updates {
		u := &b.Updates[i]
		if u.Op < kv.OpPut || u.Op > kv.OpAgedOut {
			return 0, fmt.Errorf("update %d of key %q has no known op (%d)", i, u.Key, u.Op)
		}
		if u.Key == "" {
			return 0, fmt.Errorf("update %d has no key", i)
		}
		size += uint64(u.Size() + batchOverhead)
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		if len(op.Key) == 0 || op.Key[0] == chainSpace || string(op.Key) == string(cursorKey) {
			return 0, fmt.Errorf("op %d is not of a key that a batch can write: %q", i, op.Key)
		}
		size += uint64(len(op.Key) + len(op.Value) + batchOverhead)
	}
	if size > batchLimit {
		return 0, fmt.Errorf("batch of %d bytes, at most %d", size, uint64(batchLimit))
	}
	return size, s.disk.check(size)
}

// applyBatch commits the n-th batch.
func (s *Store) applyBatch(b *store.Batch, c kv.Cursor, n uint64, sync bool) error {
	s.batch.Reset()
	for i := range b.Updates {
		u := &b.Updates[i]
		switch {
		case u.Op == kv.OpPut:
			op := s.batch.SetDeferred(1+len(u.Key), store.RecordSize(u))
			putDataKey(op.Key, u.Key)
			store.AppendRecord(op.Value[:0], u)
			if err := op.Finish(); err != nil {
				return err
			}
		case u.Op.Removes():
			op := s.batch.DeleteDeferred(1 + len(u.Key))
			putDataKey(op.Key, u.Key)
			if err := op.Finish(); err != nil {
				return err
			}
		}
	}
	for i := range b.Ops {
		if err := applyOp(s.batch, &b.Ops[i]); err != nil {
			return err
		}
	}
	if err := setLink(s.batch, n); err != nil {
		return err
	}
	var buf [32]byte
	if err := s.batch.Set(cursorKey, c.AppendBytes(buf[:0]), nil); err != nil {
		return err
	}
	how := pebble.NoSync
	if sync {
		how = pebble.Sync
	}
	return s.log.guard(func() error { return s.batch.Commit(how) })
}

func applyOp(b *pebble.Batch, op *store.Op) error {
	if op.Delete {
		return b.Delete(op.Key, nil)
	}
	return b.Set(op.Key, op.Value, nil)
}

// putDataKey writes the store key of a NATS key; dst is one byte longer than key.
func putDataKey(dst []byte, key string) {
	dst[0] = byte(store.SpaceData)
	copy(dst[1:], key)
	store.Ordered(dst[1:])
}

// Sync makes the cursor durable.
func (s *Store) Sync(ctx context.Context) error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed.Load() {
		return store.ErrClosed
	}
	if s.opts.ReadOnly {
		return fmt.Errorf("pebblestore: sync: %w", store.ErrReadOnly)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.log.guard(s.syncNow); err != nil {
		return fmt.Errorf("pebblestore: sync: %w", err)
	}
	return nil
}

// syncNow makes durable what is applied at the time of the call. Applies may go on meanwhile.
func (s *Store) syncNow() error {
	s.mu.Lock()
	now := s.applied
	done := s.durable.n >= now.n
	s.mu.Unlock()
	if done {
		return nil
	}
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		return err
	}
	s.markDurable(now)
	return nil
}

func (s *Store) markDurable(p position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.n > s.durable.n {
		s.durable = p
	}
}

// showPoisoned keeps Cursor what reads see: a batch whose log could not be synced may be visible all the same, whole.
func (s *Store) showPoisoned(err error) {
	if !isPoison(err) {
		return
	}
	if c, found, err := readCursor(s.db); err == nil && found {
		s.mu.Lock()
		s.applied.cursor = c
		s.mu.Unlock()
	}
}

// isPoison reports whether nothing more can be written.
func isPoison(err error) bool { return errors.Is(err, store.ErrPoisoned) }
