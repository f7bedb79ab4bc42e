package fold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// sink is what a loop feeds: tables, or a caller's parse and apply.
type sink interface {
	// prepare parses a segment's updates from a place on, on the receive goroutine, beside hooks and store.
	prepare(seg *segment, from int)
	// hooks runs the hooks of the segments' updates. It is called again for the same segments after an error.
	hooks(context.Context, []*segment) error
	// ops appends what is committed beside the raw updates. applied follows, whatever came of it.
	ops([]*segment, []store.Op) ([]store.Op, error)
	// applied is told how the commit went, on the goroutine of ops.
	applied(error)
	// committed is told that the segments are in the store, before the cursor is reported.
	committed([]*segment, kv.Cursor)
}

// segment is one receive's updates on their way. All but updates and bytes is the sink's own.
type segment struct {
	updates []kv.Update
	bytes   int
	passed  kv.Sample // the last message of a reserved key, which is not among updates

	parts     []part
	rejected  []rejectedUpdate // in order of their place
	unmatched []int32          // places of keys of no table
	parsed    any
	injected  *injection
}

// loopConfig is what a loop needs; store may be nil.
type loopConfig struct {
	watcher   kv.Watcher
	scope     kv.Scope
	store     store.Store
	resume    kv.Cursor
	known     kv.Incarnation // without a store
	sink      sink
	reader    repair.Log // nil without repairs
	repair    repair.Options
	fits      func(store.Snapshot) (repair.Fit, error) // nil takes any artifact
	machine   machine.Config
	window    time.Duration
	deadline  time.Duration
	onApplied func(Applied)
	events    Events
	log       *slog.Logger
	onStep    func(*loop) // after each step, on the loop's goroutine
}

// loop is the shell of machine.M: one goroutine with one inbox, which turns effects into calls on other goroutines and
// their results into inputs.
type loop struct {
	cfg   loopConfig
	m     *machine.M
	inbox chan event
	done  chan struct{} // closed when run returns
	quit  chan struct{} // closed to ask for a shutdown
	once  sync.Once

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // everything but the worker
	work   chan func() machine.Input
	idle   chan struct{} // closed when the worker has ended

	watch   *openWatch
	segs    map[uint64]*segment
	nextSeg uint64
	free    segmentPool
	log     incarnation
	mending mending
	applied progress
	flush   flushWork
	lastErr error     // why the watch was lost last
	lostAt  time.Time // when the last watch ended, while there is none
	stood   kv.Stood  // what the last watch told last
	head    uint64
	more    atomic.Uint64 // the log's last word on what is still to come
}

// event is one entry of the inbox: the machine's input, and what only the shell sees of it.
type event struct {
	in    machine.Input
	seg   *segment
	watch *openWatch
	stood kv.Stood // with WatchEnded

	report *repair.Report  // of a repair or an audit that has ended
	known  *kv.Incarnation // with Repaired
	listed uint64          // with Repaired: see repair.Outcome
	audit  uint64          // which audit injected this; 0 is the repair
}

// flushWork is the flush in progress.
type flushWork struct {
	segs         []*segment
	merged       []kv.Update
	ops          []store.Op
	owed         kv.Owed // in the store
	hooks, store time.Duration
}

