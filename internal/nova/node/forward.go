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
	"github.com/typedfold/fold/runtime/protocol"
)

// Headers of what one node asks another one. The body of an append is a frame with one batch.
const (
	hdrOp      = "Nova-Op"
	hdrToken   = "Nova-Token"
	hdrSession = "Nova-Session"
	hdrIndex   = "Nova-Index"

	opAppend = "append"
	opFence  = "fence"
	opStands = "stands"
	opOpen   = "open"
	opBatch  = "batch"
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

// serving answers other nodes for a stream that this one leads.
type serving struct {
	s   *Stream
	sub *nats.Subscription

	ready  chan struct{} // closed when leader is set, or there is none
	leader *sequencer.Leader

	mu       sync.Mutex
	sessions map[string]*served
	once     sync.Once
}

// served is a session of another node. Batches come in order, or the session ends.
type served struct {
	token string
	fence uint64
	next  uint64
}

func (s *Stream) serve() (*serving, error) {
	v := &serving{s: s, ready: make(chan struct{}), sessions: map[string]*served{}}
	sub, err := s.n.nc.Subscribe(s.subject(s.n.id), v.handle)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", s.log.Addr(), err)
	}
	v.sub = sub
	return v, nil
}

func (v *serving) begin(l *sequencer.Leader) {
	v.leader = l
	v.once.Do(func() { close(v.ready) })
}

func (v *serving) close(*sequencer.Leader) {
	v.once.Do(func() { close(v.ready) })
	_ = v.sub.Unsubscribe() // fails only with the connection
}

func (v *serving) handle(m *nats.Msg) {
	<-v.ready
	l := v.leader
	if l == nil {
		respond(m, answerOf(sequencer.Result{}, &sequencer.UnavailableError{Err: sequencer.ErrSuperseded}))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), v.s.n.o.ForwardTimeout)
	token := m.Header.Get(hdrToken)
	switch m.Header.Get(hdrOp) {
	case opAppend, opBatch:
		defer cancel()
		v.append(ctx, l, m)
	case opClose:
		defer cancel()
		v.drop(m)
	case opFence:
		go func() {
			defer cancel()
			tail, err := l.Fence(ctx, token)
			respond(m, answerOf(sequencer.Result{Tail: tail}, err))
		}()
	case opStands, opOpen:
		go func() {
			defer cancel()
			v.stands(ctx, l, m)
		}()
	default:
		defer cancel()
		respond(m, answer{Kind: kindInvalid, Text: "unknown operation " + strconv.Quote(m.Header.Get(hdrOp))})
	}
}

// drop forgets the session that a message is of.
func (v *serving) drop(m *nats.Msg) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.sessions, m.Header.Get(hdrSession))
}

// endsSession reports whether a batch was not handed over that others may follow: they must not get into the log without it.
func endsSession(err error) bool { return err != nil && !errors.Is(err, nova.ErrInvalid) }

func (v *serving) stands(ctx context.Context, l *sequencer.Leader, m *nats.Msg) {
	st, err := l.Stands(ctx)
	if m.Header.Get(hdrOp) == opOpen && err == nil {
		token := m.Header.Get(hdrToken)
		if err = admits(st, token); err == nil {
			v.mu.Lock()
			v.sessions[m.Header.Get(hdrSession)] = &served{token: token, fence: st.Fence}
			v.mu.Unlock()
		}
	}
	a := answerOf(sequencer.Result{Tail: st.Tail}, err)
	if err == nil {
		a.Token, a.Fence = st.Token, st.Fence
	}
	respond(m, a)
}

// admits says why a writer that presents the token can't open a session, if it can't.
func admits(st sequencer.Standing, token string) error {
	seen := protocol.AppendSeen{Leads: true, Installed: st.Token, Fence: st.Fence, Cursor: st.Tail.SeqNum}
	if protocol.AdmitAppend(protocol.Append{Token: token}, seen) != protocol.AppendAdmitted {
		return &sequencer.FencedError{Installed: st.Token}
	}
	return nil
}

func (v *serving) append(ctx context.Context, l *sequencer.Leader, m *nats.Msg) {
	a, err := v.parse(m)
	if err == nil {
		err = l.Submit(ctx, a, func(r sequencer.Result) { respond(m, answerOf(r, r.Err)) })
		if a.InSession && endsSession(err) {
			v.drop(m)
		}
	}
	if err != nil {
		respond(m, answerOf(sequencer.Result{}, err))
	}
}

