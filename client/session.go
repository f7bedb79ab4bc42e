package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
)

// connection is one session with a server.
type connection struct {
	stream  *connect.BidiStreamForClient[novav1.AppendSessionRequest, novav1.AppendSessionResponse]
	cancel  context.CancelFunc
	more    *more
	answers int // batches that it has settled
}

func (c *connection) close() {
	c.cancel()
	_ = c.stream.CloseResponse() // the stream is over
}

// open opens a session; ctx bounds only that.
func (p *Producer) open(ctx context.Context) (*connection, error) {
	m := &more{}
	session, cancel := context.WithCancel(context.WithValue(p.ctx, moreKey{}, m))
	c := &connection{stream: p.c.rpc.AppendSession(session), more: m}
	c.cancel = func() {
		cancel()
		_ = c.stream.CloseRequest() // a transport that waits for more to send does not see that the context has ended
	}
	stop := context.AfterFunc(ctx, c.cancel)
	timer := time.AfterFunc(p.c.o.timeout, c.cancel)
	err := c.stream.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{
		Open: &novav1.AppendSessionRequest_Open{Addr: p.addr, FencingToken: p.o.token},
	}})
	var first *novav1.AppendSessionResponse
	if err == nil || errors.Is(err, io.EOF) { // EOF: Receive has the error
		first, err = c.stream.Receive()
	}
	if err == nil && first.GetOpened() == nil {
		err = &protocolError{"the first answer opens no session"}
	}
	if !stop() || !timer.Stop() {
		err = cmp.Or(ctx.Err(), error(context.DeadlineExceeded))
	}
	if err != nil {
		c.close()
		return nil, openError(err)
	}
	p.mu.Lock()
	p.merge = mergeLimit(first.GetOpened().GetMaxBatchBytes())
	p.mu.Unlock()
	return c, nil
}

// mergeLimit is what a batch that is made of several may count for, in bytes. A server that does not say is taken to have a
// log of messages of 1 MiB, which is the default of NATS.
func mergeLimit(said uint64) int {
	const unsaid = 1_000_000
	return int(min(cmp.Or(said, unsaid), nova.MaxBatchBytes))
}

// run sends and receives until the producer ends, over one connection after another.
func (p *Producer) run(c *connection) {
	defer close(p.ended)
	for attempt := 0; ; {
		err := p.serve(c)
		c.close()
		if p.ctx.Err() != nil {
			p.end(context.Cause(p.ctx))
			return
		}
		if err = p.lost(err); err != nil {
			p.end(err)
			return
		}
		if c.answers > 0 {
			attempt = 0 // a connection that settled nothing is no progress
		}
		for c = nil; c == nil; attempt++ {
			if !pauseFor(p.ctx, pauseOf(attempt, p.o.maxPause)) {
				p.end(context.Cause(p.ctx))
				return
			}
			if c, err = p.open(p.ctx); err != nil && permanent(err) {
				p.end(err)
				return
			}
		}
	}
}

// lost is called when a connection has ended. What was sent on it has to be sent again. The result is why the producer
// ends, if it does.
func (p *Producer) lost(err error) error {
	why := openError(err)
	if errors.As(why, new(*InvalidError)) {
		p.mu.Lock()
		resent := len(p.flying) > 0 && p.flying[0].tried
		p.mu.Unlock()
		p.settled(nil, writeError(err, resent)) // it is the first that had no answer; the others go on
	} else if permanent(why) {
		return why
	}
	p.mu.Lock()
	for _, b := range p.flying {
		b.tried = true
	}
	p.queue = append(p.flying, p.queue...)
	p.flying = nil
	p.mu.Unlock()
	return nil
}

// end fails all that is left. What was never sent was not written; what was sent may have been. A fence is told for the
// first batch that has no answer, and holds for all behind it on that connection: of those nothing was written by it.
func (p *Producer) end(err error) {
	p.mu.Lock()
	var fenced *FenceError
	switch {
	case errors.As(err, &fenced):
		p.err = &FenceError{Installed: fenced.Installed}
	case errors.Is(err, errClosed):
		p.err = fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	default:
		p.err = err
	}
	left := append(p.flying, p.queue...)
	sent := len(p.flying)
	p.flying, p.queue = nil, nil
	p.finishIdle()
	p.mu.Unlock()
	p.cancel(err)
	for i, b := range left {
		tried := b.tried || i < sent
		switch {
		case fenced != nil:
			p.give(b, nil, &FenceError{Installed: fenced.Installed, Resent: b.tried})
		case tried:
			p.give(b, nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err))
		default:
			p.give(b, nil, p.err)
		}
	}
}

