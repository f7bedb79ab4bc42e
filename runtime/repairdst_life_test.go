package fold_test

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
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// dstStore is the store of one life: it brings the schedule's fault, and looks at each commit.
type dstStore struct {
	store.Store
	w    *dstWorld
	dead bool
}

var (
	errDstCrash = fmt.Errorf("the process is gone: %w", store.ErrClosed)
	errDstDisk  = errors.New("the disk is sulking")
)

func (s *dstStore) Apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.dead {
		return errDstCrash
	}
	at := -1
	if w.measured {
		w.applies++
		at = w.applies - w.fault.at
	}
	switch {
	case w.fault.kind == dstTransient && at == 0, w.fault.kind == dstStuck && at >= 0 && at < 40:
		return errDstDisk
	case w.fault.kind == dstCrashBefore && at == 0:
		s.dead = true
		return errDstCrash
	}
	if err := s.Store.Apply(ctx, b, c); err != nil {
		return err
	}
	if err := w.commits(s.Store, c); err != nil && w.broken == nil {
		w.broken = err
	}
	switch {
	case w.fault.kind == dstCrashAfter && at == 0:
		s.dead = true
		return errDstCrash
	case w.fault.kind == dstShutdown && at == 0 && w.quit != nil:
		w.quit()
	}
	return nil
}

// commits checks what holds of every commit: the cursor does not go back, nor is the memo lost, and where the log still
// holds all that is after the cursor, and nothing is owed, the rows and that are the truth.
func (w *dstWorld) commits(s store.Store, c kv.Cursor) error {
	was := w.committed
	w.committed = c
	switch {
	case was.SeenEvicting && !c.SeenEvicting:
		return fmt.Errorf("commit at %v after %v: the memo is lost", c, was)
	case c.Revision() < was.Revision() && !(c.IsNone() && w.story.anyRevision):
		return fmt.Errorf("the cursor went from %v back to %v", was, c)
	}
	owed, err := store.OwedOf(s)
	if err != nil {
		return err
	}
	known, err := store.LogOf(s)
	if err != nil {
		return err
	}
	info, err := w.log.Info(context.Background())
	if err != nil {
		return err
	}
	other := known.CreatedUnixNano != 0 && known.CreatedUnixNano != info.Created.UnixNano()
	if c.IsNone() || owed.Why != 0 || other || c.Revision() > info.Last || !protocol.ResumeWindowOK(c.Revision(), info.First) || w.story.anyRevision || w.story.markersGo {
		return nil
	}
	rows, err := dstRows(s)
	if err != nil {
		return err
	}
	for _, u := range w.log.Retained() {
		switch {
		case u.Version.Rank() <= c.Revision() || !w.scope.Contains(u.Key):
		case u.Op == kv.OpPut:
			rows[u.Key] = dstRow(u.Version, u.Value)
		case u.Op.Removes():
			delete(rows, u.Key)
		}
	}
	diff := dstDiff(rows, w.truth())
	if now, err := w.log.Info(context.Background()); err != nil || now.First != info.First || now.Last != info.Last || now.Messages != info.Messages {
		return err // the log has moved on while it was read
	}
	if diff != "" {
		return fmt.Errorf("commit at %v: rows and what is after them are not the truth: %s", c, diff)
	}
	return nil
}

func dstRow(v kv.Version, value []byte) string { return fmt.Sprintf("%d=%x", v.Rank(), value) }

// dstRows are a store's rows, with revision and value.
func dstRows(g store.Getter) (map[string]string, error) {
	it, err := g.Iter(store.IterOptions{Lower: []byte{byte(store.SpaceData)}, Upper: []byte{byte(store.SpaceData) + 1}})
	if err != nil {
		return nil, err
	}
	rows := map[string]string{}
	for it.Next() {
		b, err := it.Value()
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		r, err := store.ParseRecord(b)
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		rows[store.NATSKey(it.Key())] = dstRow(r.Version, r.Value)
	}
	return rows, errors.Join(it.Err(), it.Close())
}

