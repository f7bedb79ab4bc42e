package sequencer

import (
	"fmt"
	"time"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

// link is one message of the chain: a frame, or a renewal.
type link struct {
	f        frame.Frame
	fence    bool // nothing may join it
	renews   bool
	hands    bool
	size     int
	appends  []waiter
	after    []proof
	id       uint64
	place    uint64 // where it is in the log, if it is
	sent     uint64 // the event count when it was sent
	deadline time.Time
	answered bool
	reply    protocol.FrameReply
	err      error
}

// waiter is one batch of a frame.
type waiter struct {
	start nova.Position
	end   nova.Position
	held
	done func(Result)
}

// proof is an answer that waits for a link to be in the log.
type proof struct {
	asked  uint64 // the event count when it was asked for
	writes bool   // it is the answer to a fence, whose own link this is
	f      func(frame.State, error)
}

func (l *Leader) run() {
	err := l.loop()
	l.end(err)
}

func (l *Leader) loop() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var queue []item
	var replies []jslog.Reply
	for {
		if len(l.pending) > 0 {
			timer.Reset(time.Until(l.pending[0].deadline))
		} else {
			timer.Reset(time.Hour)
		}
		select {
		case <-l.wake:
		case <-timer.C:
			l.expire()
		}
		queue, replies = l.take(queue, replies)
		for i := range replies {
			if err := l.reply(replies[i]); err != nil {
				return err
			}
		}
		for i := range queue {
			l.admit(&queue[i])
		}
		clear(queue)
		l.proceed()
		if l.troubled != nil && l.allAnswered() {
			if err := l.recover(); err != nil {
				return err
			}
			l.proceed()
		}
		if l.stopping && len(l.pending) == 0 && len(l.unsent) == 0 && l.troubled == nil {
			if l.handed {
				return ErrStopped
			}
			l.handed = true
			l.unsent = append(l.unsent, &link{renews: true, hands: true})
			l.send()
		}
	}
}

func (l *Leader) take(queue []item, replies []jslog.Reply) ([]item, []jslog.Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, l.queue = l.queue, queue[:0]
	replies, l.replies = l.replies, replies[:0]
	return queue, replies
}

func (l *Leader) allAnswered() bool {
	for _, k := range l.pending {
		if !k.answered {
			return false
		}
	}
	return true
}

// expire gives up waiting for answers that are late. All that was sent after the oldest of them depends on it.
func (l *Leader) expire() {
	if len(l.pending) == 0 || time.Now().Before(l.pending[0].deadline) {
		return
	}
	for _, k := range l.pending {
		if !k.answered {
			k.answered, k.reply, k.err = true, protocol.FrameUnknown, ErrTimeout
		}
	}
	l.troubled = fmt.Errorf("%w within %v", ErrTimeout, l.o.AckTimeout)
}

// proceed admits and sends, as far as the window has room.
func (l *Leader) proceed() {
	for {
		for len(l.unsent) < 2 && l.admitNext() { // one frame is being filled
		}
		if l.troubled != nil || !l.send() {
			return
		}
	}
}

// admitNext decides on the append whose turn it is.
func (l *Leader) admitNext() bool {
	it, ok := l.waiting.next()
	if ok {
		l.events++
		l.admitAppend(&it)
	}
	return ok
}

// admit decides on one request at the cursor. An append waits for its turn; a fence and a question do not, and neither need
// they: appends that have no answer yet may come before or after them.
func (l *Leader) admit(it *item) {
	l.events++
	switch {
	case it.stop:
		for l.admitNext() {
		}
		l.stopping = true
	case it.append != nil && !l.stopping:
		l.waiting.add(*it)
	case it.append != nil:
		l.admitAppend(it)
	case l.stopping:
		l.refuse(it, &UnavailableError{Err: ErrStopped})
	case it.fence != nil && protocol.FenceInstalls(*it.fence, l.cursor.Token):
		l.admitFence(it)
	default:
		l.prove(standing(it.stands))
	}
}

func (l *Leader) refuse(it *item, err error) {
	it.release()
	if it.append != nil {
		it.appended(Result{Err: err})
	} else if it.stands != nil {
		it.stands(Standing{}, err)
	}
}

func standing(f func(Standing, error)) func(frame.State, error) {
	return func(s frame.State, err error) {
		f(Standing{Tail: s.Position(), Token: s.Token, Fence: s.Fence}, err)
	}
}

