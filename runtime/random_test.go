package fold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

var (
	randomSeed  = flag.Uint64("fold.seed", 0, "run only this schedule of TestRandomSchedules")
	randomCount = flag.Uint64("fold.schedules", 200, "how many schedules TestRandomSchedules runs")
)

// TestRandomSchedules runs three folds with other stores and other batches over one log under a random schedule of
// writes and faults, restarts and crashes. At checkpoints each must be what a model of a few lines makes of the
// messages that this fold received, and all must agree on the newest raw values, whatever each of them accepted.
func TestRandomSchedules(t *testing.T) {
	first, last := uint64(1), *randomCount
	if *randomSeed != 0 {
		first, last = *randomSeed, *randomSeed
	}
	for seed := first; seed <= last; seed++ {
		dir := t.TempDir()
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := newWorld(t, seed, dir).run(); err != nil {
					t.Fatalf("%v\nreplay: go test ./runtime -run TestRandomSchedules -fold.seed=%d", err, seed)
				}
			})
		})
		if !ok {
			return
		}
	}
}

// world is one schedule.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	log   *kvtest.Log
	folds []*node
	truth map[string]uint64 // the newest raw revision of each key that has a value
	last  map[string]kv.Op
	trace []string
}

func newWorld(t *testing.T, seed uint64, dir string) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, rng: rng, truth: map[string]uint64{}, last: map[string]kv.Op{}}
	w.log = kvtest.NewLog(kvtest.Options{Bucket: "test", History: 1 + rng.IntN(3), Prefetch: 4 * rng.IntN(2)})
	// While the first message is there, what is superseded behind it expires nobody.
	w.truth["anchor"] = w.log.Set("anchor", "")
	shapes := []fold.BatchOptions{{}, {Window: 10 * time.Millisecond, Max: 3}, {Max: 1, BulkMax: 1}, {Max: 2, BulkMax: 5, Queue: 1}}
	for i := range 3 {
		n := &node{w: w, name: fmt.Sprint(i), batch: shapes[(i+int(seed))%len(shapes)], rng: rand.New(rand.NewPCG(seed, uint64(10+i)))}
		if n.disk = (&fileDisk{dir: filepath.Join(dir, n.name)}); i == 1 {
			n.disk = &memDisk{fs: vfs.NewCrashableMem()}
		}
		w.folds = append(w.folds, n)
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) run() (err error) {
	defer func() {
		for _, n := range w.folds {
			if closeErr := n.stop(); err == nil {
				err = closeErr
			}
		}
		if err != nil {
			err = fmt.Errorf("%w\nafter %v", err, w.trace)
		}
	}()
	for range 60 {
		if err := w.step(); err != nil {
			return err
		}
		if w.rng.IntN(3) == 0 {
			synctest.Wait()
		}
	}
	return w.checkpoint()
}

func (w *world) step() error {
	n := w.folds[w.rng.IntN(len(w.folds))]
	switch r := w.rng.IntN(100); {
	case r < 55:
		w.write()
	case r < 65:
		w.remove()
	case r < 68:
		return w.ageOut()
	case r < 72:
		w.note("lose watches")
		w.log.LoseWatches()
	case r < 78:
		points := []kvtest.Fault{
			{At: kvtest.PointOpen, Fail: true, Times: 1 + w.rng.IntN(2)},
			{At: kvtest.PointNext, Fail: true, Skip: w.rng.IntN(3)},
			{At: kvtest.PointNext, Limit: 1, Times: 3},
			{At: kvtest.PointDelivery, Shape: kvtest.ShapeDuplicate, Skip: w.rng.IntN(3)},
		}
		f := points[w.rng.IntN(len(points))]
		w.note("fault at %v", f)
		w.log.Inject(f)
	case r < 84:
		n.failApplies(1 + w.rng.IntN(3))
	case r < 90:
		return n.restart()
	case r < 94:
		return n.crash()
	case r < 96:
		w.note("let %v pass", time.Second)
		time.Sleep(time.Second) // virtual
	default:
		return w.checkpoint()
	}
	return nil
}

