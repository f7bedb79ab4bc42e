package fold_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// dstStory is what happens to a log and to a fold of it that has to be repaired, or must not be.
type dstStory struct {
	name   string
	limits kvtest.Limits
	scope  []string // prefixes of tenant.domain; none is the whole bucket
	repair fold.RepairOptions
	// before is what happened until the fold starts, during what is to happen while it runs.
	before, during func(w *dstWorld)
	// plans are those of the repairs of a run without faults, in turn.
	plans string
	// anyRevision: the fold moves to another log, whose revisions say nothing of the ones before.
	anyRevision bool
	// markersGo: delete markers vanish from where no cursor expires, so that only an audit finds out.
	markersGo bool
	// settlesOwed: the run ends when nothing is owed any more.
	settlesOwed bool
	// quits: the fold is asked to end by the story itself.
	quits bool
	// info and list bend what the fold's nth reading of the log's settings, and its nth listing, gives.
	info func(n int, i kv.LogInfo, w *dstWorld) kv.LogInfo
	list func(n int, keys []kv.KeyVersion, w *dstWorld) ([]kv.KeyVersion, error)
}

// dstFault is one thing that goes wrong, at one of the store's applies.
type dstFault struct {
	kind string // "" is none
	at   int    // counted from 1, over all lives
}

const (
	dstTransient   = "transient"    // one apply fails
	dstStuck       = "stuck"        // so many fail that the fold stops, and is started again, a few times
	dstCrashBefore = "crash-before" // the process ends, and the apply was not done
	dstCrashAfter  = "crash-after"  // the process ends, and the apply was done
	dstShutdown    = "shutdown"     // the fold is asked to end, and is started again
)

func (f dstFault) String() string {
	if f.kind == "" {
		return "none"
	}
	return fmt.Sprintf("%s@%d", f.kind, f.at)
}

// dstRun is one schedule.
type dstRun struct {
	story   *dstStory
	backend string // logstore or pebble
	face    string // "fold" or "applied"
	max     int    // of a batch; 0 is the default
	fault   dstFault
}

func (r dstRun) String() string {
	return fmt.Sprintf("%s/%s/%s/%d/%v", r.story.name, r.backend, r.face, r.max, r.fault)
}

// dstWorld is one schedule's log, fold and artifacts.
type dstWorld struct {
	dstRun
	t     *testing.T
	dir   string
	scope kv.Scope
	log   *kvtest.Log
	disk  disk
	disks int

	artifacts []*memArtifact
	fetch     func() error      // before an artifact is fetched
	foreign   map[string]string // rows out of scope, which nobody may touch

	mu        sync.Mutex
	armed     int // what is still to happen while the fold runs
	measured  bool
	applies   int
	infos     int
	lists     int
	committed kv.Cursor
	plans     []string
	again     bool // the last report is of a try that another one follows
	reports   []*fold.RepairReport
	broken    error  // the first invariant that did not hold
	quit      func() // asks the fold to end
	store     *dstStore
	domain    *dstDomain
	f         *fold.Fold // of the face "fold", with its table
	routes    ft.RouteTable
	lives     int
}

func newDst(t *testing.T, dir string, run dstRun) *dstWorld {
	w := &dstWorld{dstRun: run, t: t, dir: dir, foreign: map[string]string{}}
	w.log = kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: run.story.limits})
	if len(run.story.scope) > 0 {
		w.scope = dstScope(run.story.scope...)
	}
	w.disk = w.newDisk()
	return w
}

func dstScope(prefixes ...string) kv.Scope {
	var of []string
	for _, p := range prefixes {
		of = append(of, "route."+p)
	}
	s, err := kv.Prefixes(of...)
	if err != nil {
		panic(err)
	}
	return s
}

func (w *dstWorld) newDisk() disk {
	w.disks++
	if w.backend == "pebble" {
		return &memDisk{fs: vfs.NewMem()}
	}
	return &fileDisk{dir: filepath.Join(w.dir, fmt.Sprint(w.disks))}
}

// put and del write a route's value, and its delete marker; a key is tenant.domain.
func (w *dstWorld) put(keys ...string) (rev uint64) {
	for _, key := range keys {
		tenant, domain, _ := strings.Cut(key, ".")
		value, err := proto.Marshal(route(tenant, domain, fmt.Sprint(w.head())))
		if err != nil {
			w.t.Fatal(err)
		}
		rev = w.log.Set("route."+key, string(value))
	}
	return rev
}

func (w *dstWorld) del(key string) uint64 { return w.log.Remove("route." + key) }

// write puts keys in turn; a key with "-" is deleted.
func (w *dstWorld) write(keys ...string) {
	for _, k := range keys {
		if name, ok := strings.CutPrefix(k, "-"); ok {
			w.del(name)
		} else {
			w.put(k)
		}
	}
}

