package fold_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// node is one fold through its lives.
type node struct {
	w        *world
	name     string
	batch    fold.BatchOptions
	rng      *rand.Rand
	disk     disk
	store    *faultStore
	tb       *tables
	received []kv.Update // up to the store's cursor, and what came since it was opened
	mu       sync.Mutex
	hooks    *hookMirror
	watch    *watchMirror
}

func (n *node) start() error {
	s, err := n.disk.open()
	if err != nil {
		return err
	}
	n.store = &faultStore{Store: s}
	kept := n.received[:0]
	for _, u := range n.received {
		if u.Version.Rank() <= s.Cursor().Revision() {
			kept = append(kept, u)
		}
	}
	n.received = kept
	n.w.note("fold %s starts at %v", n.name, s.Cursor())
	n.hooks = &hookMirror{rng: n.rng, rows: map[ft.RouteKey]*foldtestv1.Route{}, revs: map[ft.RouteKey]uint64{}}
	resident := []fold.TableOption{fold.Resident()}
	n.tb, err = tryStart(n.w.t, &recordingBucket{Log: n.w.log, n: n}, n.store, startOptions{
		fold:   fold.Options{Batch: n.batch},
		routes: []fold.TableOption{fold.Resident(), ft.WithRouteHooks(ft.RouteHookFuncs{Load: n.hooks.load, Apply: n.hooks.apply})},
		drop:   resident, sess: resident,
	})
	if err != nil {
		n.tb = nil
		return errors.Join(err, s.Close())
	}
	n.watch = watchRoutes(n.tb)
	return nil
}

func (n *node) stop() error {
	if n.tb == nil {
		return nil
	}
	n.mu.Lock()
	tb := n.tb
	n.tb = nil
	n.mu.Unlock()
	err := tb.f.Close()
	<-n.watch.done
	return errors.Join(err, n.watch.err, n.hooks.err)
}

func (n *node) restart() error {
	n.w.note("fold %s closes", n.name)
	if err := n.stop(); err != nil {
		return err
	}
	if n.w.rng.IntN(2) == 0 {
		return nil // it stays away until the next checkpoint
	}
	return n.start()
}

// crash goes on with what the disk would have if the process ended now.
func (n *node) crash() error {
	if n.tb == nil {
		return nil
	}
	n.w.note("fold %s crashes", n.name)
	synctest.Wait()
	if n.rng.IntN(2) == 0 {
		if err := n.store.Sync(n.w.t.Context()); err != nil {
			return err
		}
	}
	after, err := n.disk.crashed(n.rng)
	if err != nil {
		return err
	}
	if err := n.stop(); err != nil {
		return err
	}
	n.disk = after
	return n.start()
}

func (n *node) failApplies(times int) {
	if n.tb == nil {
		return
	}
	n.w.note("fold %s fails %d applies", n.name, times)
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	from := n.store.n
	n.store.apply = func(at int, _ *store.Batch, _ kv.Cursor) error {
		if at <= from+times {
			return errors.New("disk is sulking")
		}
		return nil
	}
}

func (n *node) digest(ctx context.Context) (fold.Digest, error) {
	snap, err := n.tb.f.Snapshot()
	if err != nil {
		return fold.Digest{}, err
	}
	d, err := snap.Digest(ctx)
	return d, errors.Join(err, snap.Close())
}

// recordingBucket notes what a fold receives.
type recordingBucket struct {
	*kvtest.Log
	n *node
}

func (b *recordingBucket) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	w, err := b.Log.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	return &recordingWatch{Watch: w, n: b.n}, nil
}

type recordingWatch struct {
	kv.Watch
	n *node
}

func (w *recordingWatch) Next(ctx context.Context, into kv.Delivery, limit, maxBytes int) (kv.Delivery, error) {
	d, err := w.Watch.Next(ctx, into, limit, maxBytes)
	if err == nil {
		w.n.mu.Lock()
		w.n.received = append(w.n.received, d.Updates...)
		w.n.mu.Unlock()
	}
	return d, err
}

// disk is where a store's files are.
type disk interface {
	open() (store.Store, error)
	crashed(*rand.Rand) (disk, error)
}

type fileDisk struct{ dir string }

func (d *fileDisk) open() (store.Store, error) {
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, err
	}
	return logstore.Open(filepath.Join(d.dir, "fold.log"), logstore.Options{Durability: logstore.None})
}

func (d *fileDisk) crashed(*rand.Rand) (disk, error) {
	b, err := os.ReadFile(filepath.Join(d.dir, "fold.log"))
	if err != nil {
		return nil, err
	}
	after := &fileDisk{dir: d.dir + "x"}
	if err := os.MkdirAll(after.dir, 0o755); err != nil {
		return nil, err
	}
	return after, os.WriteFile(filepath.Join(after.dir, "fold.log"), b, 0o644)
}

type memDisk struct{ fs *vfs.MemFS }

func (d *memDisk) open() (store.Store, error) {
	return pebblestore.Open("/fold", pebblestore.Options{FS: d.fs, Durability: pebblestore.None, CacheBytes: 1 << 20, MemTableBytes: 64 << 10, MinFreeBytes: -1, BallastBytes: -1})
}

func (d *memDisk) crashed(rng *rand.Rand) (disk, error) {
	return &memDisk{fs: d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})}, nil
}

