package dst

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// domain is what a consumer builds from what its hooks see, in one life.
type domain struct {
	w    *world
	rows map[string]uint64
	high map[string]uint64 // the latest revision seen of each key
}

func (d *domain) loaded(key string, rev uint64) { d.rows[key], d.high[key] = rev, rev }

// sees takes one change, and checks that no key goes back and that no repair deletes a current value.
func (d *domain) sees(key string, op kv.Op, reason kv.Reason, rev uint64) {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(format string, args ...any) {
		w.breaks(fmt.Errorf("hooks: %s at %d: %s", key, rev, fmt.Sprintf(format, args...)))
	}
	if rev == 0 && reason != kv.ReasonRepair && !w.bent {
		fail("%v without a revision, for %v", op, reason)
	}
	if rev != 0 && !w.anyRevision() {
		if rev < d.high[key] && !w.bent {
			fail("%v after revision %d", op, d.high[key])
		}
		d.high[key] = rev
	}
	switch {
	case op == kv.OpPut:
		d.rows[key] = rev
	case op.Removes():
		if reason == kv.ReasonRepair && !w.anyRevision() {
			if current, ok := w.log.Truth(w.scope, 1<<62)[key]; ok && current.Version.Rank() == d.rows[key] {
				fail("a repair deletes the current value, of revision %d", d.rows[key])
			}
		}
		delete(d.rows, key)
	}
}

// face is a running fold.
type face struct {
	ended <-chan struct{}
	err   func() error
	stop  func() error // and close the store
}

// start begins a life.
func (w *world) start() (*face, error) {
	s, err := w.disk.open()
	if err != nil {
		return nil, err
	}
	w.store = &faultStore{Store: s, w: w}
	w.domain = &domain{w: w, rows: map[string]uint64{}, high: map[string]uint64{}}
	c := s.Cursor()
	if w.measured && w.tally.lives > 0 && !c.IsNone() && c != w.committed {
		return nil, errors.Join(fmt.Errorf("the store is at %v, %v was committed", c, w.committed), s.Close())
	}
	w.lives++
	w.committed, w.told, w.reported, w.quit = c, kv.Cursor{}, false, nil
	if w.measured {
		w.tally.lives++
	}
	o := w.story.repair
	if len(w.artifacts) > 0 {
		o.Source = w
	}
	if w.atLog != nil && logKinds[w.atLog.kind].lies {
		o.AuditEvery = 2 * lookEvery
	}
	if o.AuditEvery == 0 {
		o.AuditEvery = -1
	}
	o.AdoptNewLog = o.AdoptNewLog || w.atLog != nil && logKinds[w.atLog.kind].recreates
	o.Chunk, o.RunBytes, o.Scratch = 2, 16<<10, w.dir
	events := fold.Events{RepairDone: w.repaired, AuditDone: w.repaired}
	batch := fold.BatchOptions{Max: w.max}
	if w.order == orderWindow {
		batch.Window = window
	}
	b, top := w.plant.aBucket(&bucket{Log: w.log, w: w}), w.plant.aStore(w.store)
	if w.face == faceFold {
		return w.startFold(b, top, fold.Options{Scope: w.scope, Repair: o, Events: events, Batch: batch, OnApplied: w.applied, Logger: quiet})
	}
	return w.startApplied(fold.WatchConfig{Watcher: b, Store: top, Reader: b, Scope: w.scope, Repair: o, Events: events, Batch: batch, OnApplied: w.applied, Logger: quiet})
}

func (w *world) repaired(r *fold.RepairReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.plans); n > 0 && w.again { // the try before is no repair of its own
		w.plans = w.plans[:n-1]
	}
	w.again = r.Error != "" && !strings.HasPrefix(r.Plan, "audit") && !strings.Contains(r.Error, fold.ErrRepairRefused.Error())
	w.reports = append(w.reports, r)
	w.plans = append(w.plans, r.Plan)
	if w.measured && r.Error == "" {
		w.tally.plans[r.Plan]++
	}
}