// write writes a good or a bad value of some table.
func (w *world) write() {
	r := w.rng
	tenant, domain, id := string(rune('a'+r.IntN(2))), fmt.Sprint(r.IntN(3)), uint32(r.IntN(3))
	text := fmt.Sprint(r.IntN(1000))
	var key string
	var m proto.Message
	switch r.IntN(7) {
	case 0, 1:
		key, m = routeKey(tenant, domain).String(), route(tenant, domain, text)
	case 2:
		key, m = ft.RouteMetaKey{Tenant: tenant, Domain: domain}.String(), &foldtestv1.RouteMeta{Tenant: tenant, Domain: domain, Note: text}
	case 3:
		key, m = ft.SessionKey{Region: tenant, ID: int64(id)}.String(), &foldtestv1.Session{User: text}
	case 4:
		key, m = ft.DroppedKey{ID: id}.String(), &foldtestv1.Dropped{Id: id, Text: text}
	case 5:
		key, m = ft.DocKey{Path: tenant + "/" + domain}.String(), &foldtestv1.Doc{Path: tenant + "/" + domain, Body: text}
	default:
		keys := []string{"settings", "route.t/41.d", "nobody.x", "route", "doc.zFF", "session.eu.b42"}
		key, m = keys[r.IntN(len(keys))], &foldtestv1.Settings{}
	}
	value, err := proto.Marshal(m)
	if err != nil {
		w.t.Error(err)
	}
	switch r.IntN(8) {
	case 0:
		value = []byte("\xff\xff")
	case 1:
		value = nil // a mismatch for most tables, a message of defaults for some
	case 2:
		value = append(value, 0x7a, 80) // an unknown field of 80 bytes: too large for docs
		value = append(value, make([]byte, 80)...)
	}
	rev := w.log.Set(key, string(value))
	w.truth[key], w.last[key] = rev, kv.OpPut
	w.note("%d: %s=%q", rev, key, value)
}

func (w *world) someKey() string {
	keys := make([]string, 0, len(w.last))
	for _, e := range w.log.Retained() {
		if e.Key != "anchor" {
			keys = append(keys, e.Key)
		}
	}
	if len(keys) == 0 {
		return routeKey("a", "0").String()
	}
	return keys[w.rng.IntN(len(keys))]
}

func (w *world) remove() {
	key := w.someKey()
	delete(w.truth, key)
	if w.rng.IntN(3) > 0 {
		w.last[key] = kv.OpDelete
		w.note("%d: delete %s", w.log.Remove(key), key)
		return
	}
	w.last[key] = kv.OpPurge
	v, err := w.log.Delete(w.t.Context(), key, kv.DeleteOptions{Purge: true})
	if err != nil {
		w.t.Error(err)
	}
	w.note("%v: purge %s", v, key)
}

// ageOut lets a value age out that every fold has for good: one that a fold never saw is lost to it, and that is
// another test's matter.
func (w *world) ageOut() error {
	if err := w.checkpoint(); err != nil {
		return err
	}
	for _, n := range w.folds {
		if err := n.store.Sync(w.t.Context()); err != nil {
			return err
		}
	}
	key := w.someKey()
	if w.last[key] != kv.OpPut {
		return nil
	}
	w.last[key] = kv.OpAgedOut
	w.note("%d: age out %s", w.log.AgeOut(key, true), key)
	if isSession(key) {
		delete(w.truth, key)
	}
	return nil
}

// checkpoint lets every fold catch up and judges it.
func (w *world) checkpoint() error {
	w.note("checkpoint")
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	info, err := w.log.Info(ctx)
	if err != nil {
		return err
	}
	var digests []fold.Digest
	for _, n := range w.folds {
		if n.tb == nil {
			if err := n.start(); err != nil {
				return err
			}
		}
		if err := n.tb.f.WaitApplied(ctx, fold.Seq(info.Last)); err != nil {
			return fmt.Errorf("fold %s: %w", n.name, err)
		}
		synctest.Wait()
		if err := n.check(ctx); err != nil {
			return fmt.Errorf("fold %s (%T): %w", n.name, n.disk, err)
		}
		d, err := n.digest(ctx)
		if err != nil {
			return err
		}
		digests = append(digests, d)
	}
	for _, d := range digests {
		if d != digests[0] {
			return fmt.Errorf("digests differ: %v", digests)
		}
	}
	return nil
}

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
