package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// Stream is one stream as a node serves it. It is safe for concurrent use.
type Stream struct {
	n    *Node
	log  *jslog.Log
	turn chan struct{} // held by whoever finds the leader or takes over

	mu      sync.Mutex
	leader  *sequencer.Leader // while it is here
	serves  *serving
	retired bool      // the log is gone; another stream of the node may serve one of the same name
	checked time.Time // when somebody began to look whether it is
	remote  string    // the node that led when somebody looked last; "" when nobody knows
	silent  int       // how often in a row it has not answered in time
}

// Log is the stream's log, to read.
func (s *Stream) Log() *jslog.Log { return s.log }

// leading is the leader, if it is here and lives.
func (s *Stream) leading() (local, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader == nil {
		return local{}, false
	}
	select {
	case <-s.leader.Done():
		return local{}, false
	default:
		return local{s.leader, s.serves}, true
	}
}

// errNobody is a node that does not answer for a stream: it is gone, or leads it no more. Nothing has reached it.
var errNobody = errors.New("the leader's node does not answer")

// plane is who decides on a stream: a leader here, or one elsewhere.
type plane interface {
	Append(ctx context.Context, a sequencer.Append) (sequencer.Result, error)
	Fence(ctx context.Context, token string) (nova.Position, error)
	Stands(ctx context.Context) (sequencer.Standing, error)
	open(ctx context.Context, token string) (session, error)
}

// session is where batches of one session go, in order.
type session interface {
	Submit(ctx context.Context, records []nova.Record, match *uint64, done func(sequencer.Result)) error
	Tail() nova.Position
	Over() <-chan struct{}
	Err() error
	Close()
}

// attempts is how often a request looks for the leader; only such requests begin again as have reached nobody.
const attempts = 4

// with has f ask the stream's leader. f is called again only when nothing was written: after errNobody, when the leader
// was superseded before it wrote, and when the stream is gone, but another node has made one of its name.
func (s *Stream) with(ctx context.Context, f func(plane) error) error {
	err := s.attempt(ctx, f)
	if away := new(sequencer.UnavailableError); !errors.Is(err, jslog.ErrNotFound) || errors.As(err, &away) && away.Indefinite {
		return err
	}
	s.n.drop(s)
	again, anew := s.n.Stream(ctx, s.log.Addr())
	if anew != nil {
		return err
	}
	return again.attempt(ctx, f)
}

// attempt has f ask the leader. Where several nodes take over at once, all but one of them look again.
func (s *Stream) attempt(ctx context.Context, f func(plane) error) error {
	var dead string
	var lost error
	for range attempts {
		p, node, err := s.find(ctx, dead)
		if errors.Is(err, jslog.ErrRefused) && ctx.Err() == nil {
			lost = err
			continue
		}
		if err != nil {
			return err
		}
		err = f(p)
		switch {
		case errors.Is(err, errNobody):
			dead, lost = node, nil
		case superseded(err):
			lost = err
			s.gone(node)
			if l, here := p.(local); here {
				select {
				case <-l.Done():
				case <-ctx.Done():
					return err
				}
			}
		default:
			return err
		}
	}
	if lost != nil {
		return lost
	}
	return &sequencer.UnavailableError{Err: fmt.Errorf("%w: node %s", errNobody, dead)}
}

// superseded reports whether a leader has lost its lead before it wrote what it was asked to.
func superseded(err error) bool {
	var away *sequencer.UnavailableError
	return errors.As(err, &away) && !away.Indefinite && errors.Is(away.Err, sequencer.ErrSuperseded)
}

// maxSilent is after how many requests in a row that a leader's node did not answer it is taken for dead. To take a stream
// over from a node that lives is safe, and costs its sessions.
const maxSilent = 2

// find is the stream's leader. dead is a node that has just not answered: if the log still names it, this node takes over.
func (s *Stream) find(ctx context.Context, dead string) (plane, string, error) {
	if l, here := s.leading(); here {
		return l, s.n.id, nil
	}
	s.mu.Lock()
	known := s.remote
	if dead == "" && s.silent >= maxSilent {
		dead = known
	}
	s.mu.Unlock()
	if known != "" && known != dead {
		return remote{s, known}, known, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, "", &sequencer.UnavailableError{Err: ctx.Err()}
	}
	if l, here := s.leading(); here {
		return l, s.n.id, nil
	}
	if s.isRetired() {
		return nil, "", fmt.Errorf("%w: it was deleted", jslog.ErrNotFound)
	}
	now, err := s.log.Leader(ctx)
	if err != nil {
		return nil, "", s.unavailable(err)
	}
	if now.Node != "" && now.Node != dead && now.Node != s.n.id {
		s.mu.Lock()
		s.remote, s.silent = now.Node, 0
		s.mu.Unlock()
		return remote{s, now.Node}, now.Node, nil
	}
	l, err := s.lead(ctx)
	if err != nil {
		return nil, "", s.unavailable(err)
	}
	return l, s.n.id, nil
}

// unavailable keeps what a caller can act on, and makes everything else an error that says that nothing was written. A
// stream that is gone is forgotten, since one that is made anew under its name is another one.
func (s *Stream) unavailable(err error) error {
	if errors.Is(err, jslog.ErrNotFound) {
		s.n.drop(s)
	}
	if errors.Is(err, jslog.ErrNotFound) || errors.Is(err, nova.ErrInvalid) {
		return err
	}
	if away := new(sequencer.UnavailableError); errors.As(err, &away) {
		err = away.Err // it says so once
	}
	return &sequencer.UnavailableError{Err: err}
}

