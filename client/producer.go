package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore" // bytes that are staged or in flight, with a context

	"github.com/typedfold/fold/internal/nova"
)

// StreamOption shapes a producer.
type StreamOption func(*streamOptions)

type streamOptions struct {
	token    string
	linger   time.Duration
	maxBytes int
	maxPause time.Duration
}

func (o *streamOptions) validate() error {
	switch {
	case o.linger < 0:
		return fmt.Errorf("a negative linger of %v", o.linger)
	case o.maxBytes < 0:
		return fmt.Errorf("%d bytes in flight; 0 is the default of 8 MiB", o.maxBytes)
	case o.maxPause < 0:
		return fmt.Errorf("a negative pause of %v; 0 is the default of 5 s", o.maxPause)
	}
	return nil
}

// WithFencingToken presents a token with every append; "" is none. Presenting installs nothing.
func WithFencingToken(token string) StreamOption { return func(o *streamOptions) { o.token = token } }

// WithLinger is how long a plain batch waits for others to be sent with it; default 0: they join only while earlier ones
// are on their way.
func WithLinger(d time.Duration) StreamOption { return func(o *streamOptions) { o.linger = d } }

// WithMaxInFlight bounds the bytes of records that a producer holds, staged or in flight; default 8 MiB. Submit waits for
// room.
func WithMaxInFlight(bytes int) StreamOption { return func(o *streamOptions) { o.maxBytes = bytes } }

// WithMaxPause bounds the growing pause between attempts to reconnect; default 5 s.
func WithMaxPause(d time.Duration) StreamOption { return func(o *streamOptions) { o.maxPause = d } }

// maxUnanswered bounds the batches that are in flight.
const maxUnanswered = 2048

// Producer appends to one stream, in the order of its calls, with many batches in flight. When the connection is lost it
// reconnects and sends again, in order, what has no answer yet: a plain batch is appended at least once, a conditional one at
// most once. It is safe for concurrent use. Close it.
type Producer struct {
	c    *Client
	addr string
	o    streamOptions
	room *semaphore.Weighted

	ctx    context.Context // ends with the producer
	cancel context.CancelCauseFunc
	ended  chan struct{}
	wake   chan struct{} // something was staged, or Close was called

	mu      sync.Mutex
	queue   []*batch // not sent on this connection, in order
	flying  []*batch // sent on it, in order
	err     error    // why it takes nothing any more
	merge   int      // what a batch that is made of several may count for
	closing bool
	idle    chan struct{} // closed when nothing is left, while closing
}

// batch is what is appended as one.
type batch struct {
	records []Record
	own     bool // records is no caller's slice
	match   *uint64
	bytes   int
	parts   []part
	due     time.Time // when it is to be sent at the latest; zero is at once
	tried   bool      // it was sent on an earlier connection
}

// part is one call's share of a batch.
type part struct {
	t      *Ticket
	offset uint64
	count  uint64
	bytes  int64
}

// Ticket is a submitted batch. It is safe for concurrent use.
type Ticket struct {
	done   chan struct{}
	result *AppendResult
	err    error
}

