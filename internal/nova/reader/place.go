package reader

import (
	"context"
	"fmt"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
)

// place finds the frame that a read begins in: its sequence in the log, and the position of the first record that is read.
// For a time that is the frame's first record; those that are older are left out later.
func place(ctx context.Context, l Log, b bounds, s Start) (seq uint64, at nova.Position, err error) {
	first, tail := b.first.state, b.last.state
	want := s.N
	switch s.Kind {
	case FromTime:
		e, err := search(ctx, l, b, func(f frame.State) bool { return f.Timestamp < int64(s.N) })
		return e.seq, e.state.Position(), err
	case FromTail:
		want = tail.Next - min(s.N, tail.Next-first.Next)
	}
	if want < first.Next || want > tail.Next {
		if !s.Clamp {
			return 0, at, &OutOfRangeError{SeqNum: want, First: first.Position(), Tail: tail.Position()}
		}
		want = min(max(want, first.Next), tail.Next)
	}
	switch want {
	case tail.Next:
		return b.last.seq + 1, tail.Position(), nil
	case first.Next:
		return b.first.seq, first.Position(), nil
	}
	e, err := search(ctx, l, b, func(f frame.State) bool { return f.Next <= want })
	return e.seq, nova.Position{SeqNum: want}, err
}

// FrameOf is the sequence in the log of the frame that holds a record, and the number of that frame's first one.
func FrameOf(ctx context.Context, l Log, record uint64) (seq, first uint64, err error) {
	b, err := boundsOf(ctx, l)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case record <= b.first.state.Next:
		return b.first.seq, b.first.state.Next, nil
	case record > b.last.state.Next:
		return 0, 0, &OutOfRangeError{SeqNum: record, First: b.first.state.Position(), Tail: b.last.state.Position()}
	}
	e, err := search(ctx, l, b, func(f frame.State) bool { return f.Next <= record })
	return e.seq, e.state.Next, err
}

// search finds the last frame whose state before it has the property, which every frame before that one has too; the
// first frame if none has.
func search(ctx context.Context, l Log, b bounds, before func(frame.State) bool) (edge, error) {
	best, low, high := b.first, b.first.seq+1, b.last.seq
	for low <= high {
		middle := low + (high-low)/2
		stored, err := l.From(ctx, middle)
		if err != nil {
			return edge{}, err
		}
		if stored.Seq == 0 || stored.Seq > high {
			high = middle - 1 // no frame from here on
			continue
		}
		_, state, err := frame.ParseHead(stored.Payload)
		if err != nil {
			return edge{}, fmt.Errorf("%w: log sequence %d: %w", jslog.ErrDamaged, stored.Seq, err)
		}
		if before(state) {
			best, low = edge{seq: stored.Seq, state: state}, stored.Seq+1
		} else {
			high = middle - 1
		}
	}
	return best, nil
}

// FrameAt is the sequence in the log of the frame that holds the first record that is not older than a time in
// milliseconds of Unix time; the last frame when all are older.
func FrameAt(ctx context.Context, l Log, unixMilli int64) (uint64, error) {
	b, err := boundsOf(ctx, l)
	if err != nil {
		return 0, err
	}
	e, err := search(ctx, l, b, func(f frame.State) bool { return f.Timestamp < unixMilli })
	return e.seq, err
}
