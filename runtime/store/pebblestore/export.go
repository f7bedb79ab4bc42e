package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
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
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.clearTarget(dir); err != nil {
		return err
	}
	return s.log.guard(func() error {
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

// Settle flushes and compacts, so that a read looks at one table. It belongs after a hydrate, during which compactions
// are held back.
func (s *Store) Settle(ctx context.Context) error {
	if err := s.refs.acquire(); err != nil {
		return err
	}
	defer s.refs.release()
	if err := ctx.Err(); err != nil {
		return err
	}
	s.hydrating.Store(false)
	if err := s.log.guard(func() error { return s.settle(ctx) }); err != nil {
		return fmt.Errorf("pebblestore: settle: %w", err)
	}
	return nil
}

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
	return s.db.Compact(ctx, []byte{0}, []byte{0xFF, 0xFF}, false)
}
