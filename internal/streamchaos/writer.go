package streamchaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/typedfold/fold/client"
)

// writer is one client that appends, fences and asks, one call after another, or with several batches of a session in flight.
type writer struct {
	l      *load
	id     int
	p      profile
	r      *rand.Rand
	shared [size]*client.Client
	stop   <-chan struct{}

	n     uint32
	ops   []*op
	token string   // that it presents
	stood string   // that stood when it was told so last
	had   []string // that it has installed
	tail  uint64   // as it knows it
	// locked is a batch by which its session learned that it is locked out.
	locked *op
}

// maxBatch bounds the records of one batch.
const maxBatch = 5

func (w *writer) addr() string { return streamKinds[w.p.stream].addr() }

func (w *writer) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// rest waits up to so long, or until it is to stop.
func (w *writer) rest(most time.Duration) {
	t := time.NewTimer(time.Duration(w.r.Int64N(int64(most))))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.stop:
	}
}

func (w *writer) run() {
	for !w.stopped() {
		switch {
		case w.r.IntN(100) < w.p.fence:
			w.fence()
		case w.r.IntN(100) < w.p.ask:
			w.ask()
		case w.p.session:
			w.produce()
		default:
			w.append()
		}
		w.rest(12 * time.Millisecond)
	}
}

// begin notes a call.
func (w *writer) begin(v verb) *op {
	w.n++
	o := &op{id: idOf(w.id, w.n), verb: v, token: w.token, call: w.l.since()}
	w.ops = append(w.ops, o)
	return o
}

// end notes what it was told, and has the writer learn from it.
func (w *writer) end(o *op, err error) {
	o.conclude(err, w.l.since())
	w.l.note(w.p.stream, o)
	w.learn(o)
}

func (w *writer) learn(o *op) {
	switch o.verdict {
	case told:
		w.tail = max(w.tail, o.end, o.tail)
	case missed:
		w.tail = o.tail
	case fenced:
		w.stood = o.installed
		w.out(o.installed)
	case refused, unknown:
		w.rest(60 * time.Millisecond)
	}
}

// out is what a writer does that was locked out.
func (w *writer) out(installed string) {
	switch {
	case w.p.adopts:
		w.token = installed
	case w.p.fence > 0 && w.r.IntN(10) < 3:
		w.fence()
	default:
		w.rest(80 * time.Millisecond)
	}
}

func (w *writer) client() *client.Client { return w.shared[w.r.IntN(size)] }

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callLimit)
}

// fence installs a token that nobody had, or clears, or repeats its own, or one that it had before. Now and then it takes that
// back at once: what others present is what stands again, and their sessions are over all the same.
func (w *writer) fence() {
	token := fmt.Sprintf("t%d-%d", w.id, w.n+1)
	switch n := w.r.IntN(10); {
	case w.p.clears && n < 5:
		token = ""
	case n == 0 && len(w.had) > 0:
		token = w.had[w.r.IntN(len(w.had))]
	case n == 1:
		token = w.token
	}
	before := w.stood
	if w.install(token) && w.r.IntN(3) == 0 {
		w.install(before)
	}
}

// install is one fence; true if it was acknowledged.
func (w *writer) install(token string) bool {
	o := w.begin(verbFence)
	o.token = token
	ctx, cancel := limited()
	defer cancel()
	tail, err := w.client().Fence(ctx, w.addr(), token)
	o.tail = tail.SeqNum
	w.end(o, err)
	if o.verdict == told || o.verdict == unknown {
		w.token, w.stood, w.had = token, token, append(w.had, token)
	}
	return o.verdict == told
}

func (w *writer) ask() {
	ctx, cancel := limited()
	defer cancel()
	if w.r.IntN(2) == 0 {
		o := w.begin(verbTail)
		tail, err := w.client().Tail(ctx, w.addr())
		o.tail = tail.SeqNum
		w.end(o, err)
		return
	}
	o := w.begin(verbToken)
	token, err := w.client().FencingToken(ctx, w.addr())
	o.installed = token
	w.end(o, err)
}

