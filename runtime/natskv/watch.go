package natskv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// watch is one consumer's generation: whatever ends it, the next one begins at the reader's cursor. The connection's
// goroutine puts deliveries into in; the reader's goroutine hands them out from out.
type watch struct {
	b           *Bucket
	req         kv.OpenRequest
	info        kv.LogInfo
	createdNano int64
	exact       bool // the server's filter is the whole scope
	relist      bool
	listing     bool // a re-list that is read to its end and no further
	consumer    string
	inbox       string
	nextSubject string
	pullBody    []byte
	sub         *nats.Subscription
	status      chan nats.Status
	wake        chan struct{} // holds one signal: there is something for Next
	probes      context.Context
	stopProbes  context.CancelFunc
	probing     sync.WaitGroup
	ageLimit    atomic.Int64 // the lowest age limit that was read, as kv.Retention has it
	evicts      atomic.Bool  // the log could evict current values when it was last looked at, or at any time before

	mu sync.Mutex
	inflow
	claim   *claim
	probeOn bool
	lost    error

	outflow
}

// inflow is what has come from the server and not yet gone to the reader; the watch's lock guards it.
type inflow struct {
	parser      ackParser
	in          []kv.Update
	inBytes     int
	received    uint64 // deliveries, without a hole
	lastRev     uint64 // of the last of them whose revision is known; at first the cursor
	lastNano    int64  // its time
	pending     uint64 // matching messages that the server had left after it
	gapped      bool   // a revision was left out since the reader's last look
	activity    uint64 // goes up with everything heard or asked
	epoch       uint64 // of the requests in flight; a new connection begins a new one
	outstanding int    // messages asked for and not yet seen
	// cutAt is when the watch began to be given messages again, until one came or the head was read since.
	cutAt     time.Time
	behind    bool // what came in begins after a cut
	pulledAt  time.Time
	oversized bool // the next message is larger than a request may be
}

// outflow belongs to the reader's goroutine.
type outflow struct {
	out       []kv.Update
	at        int // what is left is out[at:]
	outEnd    mark
	outBehind bool   // out, or the frontier after it, comes after a cut
	handed    mark   // everything up to here has been handed out
	told      uint64 // the frontier and the pending count that the reader knows
	toldLeft  uint64
	toldNano  int64     // the mark's time as the reader knows it
	checkAt   time.Time // the last look at the log's first revision
	heard     uint64    // activity as last seen, and since when
	heardAt   time.Time
	arrived   uint64 // deliveries as last seen, and since when
	arrivedAt time.Time
	dataAt    time.Time
	probedAt  time.Time
	probed    uint64        // deliveries received when the last probe began
	hold      time.Duration // until what came in may be looked at
	timer     *time.Timer
	err       error // the watch's last word
}

// mark is a place in the deliveries.
type mark struct {
	received, rev, pending uint64
	nano                   int64 // a server time before the next one was written; 0 is not known
}

// pass moves the mark to a later revision, or tells it a later time at which its revision was still the last one.
func (m *mark) pass(rev uint64, nano int64) {
	if rev > m.rev || rev == m.rev && nano > m.nano {
		m.rev, m.nano = rev, nano
	}
}

var errClosed = errors.New("closed")

// Info is the log as it was when the watch began.
func (w *watch) Info() kv.LogInfo { return w.info }

// Next blocks until there is something to tell; see kv.Watch.
func (w *watch) Next(ctx context.Context, into kv.Delivery, limit, maxBytes int) (kv.Delivery, error) {
	if w.err != nil {
		return into, w.err
	}
	limit = max(limit, 1)
	for {
		d, ok, err := w.take(ctx, into, limit, maxBytes)
		if err == nil && !ok {
			err = w.await(ctx)
		}
		if err != nil {
			w.err = err
			return into, err
		}
		if ok {
			return d, nil
		}
	}
}

// take hands out what is there; ok is false when there is neither an update nor a new frontier.
func (w *watch) take(ctx context.Context, d kv.Delivery, limit, maxBytes int) (_ kv.Delivery, ok bool, err error) {
	if w.at == len(w.out) {
		gapped, held, lost := w.swap()
		if held {
			return d, false, nil
		}
		if err := w.guard(ctx, gapped); err != nil {
			return d, false, err
		}
		if len(w.out) == 0 && lost != nil {
			return d, false, lost
		}
	}
	from := w.at
	for size := 0; w.at < len(w.out) && w.at-from < limit; w.at++ {
		u := &w.out[w.at]
		if size += u.Size(); size > maxBytes && w.at > from {
			break
		}
		d.Updates = append(d.Updates, *u)
		w.handed.pass(u.Version.Rank(), u.UnixNano)
		*u = kv.Update{}
	}
	if w.at == len(w.out) {
		w.handed.received = w.outEnd.received
		w.handed.pass(w.outEnd.rev, w.outEnd.nano)
		if err := w.useClaim(); err != nil && w.at == from {
			return d, false, err
		}
	}
	d.Pending = w.outEnd.pending + uint64(len(w.out)-w.at)
	stands := w.handed.nano-w.toldNano >= standEvery.Nanoseconds()
	if w.at == from && w.handed.rev <= w.told && !stands && (d.Pending > 0 || w.toldLeft == 0) {
		return d, false, nil
	}
	if w.at > from {
		w.dataAt = time.Now()
	}
	w.told, w.toldLeft, w.toldNano = w.handed.rev, d.Pending, w.handed.nano
	d.Stood = kv.Stood{Revision: w.handed.rev, UnixNano: w.handed.nano}
	d.Behind = w.outBehind
	d.Frontier = w.told
	return d, true, nil
}

