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
	last, err := l.newest(ctx)
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
	if l.window = l.o.Window; l.log.InFlight() > 0 {
		l.window = min(l.window, l.log.InFlight())
	}
	return state, nil
}

// errOutdated is a read of an older log.
var errOutdated = errors.New("an outdated read")

// newest is the newest frame. A log that is led has one: its creation, or begin, has written it, so that a read which finds
// none is of an older log, and is repeated within AckTimeout.
func (l *Leader) newest(ctx context.Context) (jslog.Stored, error) {
	within, cancel := context.WithTimeout(ctx, l.o.AckTimeout)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		last, err := l.log.Last(ctx) // which has a bound of its own: that it was cut off says nothing
		if err != nil || last.Seq > 0 {
			return last, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-within.Done():
			t.Stop()
			return last, fmt.Errorf("%w: the log shows no frame, and it has one: %w", errOutdated, within.Err())
		}
	}
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
// another node leads, when the log can't be had in time, and when nothing that is sent gets into the log for as long.
func (l *Leader) recover() error {
	if l.stuck.IsZero() {
		l.stuck = time.Now()
	}
	began := time.Now()
	if l.o.Events.Recovering != nil {
		l.o.Events.Recovering(l.troubled)
	}
	ctx, cancel := context.WithDeadline(context.Background(), l.stuck.Add(l.o.RecoverTimeout))
	defer cancel()
	why := l.troubled
	for ; ; l.tries++ {
		if err := l.pause(ctx); err != nil {
			return errors.Join(err, why)
		}
		state, err := l.retake(ctx)
		if err == nil {
			err = l.settle(ctx, state)
		}
		switch {
		case err == nil:
			if l.troubled = nil; len(l.unsent) > 0 {
				l.tries++
			}
			l.signal()
			if l.o.Events.Recovered != nil {
				l.o.Events.Recovered(time.Since(began))
			}
			return nil
		case errors.Is(err, ErrSuperseded), errors.Is(err, jslog.ErrDamaged), errors.Is(err, jslog.ErrNotFound):
			return errors.Join(err, why)
		}
		why = errors.Join(err, l.troubled)
	}
}

// pause waits before another attempt, the longer the more of them there were since something was stored.
func (l *Leader) pause(ctx context.Context) error {
	if l.tries == 0 {
		return nil
	}
	t := time.NewTimer(time.Millisecond << min(l.tries-1, 9))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the log stored nothing within %v: %w", l.o.RecoverTimeout, ErrTimeout)
	}
}

// moved notes that the log stored what it was sent.
func (l *Leader) moved() { l.stuck, l.tries = time.Time{}, 0 }

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

// settle gives each pending link its fate, and has those sent again that are not in the log, in their order and with their
// numbers. If the log holds more than this leader wrote, somebody else led in between: what is not in the log fails, and the
// lead ends, so that no session goes on behind what it has lost.
func (l *Leader) settle(ctx context.Context, state frame.State) error {
	fates, stored, err := l.fates(ctx)
	if err != nil {
		return err
	}
	for range stored {
		l.complete()
	}
	if state.Next < l.committed.Next || state.Fence < l.committed.Fence {
		return fmt.Errorf("%w: it acknowledged record %d and fence %d, and ends before %d and at %d", jslog.ErrDamaged,
			int64(l.committed.Next)-1, l.committed.Fence, state.Next, state.Fence)
	}
	pending, unsent := l.pending, l.unsent
	l.pending, l.unsent = nil, nil
	if state == l.committed {
		l.unsent = append(pending, unsent...)
		return nil
	}
	lost := fmt.Errorf("%w, or did for a while", ErrSuperseded)
	l.committed = state
	for i, k := range pending {
		l.abandon(k, fates[stored+i] == protocol.FateUnknown, lost)
	}
	for _, k := range unsent {
		l.abandon(k, false, lost)
	}
	return lost
}

// fates are those of the pending links. The first stored ones are in the log: a link is there only behind the one before.
func (l *Leader) fates(ctx context.Context) (fates []protocol.FrameFate, stored int, err error) {
	fates = make([]protocol.FrameFate, len(l.pending))
	for i := len(l.pending) - 1; i >= 0; i-- {
		if fates[i], err = l.fate(ctx, l.pending[i]); err != nil {
			return nil, 0, err
		}
		if fates[i] == protocol.FateStored {
			stored = i + 1
			break
		}
	}
	for i, k := range l.pending[:stored] {
		if fates[i] = protocol.FateStored; k.reply == protocol.FrameRefused {
			return nil, 0, fmt.Errorf("%w: it refused a frame for log sequence %d, and holds the one at %d behind it", jslog.ErrDamaged, k.place, l.pending[stored-1].place)
		}
	}
	return fates, stored, nil
}

// fate is what became of a link, as far as it can be told of this one alone. It is unknown only if the log's beginning has
// been removed meanwhile; what can be found out by another read is an error.
func (l *Leader) fate(ctx context.Context, k *link) (protocol.FrameFate, error) {
	p := protocol.PendingFrame{
		Reply: k.reply, Place: k.place, Epoch: k.f.Epoch, Base: k.f.State.Next, Fences: k.fence, Fence: k.f.State.Fence,
	}
	seen := protocol.PlaceSeen{Opened: l.last}
	if k.renews && k.reply == protocol.FrameUnknown {
		return protocol.FateAbsent, nil // it may be sent again without harm
	}
	fate := protocol.SettleFrame(p, seen)
	if fate != protocol.FateUnknown {
		return fate, nil
	}
	at, err := l.log.From(ctx, k.place)
	switch {
	case err != nil:
		return protocol.FateUnknown, err
	case at.Seq < k.place:
		return protocol.FateUnknown, fmt.Errorf("%w: no frame from log sequence %d on, but there is one at %d", errOutdated, k.place, l.last)
	}
	epoch, s, err := frame.ParseHead(at.Payload)
	if err != nil {
		return protocol.FateUnknown, fmt.Errorf("%w: log sequence %d: %w", jslog.ErrDamaged, at.Seq, err)
	}
	seen.Found, seen.Epoch, seen.Base, seen.Fence = at.Seq, epoch, s.Next, s.Fence
	return protocol.SettleFrame(p, seen), nil
}
