package fold_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
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
