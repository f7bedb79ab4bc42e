package node

import (
	"context"
	"time"

	"github.com/typedfold/fold/internal/nova/reader"
)

// retain removes from the stream's beginning what its retention does not keep, in whole frames, and never the last one.
func (s *Stream) retain(ctx context.Context) error {
	r, err := s.log.Retention()
	if err != nil {
		return err
	}
	var before uint64
	if r.MaxRecords > 0 {
		first, tail, err := reader.Bounds(ctx, s.log)
		if err != nil {
			return err
		}
		if n := tail.SeqNum - first.SeqNum; n > r.MaxRecords {
			seq, _, err := reader.FrameOf(ctx, s.log, tail.SeqNum-r.MaxRecords)
			if err != nil {
				return err
			}
			before = max(before, seq)
		}
	}
	if r.MaxAge > 0 {
		seq, err := reader.FrameAt(ctx, s.log, s.now().Add(-r.MaxAge).UnixMilli())
		if err != nil {
			return err
		}
		before = max(before, seq)
	}
	if r.MaxBytes > 0 {
		seq, err := s.overBytes(ctx, r.MaxBytes)
		if err != nil {
			return err
		}
		before = max(before, seq)
	}
	if before <= 1 {
		return nil
	}
	return s.log.PurgeBefore(ctx, before)
}

func (s *Stream) now() time.Time {
	if s.n.o.Now != nil {
		return s.n.o.Now()
	}
	return time.Now()
}

// overBytes is the log sequence before which frames go when the log holds too many bytes: as many of the oldest ones as leave
// limit bytes at least.
func (s *Stream) overBytes(ctx context.Context, limit uint64) (uint64, error) {
	d, err := s.log.Describe(ctx)
	if err != nil {
		return 0, err
	}
	left := d.Bytes - min(d.Bytes, s.log.ControlBytes())
	if left <= limit {
		return 0, nil
	}
	before := uint64(0)
	err = s.log.Sizes(ctx, func(seq, bytes uint64) bool {
		before = seq
		if left < limit+bytes {
			return false
		}
		left -= bytes
		return true
	})
	return before, err
}
