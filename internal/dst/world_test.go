package dst

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

var quiet = slog.New(slog.DiscardHandler)

// story is what happens to a log and to a fold of it that has to be repaired, or must not be.
type story struct {
	name   string
	limits kvtest.Limits
	scope  []string // prefixes of tenant.domain; none is the whole bucket
	repair fold.RepairOptions
	// before is what happened until the fold starts, during what is to happen while it runs.
	before, during func(w *world)
	// plans are those of the repairs of a run without faults, in turn.
	plans string
	// owes is why a run without faults ends with an audit owed that nobody makes.
	owes kv.Owes
	// anyRevision: the fold moves to another log, whose revisions say nothing of the ones before.
	anyRevision bool
	// markersGo: delete markers vanish from where no cursor expires, so that only an audit finds out.
	markersGo bool
	// settlesOwed: the run ends when nothing is owed any more.
	settlesOwed bool
	// quits: the fold is asked to end by the story itself.
	quits bool
	// saidOnce: the log says but once that the cursor expired. A repair that fails finds it good again, and owes an audit.
	saidOnce bool
	// info and list bend what the fold's nth reading of the log's settings, and its nth listing, gives.
	info func(n int, i kv.LogInfo, w *world) kv.LogInfo
	list func(n int, keys []kv.KeyVersion, w *world) ([]kv.KeyVersion, error)
}

var dashes = strings.NewReplacer(" ", "-", ",", "")

// id is the story's name as one word.
func (s *story) id() string { return dashes.Replace(s.name) }

// world is one schedule's log, fold and artifacts.
type world struct {
	schedule
	t     *testing.T
	dir   string
	scope kv.Scope
	log   *kvtest.Log
	disk  disk
	plant plant

	artifacts []*memArtifact
	fetch     func() error   // before an artifact is fetched
	foreign   map[string]row // rows out of scope, which nobody may touch
	domain    *domain        // of this life
	store     *faultStore    // of this life
	f         *fold.Fold     // of faceFold, with its table
	routes    ft.RouteTable
	lives     int
	owed      kv.Owes // at the last rest
	tally     tally

	mu        sync.Mutex
	armed     int // what is still to happen while the fold runs
	measured  bool
	bent      bool // the log has lied
	moved     bool // the log was re-created by a fault
	applies   int
	infos     int
	lists     int
	resumed   int // deliveries of watches that began after a cursor, of the whole bucket
	committed kv.Cursor
	told      kv.Cursor // by OnApplied, in this life
	reported  bool      // in this life
	plans     []string
	again     bool // the last report is of a try that another one follows
	reports   []*fold.RepairReport
	broken    error  // the first invariant that did not hold
	quit      func() // asks the fold to end
	exports   exports
}

// tally counts what a schedule's lives had.
type tally struct {
	lives, failStops, fired, exports int
	plans                            map[string]int
	hits                             map[string]int // faults that came, by their kind
	// ends of schedules in which the log lied
	owed, stopped int
}

func newTally() tally { return tally{plans: map[string]int{}, hits: map[string]int{}} }

// hit counts a fault that came. The world is locked.
func (t *tally) hit(kind string) {
	t.fired++
	t.hits[kind]++
}

func newWorld(t *testing.T, dir string, s schedule) *world {
	w := &world{schedule: s, t: t, dir: dir, foreign: map[string]row{}, tally: newTally()}
	w.log = kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: s.story.limits})
	if len(s.story.scope) > 0 {
		w.scope = scopeOf(s.story.scope...)
	}
	w.disk = newDisk(s.backend)
	return w
}