func newLoop(cfg loopConfig) *loop {
	l := &loop{
		cfg:   cfg,
		inbox: make(chan event, 16),
		done:  make(chan struct{}),
		quit:  make(chan struct{}),
		work:  make(chan func() machine.Input, 1),
		idle:  make(chan struct{}),
		segs:  map[uint64]*segment{},
	}
	if cfg.canRepair() {
		l.cfg.machine.CanRepair = true
		l.mending.repairer = repair.New(cfg.reader, cfg.store, &folder{loop: l}, cfg.scope, cfg.repair)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// shutdown asks the loop to flush and stop; run returns within its deadline.
func (l *loop) shutdown() { l.once.Do(func() { close(l.quit) }) }

// run runs the loop until it stops. The cursor is the last committed one.
func (l *loop) run() (kv.Cursor, error) {
	defer close(l.done)
	known := l.cfg.known
	if l.cfg.store != nil {
		var err error
		if known, err = store.LogOf(l.cfg.store); err != nil {
			return l.cfg.resume, err
		}
		if l.flush.owed, err = store.OwedOf(l.cfg.store); err != nil {
			return l.cfg.resume, err
		}
	}
	l.log.set(known)
	l.applied.set(l.cfg.resume.Revision())
	go l.worker()
	l.beginMending()
	cursor, err := l.steps()
	l.cancel()
	close(l.work)
	l.await()
	return cursor, err
}

func (l *loop) steps() (kv.Cursor, error) {
	m, effects := machine.New(l.cfg.machine, l.cfg.resume, l.flush.owed)
	l.m = m
	quit := l.quit
	var deadline <-chan time.Time
	for {
		for _, e := range effects {
			if stop, ok := e.(machine.Stop); ok {
				l.closeWatch()
				l.stepped()
				return stop.Cursor, stop.Err
			}
			l.do(e)
		}
		l.stepped()
		effects = effects[:0]
		select {
		case ev := <-l.inbox:
			if in, ok := l.take(ev); ok {
				effects = m.Step(in, effects)
			}
		case <-quit:
			quit = nil
			t := time.NewTimer(l.cfg.deadline)
			defer t.Stop()
			deadline = t.C
			effects = m.Step(machine.Shutdown{}, effects)
		case <-deadline:
			l.cancel() // hooks see their context end
			effects = m.Step(machine.DeadlinePassed{}, effects)
		}
	}
}

func (l *loop) stepped() {
	if l.cfg.onStep != nil {
		l.cfg.onStep(l)
	}
}

// await waits for the loop's goroutines, within bounds: one may be inside a hook, a store or a watcher that does not
// heed its context, and ends by itself when that returns.
func (l *loop) await() {
	others := make(chan struct{})
	go func() {
		defer close(others)
		l.wg.Wait()
	}()
	if !endsWithin(others, closeTimeout+time.Second) || !endsWithin(l.idle, time.Second) {
		l.cfg.log.Warn("fold: a hook, the store or the watcher is still busy after the shutdown deadline")
	}
}

func endsWithin(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// take registers what came with an event, and gives the machine its part.
func (l *loop) take(ev event) (_ machine.Input, ok bool) {
	switch in := ev.in.(type) {
	case machine.Opened:
		l.watch = ev.watch
		l.endAudit()
		l.lastErr, l.lostAt = nil, time.Time{}
		l.log.opened(ev.watch.w.Info())
		l.mending.markers.Store(new(ev.watch.w.Info().Markers))
		l.mending.evicts.Store(ev.watch.w.Info().Retention.EvictsCurrentValues)
		if ev.watch.after.IsNone() {
			l.head = 0 // it may be another log than before
		}
		l.head = max(l.head, in.Head)
		if f := l.cfg.events.WatchOpened; f != nil {
			f(ev.watch.after, in.Head)
		}
		l.cfg.log.Info("fold: watch opened", "after", ev.watch.after.String(), "head", in.Head)
	case machine.OpenFailed:
		l.lost("no watch", in.Err)
	case machine.WatchEnded:
		l.lostAt, l.stood = time.Now(), ev.stood
		l.lost("watch lost", in.Err)
	case machine.Received:
		in.Segment.ID = l.register(ev.seg)
		l.head = max(l.head, in.Segment.High.Rank(), in.Segment.Frontier)
		return in, true
	case machine.Injected:
		if err := l.overtaken(ev.audit); err != nil {
			ev.seg.injected.end(err)
			return nil, false
		}
		in.Segment.ID = l.register(ev.seg)
		return in, true
	case machine.Repaired:
		return l.repaired(in, ev), true
	case machine.RepairFailed:
		l.repairFailed(in, ev)
	case machine.Audited:
		return l.audited(in, ev), true
	case machine.HooksDone:
		l.flushFailed(in.Err)
	case machine.StoreDone:
		l.flushFailed(in.Err)
	}
	return ev.in, true
}

func (l *loop) register(s *segment) uint64 {
	l.nextSeg++
	l.segs[l.nextSeg] = s
	return l.nextSeg
}

func (l *loop) lost(what string, err error) {
	if l.m.Phase() == machine.PhaseStopping {
		return // the loop ended it itself
	}
	l.lastErr = err
	if f := l.cfg.events.WatchLost; f != nil {
		f(err)
	}
	l.cfg.log.Warn("fold: "+what, "err", err)
}

func (l *loop) flushFailed(err error) {
	if err == nil {
		return
	}
	if f := l.cfg.events.FlushFailed; f != nil {
		f(err, l.m.Failures()+1)
	}
	l.cfg.log.Warn("fold: flush failed", "failures", l.m.Failures()+1, "err", err)
}

// do carries out one effect.
func (l *loop) do(e machine.Effect) {
	switch e := e.(type) {
	case machine.OpenWatch:
		l.open(e)
	case machine.CloseWatch:
		l.closeWatch()
	case machine.Receive:
		l.watch.requests <- e
	case machine.RunHooks:
		l.startFlush(e.Flush)
		l.submit(func() machine.Input { return l.runHooks() })
	case machine.ApplyStore:
		if l.m.TakingOver() {
			l.takeOver()
		}
		l.submit(func() machine.Input { return l.applyStore(e.Flush) })
	case machine.Committed:
		l.flushCommitted(e)
	case machine.CaughtUp:
		l.caughtUp(e)
	case machine.Arm:
		l.arm(e)
	case machine.Repair:
		l.startRepair(e)
	case machine.Audit:
		l.startAudit(e)
	}
}

func (l *loop) caughtUp(e machine.CaughtUp) {
	if e.First {
		l.cfg.log.Info("fold: hydrated", "cursor", e.Cursor.String())
		if f := l.cfg.events.Hydrated; f != nil {
			f(e.Cursor)
		}
	}
	if e.Bulk && l.cfg.store != nil {
		l.wg.Go(l.settle)
	}
	if e.Relisted {
		// What retention took between the re-list's beginning and now was not delivered.
		l.wg.Go(func() { l.readRetention(true) })
	}
}

// settle brings the store into shape after a hydrate, beside what goes on. Without it reads are right, and slower.
func (l *loop) settle() {
	began := time.Now()
	if err := l.cfg.store.Settle(l.ctx); err != nil && l.ctx.Err() == nil {
		l.cfg.log.Warn("fold: settle the store after hydrating", "err", err)
		return
	}
	l.cfg.log.Debug("fold: store settled", "took", time.Since(began))
}

func (l *loop) arm(a machine.Arm) {
	d := l.cfg.window
	switch a.Timer {
	case machine.TimerAudit:
		if d = l.auditPause(); d < 0 {
			return
		}
	case machine.TimerOpen, machine.TimerRetry:
		d = machine.Backoff(a.Attempt)
		d += time.Duration(rand.Int64N(int64(d)/2 + 1))
	}
	l.wg.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			l.post(event{in: machine.TimerFired{Timer: a.Timer}})
		case <-l.ctx.Done():
		case <-l.done:
		}
	})
}

