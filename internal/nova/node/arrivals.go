package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/nova/sequencer"
)

// Batches of other nodes wait while the leader has no room for them. Nothing else waits with them: a fence, an opening, and
// the word that a session is still known come in the same subscription.

// shot has a batch of no session submitted.
func (v *serving) shot(m *nats.Msg) {
	if err := v.hold(m); err != nil {
		respond(m, answerOf(sequencer.Result{}, err))
		return
	}
	go func() {
		// Its node is told in time that it was not handed over, and does not take this one for dead.
		v.submit(m, v.s.n.o.ForwardTimeout/2)
	}()
}

// arrived has what belongs into a session's order done behind what came before it: a batch, or the session's end.
func (v *serving) arrived(m *nats.Msg) {
	id := m.Header.Get(hdrSession)
	v.mu.Lock()
	s := v.sessions[id]
	v.mu.Unlock()
	err := v.hold(m)
	if err == nil && s != nil {
		v.mu.Lock()
		s.waiting = append(s.waiting, m)
		works := s.works
		s.works = true
		v.mu.Unlock()
		if !works {
			go v.work(s)
		}
		return
	}
	if err == nil {
		v.submit(m, 0) // which says that the session is not known
		return
	}
	v.drop(m)
	respond(m, answerOf(sequencer.Result{}, err))
}

// work does what has arrived of a session, until nothing is left.
func (v *serving) work(s *served) {
	for {
		v.mu.Lock()
		if len(s.waiting) == 0 {
			s.waiting, s.works = nil, false
			v.mu.Unlock()
			return
		}
		m := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		v.mu.Unlock()
		v.submit(m, v.s.n.o.ForwardTimeout)
	}
}

// submit does what a message asks for, within the time that the leader may have no room for it.
func (v *serving) submit(m *nats.Msg, within time.Duration) {
	defer v.unhold(m)
	if m.Header.Get(hdrOp) == opClose {
		v.drop(m)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	v.append(ctx, v.leader, m)
}

// hold counts a message that waits, if there is room for it.
func (v *serving) hold(m *nats.Msg) error {
	most := cmp.Or(v.s.n.o.MaxBytes, sequencer.DefaultMaxBytes)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held > 0 && v.held+m.Size() > most {
		return &sequencer.UnavailableError{Err: fmt.Errorf("batches of other nodes, %d bytes, wait for room already; %d may", v.held, most)}
	}
	v.held += m.Size()
	return nil
}

func (v *serving) unhold(m *nats.Msg) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held -= m.Size()
}