func scopeOf(prefixes ...string) kv.Scope {
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

func (w *world) fatal(err error) {
	w.t.Helper()
	w.t.Fatalf("%v: %v", w.schedule, err)
}

func routeOf(tenant, domain, node string) *foldtestv1.Route {
	return &foldtestv1.Route{Tenant: tenant, Domain: domain, NodeId: node}
}

// put and del write a route's value, and its delete marker; a key is tenant.domain.
func (w *world) put(keys ...string) (rev uint64) {
	for _, key := range keys {
		tenant, domain, _ := strings.Cut(key, ".")
		value, err := proto.Marshal(routeOf(tenant, domain, fmt.Sprint(w.head())))
		if err != nil {
			w.fatal(err)
		}
		rev = w.log.Set("route."+key, string(value))
	}
	return rev
}

func (w *world) del(key string) uint64 { return w.log.Remove("route." + key) }

// write puts keys in turn; a key with "-" is deleted.
func (w *world) write(keys ...string) {
	for _, k := range keys {
		if name, ok := strings.CutPrefix(k, "-"); ok {
			w.del(name)
		} else {
			w.put(k)
		}
	}
}

// anyRevision reports whether revisions say nothing of those before. The world is locked, or at rest.
func (w *world) anyRevision() bool { return w.story.anyRevision || w.moved }

// head is the log's last revision. It is no call that a fault of the log could hit.
func (w *world) head() uint64 { return w.bounds().Last }

func (w *world) bounds() kv.LogInfo { return w.log.Bounds() }

// follow lets the fold follow to the head, and ends it.
func (w *world) follow() {
	if rested, err := w.live(); err != nil || !rested {
		w.fatal(fmt.Errorf("before the story: at rest %v: %w", rested, err))
	}
	w.plans, w.reports = nil, nil
}

// seed puts rows into the fold's store by hand, under its own cursor or the one given.
func (w *world) seed(c *kv.Cursor, updates ...kv.Update) {
	s, err := w.disk.open()
	if err != nil {
		w.fatal(err)
	}
	at := s.Cursor()
	if c != nil {
		at = *c
	}
	err = s.Apply(context.Background(), &store.Batch{Updates: updates}, at)
	if err := errors.Join(err, s.Close()); err != nil {
		w.fatal(err)
	}
}

// seedForeign gives the fold a row that is out of its scope.
func (w *world) seedForeign(key string) {
	value, err := proto.Marshal(routeOf("x", strings.TrimPrefix(key, "x."), "foreign"))
	if err != nil {
		w.fatal(err)
	}
	u := kv.Update{Key: "route." + key, Value: value, Version: kv.Revision(1), Op: kv.OpPut, UnixNano: 1}
	w.seed(nil, u)
	w.foreign[u.Key] = rowOf(u.Version, u.Value)
}

// seedTorn gives an empty fold what the log held at a revision, without the cursor.
func (w *world) seedTorn(at uint64) {
	var updates []kv.Update
	for _, e := range w.log.Truth(w.scope, at) {
		updates = append(updates, e.Update)
	}
	w.seed(&kv.Cursor{}, updates...)
}

// arm lets something happen at a call of the log.
func (w *world) arm(faults ...kvtest.Fault) {
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
func (w *world) deliver(n int, then func(l *kvtest.Log)) {
	if n > 0 {
		w.arm(kvtest.Fault{At: kvtest.PointNext, Times: n, Limit: 1})
	}
	w.arm(kvtest.Fault{At: kvtest.PointNext, Skip: n, Do: then})
}

// memArtifact is an artifact that is here already.
type memArtifact struct {
	store.Store
	m repair.Manifest
}

func (a *memArtifact) Manifest() repair.Manifest { return a.m }
func (a *memArtifact) Close() error              { return nil }

// Candidates and Fetch make the world the source of its artifacts.
func (w *world) Candidates(context.Context) ([]repair.Manifest, error) {
	var all []repair.Manifest
	for i := len(w.artifacts) - 1; i >= 0; i-- {
		all = append(all, w.artifacts[i].m)
	}
	return all, nil
}

func (w *world) Fetch(_ context.Context, m repair.Manifest) (repair.Artifact, error) {
	if w.fetch != nil {
		if err := w.fetch(); err != nil {
			return nil, err
		}
	}
	for _, a := range w.artifacts {
		if a.m.ID == m.ID {
			return w.plant.anArtifact(a), nil
		}
	}
	return nil, fmt.Errorf("artifact %s: %w", m.ID, repair.ErrArtifactInvalid)
}

// exporter makes an artifact: of a fold that had the truth at a revision, 0 is none, and has received so many messages
// since; below 0 it has caught up.
func (w *world) exporter(id string, from uint64, deliveries int) {
	s, err := newDisk(storeLog).open()
	if err != nil {
		w.fatal(err)
	}
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
		w.fatal(err)
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
		w.fatal(fmt.Errorf("export: %w", err))
	}
	a := &memArtifact{Store: s, m: repair.Manifest{ID: id, Cursor: s.Cursor(), Scope: w.scope, HasScope: true}}
	if a.m.Log, err = store.LogOf(s); err != nil {
		w.fatal(err)
	}
	if a.m.Owed, err = store.OwedOf(s); err != nil {
		w.fatal(err)
	}
	w.artifacts = append(w.artifacts, a)
}

// origin is a story at the moment at which its schedules begin: what happened before is played once for all of them.
type origin struct {
	w  *world
	at time.Duration // since the bubble's beginning
}

// begin plays what happened before, in a bubble of its own.
func begin(t *testing.T, dir string, st *story) *origin {
	var o origin
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o.w = newWorld(t, dir, schedule{story: st, backend: storeLog, face: faceApplied, order: orderBurst})
		st.before(o.w)
		o.at = time.Since(began)
	})
	return &o
}

// world is the story's world in this bubble, at the same time after the bubble's beginning, for one schedule.
func (o *origin) world(t *testing.T, s schedule) (*world, error) {
	time.Sleep(o.at)
	w := &world{schedule: s, t: t, dir: o.w.dir, scope: o.w.scope, log: o.w.log.Clone(), artifacts: o.w.artifacts, fetch: o.w.fetch, foreign: maps.Clone(o.w.foreign),
		committed: o.w.committed, tally: newTally()}
	var err error
	if s.backend == storeLog {
		w.disk, err = o.w.disk.clone()
	} else {
		w.disk, err = copyTo(s.backend, o.w.disk)
	}
	return w, err
}
