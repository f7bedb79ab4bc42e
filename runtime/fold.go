package fold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Fold is a running fold of one bucket. It is safe for concurrent use.
type Fold struct {
	store  store.Store
	bucket string
	o      Options
	sink   *tableSink
	loop   *loop

	closing  sync.Once
	closeErr error
	shut     atomic.Bool // no read begins any more

	mu       sync.Mutex
	view     loopView
	stopped  bool
	stopErr  error
	hydrated chan struct{} // closed once
	ended    chan struct{} // closed when the loop has stopped
	moved    chan struct{} // closed and replaced at each commit that somebody waits for
	waiters  int
}

// loopView is the loop's state as of its last step.
type loopView struct {
	state     State
	committed kv.Cursor
	failures  int
	head      uint64
	pending   uint64
	watchErr  error
	owed      kv.Owed
	unproven  bool
	report    *RepairReport
	audit     *RepairReport
	since     time.Time // when state began
	lastApply time.Time
}

func (f *Fold) begin(b kv.Bucket) {
	f.hydrated, f.ended, f.moved = make(chan struct{}), make(chan struct{}), make(chan struct{})
	resume := f.store.Cursor()
	owed, _ := store.OwedOf(f.store) // the loop reads it again, and stops on the error
	f.view = loopView{state: StateOpening, committed: resume, owed: owed, since: time.Now()}
	events := f.o.Events
	user := events.Hydrated
	events.Hydrated = func(c Cursor) {
		f.sink.hydrated.Store(true)
		close(f.hydrated)
		if user != nil {
			user(c)
		}
	}
	f.loop = newLoop(loopConfig{
		watcher: b, reader: b, repair: f.o.Repair, scope: f.o.Scope, store: f.store, resume: resume, sink: f.sink, fits: f.sink.fits,
		machine: f.o.Batch.machineConfig(true), window: f.o.Batch.Window, deadline: f.o.ShutdownTimeout,
		onApplied: f.o.OnApplied, events: events, log: f.o.Logger.With("bucket", f.bucket), onStep: f.stepped,
	})
	go f.run()
}

func (f *Fold) run() {
	cursor, err := f.loop.run()
	f.mu.Lock()
	f.stopped, f.stopErr = true, err
	f.view.committed = cursor
	if f.view.state != StateStopped {
		f.view.state, f.view.since = StateStopped, time.Now()
	}
	f.mu.Unlock()
	for _, t := range f.sink.tables {
		t.stop(f.stopError())
	}
	if err != nil {
		f.o.Logger.Error("fold: stopped", "bucket", f.bucket, "cursor", cursor.String(), "err", err)
	}
	if fn := f.o.Events.Stopped; fn != nil {
		fn(cursor, err)
	}
	close(f.ended)
}

// stepped copies the loop's state, on the loop's goroutine.
func (f *Fold) stepped(l *loop) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := loopView{state: stateOf(l.m.Phase(), l.m.Hydrated(), l.lastErr), committed: l.m.Committed(), failures: l.m.Failures(), head: l.head, pending: l.more.Load(),
		watchErr: l.lastErr, since: f.view.since, lastApply: f.view.lastApply, report: l.mending.report, audit: l.mending.auditReport}
	v.owed, v.unproven = l.m.Owed()
	if v.state != f.view.state {
		v.since = time.Now()
	}
	if v.committed != f.view.committed {
		v.lastApply = time.Now()
		if f.waiters > 0 {
			close(f.moved)
			f.moved = make(chan struct{})
		}
	}
	f.view = v
}

func (f *Fold) stopError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &StoppedError{Cursor: f.view.committed, Err: f.stopErr}
}

// WaitHydrated waits until the fold has all that the log held when its watch began. It fails with ErrStopped when the
// fold stops before.
func (f *Fold) WaitHydrated(ctx context.Context) error {
	select {
	case <-f.hydrated:
		return nil
	default:
	}
	select {
	case <-f.hydrated:
		return nil
	case <-f.ended:
		return fmt.Errorf("wait hydrated: %w", f.stopError())
	case <-ctx.Done():
		return fmt.Errorf("wait hydrated: %w (%s)", ctx.Err(), f.Status().progress())
	}
}