// maxReason is how long a session that takes no more may take to say why.
const maxReason = 5 * time.Second

// serve sends what is staged and takes answers, until the connection ends.
func (p *Producer) serve(c *connection) error {
	over := make(chan struct{})
	var received error
	go func() {
		defer close(over)
		received = p.receive(c)
	}()
	sent := p.send(c, over)
	late := time.NewTimer(maxReason)
	defer late.Stop()
	select {
	case <-over: // a server that ends a session takes no more, and says why: that comes first
	case <-p.ctx.Done():
	case <-late.C:
	}
	c.cancel()
	<-over
	var wrong *protocolError
	if errors.Is(sent, io.EOF) || connect.IsWireError(received) || errors.As(received, &wrong) {
		return received // the receiver knows why
	}
	return sent
}

// protocolError is a server that breaks the protocol. What it says can't be trusted, so nothing is sent to it again.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return "the server breaks the protocol: " + e.what }

// receive gives out answers.
func (p *Producer) receive(c *connection) error {
	for {
		m, err := c.stream.Receive()
		if err != nil {
			c.cancel()
			return err
		}
		switch m := m.GetMessage().(type) {
		case *novav1.AppendSessionResponse_Ack_:
			r := &AppendResult{Start: tailOf(m.Ack.GetStart()), End: tailOf(m.Ack.GetEnd()), Tail: tailOf(m.Ack.GetTail())}
			if err := p.fits(r); err != nil {
				c.cancel()
				return err
			}
			p.settled(r, nil)
		case *novav1.AppendSessionResponse_Miss:
			p.mu.Lock()
			missed := len(p.flying) > 0 && p.flying[0].match != nil
			resent := missed && p.flying[0].tried
			p.mu.Unlock()
			if !missed {
				c.cancel()
				return &protocolError{"a miss of a batch that has no condition, or was not sent"}
			}
			p.settled(nil, &SequenceError{Tail: tailOf(m.Miss.GetTail()), Resent: resent})
		default:
			c.cancel()
			return &protocolError{fmt.Sprintf("unknown answer %T", m)}
		}
		c.answers++
	}
}

// fits checks an acknowledgment against the batch that it is for.
func (p *Producer) fits(r *AppendResult) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flying) == 0 {
		return &protocolError{"it answers more batches than it was sent"}
	}
	b := p.flying[0]
	switch n := uint64(len(b.records)); {
	case r.End.SeqNum-r.Start.SeqNum != n || r.Tail.SeqNum < r.End.SeqNum:
		return &protocolError{fmt.Sprintf("a batch of %d records lies from %d to %d, and the tail is %d", n, r.Start.SeqNum, r.End.SeqNum, r.Tail.SeqNum)}
	case b.match != nil && *b.match != r.Start.SeqNum:
		return &protocolError{fmt.Sprintf("a batch that must begin at %d begins at %d", *b.match, r.Start.SeqNum)}
	}
	return nil
}

// send sends batches in order as they come due. It returns when the connection or the producer ends; io.EOF when the
// receiver knows why.
func (p *Producer) send(c *connection, over <-chan struct{}) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		b, wait, more := p.next()
		c.more.Store(more)
		if b == nil {
			timer.Reset(wait)
			select {
			case <-p.wake:
			case <-timer.C:
			case <-over:
				return io.EOF
			case <-p.ctx.Done():
				return p.ctx.Err()
			}
			continue
		}
		err := c.stream.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Batch{
			Batch: &novav1.Batch{Records: wireRecords(b.records), MatchSeqNum: b.match},
		}})
		if err != nil {
			return err
		}
	}
}

// next takes the first batch that is due into flight, and says whether another one is due already; without one, it says how
// long to wait for it.
func (p *Producer) next() (b *batch, wait time.Duration, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait = p.untilNext(); wait > 0 {
		return nil, wait, false
	}
	b = p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	p.flying = append(p.flying, b)
	return b, 0, p.untilNext() == 0
}

// untilNext is how long the next batch is not to be sent; 0 is now. It is called under mu.
func (p *Producer) untilNext() time.Duration {
	if len(p.queue) == 0 || len(p.flying) >= maxUnanswered {
		return time.Hour
	}
	if due := p.queue[0].due; !due.IsZero() && !p.closing {
		return max(time.Until(due), 0)
	}
	return 0
}
