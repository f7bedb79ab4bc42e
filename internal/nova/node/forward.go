package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// Headers of what one node asks another one. What a user gives is in the body, since a header does not keep spaces at its
// ends, nor line ends: that of an append is a frame with one batch, of a fence or an opening the token.
const (
	hdrOp      = "Nova-Op"
	hdrSession = "Nova-Session"
	hdrIndex   = "Nova-Index"
	hdrInbox   = "Nova-Inbox"

	opAppend = "append"
	opFence  = "fence"
	opStands = "stands"
	opOpen   = "open"
	opBatch  = "batch"
	opKeep   = "keep"
	opClose  = "close"
)

func (s *Stream) subject(node string) string {
	a := s.log.Addr()
	return "_NOVA." + node + "." + a.Namespace + "." + a.Stream
}

// answer is what a leader's node answers another one. Kind is what the error is; "" is none.
type answer struct {
	Start, End, Tail nova.Position
	Token            string `json:",omitempty"`
	Fence            uint64 `json:",omitempty"`
	Match            uint64 `json:",omitempty"`
	Kind             string `json:",omitempty"`
	Text             string `json:",omitempty"`
}

const (
	kindFenced     = "fenced"
	kindMissed     = "missed"
	kindInvalid    = "invalid"
	kindNothing    = "unavailable"
	kindSuperseded = "superseded"
	kindIndefinite = "indefinite"
)

func answerOf(r sequencer.Result, err error) answer {
	a := answer{Start: r.Start, End: r.End, Tail: r.Tail}
	var fenced *sequencer.FencedError
	var missed *sequencer.MissedError
	var away *sequencer.UnavailableError
	switch {
	case err == nil:
		return a
	case errors.As(err, &fenced):
		a.Kind, a.Token = kindFenced, fenced.Installed
	case errors.As(err, &missed):
		a.Kind, a.Match, a.Tail = kindMissed, missed.Match, missed.Tail
	case errors.Is(err, nova.ErrInvalid):
		a.Kind, a.Text = kindInvalid, err.Error()
	case superseded(err):
		a.Kind = kindSuperseded
	case errors.As(err, &away) && !away.Indefinite:
		a.Kind, a.Text = kindNothing, away.Err.Error()
	case away != nil:
		a.Kind, a.Text = kindIndefinite, away.Err.Error()
	default:
		a.Kind, a.Text = kindIndefinite, err.Error()
	}
	return a
}

func (a *answer) result() (sequencer.Result, error) {
	r := sequencer.Result{Start: a.Start, End: a.End, Tail: a.Tail}
	switch a.Kind {
	case "":
	case kindFenced:
		r.Err = &sequencer.FencedError{Installed: a.Token}
	case kindMissed:
		r.Err = &sequencer.MissedError{Match: a.Match, Tail: a.Tail}
	case kindInvalid:
		r.Err = fmt.Errorf("%w: %s", nova.ErrInvalid, a.Text)
	case kindSuperseded:
		r.Err = &sequencer.UnavailableError{Err: sequencer.ErrSuperseded}
	case kindNothing:
		r.Err = &sequencer.UnavailableError{Err: errors.New(a.Text)}
	default:
		r.Err = &sequencer.UnavailableError{Err: errors.New(a.Text), Indefinite: true}
	}
	return r, r.Err
}

// remote is a leader at another node.
type remote struct {
	s    *Stream
	node string
}

func (r remote) ask(caller context.Context, m *nats.Msg) (*answer, error) {
	ctx, cancel := context.WithTimeout(caller, r.s.n.o.ForwardTimeout)
	defer cancel()
	reply, err := r.s.n.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		if err = nobody(err); errors.Is(err, errNobody) {
			return nil, err
		}
		if caller.Err() == nil {
			r.s.answers(r.node, false) // a caller that left early says nothing of the node
		}
		return nil, &sequencer.UnavailableError{Err: err, Indefinite: true}
	}
	r.s.answers(r.node, true)
	var a answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return nil, &sequencer.UnavailableError{Err: fmt.Errorf("answer of node %s: %w", r.node, err), Indefinite: true}
	}
	return &a, nil
}