func (v *serving) parse(m *nats.Msg) (a sequencer.Append, err error) {
	f, err := frame.Parse(m.Data)
	if err != nil || len(f.Batches) != 1 {
		return a, fmt.Errorf("%w: %w", nova.ErrInvalid, errors.Join(err, errors.New("one batch was expected")))
	}
	b := &f.Batches[0]
	a.Records, a.Token, a.HasMatch, a.Match = b.Records, b.Token, b.HasMatch, b.Match
	if m.Header.Get(hdrOp) == opAppend {
		return a, nil
	}
	index, err := strconv.ParseUint(m.Header.Get(hdrIndex), 10, 64)
	if err != nil {
		return a, fmt.Errorf("%w: index of a batch: %w", nova.ErrInvalid, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.sessions[m.Header.Get(hdrSession)]
	if s == nil || s.next != index {
		delete(v.sessions, m.Header.Get(hdrSession))
		return a, &sequencer.UnavailableError{Err: errors.New("a batch of the session is missing")}
	}
	s.next++
	a.Token, a.InSession, a.SessionFence = s.token, true, s.fence
	return a, nil
}

func respond(m *nats.Msg, a answer) {
	b, err := json.Marshal(a)
	if err == nil && m.Reply != "" {
		_ = m.Respond(b) // whoever asked finds out by its deadline
	}
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

func (r remote) message(op, token string, b *frame.Batch) *nats.Msg {
	m := &nats.Msg{Subject: r.s.subject(r.node), Header: nats.Header{hdrOp: {op}, hdrToken: {token}}}
	if b != nil {
		m.Data = frame.Append(make([]byte, 0, frame.Head+frame.BatchSize(b)), &frame.Frame{Batches: []frame.Batch{*b}})
	}
	return m
}

func (r remote) Append(ctx context.Context, a sequencer.Append) (sequencer.Result, error) {
	if err := errors.Join(nova.CheckToken(a.Token), nova.CheckBatch(a.Records, nova.MaxBatchBytes)); err != nil {
		return sequencer.Result{}, err
	}
	b := frame.Batch{Token: a.Token, HasMatch: a.HasMatch, Match: a.Match, Records: a.Records}
	if n := frame.Head + frame.BatchSize(&b); n > r.s.log.MaxMessage() {
		return sequencer.Result{}, fmt.Errorf("%w: the batch makes a message of %d bytes, the log takes %d", nova.ErrInvalid, n, r.s.log.MaxMessage())
	}
	got, err := r.ask(ctx, r.message(opAppend, a.Token, &b))
	if err != nil {
		return sequencer.Result{}, err
	}
	return got.result()
}

func (r remote) Fence(ctx context.Context, token string) (nova.Position, error) {
	got, err := r.ask(ctx, r.message(opFence, token, nil))
	if err != nil {
		return nova.Position{}, err
	}
	result, err := got.result()
	return result.Tail, err
}

func (r remote) Stands(ctx context.Context) (sequencer.Standing, error) {
	got, err := r.ask(ctx, r.message(opStands, "", nil))
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
	id := nuid.Next()
	m := r.message(opOpen, token, nil)
	m.Header[hdrSession] = []string{id}
	got, err := r.ask(ctx, m)
	if err != nil {
		return nil, err
	}
	result, err := got.result()
	if err != nil {
		return nil, err
	}
	return newForwarded(r, id, result.Tail)
}

// forwarded is a session whose leader is at another node.
type forwarded struct {
	r      remote
	id     string
	tail   nova.Position
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]func(sequencer.Result)
	err     error
	moved   time.Time // when an answer came last, or a batch was sent to a session without any under way
	timer   *time.Timer
}

func newForwarded(r remote, id string, tail nova.Position) (*forwarded, error) {
	f := &forwarded{r: r, id: id, tail: tail, prefix: nats.NewInbox() + ".", waiting: map[uint64]func(sequencer.Result){}}
	sub, err := r.s.n.nc.Subscribe(f.prefix+"*", f.answered)
	if err != nil {
		return nil, &sequencer.UnavailableError{Err: err}
	}
	f.sub = sub
	f.timer = time.AfterFunc(r.s.n.o.ForwardTimeout, f.look)
	return f, nil
}

func (f *forwarded) Tail() nova.Position { return f.tail }

func (f *forwarded) Submit(_ context.Context, records []nova.Record, match *uint64, done func(sequencer.Result)) error {
	b := frame.Batch{Records: records}
	if match != nil {
		b.HasMatch, b.Match = true, *match
	}
	if err := nova.CheckBatch(records, nova.MaxBatchBytes); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return &sequencer.UnavailableError{Err: f.err}
	}
	m := f.r.message(opBatch, "", &b)
	index := strconv.FormatUint(f.next, 10)
	m.Header[hdrSession], m.Header[hdrIndex], m.Reply = []string{f.id}, []string{index}, f.prefix+index
	if err := f.r.s.n.nc.PublishMsg(m); err != nil {
		f.err = err
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
	index, err := strconv.ParseUint(m.Subject[len(f.prefix):], 10, 64)
	if err != nil {
		return
	}
	var a answer
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		a = answer{Kind: kindNothing, Text: errNobody.Error()}
		f.r.s.gone(f.r.node)
	} else if err := json.Unmarshal(m.Data, &a); err != nil {
		a = answer{Kind: kindIndefinite, Text: err.Error()}
	}
	f.mu.Lock()
	done := f.waiting[index]
	delete(f.waiting, index)
	f.moved = time.Now()
	f.mu.Unlock()
	if done != nil {
		r, _ := a.result()
		done(r)
	}
}

// look ends a session whose leader has answered nothing for too long.
func (f *forwarded) look() {
	limit := 2 * f.r.s.n.o.ForwardTimeout
	f.mu.Lock()
	late := len(f.waiting) > 0 && time.Since(f.moved) > limit
	if f.err == nil && !late {
		f.timer.Reset(f.r.s.n.o.ForwardTimeout)
	}
	f.mu.Unlock()
	if late {
		f.r.s.answers(f.r.node, false)
		f.fail(fmt.Errorf("node %s has not answered for %v", f.r.node, limit), true)
	}
}

func (f *forwarded) fail(err error, indefinite bool) {
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	waiting := f.waiting
	f.waiting = map[uint64]func(sequencer.Result){}
	f.mu.Unlock()
	for _, done := range waiting {
		done(sequencer.Result{Err: &sequencer.UnavailableError{Err: err, Indefinite: indefinite}})
	}
}

func (f *forwarded) Close() {
	f.timer.Stop()
	f.fail(errors.New("session closed"), true)
	_ = f.sub.Unsubscribe()
	m := f.r.message(opClose, "", nil)
	m.Header[hdrSession] = []string{f.id}
	_ = f.r.s.n.nc.PublishMsg(m) // the leader forgets the session with its lead at the latest
}