// lead takes the stream over. Whoever looks for the leader finds it answering: it serves before the log names it.
func (s *Stream) lead(ctx context.Context) (local, error) {
	s.mu.Lock()
	ended := s.serves
	s.mu.Unlock()
	if ended != nil {
		ended.close() // both would answer the same request, and the one that has ended would say that nothing was written
	}
	v, err := s.serve()
	if err != nil {
		return local{}, err
	}
	l, err := sequencer.Start(ctx, sequencer.OfJetStream(s.log), s.n.leaderOptions(v))
	if err != nil {
		v.close()
		return local{}, err
	}
	v.begin(l)
	s.mu.Lock()
	s.leader, s.serves, s.remote, s.silent = l, v, "", 0
	s.mu.Unlock()
	s.n.o.Logger.Info("nova: leads", "stream", s.log.Addr().String(), "node", s.n.id)
	if s.n.o.Events.Led != nil {
		s.n.o.Events.Led(s.log.Addr())
	}
	go s.watch(l, v)
	return local{l, v}, nil
}

// watch applies retention while the leader leads, has it end when the stream is gone, and cleans up after it.
func (s *Stream) watch(l *sequencer.Leader, v *serving) {
	t := time.NewTicker(s.n.o.RetainEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			until(l.Done(), s.n.o.RetainEvery, s.tend)
			v.expire()
		case <-l.Done():
			v.close()
			s.mu.Lock()
			if s.leader == l {
				s.leader, s.serves = nil, nil
			}
			s.mu.Unlock()
			s.n.o.Logger.Info("nova: leads no more", "stream", s.log.Addr().String(), "node", s.n.id, "why", l.Err())
			if s.n.o.Events.LeadEnded != nil {
				s.n.o.Events.LeadEnded(s.log.Addr(), l.Err())
			}
			return
		}
	}
}

// until runs f with a context that ends after a time, and when done is closed.
func until(done <-chan struct{}, after time.Duration, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	f(ctx)
}

// tend does what is due now and then while the leader is here.
func (s *Stream) tend(ctx context.Context) {
	if !s.check(ctx) {
		return
	}
	if err := s.retain(ctx); err != nil && ctx.Err() == nil {
		s.n.o.Logger.Warn("nova: retention", "stream", s.log.Addr().String(), "err", err)
	}
}

// check looks whether the stream is still the one that was opened, and forgets it if it is not. A log that does not answer
// says nothing.
func (s *Stream) check(ctx context.Context) (there bool) {
	there = !errors.Is(s.log.Current(ctx), jslog.ErrNotFound)
	if !there {
		s.n.drop(s)
	}
	return there
}

// retire has the stream be served no more: the node may serve another one of its name under the same subject, and only one
// of them may answer there. A leader that is left ends by itself, since its log is gone.
func (s *Stream) retire() {
	s.mu.Lock()
	s.retired = true
	l, v := s.leader, s.serves
	s.mu.Unlock()
	if v != nil {
		_ = v.sub.Unsubscribe() // fails only with the connection
	}
	if l != nil {
		left, leave := context.WithCancel(context.Background())
		leave()
		_ = l.Stop(left) // nobody waits for it
	}
}

// lookAfter has the stream looked at now and then while it is used, and no leader here does so.
func (s *Stream) lookAfter(every time.Duration) {
	s.mu.Lock()
	due := s.leader == nil && time.Since(s.checked) > every
	if due {
		s.checked = time.Now()
	}
	s.mu.Unlock()
	if due {
		go until(nil, every, func(ctx context.Context) { s.check(ctx) })
	}
}

func (s *Stream) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

func (s *Stream) close(ctx context.Context) error {
	if l, here := s.leading(); here {
		return l.Stop(ctx)
	}
	return nil
}

// Append appends one batch; see sequencer.Leader. It is one attempt.
func (s *Stream) Append(ctx context.Context, a sequencer.Append) (r sequencer.Result, err error) {
	err = s.with(ctx, func(p plane) error {
		r, err = p.Append(ctx, a)
		return err
	})
	return r, err
}

// Fence installs a token; see sequencer.Leader.
func (s *Stream) Fence(ctx context.Context, token string) (tail nova.Position, err error) {
	if err := nova.CheckToken(token); err != nil {
		return tail, err
	}
	err = s.with(ctx, func(p plane) error {
		tail, err = p.Fence(ctx, token)
		return err
	})
	return tail, err
}

// Stands is the stream's state at some moment after the call.
func (s *Stream) Stands(ctx context.Context) (st sequencer.Standing, err error) {
	err = s.with(ctx, func(p plane) error {
		st, err = p.Stands(ctx)
		return err
	})
	return st, err
}

// Trim removes the records before a number, as far as whole frames go, and is the first position that is left.
func (s *Stream) Trim(ctx context.Context, record uint64) (nova.Position, error) {
	seq, _, err := reader.FrameOf(ctx, s.log, record)
	if err != nil {
		return nova.Position{}, err
	}
	if err := s.log.PurgeBefore(ctx, seq); err != nil {
		return nova.Position{}, err
	}
	first, _, err := reader.Bounds(ctx, s.log)
	return first, err
}

// Leader is the node that leads the stream as the log says, which may be outdated; "" is none.
func (s *Stream) Leader(ctx context.Context) (string, error) {
	e, err := s.log.Leader(ctx)
	return e.Node, err
}

// answers notes whether the leader's node has answered in time.
func (s *Stream) answers(node string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.remote != node:
	case yes:
		s.silent = 0
	default:
		s.silent++
	}
}

// gone forgets a node that nobody answers for.
func (s *Stream) gone(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remote == node {
		s.remote, s.silent = "", 0
	}
}

// nobody turns the errors that say that a request reached no one into errNobody.
func nobody(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return errNobody
	}
	return err
}