func (r remote) message(op string, body []byte) *nats.Msg {
	return &nats.Msg{Subject: r.s.subject(r.node), Header: nats.Header{hdrOp: {op}}, Data: body}
}

// batch is a message with a batch, if the log takes one of that size: the leader would refuse it, and this node's connection
// does not send it.
func (r remote) batch(op string, b *frame.Batch) (*nats.Msg, error) {
	if err := sequencer.CheckBatch(b, r.s.log.MaxMessage()); err != nil {
		return nil, err
	}
	return r.message(op, frame.Append(make([]byte, 0, frame.Head+frame.BatchSize(b)), &frame.Frame{Batches: []frame.Batch{*b}})), nil
}

func (r remote) Append(ctx context.Context, a sequencer.Append) (sequencer.Result, error) {
	m, err := r.batch(opAppend, &frame.Batch{Token: a.Token, HasMatch: a.HasMatch, Match: a.Match, Records: a.Records})
	if err != nil {
		return sequencer.Result{}, err
	}
	got, err := r.ask(ctx, m)
	if err != nil {
		return sequencer.Result{}, err
	}
	return got.result()
}

func (r remote) Fence(ctx context.Context, token string) (nova.Position, error) {
	got, err := r.ask(ctx, r.message(opFence, []byte(token)))
	if err != nil {
		return nova.Position{}, err
	}
	result, err := got.result()
	return result.Tail, err
}

func (r remote) Stands(ctx context.Context) (sequencer.Standing, error) {
	got, err := r.ask(ctx, r.message(opStands, nil))
	if err != nil {
		var away *sequencer.UnavailableError
		if errors.As(err, &away) {
			err = &sequencer.UnavailableError{Err: away.Err} // a question changes nothing
		}
		return sequencer.Standing{}, err
	}
	result, err := got.result()
	return sequencer.Standing{Tail: result.Tail, Token: got.Token, Fence: got.Fence}, err
}

func (r remote) open(ctx context.Context, token string) (session, error) {
	f := &forwarded{
		r: r, id: nuid.Next(), token: token, prefix: nats.NewInbox() + ".", waiting: map[uint64]func(sequencer.Result){}, heard: time.Now(),
		ended: ended{over: make(chan struct{})},
	}
	var err error
	if f.sub, err = r.s.n.nc.Subscribe(f.prefix+"*", f.answered); err != nil {
		return nil, &sequencer.UnavailableError{Err: err}
	}
	m := r.message(opOpen, []byte(token))
	m.Header[hdrSession], m.Header[hdrInbox] = []string{f.id}, []string{f.prefix + tellsOver}
	got, err := r.ask(ctx, m)
	var result sequencer.Result
	if err == nil {
		result, err = got.result()
	}
	if err != nil {
		_ = f.sub.Unsubscribe() // fails only with the connection
		return nil, err
	}
	f.tail = result.Tail
	f.mu.Lock()
	f.timer = time.AfterFunc(r.s.n.o.ForwardTimeout, f.look)
	f.mu.Unlock()
	return f, nil
}

// forwarded is a session whose leader is at another node.
type forwarded struct {
	r      remote
	id     string
	token  string
	tail   nova.Position
	prefix string
	sub    *nats.Subscription
	ended

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]func(sequencer.Result)
	err     error
	moved   time.Time // when an answer came last, or a batch was sent to a session without any under way
	heard   time.Time // when anything came of the leader's node last
	asked   time.Time // when that was asked whether it knows the session; zero when it has answered
	timer   *time.Timer
}

// What comes to a session's inbox beside the answers to its batches, which are named by their number.
const (
	tellsOver = "over" // the session is over
	tellsKept = "kept" // or not
)

// errNotHandedOver is a batch of a session behind one that was not handed over: they must not get into the log without it.
var errNotHandedOver = errors.New("a batch of the session before this one was not handed over")

