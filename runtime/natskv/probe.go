package natskv

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

const (
	// hydrateProbeEvery is the pace while the reader does not have all that was there at the beginning.
	hydrateProbeEvery = 100 * time.Millisecond
	// deliveryGrace is how long a delivery that the server counts may be on its way.
	deliveryGrace = 3 * time.Second
	// guardPace limits how often a watch looks at the log's first revision; what came after a gap waits for it.
	guardPace = 20 * time.Millisecond
	// settingsPace is how often a busy watch of a log that evicts nothing makes sure that it still does not.
	settingsPace = time.Second
	// standEvery is how often a quiet watch tells that what it has is still all.
	standEvery = time.Minute
	// unprobed is a count of deliveries that no probe has seen.
	unprobed = math.MaxUint64
)

// claim is what a probe found out: the head was read first, then the consumer's counts, then the log's bounds.
type claim struct {
	head      uint64
	headNano  int64 // the server's time when it was read; 0 is not known
	pending   uint64
	delivered uint64
	waiting   int
	bounds    *jetstream.StreamInfo // nil when the head needs no guard
	at        time.Time
}

// startProbe asks where the log and the consumer are, when the reader has all that came and that does not tell it how
// far it is: at once when nothing is pending, and otherwise from time to time.
func (w *watch) startProbe() {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.probeOn || w.lost != nil || len(w.in) > 0 {
		return
	}
	hydrating := w.told < w.info.Last
	since := now.Sub(w.probedAt)
	switch {
	case hydrating && w.pending == 0 && w.probed != w.received:
	case (hydrating || w.pending > 0) && since >= hydrateProbeEvery && now.Sub(w.dataAt) >= hydrateProbeEvery:
	case since >= w.b.cfg.Watch.ProbeEvery && now.Sub(w.dataAt) >= w.b.cfg.Watch.ProbeEvery, w.probedAt.IsZero():
		hydrating = false
	default:
		return
	}
	w.probeOn, w.probedAt, w.probed = true, now, w.received
	head := uint64(0)
	if hydrating {
		head = w.info.Last
	}
	w.probing.Go(func() { w.probe(head, now) })
}

// probe asks; head is the log's last revision when that was read before, and else 0.
func (w *watch) probe(head uint64, asked time.Time) {
	c, err := w.ask(w.probes, head)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probeOn = false
	switch code := apiCode(err); {
	case code == codeStreamNotFound:
		w.loseLocked("the bucket is gone", kv.ErrBucketNotFound)
	case code == codeConsumerNotFound:
		w.loseLocked("the consumer is gone", err)
	case err == errReplaced:
		w.loseLocked("the bucket was re-created", nil)
	case err == nil:
		w.recountLocked(c.waiting, asked)
		w.claim = &c
		w.signal()
	}
}

// errReplaced is a stream under the same name that is another one.
var errReplaced = fmt.Errorf("replaced")

func (w *watch) ask(ctx context.Context, head uint64) (c claim, err error) {
	headTime := w.info.ServerTime
	if head == 0 {
		info, err := w.bounds(ctx)
		if err != nil {
			return claim{}, err
		}
		head, headTime = info.State.LastSeq, info.TimeStamp
	}
	state, err := w.b.api.consumerInfo(ctx, w.b.stream, w.consumer)
	if err != nil {
		return claim{}, err
	}
	c = claim{head: head, headNano: nanos(headTime), pending: state.NumPending, delivered: state.Delivered.Consumer, waiting: state.NumWaiting, at: time.Now()}
	if w.mustGuard(head) {
		if c.bounds, err = w.bounds(ctx); err != nil {
			return claim{}, err
		}
	}
	return c, nil
}

// bounds reads the stream, makes sure that it is still the watch's, and remembers whether it evicts.
func (w *watch) bounds(ctx context.Context) (*jetstream.StreamInfo, error) {
	info, err := w.b.api.streamInfo(ctx, w.b.stream)
	if err != nil {
		return nil, err
	}
	if info.Created.UnixNano() != w.createdNano {
		return nil, errReplaced
	}
	if evictsCurrentValues(&info.Config) {
		w.evicts.Store(true)
	}
	if limit := ageLimit(&info.Config).Nanoseconds(); limit < w.ageLimit.Load() {
		w.ageLimit.Store(limit)
	}
	return info, nil
}

// useClaim moves the frontier when the deliveries that the last probe saw have all been handed out.
func (w *watch) useClaim() error {
	w.mu.Lock()
	c := w.claim
	if c != nil && w.handed.received >= c.delivered {
		w.claim = nil
	}
	w.mu.Unlock()
	if c == nil || w.handed.received < c.delivered {
		return nil
	}
	w.outEnd.pending = c.pending
	if c.head <= w.handed.rev { // the next one was written after that was read
		w.handed.pass(w.handed.rev, c.headNano)
		return nil
	}
	// What was received beyond the probe's count is newer than its head, or was pending then, and then nothing moves.
	f := protocol.Frontier{Head: c.head, Pending: c.pending, Delivered: c.delivered, Received: w.handed.received, Current: w.handed.rev}
	if !protocol.FrontierMayAdvance(f) {
		return nil
	}
	if c.bounds != nil {
		if err := w.overrun(c.bounds); err != nil {
			return err
		}
	}
	w.handed.pass(c.head, c.headNano)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outBehind = w.outBehind || !w.cutAt.IsZero()
	if c.at.After(w.cutAt) {
		w.cutAt = time.Time{}
	}
	return nil
}

// mustGuard reports whether a gap before rev may be a loss: a re-list has gaps up to the head that it began at, and what
// goes while a listing runs is rightly not listed.
func (w *watch) mustGuard(rev uint64) bool { return !w.listing && (!w.relist || rev > w.info.Last) }

// guard looks at the log's first revision before revisions after a gap are handed out: what retention took from the
// head before it was delivered is an expiry, never a silent skip. It is exact for the whole bucket. In a filtered watch
// every other key is a gap, so a head that passed the last revision handed out counts as a loss there.
func (w *watch) guard(ctx context.Context, gapped bool) error {
	if !gapped || !w.mustGuard(w.outEnd.rev) {
		return nil
	}
	ctx, cancel := w.b.deadline(ctx)
	defer cancel()
	info, err := w.bounds(ctx)
	switch {
	case err == errReplaced:
		return &lostError{bucket: w.b.name, why: "the bucket was re-created"}
	case err != nil:
		return &lostError{bucket: w.b.name, why: "a gap in the revisions can't be checked", err: err}
	}
	w.checkAt = time.Now()
	return w.overrun(info)
}

// overrun is the window kernel on a watch that has everything up to what it handed out. A re-list owes nothing below
// the head that it began at. Where the log evicts nothing, and where all that may be missing is too young to have aged
// out, the head moves by supersession only.
func (w *watch) overrun(now *jetstream.StreamInfo) error {
	base := w.handed
	if w.relist {
		base.pass(w.info.Last, nanos(w.info.ServerTime))
	}
	if !protocol.LiveGapIsExpiry(w.evicts.Load(), base.rev, now.State.FirstSeq) || gapIsYoung(now, base.nano, w.ageLimit.Load()) {
		return nil
	}
	return &kv.ExpiredError{Bucket: w.b.name, Cursor: kv.CursorAt(base.rev), First: now.State.FirstSeq}
}

// nanos is a time of the server; 0 when it is not known.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
