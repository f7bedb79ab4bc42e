package pebblestore

import (
	"context"
	"time"
)

// flushLoop makes applied batches durable, FlushInterval after the first one that is not.
func (s *Store) flushLoop(ctx context.Context) {
	wait := time.NewTimer(s.opts.FlushInterval)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		wait.Reset(s.opts.FlushInterval)
		select {
		case <-ctx.Done():
			return // Close syncs
		case <-wait.C:
		}
		if err := s.log.guard(s.syncNow); isPoison(err) {
			return // Apply says so
		}
	}
}