func (l *Leader) admitAppend(it *item) {
	a, done := it.append, it.appended
	// A leader that was started has proved its lead, and one that has lost it takes nothing more out of its queue.
	seen := protocol.AppendSeen{Leads: !l.stopping, Installed: l.cursor.Token, Fence: l.cursor.Fence, Cursor: l.cursor.Next}
	switch protocol.AdmitAppend(a.Append, seen) {
	case protocol.AppendAdmitted:
		l.join(a, waiter{held: it.held, done: done})
	case protocol.AppendMissed:
		match := a.Match
		it.release()
		l.afterAdmitted(func() {
			done(Result{Err: &MissedError{Match: match, Tail: l.committed.Position()}})
			call(l.o.Events.Missed)
		})
	case protocol.AppendFenced:
		it.release()
		l.prove(func(s frame.State, err error) {
			if err == nil {
				err = &FencedError{Installed: s.Token}
				call(l.o.Events.Refused)
			}
			done(Result{Err: err})
		})
	default:
		l.refuse(it, &UnavailableError{Err: ErrStopped})
	}
}

// join puts an admitted batch into the frame that is sent next, or into one behind it.
func (l *Leader) join(a *Append, w waiter) {
	now := max(l.o.Now().UnixMilli(), l.cursor.Timestamp)
	for i := range a.Records {
		a.Records[i].Timestamp = now
	}
	b := frame.Batch{Token: a.Token, HasMatch: a.HasMatch, Match: a.Match, Records: a.Records}
	size := frame.BatchSize(&b)
	k := l.open(size)
	k.f.Batches = append(k.f.Batches, b)
	k.size += size
	w.start = nova.Position{SeqNum: l.cursor.Next, Timestamp: now}
	l.cursor.Next += uint64(len(a.Records))
	l.cursor.Timestamp = now
	w.end = l.cursor.Position()
	k.appends = append(k.appends, w)
}

// open is the last unsent frame, if so many bytes fit into it, or a new one.
func (l *Leader) open(size int) *link {
	if n := len(l.unsent); n > 0 {
		if k := l.unsent[n-1]; !k.fence && !k.renews && k.size+size <= min(l.limit, fullFrame) {
			return k
		}
	}
	k := &link{f: frame.Frame{State: l.cursor}, size: frame.Head}
	l.unsent = append(l.unsent, k)
	return k
}

func (l *Leader) admitFence(it *item) {
	l.cursor.Token = *it.fence
	l.cursor.Fence++
	k := &link{f: frame.Frame{State: l.cursor}, fence: true}
	done := standing(it.stands)
	k.after = append(k.after, proof{asked: l.events, writes: true, f: func(s frame.State, err error) {
		if err == nil && l.o.Events.Fenced != nil {
			l.o.Events.Fenced(s.Token, s.Fence)
		}
		done(s, err)
	}})
	l.unsent = append(l.unsent, k)
}

// prove calls f when this leader's lead was confirmed by a write that is sent after now, with the state behind it.
func (l *Leader) prove(f func(frame.State, error)) {
	if len(l.unsent) == 0 {
		l.unsent = append(l.unsent, &link{f: frame.Frame{State: l.cursor}, renews: true})
	}
	k := l.unsent[len(l.unsent)-1]
	k.after = append(k.after, proof{asked: l.events, f: f})
}

// afterAdmitted calls f when everything that was admitted before has been settled, however that went.
func (l *Leader) afterAdmitted(f func()) {
	settled := proof{asked: l.events, f: func(frame.State, error) { f() }}
	switch {
	case len(l.unsent) > 0:
		k := l.unsent[len(l.unsent)-1]
		k.after = append(k.after, settled)
	case len(l.pending) > 0:
		k := l.pending[len(l.pending)-1]
		settled.asked = 0 // it proves nothing
		k.after = append(k.after, settled)
	default:
		f()
	}
}

// fullFrame is the size in bytes from which on nothing more joins a frame. A larger batch is a frame by itself.
const fullFrame = 256 << 10

