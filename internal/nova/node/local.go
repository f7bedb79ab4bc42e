package node

import (
	"context"
	"sync"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// local is a leader here.
type local struct {
	*sequencer.Leader
	v *serving
}

func (l local) open(ctx context.Context, token string) (session, error) {
	h := &here{v: l.v, l: l.Leader, token: token, ended: ended{over: make(chan struct{})}}
	_, err := l.v.opening(ctx, l.Leader, token, func(st sequencer.Standing) {
		h.flow, h.st = l.NewFlow(), st
		l.v.local[h] = struct{}{}
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// ended says that a session is over, and why.
type ended struct {
	once sync.Once
	over chan struct{}
	why  error // written before over is closed
}

func (e *ended) end(why error) {
	e.once.Do(func() {
		e.why = why
		close(e.over)
	})
}

func (e *ended) Over() <-chan struct{} { return e.over }

func (e *ended) Err() error {
	select {
	case <-e.over:
		return e.why
	default:
		return nil
	}
}

// here is a session whose leader is at this node.
type here struct {
	v     *serving
	l     *sequencer.Leader
	flow  sequencer.Flow
	token string
	st    sequencer.Standing
	// failed: a batch was not handed over.
	failed bool
	ended
}

func (h *here) Tail() nova.Position { return h.st.Tail }

func (h *here) Submit(ctx context.Context, records []nova.Record, match *uint64, done func(sequencer.Result)) error {
	if h.failed {
		return &sequencer.UnavailableError{Err: errNotHandedOver}
	}
	a := sequencer.Append{Flow: h.flow, Records: records}
	a.Token, a.InSession, a.SessionFence = h.token, true, h.st.Fence
	if match != nil {
		a.HasMatch, a.Match = true, *match
	}
	err := h.l.Submit(ctx, a, done)
	h.failed = err != nil
	return err
}

func (h *here) Close() {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	delete(h.v.local, h)
}