// applied checks that no report of a life goes back, and none is of what was not committed.
func (w *world) applied(a fold.Applied) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, first := w.told, !w.reported
	w.told, w.reported = a.Cursor, true
	switch {
	case a.Cursor.Revision() < was.Revision() && !w.anyRevision():
		w.breaks(fmt.Errorf("applied %v was reported after %v", a.Cursor, was))
	case a.Cursor != w.committed:
		w.breaks(fmt.Errorf("applied %v was reported, %v is committed", a.Cursor, w.committed))
	}
	if w.export && first && w.measured {
		w.exports.ask(w)
	}
}

func (w *world) startFold(b kv.Bucket, top store.Store, o fold.Options) (*face, error) {
	builder := fold.NewBuilder(b, top, o)
	var err error
	w.routes, err = ft.RegisterRoute(builder, ft.WithRouteHooks(ft.RouteHookFuncs{
		Load: func(_ context.Context, rows iter.Seq2[ft.RouteRow, error]) error {
			for row, err := range rows {
				if err != nil {
					return err
				}
				w.domain.loaded(row.Key.String(), row.Rev.Seq())
			}
			return nil
		},
		Apply: func(_ context.Context, events []ft.RouteEvent) error {
			for i := range events {
				w.domain.sees(events[i].Key.String(), events[i].Op, events[i].Reason, events[i].Rev.Seq())
			}
			return nil
		},
	}))
	if err != nil {
		return nil, err
	}
	started := make(chan struct{}) // what runs meanwhile may want the fold before Start has returned
	var f *fold.Fold
	var quitting sync.WaitGroup // a second Close would wait for the first one's lock, which stops the bubble's clock
	w.mu.Lock()
	w.exports.started, w.exports.fold = started, func() *fold.Fold { return f }
	w.quit = sync.OnceFunc(func() {
		quitting.Go(func() {
			if <-started; f != nil {
				_ = f.Close()
			}
		})
	})
	w.mu.Unlock()
	f, err = builder.Start(context.Background())
	close(started)
	if err != nil {
		w.exports.wait()
		return nil, errors.Join(err, top.Close())
	}
	w.f = f
	return &face{ended: f.Done(), err: f.Err, stop: func() error {
		w.exports.wait()
		quitting.Wait()
		return f.Close()
	}}, nil
}

func (w *world) startApplied(c fold.WatchConfig) (*face, error) {
	rows, err := rowsOf(w.store)
	if err != nil {
		return nil, err
	}
	for key, row := range rows {
		w.domain.loaded(key, row.rev)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var end error
	w.mu.Lock()
	w.quit = cancel
	w.mu.Unlock()
	go func() {
		defer close(ended)
		_, end = fold.WatchApplied(ctx, c, func(u *kv.Update) (kv.Update, bool) { return *u, true },
			func(_ context.Context, updates []kv.Update) error {
				for i := range updates {
					w.domain.sees(updates[i].Key, updates[i].Op, updates[i].Reason, updates[i].Version.Rank())
				}
				return nil
			})
	}()
	return &face{ended: ended, err: func() error { return end }, stop: func() error {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Hour):
			return errors.New("it does not end")
		}
		return c.Store.Close()
	}}, nil
}

const (
	lookEvery = 5 * time.Second
	// looksAtRest are how many looks in a row have to find a fold at rest, and looksAtOdds how many where the log has lied, so
	// that an audit has had its time.
	looksAtRest, looksAtOdds = 3, 6
	mostLooks                = 1200
)

// live is one life: it ends when the fold is at rest at the log's head, or ends by itself.
func (w *world) live() (rested bool, err error) {
	f, err := w.start()
	if err != nil {
		return false, err
	}
	looks, ended := 0, false
	for n := 0; n < mostLooks && looks < w.looks() && !ended; n++ {
		synctest.Wait()
		select {
		case <-f.ended:
			ended = true
			continue
		default:
		}
		if looks++; !w.rests() {
			looks = 0
		}
		time.Sleep(lookEvery)
	}
	if looks < w.looks() && !ended {
		err = fmt.Errorf("after %v the fold is at %v of %d, with plans %q", mostLooks*lookEvery, w.store.Cursor(), w.head(), w.plans)
	}
	return w.leave(f, ended, err)
}