func (f *forwarded) Tail() nova.Position { return f.tail }

func (f *forwarded) Submit(_ context.Context, records []nova.Record, match *uint64, done func(sequencer.Result)) error {
	b := frame.Batch{Token: f.token, Records: records}
	if match != nil {
		b.HasMatch, b.Match = true, *match
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return &sequencer.UnavailableError{Err: f.err}
	}
	m, err := f.r.batch(opBatch, &b)
	if err != nil {
		f.err = errNotHandedOver
		return err
	}
	index := strconv.FormatUint(f.next, 10)
	m.Header[hdrSession], m.Header[hdrIndex], m.Reply = []string{f.id}, []string{index}, f.prefix+index
	if err := f.r.s.n.nc.PublishMsg(m); err != nil {
		f.err = errNotHandedOver
		return &sequencer.UnavailableError{Err: err}
	}
	if len(f.waiting) == 0 {
		f.moved = time.Now()
	}
	f.waiting[f.next] = done
	f.next++
	return nil
}

func (f *forwarded) answered(m *nats.Msg) {
	var a answer
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		a = answer{Kind: kindNothing, Text: errNobody.Error()}
		f.r.s.gone(f.r.node)
	} else if err := json.Unmarshal(m.Data, &a); err != nil {
		a = answer{Kind: kindIndefinite, Text: err.Error()}
	}
	r, err := a.result()
	name := m.Subject[len(f.prefix):]
	if name == tellsOver || name == tellsKept {
		f.mu.Lock()
		f.asked, f.heard = time.Time{}, time.Now()
		f.mu.Unlock()
		if err != nil {
			f.end(err)
		}
		return
	}
	index, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return
	}
	f.mu.Lock()
	done := f.waiting[index]
	delete(f.waiting, index)
	f.moved = time.Now()
	f.heard = f.moved
	f.mu.Unlock()
	if done != nil {
		done(r)
	}
}

// look ends a session whose leader has answered nothing for too long, and asks after an idle one now and then: its leader's
// node may be gone, and with it the word of a fence.
func (f *forwarded) look() {
	timeout := f.r.s.n.o.ForwardTimeout
	f.mu.Lock()
	late := len(f.waiting) > 0 && time.Since(f.moved) > 2*timeout || !f.asked.IsZero() && time.Since(f.asked) > 2*timeout
	if len(f.waiting) == 0 && f.asked.IsZero() && time.Since(f.heard) > 2*timeout && f.Err() == nil {
		f.asked = time.Now()
		m := f.r.message(opKeep, nil)
		m.Header[hdrSession], m.Reply = []string{f.id}, f.prefix+tellsKept
		_ = f.r.s.n.nc.PublishMsg(m) // without an answer it is late
	}
	if !late && (f.err == nil || len(f.waiting) > 0) { // a batch that can't be sent does not answer those before it
		f.timer.Reset(timeout)
	}
	f.mu.Unlock()
	if late {
		f.r.s.answers(f.r.node, false)
		f.fail(fmt.Errorf("node %s has not answered for %v", f.r.node, 2*timeout), true)
	}
}

func (f *forwarded) fail(err error, indefinite bool) {
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	waiting := f.waiting
	f.waiting = map[uint64]func(sequencer.Result){}
	f.timer.Stop()
	f.mu.Unlock()
	for _, done := range waiting {
		done(sequencer.Result{Err: &sequencer.UnavailableError{Err: err, Indefinite: indefinite}})
	}
	f.end(&sequencer.UnavailableError{Err: err}) // all that was submitted has its answer
}

func (f *forwarded) Close() {
	f.fail(errors.New("session closed"), true)
	_ = f.sub.Unsubscribe()
	m := f.r.message(opClose, nil)
	m.Header[hdrSession] = []string{f.id}
	_ = f.r.s.n.nc.PublishMsg(m) // the leader forgets the session with its lead at the latest
}
