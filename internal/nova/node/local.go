package node

import (
	"context"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// local is a leader here.
type local struct{ *sequencer.Leader }

func (l local) open(ctx context.Context, token string) (session, error) {
	st, err := l.Stands(ctx)
	if err != nil {
		return nil, err
	}
	if err := admits(st, token); err != nil {
		return nil, err
	}
	return &here{l: l.Leader, token: token, st: st}, nil
}

// here is a session whose leader is at this node.
type here struct {
	l     *sequencer.Leader
	token string
	st    sequencer.Standing
	err   error // what ended it
}

func (h *here) Tail() nova.Position { return h.st.Tail }

func (h *here) Submit(ctx context.Context, records []nova.Record, match *uint64, done func(sequencer.Result)) error {
	if h.err != nil {
		return h.err
	}
	a := sequencer.Append{Records: records}
	a.Token, a.InSession, a.SessionFence = h.token, true, h.st.Fence
	if match != nil {
		a.HasMatch, a.Match = true, *match
	}
	err := h.l.Submit(ctx, a, done)
	if endsSession(err) {
		h.err = err
	}
	return err
}

func (h *here) Close() {}
