// Package reader reads a stream's records from the frames of its log. It needs no leader: what is in the log is committed.
package reader

import (
	"context"
	"fmt"
	"math"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
)

// Start is where a read begins: at a record, at so many records before the tail, or at a time.
type Start struct {
	Kind StartKind
	// N is the record's number, the number of records before the tail, or milliseconds of Unix time.
	N uint64
	// Clamp: a record that is not kept any more, or not there yet, is the first one that is kept, or the tail.
	Clamp bool
}

// StartKind says what a Start counts.
type StartKind uint8

const (
	FromSeq StartKind = iota
	FromTail
	FromTime
)

// OutOfRangeError is a read that begins where there is no record, or where one was removed.
type OutOfRangeError struct {
	SeqNum      uint64
	First, Tail nova.Position
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("record %d is out of range: the stream has records from %d on, and its tail is %d", e.SeqNum, e.First.SeqNum, e.Tail.SeqNum)
}

// Records is a run of records, the first of which has number First.
type Records struct {
	First   uint64
	Records []nova.Record
}

// Out is where a read's records go. An error ends the read.
type Out interface {
	// Take is called with records in order, 1,000 at most, which are its own until it returns, and their bytes too. With
	// none, the tail is reached, of a read that follows.
	Take(Records) error
	// Pause is called before the read waits for the log: nothing may be taken for a while.
	Pause() error
}

// Each is an Out that is called for records, and does nothing in a pause.
type Each func(Records) error

// Take calls the function.
func (f Each) Take(r Records) error { return f(r) }

// Pause does nothing.
func (Each) Pause() error { return nil }

// Log is what a reader needs; *jslog.Log is one.
type Log interface {
	Last(ctx context.Context) (jslog.Stored, error)
	From(ctx context.Context, seq uint64) (jslog.Stored, error)
	Frames(ctx context.Context, seq uint64) (*jslog.Frames, error)
	Begun(ctx context.Context) (bool, error)
}

// Bounds are the first record that is kept, and the tail.
func Bounds(ctx context.Context, l Log) (first, tail nova.Position, err error) {
	b, err := boundsOf(ctx, l)
	return b.first.state.Position(), b.last.state.Position(), err
}

// edge is one frame's place and a state beside it.
type edge struct {
	seq   uint64 // of the log
	state frame.State
}

// bounds are the log's ends: the state before its first frame, and behind its last.
type bounds struct{ first, last edge }

func boundsOf(ctx context.Context, l Log) (b bounds, err error) {
	first, err := l.From(ctx, 1)
	if err != nil {
		return b, err
	}
	last, err := l.Last(ctx)
	if err != nil {
		return b, err
	}
	if first.Seq == 0 || last.Seq == 0 {
		begun, err := l.Begun(ctx)
		switch {
		case err != nil:
			return b, err
		case !begun:
			return b, jslog.ErrNewborn
		}
		return b, fmt.Errorf("%w: it has no frame", jslog.ErrDamaged)
	}
	b.first.seq = first.Seq
	if _, b.first.state, err = frame.ParseHead(first.Payload); err != nil {
		return b, fmt.Errorf("frame at log sequence %d: %w", first.Seq, err)
	}
	f, err := frame.Parse(last.Payload)
	if err != nil {
		return b, fmt.Errorf("frame at log sequence %d: %w", last.Seq, err)
	}
	b.last = edge{seq: last.Seq, state: f.After()}
	return b, nil
}

