package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// errSilent is a log that gave nothing to a read for too long.
var errSilent = fmt.Errorf("%w: the log gives nothing to read", nats.ErrTimeout)

// read is reader.Read. One that does not follow ends where the stream's leader has proved, after the read began, that the
// tail is: every append that was answered before it began is in it, or behind its limit. The log's own word would not do, since
// a server of its that is cut off from the others answers questions as of before. When the log gives it nothing for
// UnaryTimeout, that is unavailable.
func (s *Server) read(ctx context.Context, st *node.Stream, start reader.Start, limit uint64, follow bool, out reader.Out) (nova.Position, error) {
	if follow {
		return reader.Read(ctx, st.Log(), start, limit, true, out)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &patient{Out: out, most: s.o.UnaryTimeout, timer: time.AfterFunc(s.o.UnaryTimeout, func() { cancel(errSilent) })}
	defer p.timer.Stop()
	next, err := readProved(ctx, st.Log(), st.Stands, start, limit, p)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return next, err
}

// patient is an Out whose timer runs while the read waits for the log.
type patient struct {
	reader.Out
	most  time.Duration
	timer *time.Timer
}

func (p *patient) Take(rs reader.Records) error {
	p.timer.Stop()
	defer p.timer.Reset(p.most)
	return p.Out.Take(rs)
}

func (p *patient) Pause() error {
	p.timer.Stop()
	defer p.timer.Reset(p.most)
	return p.Out.Pause()
}

// readProved reads up to a tail that stands has proved after the read began.
func readProved(
	ctx context.Context, l reader.Log, stands func(context.Context) (sequencer.Standing, error), start reader.Start, limit uint64, to reader.Out,
) (next nova.Position, err error) {
	out := &taken{Out: to}
	proved, tail := false, nova.Position{}
	for {
		if !proved && start.Kind == reader.FromTail {
			now, err := stands(ctx)
			if err != nil {
				return next, err
			}
			proved, tail = true, now.Tail
		}
		left := limit
		if limit > 0 {
			left -= out.records
		}
		next, err = reader.Read(ctx, grown{l, tail.SeqNum}, start, left, false, out)
		var outside *reader.OutOfRangeError
		beyond := errors.As(err, &outside) && outside.SeqNum > outside.Tail.SeqNum
		if proved || err != nil && !beyond || limit > 0 && out.records == limit {
			return next, err
		}
		now, proof := stands(ctx)
		if proof != nil {
			return next, proof
		}
		proved, tail = true, now.Tail
		switch {
		case beyond && outside.SeqNum > tail.SeqNum:
			outside.Tail = tail
			return next, err
		case !beyond && next.SeqNum >= tail.SeqNum:
			return next, nil
		case out.records > 0:
			start = reader.Start{N: next.SeqNum}
		}
	}
}

// taken counts records.
type taken struct {
	reader.Out
	records uint64
}

func (t *taken) Take(rs reader.Records) error {
	t.records += uint64(len(rs.Records))
	return t.Out.Take(rs)
}

// grown is a log that is known to have a tail: an answer from before is none, and asked for again.
type grown struct {
	reader.Log
	tail uint64
}

func (g grown) Last(ctx context.Context) (jslog.Stored, error) {
	t := time.NewTimer(0)
	defer t.Stop()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		last, err := g.Log.Last(ctx)
		if err != nil || last.Seq == 0 || g.tail == 0 {
			return last, err
		}
		if f, err := frame.Parse(last.Payload); err != nil || f.After().Next >= g.tail {
			return last, nil // whoever asked parses it, too
		}
		t.Reset(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
}

// ownDeadline is the error of a call. A deadline that is not the caller's was this server's, or the log's: asking again may
// help.
func ownDeadline(caller context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && caller.Err() == nil {
		return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
	}
	return err
}