// batch is a new append with its records. next is what a match asks for.
func (w *writer) batch(next uint64) (*op, []client.Record) {
	o := w.begin(verbAppend)
	o.records = 1 + w.r.IntN(maxBatch)
	if w.r.IntN(100) < w.p.match {
		o.hasMatch, o.match = true, next
	}
	bodies := make([][]byte, o.records)
	for i := range bodies {
		bodies[i] = body(o.id, i, o.records)
	}
	return o, client.Bodies(bodies...)
}

func (w *writer) append() {
	o, records := w.batch(w.tail)
	ctx, cancel := limited()
	defer cancel()
	c := w.client().Presenting(w.token)
	var r *client.AppendResult
	var err error
	if o.hasMatch {
		r, err = c.AppendMatch(ctx, w.addr(), o.match, records...)
	} else {
		r, err = c.Append(ctx, w.addr(), records...)
	}
	if err == nil {
		o.placed(r)
	}
	w.end(o, err)
}

const (
	// inFlight bounds the batches of a session without an answer, and sessionOps how many it has in its life.
	inFlight   = 24
	sessionOps = 200
	// closeLimit bounds the end of a session, whose last batches may have to be sent again and again.
	closeLimit = 20 * time.Second
)

// flight is a batch on its way.
type flight struct {
	o      *op
	ticket *client.Ticket
}

// produce opens a session, appends over it, and closes it.
func (w *writer) produce() {
	o := w.begin(verbOpen)
	c, s, idle, err := w.l.session(w.r.IntN(size), w.token)
	defer idle()
	var p *client.Producer
	if err == nil {
		ctx, cancel := limited()
		defer cancel()
		o.session = s
		p, err = c.OpenStream(ctx, w.addr(), client.WithFencingToken(w.token), client.WithMaxPause(300*time.Millisecond))
	}
	w.end(o, err)
	if err != nil {
		return
	}
	sent, settled := make(chan flight, inFlight), make(chan *op, inFlight)
	go func() {
		defer close(settled)
		for f := range sent {
			r, err := f.ticket.Wait(context.Background()) // the producer's end settles it at the latest
			if err == nil {
				f.o.placed(r)
			}
			f.o.conclude(err, w.l.since())
			settled <- f.o
		}
	}()
	w.pipeline(p, s, sent, settled)
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	go func() {
		defer close(sent)
		_ = p.Close(ctx) // each batch tells what came of it
	}()
	for o := range settled {
		w.settle(o)
	}
	if w.locked != nil {
		w.stood = w.locked.installed
		w.out(w.locked.installed)
		w.locked = nil
	}
}

// pipeline submits batches until the session ends, is locked out, or has had enough.
func (w *writer) pipeline(p *client.Producer, s *session, sent chan<- flight, settled <-chan *op) {
	next, flying := w.tail, 0
	take := func() (ends bool) {
		o := <-settled
		flying--
		if ends = w.settle(o); o.verdict == missed {
			for ; flying > 0; flying-- { // what is behind it misses too
				ends = w.settle(<-settled) || ends
			}
			next = w.tail
		}
		return ends
	}
	for range sessionOps {
		for flying == inFlight || len(settled) > 0 {
			if take() {
				return
			}
		}
		if w.stopped() {
			return
		}
		o, records := w.batch(next)
		o.session, o.token = s, s.token
		ctx, cancel := limited()
		f := flight{o: o}
		if o.hasMatch {
			f.ticket = p.SubmitMatch(ctx, o.match, records...)
		} else {
			f.ticket = p.Submit(ctx, records...)
		}
		cancel()
		next += uint64(o.records)
		flying++
		sent <- f
		if w.r.IntN(4) == 0 {
			w.rest(10 * time.Millisecond)
		}
	}
}

// settle takes a batch's result; true when the session can't go on.
func (w *writer) settle(o *op) (ends bool) {
	w.l.note(w.p.stream, o)
	switch o.verdict {
	case told:
		w.tail = max(w.tail, o.end)
	case missed:
		w.tail = o.tail
	case fenced:
		w.locked = o
	}
	return o.verdict == fenced || o.verdict == denied
}