// Wait waits for the batch's result. When ctx ends first, the batch goes on.
func (t *Ticket) Wait(ctx context.Context) (*AppendResult, error) {
	select {
	case <-t.done:
		return t.result, t.err
	default:
	}
	select {
	case <-t.done:
		return t.result, t.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for an append: %w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

func (t *Ticket) settle(r *AppendResult, err error) {
	t.result, t.err = r, err
	close(t.done)
}

// OpenStream opens a producer on nova://namespace/stream. A fencing token that is not the installed one is a *FenceError. ctx
// bounds only the opening.
func (c *Client) OpenStream(ctx context.Context, addr string, opts ...StreamOption) (*Producer, error) {
	o := streamOptions{token: c.token}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("open %s: %w", addr, invalid(err))
	}
	o.maxBytes = cmp.Or(o.maxBytes, 8<<20)
	o.maxPause = cmp.Or(o.maxPause, 5*time.Second)
	if _, err := nova.ParseAddr(addr); err != nil {
		return nil, fmt.Errorf("open %s: %w", addr, invalid(err))
	}
	if err := nova.CheckToken(o.token); err != nil {
		return nil, fmt.Errorf("open %s: %w", addr, invalid(err))
	}
	p := &Producer{
		c: c, addr: addr, o: o, room: semaphore.NewWeighted(int64(o.maxBytes)),
		ended: make(chan struct{}), wake: make(chan struct{}, 1), idle: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	first, err := p.open(ctx)
	if err != nil {
		p.cancel(err)
		return nil, fmt.Errorf("open %s: %w", addr, err)
	}
	go p.run(first)
	return p, nil
}

// Append appends the records as one batch, or as part of one, and waits for the result.
func (p *Producer) Append(ctx context.Context, records ...Record) (*AppendResult, error) {
	return p.wait(ctx, p.Submit(ctx, records...))
}

// AppendMatch appends the records as one batch whose first record must get the number expected, and waits for the result. A
// miss is a *SequenceError, and leaves the producer as it is.
func (p *Producer) AppendMatch(ctx context.Context, expected uint64, records ...Record) (*AppendResult, error) {
	return p.wait(ctx, p.SubmitMatch(ctx, expected, records...))
}

func (p *Producer) wait(ctx context.Context, t *Ticket) (*AppendResult, error) {
	r, err := t.Wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", p.addr, err)
	}
	return r, nil
}

// Submit stages a plain batch behind all earlier ones. It may be sent as part of a larger one. It waits, within ctx, for
// room; an error is the ticket's.
func (p *Producer) Submit(ctx context.Context, records ...Record) *Ticket {
	return p.submit(ctx, nil, records)
}

// SubmitMatch stages a conditional batch behind all earlier ones. It is sent by itself.
func (p *Producer) SubmitMatch(ctx context.Context, expected uint64, records ...Record) *Ticket {
	return p.submit(ctx, &expected, records)
}

func (p *Producer) submit(ctx context.Context, match *uint64, records []Record) *Ticket {
	t := &Ticket{done: make(chan struct{})}
	if err := checkRecords(records); err != nil {
		t.settle(nil, err)
		return t
	}
	n := bytesOf(records)
	room := int64(min(n, p.o.maxBytes))
	if err := p.acquire(ctx, room); err != nil {
		t.settle(nil, err)
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.closing {
		p.room.Release(room)
		t.settle(nil, cmp.Or(p.err, fmt.Errorf("%w: %w", ErrUnavailable, errClosed)))
		return t
	}
	p.stage(match, records, n, part{t: t, count: uint64(len(records)), bytes: room})
	return t
}

// acquire waits for room, for ctx and for the producer's end.
func (p *Producer) acquire(ctx context.Context, n int64) error {
	if p.room.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	if err := p.room.Acquire(ctx, n); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return cmp.Or(p.err, fmt.Errorf("%w: wait for room for %d bytes: %w", ErrUnavailable, n, err))
	}
	return nil
}

// stage puts records at the queue's end: into the last batch if that is a plain one which was never sent, else as a batch of
// their own.
func (p *Producer) stage(match *uint64, records []Record, n int, s part) {
	if last := len(p.queue) - 1; match == nil && last >= 0 {
		b := p.queue[last]
		if b.match == nil && !b.tried && b.bytes+n <= p.merge && len(b.records)+len(records) <= nova.MaxBatchRecords {
			s.offset = uint64(len(b.records))
			if !b.own {
				b.own, b.records = true, slices.Clone(b.records)
			}
			b.records = append(b.records, records...)
			b.bytes += n
			b.parts = append(b.parts, s)
			if b.bytes >= p.merge || len(b.records) >= nova.MaxBatchRecords {
				b.due = time.Time{}
			}
			p.signal()
			return
		}
		b.due = time.Time{} // nothing joins it any more
	}
	b := &batch{records: records, match: match, bytes: n, parts: []part{s}}
	if match == nil && p.o.linger > 0 {
		b.due = time.Now().Add(p.o.linger)
	} else if last := len(p.queue) - 1; last >= 0 {
		p.queue[last].due = time.Time{} // a conditional batch waits for nobody, nor for those before it
	}
	p.queue = append(p.queue, b)
	p.signal()
}

func (p *Producer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close sends what is staged, waits within ctx for the results, and ends the producer. What has no result by then fails with
// ErrOutcomeUnknown if it was sent. Of a producer that was fenced out it is inert: nothing is sent, and it is no error.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	begun := p.closing
	p.closing = true
	for _, b := range p.queue {
		b.due = time.Time{}
	}
	if !begun && len(p.queue) == 0 && len(p.flying) == 0 {
		close(p.idle)
	}
	p.signal()
	p.mu.Unlock()
	var err error
	select {
	case <-p.idle:
	case <-p.ended:
	case <-ctx.Done():
		err = fmt.Errorf("close the producer of %s: %w", p.addr, ctx.Err())
	}
	p.cancel(errClosed)
	<-p.ended
	return err
}

// Done is closed when the producer takes nothing any more: after Close, or for what Err says. A producer that a fence has
// superseded hears of it without an append, as long as it has a connection.
func (p *Producer) Done() <-chan struct{} { return p.ended }

// Err is why the producer has ended by itself, such as a *FenceError; nil while it lives, and after a Close that ended it.
func (p *Producer) Err() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.err, errClosed) {
		return nil
	}
	return p.err
}

// settled takes the oldest batch in flight, and gives out its result.
func (p *Producer) settled(r *AppendResult, err error) bool {
	p.mu.Lock()
	if len(p.flying) == 0 {
		p.mu.Unlock()
		return false
	}
	b := p.flying[0]
	p.flying[0] = nil
	p.flying = p.flying[1:]
	p.finishIdle()
	p.mu.Unlock()
	p.signal() // there is room in the window
	p.give(b, r, err)
	return true
}

// finishIdle tells Close that nothing is left. It is called under mu.
func (p *Producer) finishIdle() {
	if !p.closing || len(p.queue)+len(p.flying) > 0 {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

func (p *Producer) give(b *batch, r *AppendResult, err error) {
	for _, s := range b.parts {
		p.room.Release(s.bytes)
		if err != nil {
			s.t.settle(nil, err)
			continue
		}
		own := &AppendResult{Start: r.Start, End: r.End, Tail: r.Tail}
		own.Start.SeqNum += s.offset
		own.End.SeqNum = own.Start.SeqNum + s.count
		s.t.settle(own, nil)
	}
}
