package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/typedfold/fold/runtime/store"
)

// Export writes a checkpoint into dir: hard links where it is on the same file system, so that it costs little and
// takes no space of its own until the store moves on. Applies wait meanwhile.
func (s *Store) Export(ctx context.Context, dir string) error {
	if err := s.export(ctx, dir); err != nil {
		return fmt.Errorf("pebblestore: export to %s: %w", dir, err)
	}
	return nil
}

func (s *Store) export(ctx context.Context, dir string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.refs.acquire(); err != nil {
		return err
	}
	defer s.refs.release()
	if s.opts.ReadOnly {
		return store.ErrReadOnly
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.clearTarget(dir); err != nil {
		return err
	}
	return s.log.guard(func() error {
		// Pebble opens its manifest for writing with the first change to its tables, and a checkpoint has nothing of the
		// manifest before that. A flush is a change, even one of nothing.
		if !s.log.manifest.Load() {
			if err := s.db.Flush(); err != nil {
				return err
			}
		}
		if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.durable = s.applied
		return nil
	})
}

// clearTarget makes room for a checkpoint, which makes its directory itself.
func (s *Store) clearTarget(dir string) error {
	i, err := s.fs.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !i.IsDir() {
		return errors.New("not a directory")
	}
	names, err := s.fs.List(dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("directory is not empty: it holds %q", names[0])
	}
	return s.fs.Remove(dir)
}

// Settle ends a hydrate's hold on compactions, flushes, and waits until Pebble has nothing left to compact: a read then
// asks one table of each level in use. It does not push everything to the last level, which would write all of it
// several times over for a few percent.
func (s *Store) Settle(ctx context.Context) error {
	if err := s.refs.acquire(); err != nil {
		return err
	}
	defer s.refs.release()
	if s.opts.ReadOnly {
		return fmt.Errorf("pebblestore: settle: %w", store.ErrReadOnly)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.hydrating.Store(false)
	if err := s.log.guard(func() error { return s.settle(ctx) }); err != nil {
		return fmt.Errorf("pebblestore: settle: %w", err)
	}
	return nil
}

const (
	settlePoll = 5 * time.Millisecond
	// settleQuiet is how long nothing must be compacted while level 0 is still deep: Pebble looks for work every 100 ms.
	settleQuiet = 300 * time.Millisecond
)

func (s *Store) settle(ctx context.Context) error {
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-ctx.Done():
		return ctx.Err()
	}
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	busy := time.Now()
	for {
		m := s.db.Metrics()
		if m.Compact.NumInProgress > 0 {
			busy = time.Now()
		} else if m.Levels[0].Sublevels <= 1 || time.Since(busy) > settleQuiet {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