// WaitApplied waits until reads see everything up to a revision, such as the one that a write returned.
func (f *Fold) WaitApplied(ctx context.Context, rev Revision) error {
	want := rev.Seq()
	for {
		f.mu.Lock()
		done, moved := f.view.committed.Revision() >= want, f.moved
		if !done {
			f.waiters++
		}
		f.mu.Unlock()
		if done {
			return nil
		}
		err := f.waitMoved(ctx, moved)
		f.mu.Lock()
		f.waiters--
		f.mu.Unlock()
		if err != nil {
			return fmt.Errorf("wait for revision %d: %w", want, err)
		}
	}
}

func (f *Fold) waitMoved(ctx context.Context, moved <-chan struct{}) error {
	select {
	case <-moved:
		return nil
	case <-f.ended:
		f.mu.Lock()
		defer f.mu.Unlock()
		select {
		case <-moved: // the last commit came before the end
			return nil
		default:
			return &StoppedError{Cursor: f.view.committed, Err: f.stopErr}
		}
	case <-ctx.Done():
		return fmt.Errorf("%w (%s)", ctx.Err(), f.Status().progress())
	}
}

// Done is closed when the fold has stopped; Err says why.
func (f *Fold) Done() <-chan struct{} { return f.ended }

// Err is why the fold stopped: nil while it runs, and after a Close that committed all that was received.
func (f *Fold) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopErr
}

// Cursor is the committed cursor: what reads see.
func (f *Fold) Cursor() Cursor { return f.store.Cursor() }

// Close commits what was received, within Options.ShutdownTimeout, and closes the store. It returns a *ShutdownError
// when that did not finish in time; what is missing comes again at the next start. What stopped the fold earlier is
// not repeated here: Err has it. Reads that are under way get ShutdownTimeout to end, and none begins any more; a Snapshot
// that is left open makes the closing of the store fail. A second call returns what the first did.
func (f *Fold) Close() error {
	f.closing.Do(func() {
		f.loop.shutdown()
		<-f.ended
		err := f.Err()
		var late *ShutdownError
		if !errors.As(err, &late) {
			err = nil
		}
		if storeErr := f.closeStore(); storeErr != nil {
			err = errors.Join(err, fmt.Errorf("close store: %w", storeErr))
		}
		f.closeErr = err
	})
	return f.closeErr
}

// closeStore closes the store, which refuses while reads are under way: those get as long as the last flush did.
func (f *Fold) closeStore() error {
	f.shut.Store(true)
	for _, t := range f.sink.tables {
		t.base().shut.Store(true)
	}
	const every = 5 * time.Millisecond
	deadline := time.Now().Add(f.o.ShutdownTimeout)
	err := f.store.Close()
	for errors.Is(err, store.ErrBusy) && time.Now().Before(deadline) {
		time.Sleep(every)
		err = f.store.Close()
	}
	return err
}

// Export writes the fold as an artifact to dir, which must be absent or an empty folder, in a folder that is there: best
// one on the store's file system, where Pebble's files are linked and not copied. Under that name it is whole, or not
// there. It is exactly consistent with its manifest's cursor. Applies, a first Count and a Watch WithOld wait while the
// store writes its files, and not while they are checked and hashed.
func (f *Fold) Export(ctx context.Context, dir string) (artifact.Manifest, error) {
	p, err := artifact.Begin(dir, artifact.ExportOptions{})
	if err != nil {
		return artifact.Manifest{}, err
	}
	err = f.checkpoint(ctx, p)
	var m artifact.Manifest
	if err == nil {
		m, err = p.Finish(ctx)
	}
	return m, errors.Join(err, p.Abort())
}

func (f *Fold) checkpoint(ctx context.Context, p *artifact.Pending) error {
	f.sink.commits.Lock()
	defer f.sink.commits.Unlock()
	return p.Checkpoint(ctx, f.store)
}
