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
		switch err := s.log.guard(s.syncNow); {
		case isPoison(err):
			return // Apply says so
		case err != nil:
			s.kickFlusher() // once more, an interval later; Durable shows that it lags
		}
	}
}

func (s *Store) kickFlusher() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}
