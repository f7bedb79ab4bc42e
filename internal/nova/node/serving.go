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

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/sequencer"
	"github.com/typedfold/fold/runtime/protocol"
)

// serving is a stream that this node leads: it answers other nodes, and knows the sessions that are open, so that they hear
// of a fence at once.
type serving struct {
	s   *Stream
	sub *nats.Subscription

	ready  chan struct{} // closed when leader is set, or there is none
	leader *sequencer.Leader
	once   sync.Once

	mu       sync.Mutex
	sessions map[string]*served
	local    map[*here]struct{}
	token    string // of the newest fence in the log that was told of
	fence    uint64 // its number; 0 is none
	over     bool   // nothing is led any more
	held     int    // bytes of what waits for the leader's room
}

// served is a session of another node. Batches come in order, or the session ends.
type served struct {
	flow  sequencer.Flow
	token string
	fence uint64
	next  uint64
	inbox string // where its node is told that it is over
	heard time.Time

	waiting []*nats.Msg // what has arrived, in order
	works   bool        // somebody does it
}

func (s *Stream) serve() (*serving, error) {
	v := &serving{s: s, ready: make(chan struct{}), sessions: map[string]*served{}, local: map[*here]struct{}{}}
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

// close ends what is served. The leader, if there was one, has ended: all that was submitted has its answer.
func (v *serving) close() {
	v.once.Do(func() { close(v.ready) })
	_ = v.sub.Unsubscribe() // fails only with the connection
	v.mu.Lock()
	v.over = true
	local, sessions := v.local, v.sessions
	v.local, v.sessions = nil, nil
	v.mu.Unlock()
	gone := &sequencer.UnavailableError{Err: sequencer.ErrSuperseded}
	for h := range local {
		h.end(gone)
	}
	for _, s := range sessions {
		v.tell(s, gone)
	}
}

// fenced ends every session that was opened under an earlier fence. It is called on the leader's goroutine: what such a
// session had admitted has been answered, and what comes of it from now on is refused.
func (v *serving) fenced(token string, fence uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.token, v.fence = token, fence
	why := &sequencer.FencedError{Installed: token}
	for h := range v.local {
		if h.st.Fence < fence {
			h.end(why)
		}
	}
	for _, s := range v.sessions {
		if s.fence < fence {
			v.tell(s, why)
		}
	}
}

// tell has a session's node know that it is over. The message follows the answers of that session.
func (v *serving) tell(s *served, why error) {
	b, err := json.Marshal(answerOf(sequencer.Result{}, why))
	if err == nil && s.inbox != "" {
		_ = v.s.n.nc.Publish(s.inbox, b) // who does not hear it finds out at its next batch
	}
}

// standsUnder is nil when a session that was found to stand under a fence does so still. It is called under mu.
func (v *serving) standsUnder(fence uint64) error {
	switch {
	case v.over:
		return &sequencer.UnavailableError{Err: sequencer.ErrSuperseded}
	case fence < v.fence:
		return &sequencer.FencedError{Installed: v.token}
	}
	return nil
}

// silence is after how many times its ForwardTimeout a session is forgotten that was not heard of: its node is gone, since it
// asks for an idle one now and then.
const silence = 12

// expire forgets the sessions of nodes that are gone.
func (v *serving) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, s := range v.sessions {
		if time.Since(s.heard) > silence*v.s.n.o.ForwardTimeout {
			delete(v.sessions, id)
		}
	}
}

func (v *serving) handle(m *nats.Msg) {
	<-v.ready
	l := v.leader
	if l == nil {
		respond(m, answerOf(sequencer.Result{}, &sequencer.UnavailableError{Err: sequencer.ErrSuperseded}))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), v.s.n.o.ForwardTimeout)
	switch m.Header.Get(hdrOp) {
	case opAppend:
		defer cancel()
		v.shot(m)
	case opBatch, opClose:
		defer cancel()
		v.arrived(m)
	case opKeep:
		defer cancel()
		respond(m, answerOf(sequencer.Result{}, v.keep(m)))
	case opFence:
		go func() {
			defer cancel()
			tail, err := l.Fence(ctx, string(m.Data))
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

// errNoSession is a session that its leader does not know, or not any more.
var errNoSession = &sequencer.UnavailableError{Err: errors.New("the leader does not know the session")}

// keep notes that the session's node lives.
func (v *serving) keep(m *nats.Msg) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.sessions[m.Header.Get(hdrSession)]
	if s == nil {
		return errNoSession
	}
	s.heard = time.Now()
	return v.standsUnder(s.fence)
}

// drop forgets the session that a message is of.
func (v *serving) drop(m *nats.Msg) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.sessions, m.Header.Get(hdrSession))
}

func (v *serving) stands(ctx context.Context, l *sequencer.Leader, m *nats.Msg) {
	var st sequencer.Standing
	var err error
	if m.Header.Get(hdrOp) == opOpen {
		st, err = v.open(ctx, l, m)
	} else {
		st, err = l.Stands(ctx)
	}
	a := answerOf(sequencer.Result{Tail: st.Tail}, err)
	if err == nil {
		a.Token, a.Fence = st.Token, st.Fence
	}
	respond(m, a)
}

// open takes up a session of another node.
func (v *serving) open(ctx context.Context, l *sequencer.Leader, m *nats.Msg) (sequencer.Standing, error) {
	token := string(m.Data)
	return v.opening(ctx, l, token, func(st sequencer.Standing) {
		v.sessions[m.Header.Get(hdrSession)] = &served{
			flow: l.NewFlow(), token: token, fence: st.Fence, inbox: m.Header.Get(hdrInbox), heard: time.Now(),
		}
	})
}

// stander is a leader that proves where its stream stands.
type stander interface {
	Stands(ctx context.Context) (sequencer.Standing, error)
}

// opening proves that a writer who presents the token may open a session, and calls take under mu with what it stands under.
// Fences that are told of between the proof and that are no reason to refuse the token if they have put it back: the proof is
// asked for again then.
func (v *serving) opening(ctx context.Context, l stander, token string, take func(sequencer.Standing)) (sequencer.Standing, error) {
	for {
		st, err := l.Stands(ctx)
		if err == nil {
			err = admits(st, token)
		}
		if err != nil {
			return st, err
		}
		v.mu.Lock()
		err = v.standsUnder(st.Fence)
		again := err != nil && !v.over && v.token == token
		if err == nil {
			take(st)
		}
		v.mu.Unlock()
		if !again {
			return st, err
		}
	}
}

// admits says why a writer that presents the token can't open a session, if it can't. The standing was proved by a leader.
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
	}
	if err != nil {
		v.drop(m) // nothing of a session may follow a batch that was not handed over
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
	s.heard = time.Now()
	a.Flow, a.Token, a.InSession, a.SessionFence = s.flow, s.token, true, s.fence
	return a, nil
}

func respond(m *nats.Msg, a answer) {
	b, err := json.Marshal(a)
	if err == nil && m.Reply != "" {
		_ = m.Respond(b) // whoever asked finds out by its deadline
	}
}
