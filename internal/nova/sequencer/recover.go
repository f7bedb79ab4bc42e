package sequencer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

// lead takes the log over and proves it: from its return on, nothing of an earlier epoch can be stored, and the state is
// what the log holds. The opening frame is stored only if the newest frame is the one that was read, and nothing was
// written since the takeover.
func (l *Leader) lead(ctx context.Context) (frame.State, error) {
	epoch, err := l.log.TakeOver(ctx, l.o.Node)
	if err != nil {
		return frame.State{}, err
	}
	last, err := l.log.Last(ctx)
	if err != nil {
		return frame.State{}, err
	}
	f, err := frame.Parse(last.Payload)
	if err != nil {
		return frame.State{}, fmt.Errorf("%w: newest frame, at log sequence %d: %w", jslog.ErrDamaged, last.Seq, err)
	}
	state := f.After()
	opening := frame.Frame{Epoch: epoch.Number, State: state}
	id := l.nextID
	l.nextID++
	err = l.chain.Send(id, jslog.Message{Opens: true, Control: last.Seq, Last: epoch.Number, Payload: frame.Append(nil, &opening)})
	if err != nil {
		return frame.State{}, err
	}
	r, err := l.await(ctx, id)
	switch {
	case err != nil:
		return frame.State{}, err
	case r.Kind != protocol.FrameStored:
		return frame.State{}, fmt.Errorf("opening frame: %w", r.Err)
	}
	l.epoch, l.slot, l.last = epoch, 0, r.Seq
	return state, nil
}

// await waits for the answer to one message, and drops others: they are of messages that are settled in another way.
func (l *Leader) await(ctx context.Context, id uint64) (jslog.Reply, error) {
	t := time.NewTimer(l.o.AckTimeout)
	defer t.Stop()
	for {
		l.mu.Lock()
		replies := l.replies
		l.replies = nil
		l.mu.Unlock()
		for _, r := range replies {
			if r.ID == id {
				l.signal() // requests may have come meanwhile
				return r, nil
			}
		}
		select {
		case <-l.wake:
		case <-t.C:
			return jslog.Reply{}, fmt.Errorf("opening frame: %w within %v", ErrTimeout, l.o.AckTimeout)
		case <-ctx.Done():
			return jslog.Reply{}, ctx.Err()
		}
	}
}

// recover finds out what became of the pending links, by leading the log anew, and goes on from there. It fails when
// another node leads, and when the log can't be had in time.
func (l *Leader) recover() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.o.RecoverTimeout)
	defer cancel()
	why := l.troubled
	for try := 0; ; try++ {
		state, err := l.retake(ctx)
		if err == nil {
			err = l.settle(ctx, state)
		}
		switch {
		case err == nil:
			l.troubled = nil
			l.signal()
			return nil
		case errors.Is(err, ErrSuperseded), errors.Is(err, jslog.ErrDamaged), errors.Is(err, jslog.ErrNotFound):
			return errors.Join(err, why)
		}
		t := time.NewTimer(time.Millisecond << min(try, 9))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(err, why)
		}
	}
}

// retake leads anew, unless another node has taken over: it is the one to go on then.
func (l *Leader) retake(ctx context.Context) (frame.State, error) {
	now, err := l.log.Leader(ctx)
	if err != nil {
		return frame.State{}, err
	}
	if now.Node != l.o.Node {
		return frame.State{}, fmt.Errorf("%w: %q", ErrSuperseded, now.Node)
	}
	return l.lead(ctx)
}

// settle gives each pending link its fate, and sends again what is not in the log, in its order and with its numbers. If the
// log holds more than this leader wrote, somebody else led in between, and what is not in the log fails.
func (l *Leader) settle(ctx context.Context, state frame.State) error {
	stored := 0
	for i, k := range l.pending {
		fate, err := l.fate(ctx, k)
		switch {
		case err != nil:
			return err
		case fate == protocol.FateStored && stored != i:
			return fmt.Errorf("%w: a frame is at log sequence %d, and none at %d before it", jslog.ErrDamaged, k.place, l.pending[i-1].place)
		case fate == protocol.FateStored:
			stored++
		}
	}
	for range stored {
		l.complete()
	}
	unsent := append(l.pending, l.unsent...)
	l.pending, l.unsent = nil, nil
	if state == l.committed {
		l.unsent = unsent
		return nil
	}
	lost := fmt.Errorf("%w for a while", ErrSuperseded)
	l.cursor, l.committed = state, state
	for _, k := range unsent {
		l.abandon(k, false, lost)
	}
	return nil
}

func (l *Leader) fate(ctx context.Context, k *link) (protocol.FrameFate, error) {
	p := protocol.PendingFrame{Reply: k.reply, Place: k.place, Epoch: k.f.Epoch, Base: k.f.State.Next}
	var seen protocol.PlaceSeen
	if k.reply == protocol.FrameUnknown && !k.renews {
		at, err := l.log.From(ctx, k.place)
		if err != nil {
			return protocol.FateUnknown, err
		}
		seen.Known = true
		if at.Seq == k.place {
			epoch, s, err := frame.ParseHead(at.Payload)
			if err != nil {
				return protocol.FateUnknown, fmt.Errorf("%w: log sequence %d: %w", jslog.ErrDamaged, at.Seq, err)
			}
			seen.IsFrame, seen.Epoch, seen.Base = true, epoch, s.Next
		}
	}
	fate := protocol.SettleFrame(p, seen)
	if k.renews && fate == protocol.FateUnknown {
		fate = protocol.FateAbsent // it may be sent again without harm
	}
	return fate, nil
}