// swap takes over what came in, and asks for more now that there is room. On a log that evicts, what came after a gap
// is held until the next look at the log is due; on any other a gap loses nothing, and the look waits for its time.
func (w *watch) swap() (gapped, held bool, lost error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = 0
	look := w.gapped && w.mustGuard(w.lastRev)
	if since := time.Since(w.checkAt); look && w.lost == nil && w.evicts.Load() {
		if w.hold = guardPace - since; w.hold > 0 {
			return false, true, nil
		}
	} else if look && since < settingsPace {
		look = false
	}
	w.out, w.in = w.in, w.out[:0]
	w.outBehind, w.behind = w.behind, false
	if w.outstanding == 0 && w.received > 0 {
		w.cutAt = time.Now() // the reader was so slow that nothing more was asked for
	}
	w.at, w.inBytes = 0, 0
	w.outEnd = mark{received: w.received, rev: w.lastRev, pending: w.pending, nano: w.lastNano}
	w.gapped = w.gapped && !look
	w.pullLocked()
	return look, false, w.lost
}

// await waits for a signal, and does what time and the connection ask for.
func (w *watch) await(ctx context.Context) error {
	w.startProbe()
	wait := min(w.b.cfg.Watch.Heartbeat/2, w.b.cfg.Watch.ProbeEvery, time.Second)
	if w.told < w.info.Last || w.toldLeft > 0 {
		wait = min(wait, hydrateProbeEvery)
	}
	if w.hold > 0 {
		wait = min(wait, w.hold)
	}
	if w.timer == nil {
		w.timer = time.NewTimer(wait)
	} else {
		w.timer.Reset(wait)
	}
	defer w.timer.Stop()
	select {
	case <-w.wake:
	case <-w.timer.C:
		return w.checkAlive()
	case s, open := <-w.status:
		if open {
			w.onConnection(s)
		}
	case <-ctx.Done():
		return fmt.Errorf("bucket %q: watch: %w", w.b.name, ctx.Err())
	}
	return nil
}

// checkAlive ends a watch that has requests in flight and hears nothing, and one whose deliveries went missing.
func (w *watch) checkAlive() error {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.activity != w.heard {
		w.heard, w.heardAt = w.activity, now
	}
	if w.received != w.arrived {
		w.arrived, w.arrivedAt = w.received, now
	}
	quiet := now.Sub(w.heardAt)
	if w.outstanding > 0 && quiet > 5*w.b.cfg.Watch.Heartbeat/2 {
		w.loseLocked(fmt.Sprintf("heard nothing for %v", quiet.Round(time.Millisecond)), nil)
	}
	if c := w.claim; c != nil && c.delivered > w.received && now.Sub(c.at) > deliveryGrace && now.Sub(w.arrivedAt) > deliveryGrace {
		w.loseLocked(fmt.Sprintf("the server delivered %d messages, %d arrived", c.delivered, w.received), nil)
	}
	return nil
}

// onConnection begins again with the requests after a reconnect: those in flight are gone, and the probe finds out
// whether deliveries went with them.
func (w *watch) onConnection(s nats.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s {
	case nats.CLOSED:
		w.loseLocked("connection closed", nats.ErrConnectionClosed)
	case nats.CONNECTED:
		w.epoch++
		w.outstanding = 0
		w.cutAt = time.Now()
		w.pullLocked()
		w.probedAt = time.Time{}
		w.probed = unprobed
	}
}

// loseLocked ends the watch after what is still in the buffer.
func (w *watch) loseLocked(why string, cause error) {
	if w.lost == nil {
		w.lost = &lostError{bucket: w.b.name, why: why, err: cause}
		w.signal()
	}
}

func (w *watch) lose(why string, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loseLocked(why, cause)
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close ends the watch and deletes its consumer within ctx. A blocked Next returns. A consumer that can't be reached is
// left to its inactive threshold.
func (w *watch) Close(ctx context.Context) error {
	w.lose("closed by its reader", errClosed)
	w.stopProbes()
	w.probing.Wait()
	if w.status != nil {
		w.b.api.nc.RemoveStatusListener(w.status)
	}
	if err := w.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("bucket %q: close watch: %w", w.b.name, err)
	}
	if !w.b.api.nc.IsConnected() {
		return nil
	}
	err := w.b.api.deleteConsumer(ctx, w.b.stream, w.consumer)
	if code := apiCode(err); code == codeConsumerNotFound || code == codeStreamNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bucket %q: close watch: %w", w.b.name, err)
	}
	return nil
}