func (w *world) looks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bent {
		return looksAtOdds
	}
	return looksAtRest
}

// leave ends a life, and looks at what it leaves.
func (w *world) leave(f *face, ended bool, err error) (rested bool, _ error) {
	var end ending
	var endErr error
	if !ended {
		end, endErr = w.ending()
	}
	stopErr := f.stop()
	w.mu.Lock()
	broken := w.broken
	w.mu.Unlock()
	if err = errors.Join(err, endErr, stopErr, f.err(), broken); err != nil || ended {
		return false, err
	}
	return true, w.ends(end)
}

// rests reports whether the fold seems to have nothing more to do.
func (w *world) rests() bool {
	info := w.bounds()
	w.mu.Lock()
	armed, bent := w.armed, w.bent
	w.mu.Unlock()
	if armed != 0 || bent || w.store.Cursor().Revision() != info.Last {
		return armed == 0 && bent && w.log.OpenWatches() > 0
	}
	if owed, err := store.OwedOf(w.store); err != nil || owed.Why != 0 && w.story.settlesOwed {
		return false
	}
	known, err := store.LogOf(w.store)
	return err == nil && known.CreatedUnixNano == info.Created.UnixNano()
}

// ending is a fold at rest.
type ending struct {
	rows   map[string]row
	domain map[string]uint64
	cursor kv.Cursor
	owed   kv.Owed
}

func (w *world) ending() (e ending, err error) {
	var owedErr error
	e.rows, err = rowsOf(w.store)
	e.owed, owedErr = store.OwedOf(w.store)
	w.mu.Lock()
	defer w.mu.Unlock()
	e.domain, e.cursor = maps.Clone(w.domain.rows), w.store.Cursor()
	return e, errors.Join(err, owedErr)
}

// ends checks a fold that is at rest: store and domain are the truth, and the cursor stands between the last revision in
// scope and the head. Where the log has lied, it may say instead that an audit is owed.
func (w *world) ends(e ending) error {
	w.owed = e.owed.Why
	truth := w.truth()
	if w.bent {
		unversioned(e.rows, truth)
	}
	diff := differ(e.rows, truth)
	if diff != "" && e.owed.Why != 0 && (w.bent || w.atLog != nil && w.story.saidOnce) {
		w.tally.owed++
		return nil
	}
	if diff != "" {
		return fmt.Errorf("the fold is not the truth: %s", diff)
	}
	for key, row := range e.rows {
		if rev := e.domain[key]; rev != row.rev && !(w.bent && rev == 0) {
			return fmt.Errorf("hooks made %s %d, the fold has %v", key, rev, row)
		}
	}
	if len(e.domain) != len(e.rows) {
		return fmt.Errorf("hooks made %v, the fold has %v", e.domain, e.rows)
	}
	if at := e.cursor.Revision(); !w.bent && (at < w.scopeHead() || at > w.head()) {
		return fmt.Errorf("the cursor is %d, the last revision in scope %d of %d", at, w.scopeHead(), w.head())
	}
	return nil
}

// unversioned gives rows without a revision, which a lie of the log leaves, the one that their value should have.
func unversioned(rows, truth map[string]row) {
	for key, r := range rows {
		if t := truth[key]; r.rev == 0 && r.value == t.value {
			rows[key] = t
		}
	}
}

// scopeHead is the last revision of a key in scope that the log holds.
func (w *world) scopeHead() (rev uint64) {
	for _, u := range w.log.Retained() {
		if w.scope.Contains(u.Key) {
			rev = max(rev, u.Version.Rank())
		}
	}
	return rev
}