// post puts an event into the inbox; false when the loop has ended.
func (l *loop) post(ev event) bool {
	select {
	case l.inbox <- ev:
		return true
	case <-l.ctx.Done():
		return false
	}
}

func (l *loop) worker() {
	defer close(l.idle)
	for job := range l.work {
		l.post(event{in: job()})
	}
}

func (l *loop) submit(job func() machine.Input) { l.work <- job }

// startFlush gathers the flush's segments; a retry finds them gathered.
func (l *loop) startFlush(f machine.Flush) {
	if len(l.flush.segs) > 0 {
		return
	}
	for _, id := range f.Segments {
		l.flush.segs = append(l.flush.segs, l.segs[id])
		delete(l.segs, id)
	}
}

func (l *loop) runHooks() (in machine.Input) {
	began := time.Now()
	err := l.prepareInjected()
	if err == nil {
		err = l.cfg.sink.hooks(l.ctx, l.flush.segs)
	}
	l.flush.hooks += time.Since(began)
	var halt *HaltError
	return machine.HooksDone{Err: err, Fatal: errors.As(err, &halt) || errors.Is(err, errParsePanicked)}
}

func (l *loop) applyStore(f machine.Flush) machine.Input {
	began := time.Now()
	err := l.apply(f)
	l.flush.store += time.Since(began)
	return machine.StoreDone{Err: err, Fatal: errors.Is(err, store.ErrPoisoned) || errors.Is(err, store.ErrClosed) || errors.Is(err, errPanicked)}
}

var errPanicked = errors.New("panicked")

func (l *loop) apply(f machine.Flush) (err error) {
	b := store.Batch{Bulk: f.Bulk}
	switch len(l.flush.segs) {
	case 0: // a cursor alone
	case 1:
		b.Updates = l.flush.segs[0].updates
	default:
		l.flush.merged = l.flush.merged[:0]
		for _, s := range l.flush.segs {
			l.flush.merged = append(l.flush.merged, s.updates...)
		}
		b.Updates = l.flush.merged
	}
	ops := l.log.appendOps(l.flush.ops[:0], l.flush.segs)
	if f.Owed != l.flush.owed {
		ops = append(ops, store.Op{Key: store.MetaKey(store.MetaOwed), Value: f.Owed.AppendBytes(nil)})
	}
	defer func() { l.cfg.sink.applied(err) }()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("store apply %w: %v\n%s", errPanicked, p, debug.Stack())
		}
	}()
	if ops, err = l.cfg.sink.ops(l.flush.segs, ops); err != nil {
		return err
	}
	l.flush.ops, b.Ops = ops, ops
	if err := l.cfg.store.Apply(l.ctx, &b, f.Cursor); err != nil {
		return fmt.Errorf("store apply: %w", err)
	}
	l.flush.owed = f.Owed
	return nil
}

// flushCommitted reports a flush that is done, and frees what it held.
func (l *loop) flushCommitted(c machine.Committed) {
	w := &l.flush
	l.cfg.sink.committed(w.segs, c.Flush.Cursor)
	if l.cfg.store == nil {
		l.log.sample(w.segs)
	}
	if f := l.cfg.onApplied; f != nil && c.Moved {
		a := Applied{Cursor: c.Flush.Cursor, Durable: c.Flush.Cursor, Updates: c.Flush.Updates}
		if l.cfg.store != nil {
			a.Durable = l.cfg.store.Durable()
		} else {
			a.Log = l.log.get()
		}
		f(a)
	}
	if f := l.cfg.events.Flushed; f != nil && (c.Moved || c.Flush.Updates > 0) {
		f(Flushed{Updates: c.Flush.Updates, Bytes: c.Flush.Bytes, Cursor: c.Flush.Cursor, Hooks: w.hooks, Store: w.store})
	}
	l.applied.set(c.Flush.Cursor.Revision())
	for _, s := range w.segs {
		s.injected.end(nil)
		l.free.put(s)
	}
	clear(w.merged)
	clear(w.ops)
	*w = flushWork{segs: w.segs[:0], merged: w.merged[:0], ops: w.ops[:0], owed: w.owed}
}
