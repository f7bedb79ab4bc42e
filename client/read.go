package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
)

// SequencedRecord is a record as it is read. It is the caller's. While it is kept, up to 32 KiB are kept that it shares with others.
type SequencedRecord struct {
	Record
	SeqNum uint64
	// Timestamp is in milliseconds of Unix time, and never less than that of the record before.
	Timestamp int64
}

// ReadOptions say where a read begins and ends. The zero value reads everything, from record 0 to the tail; where records were
// removed from the beginning, by Trim or by retention, that is a *RangeError unless Clamp is set.
type ReadOptions struct {
	// SeqNum is the first record, unless TailOffset or Since is set.
	SeqNum uint64
	// TailOffset begins so many records before the tail, or with the first one that is kept; Since begins with the first record that is not older.
	TailOffset *uint64
	Since      time.Time
	// Limit is the most records; 0 is all.
	Limit uint64
	// Follow goes on with records as they come.
	Follow bool
	// Retrying is called when the connection was lost, or none was made, before the pause until the next attempt; may be nil.
	// It is called by whoever ranges over the read.
	Retrying func(err error, pause time.Duration)
	// Clamp begins at the first record that is kept, or at the tail, where the start is out of range; else that is a
	// *RangeError.
	Clamp bool
}

// Read yields records in order, without a gap. When the connection is lost it goes on behind the last record that it
// yielded, as long as ctx lasts. It yields at most one error, last. One that does not follow ends at a tail which the stream's
// leader has proved after the read began: what it has not yielded by then, below its limit, was not appended before, so a read decides
// about an outcome that is unknown.
func (c *Client) Read(ctx context.Context, addr string, o ReadOptions) iter.Seq2[SequencedRecord, error] {
	return func(yield func(SequencedRecord, error) bool) {
		r := &reading{c: c, addr: addr, o: o, clamp: o.Clamp, yield: yield}
		for attempt := 0; ; attempt++ {
			got := r.count
			err := r.once(ctx)
			if r.stopped || err == nil {
				return
			}
			if r.count > got {
				attempt = 0
			}
			if ctx.Err() != nil {
				yield(SequencedRecord{}, ctx.Err())
				return
			}
			if !again(err) {
				yield(SequencedRecord{}, fmt.Errorf("read %s: %w", addr, readError(err)))
				return
			}
			pause := pauseOf(attempt, maxReadPause)
			if o.Retrying != nil {
				o.Retrying(readError(err), pause)
			}
			if !pauseFor(ctx, pause) {
				yield(SequencedRecord{}, fmt.Errorf("read %s: %w: %w", addr, ctx.Err(), readError(err)))
				return
			}
		}
	}
}

// maxReadPause bounds the pauses of a read.
const maxReadPause = 5 * time.Second

// pauseOf is how long to wait before another attempt, which grows to about the most.
func pauseOf(attempt int, most time.Duration) time.Duration {
	d := min(10*time.Millisecond<<min(attempt, 12), most)
	return d/2 + rand.N(d/2+1)
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reading is one Read under way. Once it has a record, or has reached the tail, it begins at a number. Of one from a time on
// the tail is no number yet: the records that come next may be older.
type reading struct {
	c       *Client
	addr    string
	o       ReadOptions // Limit is what is left of it, SeqNum where it goes on
	begun   bool        // it goes on at SeqNum, whatever o says
	clamp   bool        // the next record may be a later one
	yield   func(SequencedRecord, error) bool
	count   uint64
	stopped bool
}

var errGap = errors.New("the server left records out")

// once reads over one connection, until it ends or nothing is left.
func (r *reading) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.c.reads.CallServerStream(ctx, connect.NewRequest(r.request()))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		count, gap := r.count, error(nil)
		next, err := stream.Msg().each(func(rec SequencedRecord) bool {
			gap = r.take(rec)
			return gap == nil && !r.stopped
		})
		if err = cmp.Or(err, gap); err != nil || r.stopped {
			return err
		}
		if r.count == count && !r.waitsForTime() {
			r.begun, r.o.SeqNum = true, next
		}
	}
	return stream.Err()
}

func (r *reading) request() *novav1.ReadRequest {
	q := &novav1.ReadRequest{Addr: r.addr, Limit: r.o.Limit, Follow: r.o.Follow, Clamp: r.clamp, Brief: true}
	switch {
	case !r.begun && r.o.TailOffset != nil:
		q.Start = &novav1.ReadRequest_TailOffset{TailOffset: *r.o.TailOffset}
	case r.waitsForTime():
		q.Start = &novav1.ReadRequest_Timestamp{Timestamp: r.o.Since.UnixMilli()}
	default:
		q.Start = &novav1.ReadRequest_SeqNum{SeqNum: r.o.SeqNum}
	}
	return q
}

// waitsForTime reports whether the next record is the first one that is not older than a time.
func (r *reading) waitsForTime() bool {
	return !r.begun && r.o.TailOffset == nil && !r.o.Since.IsZero()
}

// counts reports whether the number of the next record is known.
func (r *reading) counts() bool {
	return !r.clamp && (r.begun || r.o.TailOffset == nil && r.o.Since.IsZero())
}

// take yields a record, and notes where a read that begins again goes on.
func (r *reading) take(rec SequencedRecord) error {
	if rec.SeqNum != r.o.SeqNum && r.counts() {
		return fmt.Errorf("%w: after %d comes %d", errGap, r.o.SeqNum, rec.SeqNum)
	}
	r.begun, r.clamp, r.o.SeqNum = true, false, rec.SeqNum+1 // from here on, a record that is missing is an error
	r.count++
	if r.o.Limit > 0 {
		if r.o.Limit--; r.o.Limit == 0 {
			r.stopped = true // all there is; 0 would be no limit
		}
	}
	if !r.yield(rec, nil) {
		r.stopped = true
	}
	return nil
}
