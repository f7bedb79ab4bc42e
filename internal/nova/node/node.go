// Package node is one server of the stream plane: it leads streams, and forwards to the nodes that lead others, over the
// connection to the log's servers that it has anyway.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// Options shape a node. Zero values are the defaults.
type Options struct {
	// Window, AckTimeout, RecoverTimeout and MaxBytes are those of its leaders.
	Window                     int
	AckTimeout, RecoverTimeout time.Duration
	MaxBytes                   int
	// ForwardTimeout is how long another leader may take to answer before this node looks whether it lives; default 5 s.
	ForwardTimeout time.Duration
	// RetainEvery is how often a leader applies its stream's retention; default 10 s.
	RetainEvery time.Duration
	Logger      *slog.Logger // default slog.Default()
	// Now is the clock of records, and of their retention; default time.Now.
	Now func() time.Time
	// Events tell what the node does.
	Events Events
}

// Events tell what a node does; any of them may be nil. They must not block.
type Events struct {
	// Led: the node has taken a stream over.
	Led func(nova.Addr)
	// LeadEnded: it leads the stream no more; why says whether another node does, or it was handed back.
	LeadEnded func(a nova.Addr, why error)
	// Leader is asked, before it leads a stream, for what its leader is to tell to.
	Leader func(nova.Addr) sequencer.Events
}

// Validate reports the first option that makes no sense.
func (o Options) Validate() error {
	if o.ForwardTimeout < 0 || o.RetainEvery < 0 {
		return fmt.Errorf("nova node: a negative time: %v to forward, %v between retentions; 0 is the default", o.ForwardTimeout, o.RetainEvery)
	}
	leader := sequencer.Options{Node: "node", Window: o.Window, MaxBytes: o.MaxBytes, AckTimeout: o.AckTimeout, RecoverTimeout: o.RecoverTimeout}
	if err := leader.Validate(); err != nil {
		return fmt.Errorf("nova node: %w", err)
	}
	return nil
}

// Node serves streams. It is safe for concurrent use.
type Node struct {
	nc *nats.Conn
	js jetstream.JetStream
	id string
	o  Options

	mu      sync.Mutex
	streams map[nova.Addr]*Stream
	turns   map[nova.Addr]chan struct{} // of streams that were there once, too
	closed  bool
}

// New is a node on a connection, which has to be made with nats.ReconnectBufSize(-1), so that a write is sent now or
// never. The node does not close it.
func New(nc *nats.Conn, js jetstream.JetStream, o Options) (*Node, error) {
	if nc.Opts.ReconnectBufSize >= 0 {
		return nil, errors.New("nova node: the connection keeps writes while it is away; make it with nats.ReconnectBufSize(-1)")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.ForwardTimeout = cmp.Or(o.ForwardTimeout, 5*time.Second)
	o.RetainEvery = cmp.Or(o.RetainEvery, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Node{nc: nc, js: js, id: nuid.Next(), o: o, streams: map[nova.Addr]*Stream{}, turns: map[nova.Addr]chan struct{}{}}, nil
}

// ID names the node in the log. It is another one after each start.
func (n *Node) ID() string { return n.id }

// ErrClosed is a node that has been closed.
var ErrClosed = errors.New("node closed")

// Stream is a stream of the log, by way of whoever leads it. It is ErrNotFound when there is none, and
// *sequencer.UnavailableError when the log can't be reached.
func (n *Node) Stream(ctx context.Context, a nova.Addr) (*Stream, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	s, ok := n.streams[a]
	closed := n.closed
	n.mu.Unlock()
	switch {
	case closed:
		return nil, &sequencer.UnavailableError{Err: ErrClosed}
	case ok:
		s.lookAfter(n.o.RetainEvery)
		return s, nil
	}
	log, err := jslog.Open(ctx, n.nc, n.js, a)
	switch {
	case errors.Is(err, jslog.ErrNotFound), errors.Is(err, jslog.ErrDamaged):
		return nil, err
	case err != nil:
		return nil, &sequencer.UnavailableError{Err: err} // nothing was asked of the stream yet
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, &sequencer.UnavailableError{Err: ErrClosed}
	}
	if s, ok := n.streams[a]; ok {
		return s, nil
	}
	if n.turns[a] == nil {
		n.turns[a] = make(chan struct{}, 1)
	}
	s = &Stream{n: n, log: log, turn: n.turns[a], checked: time.Now()}
	n.streams[a] = s
	return s, nil
}

// Create makes a stream. It tries for a while where the cluster is busy.
func (n *Node) Create(ctx context.Context, a nova.Addr, c jslog.Config) error {
	_, err := jslog.Create(ctx, n.nc, n.js, a, c)
	mayExist := errors.Is(err, jslog.ErrMayExist)
	if errors.Is(err, jslog.ErrBusy) {
		err = fmt.Errorf("%w; of %d replicas each needs a server of its own", err, max(c.Replicas, 1))
	} else if !mayExist {
		return err
	}
	return &sequencer.UnavailableError{Err: err, Indefinite: mayExist}
}

// Delete removes a stream. A leader of it at another node ends at its next write, or when it looks after the stream.
func (n *Node) Delete(ctx context.Context, a nova.Addr) error {
	if err := a.Validate(); err != nil {
		return err
	}
	err := jslog.Delete(ctx, n.js, a)
	n.forget(a)
	return err
}

// List lists the streams of a namespace; "" is all.
func (n *Node) List(ctx context.Context, namespace string) ([]jslog.Description, error) {
	return jslog.List(ctx, n.js, namespace)
}

// forget drops what is known of a stream.
func (n *Node) forget(a nova.Addr) {
	n.mu.Lock()
	s := n.streams[a]
	n.mu.Unlock()
	if s != nil {
		n.drop(s)
	}
}

// drop forgets a stream that is gone, and ends its leader if it is here.
func (n *Node) drop(s *Stream) {
	s.retire()
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := s.log.Addr(); n.streams[a] == s {
		delete(n.streams, a)
	}
}

// Close hands back every stream that the node leads, within ctx.
func (n *Node) Close(ctx context.Context) error {
	n.mu.Lock()
	n.closed = true
	streams := n.streams
	n.streams = nil
	n.mu.Unlock()
	var wg sync.WaitGroup
	errs := make(chan error, len(streams))
	for a, s := range streams {
		wg.Go(func() {
			if err := s.close(ctx); err != nil {
				errs <- fmt.Errorf("hand %s back: %w", a, err)
			}
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// Leads is how many streams the node leads.
func (n *Node) Leads() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	leads := 0
	for _, s := range n.streams {
		if _, here := s.leading(); here {
			leads++
		}
	}
	return leads
}

func (n *Node) leaderOptions(v *serving) sequencer.Options {
	var e sequencer.Events
	if n.o.Events.Leader != nil {
		e = n.o.Events.Leader(v.s.log.Addr())
	}
	told := e.Fenced
	e.Fenced = func(token string, fence uint64) {
		v.fenced(token, fence)
		if told != nil {
			told(token, fence)
		}
	}
	return sequencer.Options{
		Node: n.id, Window: n.o.Window, AckTimeout: n.o.AckTimeout, RecoverTimeout: n.o.RecoverTimeout, MaxBytes: n.o.MaxBytes, Now: n.o.Now,
		Events: e,
	}
}