func (w *dstWorld) head() uint64 {
	info, err := w.log.Info(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return info.Last
}

// follow lets the fold follow to the head, and ends it.
func (w *dstWorld) follow() {
	if rested, err := w.live(); err != nil || !rested {
		w.t.Fatalf("%v: before the story: %v", w.dstRun, err)
	}
	w.plans, w.reports = nil, nil
}

// seed puts rows into the fold's store by hand, under its own cursor or the one given.
func (w *dstWorld) seed(c *kv.Cursor, updates ...kv.Update) {
	s, err := w.disk.open()
	if err != nil {
		w.t.Fatal(err)
	}
	at := s.Cursor()
	if c != nil {
		at = *c
	}
	err = s.Apply(context.Background(), &store.Batch{Updates: updates}, at)
	if err := errors.Join(err, s.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// seedForeign gives the fold a row that is out of its scope.
func (w *dstWorld) seedForeign(key string) {
	m := route("x", strings.TrimPrefix(key, "x."), "foreign")
	value, err := proto.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	u := kv.Update{Key: "route." + key, Value: value, Version: kv.Revision(1), Op: kv.OpPut, UnixNano: 1}
	w.seed(nil, u)
	w.foreign[u.Key] = dstRow(u.Version, u.Value)
}

// seedTorn gives an empty fold what the log held at a revision, without the cursor.
func (w *dstWorld) seedTorn(at uint64) {
	var updates []kv.Update
	for _, e := range w.log.Truth(w.scope, at) {
		updates = append(updates, e.Update)
	}
	w.seed(&kv.Cursor{}, updates...)
}

// arm lets something happen at a call of the log.
func (w *dstWorld) arm(faults ...kvtest.Fault) {
	for _, f := range faults {
		w.mu.Lock()
		w.armed++
		w.mu.Unlock()
		do, left := f.Do, max(f.Times, 1)
		f.Do = func(l *kvtest.Log) {
			w.mu.Lock()
			if left--; left == 0 {
				w.armed--
			}
			w.mu.Unlock()
			if do != nil {
				do(l)
			}
		}
		w.log.Inject(f)
	}
}

// deliver arms a watch that hands out n messages one by one, after which something happens.
func (w *dstWorld) deliver(n int, then func(l *kvtest.Log)) {
	if n > 0 {
		w.arm(kvtest.Fault{At: kvtest.PointNext, Times: n, Limit: 1})
	}
	w.arm(kvtest.Fault{At: kvtest.PointNext, Skip: n, Do: then})
}

// dstBucket is the fold's way to its log.
type dstBucket struct {
	*kvtest.Log
	w *dstWorld
}

func (b *dstBucket) Info(ctx context.Context) (kv.LogInfo, error) {
	i, err := b.Log.Info(ctx)
	if b.w.story.info == nil || !b.w.measured || err != nil {
		return i, err
	}
	b.w.mu.Lock()
	b.w.infos++
	n := b.w.infos
	b.w.mu.Unlock()
	return b.w.story.info(n, i, b.w), nil
}

func (b *dstBucket) LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	if b.w.story.list == nil || !b.w.measured {
		return b.Log.LastVersions(ctx, scope)
	}
	return func(yield func(kv.KeyVersion, error) bool) {
		var keys []kv.KeyVersion
		for k, err := range b.Log.LastVersions(ctx, scope) {
			if err != nil {
				yield(k, err)
				return
			}
			keys = append(keys, k)
		}
		b.w.mu.Lock()
		b.w.lists++
		n := b.w.lists
		b.w.mu.Unlock()
		keys, err := b.w.story.list(n, keys, b.w)
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
		if err != nil {
			yield(kv.KeyVersion{}, err)
		}
	}
}

// memArtifact is an artifact that is here already.
type memArtifact struct {
	store.Store
	m repair.Manifest
}

func (a *memArtifact) Manifest() repair.Manifest { return a.m }
func (a *memArtifact) Close() error              { return nil }

// Candidates and Fetch make the world the source of its artifacts.
func (w *dstWorld) Candidates(context.Context) ([]repair.Manifest, error) {
	var all []repair.Manifest
	for i := len(w.artifacts) - 1; i >= 0; i-- {
		all = append(all, w.artifacts[i].m)
	}
	return all, nil
}

func (w *dstWorld) Fetch(_ context.Context, m repair.Manifest) (repair.Artifact, error) {
	if w.fetch != nil {
		if err := w.fetch(); err != nil {
			return nil, err
		}
	}
	for _, a := range w.artifacts {
		if a.m.ID == m.ID {
			return a, nil
		}
	}
	return nil, fmt.Errorf("artifact %s: %w", m.ID, repair.ErrArtifactInvalid)
}

// export makes an artifact: of a fold that had the truth at a revision, 0 is none, and has received so many messages
// since; below 0 it has caught up.
func (w *dstWorld) export(id string, from uint64, deliveries int) {
	s, err := w.newDisk().open()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var b store.Batch
	for _, e := range w.log.Truth(w.scope, from) {
		b.Updates = append(b.Updates, e.Update)
	}
	for name, text := range map[string]string{store.MetaBucket: "test", store.MetaScope: w.scope.String()} {
		b.Ops = append(b.Ops, store.Op{Key: store.MetaKey(name), Value: []byte(text)})
	}
	c := kv.Cursor{}
	if from > 0 {
		c = kv.CursorAt(from)
	}
	if err := s.Apply(ctx, &b, c); err != nil {
		w.t.Fatal(err)
	}
	if deliveries >= 0 {
		w.log.Inject(kvtest.Fault{At: kvtest.PointNext, Times: max(deliveries, 1), Limit: 1})
		w.log.Inject(kvtest.Fault{At: kvtest.PointNext, Skip: deliveries, Delay: -1})
	}
	follow, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := fold.WatchApplied(follow, fold.WatchConfig{Watcher: w.log, Scope: w.scope, Store: s, Logger: quiet},
			func(*kv.Update) (int, bool) { return 0, false }, func(context.Context, []int) error { return nil })
		ended <- err
	}()
	synctest.Wait()
	stop()
	if err := <-ended; err != nil {
		w.t.Fatalf("export: %v", err)
	}
	a := &memArtifact{Store: s, m: repair.Manifest{ID: id, Cursor: s.Cursor(), Scope: w.scope, HasScope: true}}
	if a.m.Log, err = store.LogOf(s); err != nil {
		w.t.Fatal(err)
	}
	if a.m.Owed, err = store.OwedOf(s); err != nil {
		w.t.Fatal(err)
	}
	w.artifacts = append(w.artifacts, a)
}
