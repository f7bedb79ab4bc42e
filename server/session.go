package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// AppendSession reads batches and answers them, each in its own goroutine, so that many are in flight. What is in flight is
// bounded in bytes: the reading waits, and with it, by the transport's own flow control, the client.
func (r rpc) AppendSession(ctx context.Context, c *connect.BidiStream[novav1.AppendSessionRequest, novav1.AppendSessionResponse]) error {
	first, err := c.Receive()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if open == nil {
		return fmt.Errorf("%w: the first message of a session opens it", nova.ErrInvalid)
	}
	st, err := r.s.stream(ctx, VerbAppend, open.GetAddr())
	if err != nil {
		return err
	}
	if !r.s.sessions.TryAcquire(1) {
		return errBusy
	}
	defer r.s.sessions.Release(1)
	opened, err := st.OpenSession(ctx, open.GetFencingToken())
	if err != nil {
		return err
	}
	defer opened.Close()
	err = c.Send(&novav1.AppendSessionResponse{Message: &novav1.AppendSessionResponse_Opened_{
		Opened: &novav1.AppendSessionResponse_Opened{Tail: positionOf(opened.Tail()), MaxBatchBytes: uint64(frame.MaxBatch(st.Log().MaxMessage()))},
	}})
	if err != nil {
		return err
	}
	out := heldOf(ctx)
	out.send()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &pipeline{
		s: r.s, session: opened, c: c, out: out, room: semaphore.NewWeighted(r.s.o.SessionBytes), queue: make(chan *flight, maxFlights), cancel: cancel,
		ack: newAcknowledgment(),
	}
	go p.receive(ctx)
	return p.answer(ctx)
}

// maxFlights bounds the batches of a session that have no answer yet.
const maxFlights = 4096

// pipeline is one session under way.
type pipeline struct {
	s       *Server
	session *node.Session
	c       *connect.BidiStream[novav1.AppendSessionRequest, novav1.AppendSessionResponse]
	out     *held // what c writes to
	room    *semaphore.Weighted
	queue   chan *flight // in order; closed by receive
	cancel  context.CancelCauseFunc
	ack     *acknowledgment
}

// acknowledgment is a message that is written again and again: when Send returns, nothing of it is kept.
type acknowledgment struct {
	message          novav1.AppendSessionResponse
	start, end, tail *novav1.Position
}

func newAcknowledgment() *acknowledgment {
	a := &acknowledgment{start: &novav1.Position{}, end: &novav1.Position{}, tail: &novav1.Position{}}
	a.message.Message = &novav1.AppendSessionResponse_Ack_{Ack: &novav1.AppendSessionResponse_Ack{Start: a.start, End: a.end, Tail: a.tail}}
	return a
}

func (a *acknowledgment) of(r sequencer.Result) *novav1.AppendSessionResponse {
	a.start.SeqNum, a.start.Timestamp = r.Start.SeqNum, r.Start.Timestamp
	a.end.SeqNum, a.end.Timestamp = r.End.SeqNum, r.End.Timestamp
	a.tail.SeqNum, a.tail.Timestamp = r.Tail.SeqNum, r.Tail.Timestamp
	return &a.message
}

// flight is one batch, or, as the last one, why there are no more.
type flight struct {
	size int64
	done chan sequencer.Result
}

// receive submits what the client sends, until it has sent all, or something goes wrong, which is the last answer.
func (p *pipeline) receive(ctx context.Context) {
	defer close(p.queue)
	for {
		q, err := p.c.Receive()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil && connect.CodeOf(err) == connect.CodeResourceExhausted { // of this message, not of the server
			err = fmt.Errorf("%w: %w", nova.ErrInvalid, err)
		}
		if err == nil && q.GetBatch() == nil {
			err = fmt.Errorf("%w: a session is opened once, and then takes batches", nova.ErrInvalid)
		}
		f := &flight{done: make(chan sequencer.Result, 1)}
		select {
		case p.queue <- f: // before it is submitted, so that whoever sees the session's end after it sees what is admitted
		case <-ctx.Done():
			return
		}
		if err == nil && p.s.ends() {
			err = errEnding
		}
		if err == nil {
			err = p.submit(ctx, q.GetBatch(), f)
		}
		if err != nil {
			f.done <- sequencer.Result{Err: err}
			return
		}
	}
}

func (p *pipeline) submit(ctx context.Context, b *novav1.Batch, f *flight) error {
	records := recordsOf(b)
	size := min(int64(nova.BatchBytes(records)), p.s.o.SessionBytes, p.s.o.Bytes)
	if err := p.room.Acquire(ctx, size); err != nil {
		return err
	}
	if err := p.s.bytes.Acquire(ctx, size); err != nil {
		p.room.Release(size)
		return err
	}
	f.size = size
	return p.session.Submit(ctx, records, b.MatchSeqNum, func(r sequencer.Result) { f.done <- r })
}

// answer sends the answers in the order of the batches. The first that is neither an acknowledgment nor a miss ends the
// session, and so does the server's end, or a fence, when nothing is left to answer.
func (p *pipeline) answer(ctx context.Context) (err error) {
	defer func() {
		p.cancel(err) // receive ends, and closes the queue
		go p.drain()
	}()
	for {
		f, err := p.next(ctx)
		if f == nil {
			return err
		}
		r, err := p.result(ctx, f)
		if err != nil {
			return err
		}
		p.release(f)
		if err := p.send(r); err != nil {
			return err
		}
	}
}

// result waits for what came of a batch. What was written is sent before it waits.
func (p *pipeline) result(ctx context.Context, f *flight) (sequencer.Result, error) {
	select {
	case r := <-f.done:
		return r, nil
	default:
	}
	p.out.send()
	select {
	case r := <-f.done:
		return r, nil
	case <-ctx.Done():
		go func() { <-f.done; p.release(f) }()
		return sequencer.Result{}, context.Cause(ctx)
	}
}

// next is the oldest batch without an answer; nil when the session ends. What was written is sent before it waits.
func (p *pipeline) next(ctx context.Context) (*flight, error) {
	select {
	case f := <-p.queue:
		return f, nil
	default:
	}
	p.out.send()
	select {
	case f := <-p.queue:
		return f, nil
	case <-p.session.Over():
		return p.left(p.session.Err())
	case <-p.s.closing:
		return p.left(errEnding)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// left is what came before the session's end; what comes to the queue from now on is not admitted.
func (p *pipeline) left(why error) (*flight, error) {
	select {
	case f := <-p.queue:
		return f, nil
	default:
		return nil, why
	}
}

func (p *pipeline) send(r sequencer.Result) error {
	if r.Err == nil {
		return p.c.Send(p.ack.of(r))
	}
	out := &novav1.AppendSessionResponse{}
	var missed *sequencer.MissedError
	switch {
	case errors.As(r.Err, &missed):
		out.Message = &novav1.AppendSessionResponse_Miss{Miss: &novav1.SequenceMismatch{Tail: positionOf(missed.Tail)}}
	default:
		return r.Err
	}
	return p.c.Send(out)
}

func (p *pipeline) release(f *flight) {
	if f.size > 0 {
		p.room.Release(f.size)
		p.s.bytes.Release(f.size)
	}
}

// drain gives back the room of what has no answer any more.
func (p *pipeline) drain() {
	for f := range p.queue {
		<-f.done
		p.release(f)
	}
}