// send sends what the window has room for, and says whether it sent something.
func (l *Leader) send() (sent bool) {
	flying := 0
	for _, k := range l.pending {
		flying += k.size
	}
	for len(l.unsent) > 0 && len(l.pending) < l.window && l.troubled == nil {
		if flying += l.unsent[0].size; flying > l.o.WindowBytes && len(l.pending) > 0 {
			break
		}
		sent = true
		k := l.unsent[0]
		l.unsent[0] = nil
		l.unsent = l.unsent[1:]
		l.pending = append(l.pending, k)
		l.sendLink(k)
	}
	if len(l.unsent) == 0 {
		l.unsent = nil
	}
	return sent
}

func (l *Leader) sendLink(k *link) {
	l.events++
	k.id, k.place, k.sent = l.nextID, l.last+1, l.events
	k.deadline = time.Now().Add(l.o.AckTimeout)
	k.answered, k.reply, k.err = false, protocol.FrameUnknown, nil
	l.nextID++
	slot := l.slot
	if k.hands {
		slot = len(l.epoch.Control) - 1
	}
	m := jslog.Message{Slot: slot, Control: l.epoch.Control[slot], Last: l.last, Renews: k.renews, HandsBack: k.hands}
	if !k.renews {
		k.f.Epoch = l.epoch.Number
		l.buf = frame.Append(l.buf[:0], &k.f)
		m.Payload = l.buf
	}
	if err := l.chain.Send(k.id, m); err != nil {
		k.answered, k.reply, k.err = true, protocol.FrameRefused, err
		l.troubled = err
		return
	}
	l.last++
	l.slot = (l.slot + 1) % len(l.epoch.Control)
}

// reply notes an answer of the log, and gives out what it settles, in order.
func (l *Leader) reply(r jslog.Reply) error {
	l.events++
	if len(l.pending) == 0 || r.ID < l.pending[0].id || r.ID-l.pending[0].id >= uint64(len(l.pending)) {
		return nil // of a message that was settled without it
	}
	k := l.pending[r.ID-l.pending[0].id]
	if k.answered {
		return nil
	}
	if r.Kind == protocol.FrameStored && r.Seq != k.place {
		return fmt.Errorf("%w: a frame is at log sequence %d and not at %d", jslog.ErrDamaged, r.Seq, k.place)
	}
	k.answered, k.reply, k.err = true, r.Kind, r.Err
	if r.Kind != protocol.FrameStored && l.troubled == nil {
		l.troubled = r.Err
	}
	for len(l.pending) > 0 && l.pending[0].answered && l.pending[0].reply == protocol.FrameStored {
		l.complete()
	}
	return nil
}

// complete gives out what waited for the oldest pending link, which is in the log.
func (l *Leader) complete() {
	k := l.pending[0]
	l.pending[0] = nil
	l.pending = l.pending[1:]
	l.moved()
	if !k.renews {
		l.committed = k.f.After()
	}
	tail := l.committed.Position()
	for _, w := range k.appends {
		w.release()
		w.done(Result{Start: w.start, End: w.end, Tail: tail})
	}
	l.tellCommitted(k)
	for _, p := range k.after {
		var err error
		if !protocol.ProofCovers(protocol.Proof{Sent: k.sent}, p.asked) {
			err = &UnavailableError{Err: ErrUnproved}
		}
		p.f(l.committed, err)
	}
}

// abandon fails what waited for a link that is not in the log, or may not be.
func (l *Leader) abandon(k *link, indefinite bool, why error) {
	for _, w := range k.appends {
		w.release()
		w.done(Result{Err: &UnavailableError{Err: why, Indefinite: indefinite}})
	}
	if indefinite && len(k.appends) > 0 && l.o.Events.Indefinite != nil {
		l.o.Events.Indefinite(len(k.appends))
	}
	for _, p := range k.after {
		p.f(l.committed, &UnavailableError{Err: why, Indefinite: indefinite && p.writes})
	}
}

// end fails all that is left.
func (l *Leader) end(err error) {
	for _, k := range l.pending {
		l.abandon(k, !k.answered || k.reply != protocol.FrameRefused, err)
	}
	for _, k := range l.unsent {
		l.abandon(k, false, err)
	}
	l.pending, l.unsent = nil, nil
	l.mu.Lock()
	l.closed, l.err = true, err
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for it, ok := l.waiting.next(); ok; it, ok = l.waiting.next() {
		l.refuse(&it, &UnavailableError{Err: err})
	}
	for i := range queue {
		l.refuse(&queue[i], &UnavailableError{Err: err})
	}
	_ = l.chain.Close() // its replies are of no use any more
	close(l.ended)
}