// truth is every write minus every real delete, and what is out of scope.
func (w *dstWorld) truth() map[string]string {
	rows := maps.Clone(w.foreign)
	for key, e := range w.log.Truth(w.scope, 1<<62) {
		rows[key] = dstRow(e.Version, e.Value)
	}
	return rows
}

func dstDiff(got, want map[string]string) string {
	var diff []string
	for k, v := range got {
		if want[k] != v {
			diff = append(diff, fmt.Sprintf("%s is %q, want %q", k, v, want[k]))
		}
	}
	for k, v := range want {
		if _, ok := got[k]; !ok {
			diff = append(diff, fmt.Sprintf("%s is missing, want %q", k, v))
		}
	}
	return strings.Join(diff, "; ")
}

// dstDomain is what a consumer builds from what its hooks see, in one life.
type dstDomain struct {
	w    *dstWorld
	rows map[string]uint64
	high map[string]uint64 // the latest revision seen of each key
}

func (d *dstDomain) loaded(key string, rev uint64) { d.rows[key], d.high[key] = rev, rev }

// sees takes one change, and checks that no key goes back and that no repair deletes a current value.
func (d *dstDomain) sees(key string, op kv.Op, reason kv.Reason, rev uint64) {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(format string, args ...any) {
		if w.broken == nil {
			w.broken = fmt.Errorf("hooks: %s at %d: %s", key, rev, fmt.Sprintf(format, args...))
		}
	}
	if rev == 0 && reason != kv.ReasonRepair {
		fail("%v without a revision, for %v", op, reason)
	}
	if rev != 0 && !w.story.anyRevision {
		if rev < d.high[key] {
			fail("%v after revision %d", op, d.high[key])
		}
		d.high[key] = rev
	}
	switch {
	case op == kv.OpPut:
		d.rows[key] = rev
	case op.Removes():
		current, ok := w.log.Truth(w.scope, 1<<62)[key]
		if ok && reason == kv.ReasonRepair && current.Version.Rank() == d.rows[key] && !w.story.anyRevision {
			fail("a repair deletes the current value, of revision %d", d.rows[key])
		}
		delete(d.rows, key)
	}
}

// dstFace is a running fold.
type dstFace struct {
	ended <-chan struct{}
	err   func() error
	stop  func() error // and close the store
}

// start begins a life.
func (w *dstWorld) start() (*dstFace, error) {
	s, err := w.disk.open()
	if err != nil {
		return nil, err
	}
	w.store = &dstStore{Store: s, w: w}
	w.domain = &dstDomain{w: w, rows: map[string]uint64{}, high: map[string]uint64{}}
	if c := s.Cursor(); w.lives > 0 && !c.IsNone() && c != w.committed {
		return nil, errors.Join(fmt.Errorf("the store is at %v, %v was committed", c, w.committed), s.Close())
	}
	w.lives++
	w.committed, w.quit = s.Cursor(), nil
	bucket := &dstBucket{Log: w.log, w: w}
	o := w.story.repair
	if len(w.artifacts) > 0 {
		o.Source = w
	}
	if o.AuditEvery == 0 {
		o.AuditEvery = -1
	}
	o.Chunk, o.Scratch = 2, w.dir
	events := fold.Events{RepairDone: w.reported, AuditDone: w.reported}
	batch := fold.BatchOptions{Max: w.max}
	if w.face == "fold" {
		return w.startFold(bucket, fold.Options{Scope: w.scope, Repair: o, Events: events, Batch: batch, Logger: quiet})
	}
	return w.startApplied(fold.WatchConfig{Watcher: bucket, Reader: bucket, Scope: w.scope, Repair: o, Events: events, Batch: batch, Logger: quiet})
}

