package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
)

// SequencedRecord is a record as it is read. It is the caller's.
type SequencedRecord struct {
	Record
	SeqNum uint64
	// Timestamp is in milliseconds of Unix time, and never less than that of the record before.
	Timestamp int64
}

// ReadOptions say where a read begins and ends. The zero value reads everything, from record 0 to the tail.
type ReadOptions struct {
	// SeqNum is the first record, unless TailOffset or Since is set.
	SeqNum uint64
	// TailOffset begins so many records before the tail; Since begins with the first record that is not older.
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
// yielded, as long as ctx lasts. It yields at most one error, last.
func (c *Client) Read(ctx context.Context, addr string, o ReadOptions) iter.Seq2[SequencedRecord, error] {
	return func(yield func(SequencedRecord, error) bool) {
		r := &reading{c: c, q: o.request(addr), yield: yield}
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
			pause := pauseOf(attempt)
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

func (o ReadOptions) request(addr string) *novav1.ReadRequest {
	q := &novav1.ReadRequest{Addr: addr, Limit: o.Limit, Follow: o.Follow, Clamp: o.Clamp, Start: &novav1.ReadRequest_SeqNum{SeqNum: o.SeqNum}}
	switch {
	case o.TailOffset != nil:
		q.Start = &novav1.ReadRequest_TailOffset{TailOffset: *o.TailOffset}
	case !o.Since.IsZero():
		q.Start = &novav1.ReadRequest_Timestamp{Timestamp: o.Since.UnixMilli()}
	}
	return q
}

// again reports whether a read that ended like this can go on over another connection.
func again(err error) bool {
	t, ok := tellOf(err)
	if !ok {
		return false
	}
	return t.err == connect.CodeUnavailable || !connect.IsWireError(err) && t.err != connect.CodeInvalidArgument
}

// pauseOf is how long to wait before another attempt, which grows to about 5 s.
func pauseOf(attempt int) time.Duration {
	d := min(10*time.Millisecond<<min(attempt, 12), 5*time.Second)
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

// reading is one Read under way; q is what is still to be read.
type reading struct {
	c       *Client
	q       *novav1.ReadRequest
	yield   func(SequencedRecord, error) bool
	count   uint64
	stopped bool
}

var errGap = errors.New("the server left records out")

// once reads over one connection, until it ends or nothing is left.
func (r *reading) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.c.rpc.Read(ctx, connect.NewRequest(r.q))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		m := stream.Msg()
		for _, rec := range m.GetRecords() {
			if err := r.take(rec); err != nil || r.stopped {
				return err
			}
		}
		if len(m.GetRecords()) == 0 {
			r.q.Start = &novav1.ReadRequest_SeqNum{SeqNum: m.GetNext().GetSeqNum()}
		}
	}
	return stream.Err()
}

func (r *reading) take(rec *novav1.SequencedRecord) error {
	if at, ok := r.q.GetStart().(*novav1.ReadRequest_SeqNum); ok && at.SeqNum != rec.GetSeqNum() && !r.q.GetClamp() {
		return fmt.Errorf("%w: after %d comes %d", errGap, at.SeqNum, rec.GetSeqNum())
	}
	out := SequencedRecord{SeqNum: rec.GetSeqNum(), Timestamp: rec.GetTimestamp(), Record: Record{Body: rec.GetBody()}}
	for _, h := range rec.GetHeaders() {
		out.Headers = append(out.Headers, Header{Name: h.GetName(), Value: h.GetValue()})
	}
	r.count++
	r.q.Clamp = false // from here on, a record that is missing is an error
	if at, ok := r.q.GetStart().(*novav1.ReadRequest_SeqNum); ok {
		at.SeqNum = rec.GetSeqNum() + 1 // the request was sent long ago
	} else {
		r.q.Start = &novav1.ReadRequest_SeqNum{SeqNum: rec.GetSeqNum() + 1}
	}
	if r.q.Limit > 0 {
		if r.q.Limit--; r.q.Limit == 0 {
			r.stopped = true // all there is; 0 would be no limit
		}
	}
	if !r.yield(out, nil) {
		r.stopped = true
	}
	return nil
}