// Read hands out the records from a place on, in order, and returns where the next record is read. Without follow it
// ends at the tail that the stream had when it began. With follow, out is told when that tail is reached, and the read ends
// with the context. limit bounds the number of records; 0 is no limit.
func Read(ctx context.Context, l Log, start Start, limit uint64, follow bool, out Out) (next nova.Position, err error) {
	b, err := boundsOf(ctx, l)
	if err != nil {
		return next, err
	}
	at, next, err := place(ctx, l, b, start)
	if err != nil {
		return next, err
	}
	if limit == 0 {
		limit = math.MaxUint64
	}
	r := run{next: next, left: limit, tail: b.last.state.Next, follow: follow, out: out}
	if start.Kind == FromTime {
		r.since = int64(min(start.N, math.MaxInt64))
	}
	if next.SeqNum >= r.tail {
		if err := r.atTail(); err != nil || !follow {
			return r.next, err
		}
	}
	frames, err := l.Frames(ctx, at)
	if err != nil {
		return r.next, err
	}
	defer frames.Close()
	for !r.done() {
		stored, err := r.wait(ctx, frames)
		if err != nil {
			return r.next, err
		}
		if err := r.frame(stored); err != nil {
			return r.next, err
		}
	}
	return r.next, nil
}

// wait is the next frame. Out is told before it waits for one.
func (r *run) wait(ctx context.Context, frames *jslog.Frames) (jslog.Stored, error) {
	stored, ok, err := frames.Ready(ctx)
	if err != nil || ok {
		return stored, err
	}
	if err := r.out.Pause(); err != nil {
		return stored, err
	}
	return frames.Next(ctx)
}

// run is one read under way.
type run struct {
	next   nova.Position
	left   uint64
	tail   uint64
	follow bool
	told   bool  // that the tail was reached
	since  int64 // records before this time are left out; 0 is none
	out    Out
	frames frame.Scanner
}

func (r *run) done() bool { return r.left == 0 || !r.follow && r.next.SeqNum >= r.tail }

func (r *run) atTail() error {
	if r.told || !r.follow {
		return nil
	}
	r.told = true
	return r.out.Take(Records{First: r.next.SeqNum})
}

// frame hands over the records of one frame that are wanted.
func (r *run) frame(stored jslog.Stored) error {
	before, err := r.frames.Begin(stored.Payload)
	switch {
	case err != nil:
		return damaged(stored, err)
	case before.Next > r.next.SeqNum:
		return r.gap(stored)
	}
	for seq := before.Next; ; {
		records, err := r.frames.Next()
		switch {
		case err != nil:
			return damaged(stored, err)
		case len(records) == 0 && r.next.SeqNum >= r.tail:
			return r.atTail()
		case len(records) == 0:
			return nil
		}
		if err := r.batch(seq, records); err != nil || r.done() {
			return err
		}
		seq += uint64(len(records))
	}
}

func damaged(stored jslog.Stored, err error) error {
	return fmt.Errorf("frame at log sequence %d: %w", stored.Seq, err)
}

// gap is a frame that does not begin where the one before ended: what was there is removed.
func (r *run) gap(stored jslog.Stored) error {
	f, err := frame.Parse(stored.Payload)
	if err != nil {
		return damaged(stored, err)
	}
	return &OutOfRangeError{SeqNum: r.next.SeqNum, First: f.State.Position(), Tail: f.After().Position()}
}

// batch hands over records, the first of which has number seq, without those before the start.
func (r *run) batch(seq uint64, records []nova.Record) error {
	skip := min(r.next.SeqNum-seq, uint64(len(records)))
	records = records[skip:]
	for r.since > 0 && len(records) > 0 && records[0].Timestamp < r.since {
		records = records[1:]
		r.next.SeqNum++
	}
	if uint64(len(records)) > r.left {
		records = records[:r.left]
	}
	if !r.follow && r.next.SeqNum+uint64(len(records)) > r.tail {
		records = records[:r.tail-r.next.SeqNum]
	}
	if len(records) == 0 {
		return nil
	}
	r.since = 0
	if err := r.out.Take(Records{First: r.next.SeqNum, Records: records}); err != nil {
		return err
	}
	r.left -= uint64(len(records))
	r.next.SeqNum += uint64(len(records))
	r.next.Timestamp = records[len(records)-1].Timestamp
	return nil
}