func (w *dstWorld) reported(r *fold.RepairReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.plans); n > 0 && w.again { // the try before is no repair of its own
		w.plans = w.plans[:n-1]
	}
	w.again = r.Error != "" && !strings.HasPrefix(r.Plan, "audit") && !strings.Contains(r.Error, fold.ErrRepairRefused.Error())
	w.reports = append(w.reports, r)
	w.plans = append(w.plans, r.Plan)
}

func (w *dstWorld) startFold(bucket kv.Bucket, o fold.Options) (*dstFace, error) {
	b := fold.NewBuilder(bucket, w.store, o)
	var err error
	w.routes, err = ft.RegisterRoute(b, ft.WithRouteHooks(ft.RouteHookFuncs{
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
	started := make(chan *fold.Fold, 1)
	w.mu.Lock()
	w.quit = sync.OnceFunc(func() { // it may be asked before Start has returned
		go func() {
			if f := <-started; f != nil {
				_ = f.Close()
			}
		}()
	})
	w.mu.Unlock()
	f, err := b.Start(context.Background())
	started <- f
	if err != nil {
		return nil, errors.Join(err, w.store.Close())
	}
	w.f = f
	return &dstFace{ended: f.Done(), err: f.Err, stop: f.Close}, nil
}

func (w *dstWorld) startApplied(c fold.WatchConfig) (*dstFace, error) {
	rows, err := dstRows(w.store)
	if err != nil {
		return nil, err
	}
	for key, row := range rows {
		var rev uint64
		if _, err := fmt.Sscanf(row, "%d=", &rev); err != nil {
			return nil, err
		}
		w.domain.loaded(key, rev)
	}
	c.Store = w.store
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
	return &dstFace{ended: ended, err: func() error { return end }, stop: func() error {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Hour):
			return errors.New("it does not end")
		}
		return w.store.Close()
	}}, nil
}

// live is one life: it ends when the fold is at rest at the log's head, or ends by itself.
func (w *dstWorld) live() (rested bool, err error) {
	f, err := w.start()
	if err != nil {
		return false, err
	}
	const every, most = 5 * time.Second, 1200
	looks, ended := 0, false
	for n := 0; n < most && looks < 4 && !ended; n++ {
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
		time.Sleep(every)
	}
	if looks < 4 && !ended {
		err = fmt.Errorf("after %v the fold is at %v of %d, with plans %q", most*every, w.store.Cursor(), w.head(), w.plans)
	}
	var rows map[string]string
	var rowsErr error
	if !ended {
		rows, rowsErr = dstRows(w.store)
	}
	domain := maps.Clone(w.domain.rows)
	stopErr := f.stop()
	w.mu.Lock()
	broken := w.broken
	w.mu.Unlock()
	if err = errors.Join(err, rowsErr, stopErr, f.err(), broken); err != nil || ended {
		return false, err
	}
	return true, w.ends(rows, domain)
}

// rests reports whether the fold seems to have nothing more to do.
func (w *dstWorld) rests() bool {
	info, err := w.log.Info(context.Background())
	owed, owedErr := store.OwedOf(w.store)
	known, knownErr := store.LogOf(w.store)
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(err, owedErr, knownErr) == nil && w.armed == 0 && w.store.Cursor().Revision() == info.Last &&
		known.CreatedUnixNano == info.Created.UnixNano() && (owed.Why == 0 || !w.story.settlesOwed)
}

// ends checks a fold that is at rest: store and domain are the truth.
func (w *dstWorld) ends(rows map[string]string, domain map[string]uint64) error {
	if diff := dstDiff(rows, w.truth()); diff != "" {
		return fmt.Errorf("the fold is not the truth: %s", diff)
	}
	for key, row := range rows {
		if rev := domain[key]; !strings.HasPrefix(row, fmt.Sprint(rev, "=")) {
			return fmt.Errorf("hooks made %s %d, the fold has %s", key, rev, row)
		}
	}
	if len(domain) != len(rows) {
		return fmt.Errorf("hooks made %v, the fold has %v", domain, rows)
	}
	return nil
}
