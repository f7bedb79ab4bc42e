package logstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Apply appends the batch and the cursor to the log as one group, and then changes what is read. A write that fails is
// cut off again; if that fails too the store is poisoned.
//
// A rewrite of the log that is due is done first, on the caller's goroutine: it takes as long as writing and syncing
// the live data once, and happens at most once for each such amount of data applied. If it fails, the log goes on
// growing and Hooks.CompactionFailed hears of it.
func (s *Store) Apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("logstore: apply to %s: %w", s.path, err)
	}
	if err := checkBatch(b); err != nil {
		return err
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.makeReady(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	end, err := s.append(b, c)
	if err != nil {
		return s.cutOff(ioError("append to", s.path, err))
	}
	if s.o.Durability == Sync {
		s.syncing.Lock()
		err := s.file.Sync()
		s.syncing.Unlock()
		if err != nil {
			return s.poison(ioError("sync", s.path, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
	s.table.batch(b)
	s.size, s.cursor = end, c
	if s.o.Durability == Sync {
		s.durable, s.synced = c, end
	}
	s.flushLater()
	return nil
}

var cursorKey = string(store.CursorKey())

// checkBatch refuses what the format can't hold, before anything is written.
func checkBatch(b *store.Batch) error {
	for i := range b.Updates {
		u := &b.Updates[i]
		if u.Op < kv.OpPut || u.Op > kv.OpAgedOut {
			return fmt.Errorf("logstore: update of %q: unknown op %d", u.Key, u.Op)
		}
		if u.Key == "" {
			return fmt.Errorf("logstore: update %d has no key", i)
		}
		if err := checkSize(u.Key, len(u.Key), len(u.Value), MaxValue); err != nil {
			return err
		}
		if n := len(u.ContentType); n > maxContentType {
			return &SizeError{Key: u.Key, What: "content type", Size: n, Limit: maxContentType}
		}
	}
	for i := range b.Ops {
		o := &b.Ops[i]
		if len(o.Key) == 0 {
			return fmt.Errorf("logstore: op %d has no key", i)
		}
		if string(o.Key) == cursorKey {
			return fmt.Errorf("logstore: op %d writes the cursor's key; the cursor is Apply's own argument", i)
		}
		if err := checkSize(string(o.Key[:min(len(o.Key), 64)]), len(o.Key)-1, len(o.Value), MaxValue+maxRecordHead); err != nil {
			return err
		}
	}
	return nil
}

func checkSize(name string, key, value, limit int) error {
	if key > MaxKey {
		return &SizeError{Key: name, What: "key", Size: key, Limit: MaxKey}
	}
	if value > limit {
		return &SizeError{Key: name, What: "value", Size: value, Limit: limit}
	}
	return nil
}

// makeReady makes the log fit to append to: of format 3, and rewritten when that is due.
func (s *Store) makeReady(ctx context.Context) error {
	s.mu.RLock()
	err := s.writableLocked()
	v2, grown, live := s.format != versionV3, s.size-s.base, s.table.live
	s.mu.RUnlock()
	if err != nil {
		return err
	}
	if v2 {
		return s.compact(ctx)
	}
	if grown <= s.o.CompactBytes || grown <= live || s.size < s.retryAt {
		return nil
	}
	if err := s.compact(ctx); err != nil {
		if errors.Is(err, store.ErrPoisoned) {
			return err
		}
		s.retryAt = s.size + s.o.CompactBytes
		s.o.Hooks.compactionFailed(err)
	}
	return nil
}

// append writes the batch's group after the log's end, and returns its own end.
func (s *Store) append(b *store.Batch, c kv.Cursor) (int64, error) {
	s.mu.RLock()
	synced := s.synced == s.size
	s.mu.RUnlock()
	s.group.begin(kindBatch, s.size, synced)
	for i := range b.Updates {
		s.group.update(&b.Updates[i])
	}
	for i := range b.Ops {
		if o := &b.Ops[i]; o.Delete {
			s.group.delete(o.Key)
		} else {
			s.group.put(o.Key, o.Value)
		}
	}
	return s.group.end(c)
}

func (s *Store) writeFrame(b []byte, off int64) error {
	_, err := s.file.WriteAt(b, off)
	return err
}

// cutOff removes what a failed append may have left, and returns why it failed.
func (s *Store) cutOff(cause error) error {
	if err := s.file.Truncate(s.size); err != nil {
		return s.poison(errors.Join(cause, ioError("truncate", s.path, err)))
	}
	return cause
}

// Settle rewrites the log if it holds anything but live data, on the caller's goroutine.
func (s *Store) Settle(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("logstore: settle %s: %w", s.path, err)
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.RLock()
	err := s.writableLocked()
	settled := s.format == versionV3 && s.size == s.base
	s.mu.RUnlock()
	if err != nil || settled {
		return err
	}
	return s.compact(ctx)
}

// compact replaces the log by one that holds the live data and the cursor. If it fails before the new file has its
// name, the old one goes on; after that the store is poisoned, since a loss of power could bring the old one back
// without what was appended to the new.
func (s *Store) compact(ctx context.Context) error {
	began := time.Now()
	s.mu.Lock()
	v := s.viewLocked()
	s.mu.Unlock()
	w := rewriter{fs: s.o.FS, path: s.path}
	file, size, err := w.run(ctx, v.tree, v.cursor)
	var renamed *renamedError
	if err != nil && !errors.As(err, &renamed) {
		return err
	}
	before := s.replaceFile(file, size, err == nil)
	if err != nil {
		return s.poison(err)
	}
	s.o.Hooks.compacted(Compaction{Before: before, After: size, Keys: v.tree.Len(), Cursor: v.cursor, Took: time.Since(began)})
	return nil
}

// replaceFile makes file, of one base and durable or not, the log. It returns the old log's size.
func (s *Store) replaceFile(file File, size int64, durable bool) (before int64) {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.file.Close() // its name is gone, and with it all that a failure could lose
	before = s.size
	s.file, s.size, s.base, s.format, s.retryAt = file, size, size, versionV3, 0
	if durable {
		s.durable, s.synced = s.cursor, size
	}
	return before
}