// hookMirror keeps the routes as its hooks see them, and sometimes fails.
type hookMirror struct {
	rng      *rand.Rand
	rows     map[ft.RouteKey]*foldtestv1.Route
	revs     map[ft.RouteKey]uint64
	failures int
	again    bool // the batch came before, and may be in rows
	err      error
}

func (h *hookMirror) load(_ context.Context, rows iter.Seq2[ft.RouteRow, error]) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		h.rows[row.Key], h.revs[row.Key] = row.Value, row.Rev.Seq()
	}
	return nil
}

func (h *hookMirror) apply(_ context.Context, events []ft.RouteEvent) error {
	fails := h.failures < 3 && h.rng.IntN(12) == 0
	if h.failures++; fails && h.rng.IntN(2) == 0 {
		return errHook
	}
	for i := range events {
		e := &events[i]
		if e.Rev.Seq() < h.revs[e.Key] && !h.again {
			h.err = fmt.Errorf("hook saw %v go from revision %d back to %d", e.Key, h.revs[e.Key], e.Rev.Seq())
		}
		old, had, err := e.Old()
		if want, ok := h.rows[e.Key]; !h.again && (err != nil || had != ok || ok && !proto.Equal(old, want)) {
			h.err = fmt.Errorf("hook at revision %d of %v: old value %v (%v, %v), want %v", e.Rev.Seq(), e.Key, old, had, err, want)
		}
		h.revs[e.Key] = e.Rev.Seq()
		follow(h.rows, e)
	}
	if fails {
		h.again = true
		panic("a hook's bug")
	}
	h.failures, h.again = 0, false
	return nil
}

func follow(rows map[ft.RouteKey]*foldtestv1.Route, e *ft.RouteEvent) {
	switch {
	case e.Op == fold.OpPut:
		rows[e.Key] = e.New
	case e.Op.Removes():
		delete(rows, e.Key)
	}
}

// watchMirror keeps the routes as a Watch tells them.
type watchMirror struct {
	mu   sync.Mutex
	rows map[ft.RouteKey]*foldtestv1.Route
	done chan struct{}
	err  error
}

func watchRoutes(tb *tables) *watchMirror {
	m := &watchMirror{rows: map[ft.RouteKey]*foldtestv1.Route{}, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for e, err := range tb.routes.Watch(context.Background(), []ft.RoutePrefix{ft.RouteAll(), ft.RouteByTenant("a")}, fold.WithInitial(), fold.WithOld()) {
			if err != nil {
				if !errors.Is(err, fold.ErrStopped) {
					m.err = fmt.Errorf("watch: %w", err)
				}
				return
			}
			m.mu.Lock()
			old, had, err := e.Old()
			if want, ok := m.rows[e.Key]; err != nil || had != ok || ok && !proto.Equal(old, want) {
				m.err = errors.Join(m.err, fmt.Errorf("watch at revision %d of %v: old value %v (%v, %v), want %v", e.Rev.Seq(), e.Key, old, had, err, want))
			}
			follow(m.rows, &e)
			m.mu.Unlock()
		}
	}()
	return m
}

// check compares a fold that has caught up with the model.
func (n *node) check(ctx context.Context) error {
	n.mu.Lock()
	m := replay(n.received)
	n.mu.Unlock()
	if got := m.raw(); !maps.Equal(got, n.w.truth) {
		return fmt.Errorf("received %v, the log's truth is %v", got, n.w.truth)
	}
	tb := n.tb
	if st := tb.f.Status(); st.RejectedKeys != m.rejected("") {
		return fmt.Errorf("%d rejected keys, want %d", st.RejectedKeys, m.rejected(""))
	}
	routes := expected(m, ft.ParseRoute)
	mirrored := map[ft.RouteKey]*foldtestv1.Route{}
	for k, row := range routes {
		mirrored[k] = row.Value
	}
	same := func(a, b *foldtestv1.Route) bool { return proto.Equal(a, b) }
	n.watch.mu.Lock()
	defer n.watch.mu.Unlock()
	switch {
	case !maps.EqualFunc(n.hooks.rows, mirrored, same):
		return fmt.Errorf("hooks told of %v, want %v", n.hooks.rows, mirrored)
	case !maps.EqualFunc(n.watch.rows, mirrored, same):
		return fmt.Errorf("watch told of %v, want %v", n.watch.rows, mirrored)
	}
	return errors.Join(
		checkTable(ctx, m, "Route", tb.routes.Table, ft.RouteAll(), routes, true),
		checkTable(ctx, m, "RouteMeta", tb.metas.Table, ft.RouteMetaAll(), expected(m, ft.ParseRouteMeta), false),
		checkTable(ctx, m, "Session", tb.sessions.Table, ft.SessionAll(), expected(m, ft.ParseSession), true),
		checkTable(ctx, m, "Dropped", tb.dropped.Table, ft.DroppedAll(), expected(m, ft.ParseDropped), true),
		checkTable(ctx, m, "Doc", tb.docs.Table, ft.DocAll(), expected(m, ft.ParseDoc), false),
		checkTable(ctx, m, "Settings", tb.settings.Table, ft.SettingsAll(), expected(m, ft.ParseSettings), false),
		n.hooks.err, n.watch.err,
	)
}
