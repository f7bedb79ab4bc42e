package fold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

var (
	indexSeed      = flag.Uint64("fold.indexseed", 0, "run only this history of TestIndexesFollowRandomHistories")
	indexHistories = flag.Uint64("fold.indexhistories", 60, "how many histories TestIndexesFollowRandomHistories runs")
)

// TestIndexesFollowRandomHistories folds random histories of good and bad values, deletes, purges and values that age
// out, with hooks and stores that fail, restarts, crashes, re-lists and rebuilds, and compares each index with a walk
// over the rows.
func TestIndexesFollowRandomHistories(t *testing.T) {
	first, last := uint64(1), *indexHistories
	if *indexSeed != 0 {
		first, last = *indexSeed, *indexSeed
	}
	for seed := first; seed <= last; seed++ {
		dir := t.TempDir()
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newIndexHistory(t, seed, dir)
				if err := h.run(); err != nil {
					t.Fatalf("%v\nafter %q\nreplay: go test ./runtime -run TestIndexesFollowRandomHistories -fold.indexseed=%d", err, h.trace, seed)
				}
			})
		})
		if !ok {
			return
		}
	}
}

type indexHistory struct {
	t     *testing.T
	r     *rand.Rand
	log   *kvtest.Log
	disk  disk
	store *faultStore
	tb    *indexed
	last  map[string]kv.Op
	aged  bool // the bucket may not be re-listed any more
	trace []string
}

func newIndexHistory(t *testing.T, seed uint64, dir string) *indexHistory {
	h := &indexHistory{t: t, r: rand.New(rand.NewPCG(seed, 77)), last: map[string]kv.Op{}}
	h.log = kvtest.NewLog(kvtest.Options{Bucket: "test", History: 1 + h.r.IntN(3)})
	h.log.Set("anchor", "")
	if h.disk = (&fileDisk{dir: filepath.Join(dir, "fold")}); seed%2 == 0 {
		h.disk = &memDisk{fs: vfs.NewCrashableMem()}
	}
	return h
}

func (h *indexHistory) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

func (h *indexHistory) run() (err error) {
	defer func() { err = errors.Join(err, h.stop()) }()
	for range 80 {
		if err := h.step(); err != nil {
			return err
		}
		if h.r.IntN(4) == 0 {
			synctest.Wait()
		}
	}
	return h.checkpoint()
}

func (h *indexHistory) step() error {
	switch n := h.r.IntN(100); {
	case n < 66:
		key, value := someValue(h.r)
		h.last[key] = kv.OpPut
		h.note("%d: %s=%q", h.log.Set(key, value), key, value)
	case n < 76:
		return h.remove()
	case n < 80:
		return h.ageOut()
	case n < 84:
		h.failApplies()
	case n < 87:
		h.log.LoseWatches()
	case n < 91:
		return h.restart()
	case n < 94:
		return h.crash()
	case n < 96:
		return h.spoil()
	default:
		return h.checkpoint()
	}
	return nil
}

func (h *indexHistory) someKey() string {
	retained := h.log.Retained()
	if len(retained) < 2 {
		return "mode"
	}
	return retained[1+h.r.IntN(len(retained)-1)].Key
}

func (h *indexHistory) remove() error {
	key := h.someKey()
	h.last[key] = kv.OpDelete
	if h.r.IntN(3) > 0 {
		h.note("%d: delete %s", h.log.Remove(key), key)
		return nil
	}
	v, err := h.log.Delete(h.t.Context(), key, kv.DeleteOptions{Purge: true})
	h.note("%v: purge %s", v, key)
	return err
}

// ageOut lets a value age out that the fold has for good.
func (h *indexHistory) ageOut() error {
	if err := h.checkpoint(); err != nil {
		return err
	}
	if err := h.store.Sync(h.t.Context()); err != nil {
		return err
	}
	if key := h.someKey(); key != "anchor" && h.last[key] == kv.OpPut {
		h.last[key], h.aged = kv.OpAgedOut, true
		h.note("%d: age out %s", h.log.AgeOut(key, true), key)
	}
	return nil
}

func (h *indexHistory) failApplies() {
	if h.tb == nil {
		return
	}
	times := 1 + h.r.IntN(3)
	h.note("fail %d applies", times)
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	from := h.store.n
	h.store.apply = func(at int, _ *store.Batch, _ kv.Cursor) error {
		if at <= from+times {
			return errors.New("disk is sulking")
		}
		return nil
	}
}

func (h *indexHistory) start() error {
	s, err := h.disk.open()
	if err != nil {
		return err
	}
	h.store = &faultStore{Store: s}
	shapes := []fold.BatchOptions{{}, {Window: 10 * time.Millisecond, Max: 3}, {Max: 1, BulkMax: 1}, {Max: 2, BulkMax: 5, Queue: 1}}
	o := fold.Options{Batch: shapes[h.r.IntN(len(shapes))]}
	var tagged []fold.TableOption
	switch h.r.IntN(3) {
	case 0:
		tagged = append(tagged, fold.Resident())
	case 1:
		fails := 0
		tagged = append(tagged, fold.WithHooks(fold.Hooks[ix.TaggedKey, *indexedv1.Tagged]{Apply: func(context.Context, []fold.Event[ix.TaggedKey, *indexedv1.Tagged]) error {
			if fails++; fails%3 == 1 {
				return errHook
			}
			return nil
		}}))
	}
	h.note("start at %v", s.Cursor())
	if h.tb, err = startIndexed(h.t.Context(), h.log, h.store, o, tagged...); err != nil {
		h.tb = nil
		return errors.Join(err, s.Close())
	}
	return nil
}

func (h *indexHistory) stop() error {
	if h.tb == nil {
		return nil
	}
	tb := h.tb
	h.tb = nil
	return tb.f.Close()
}

func (h *indexHistory) restart() error {
	h.note("restart")
	if err := h.stop(); err != nil {
		return err
	}
	if h.r.IntN(2) == 0 {
		return nil // until the next checkpoint
	}
	return h.start()
}

func (h *indexHistory) crash() error {
	if h.tb == nil {
		return nil
	}
	h.note("crash")
	synctest.Wait()
	if h.r.IntN(2) == 0 {
		if err := h.store.Sync(h.t.Context()); err != nil {
			return err
		}
	}
	after, err := h.disk.crashed(h.r)
	if err != nil {
		return err
	}
	if err := h.stop(); err != nil {
		return err
	}
	h.disk = after
	return h.start()
}

// spoil takes marks and the cursor away between two lives, as an import or a run of another schema would leave them:
// the next start builds the indexes, and re-lists.
func (h *indexHistory) spoil() error {
	if err := h.stop(); err != nil {
		return err
	}
	h.note("spoil")
	s, err := h.disk.open()
	if err != nil {
		return err
	}
	var ops []store.Op
	prefix := store.MetaKey(store.MetaIndex)
	it, err := s.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	for it.Next() {
		if h.r.IntN(2) == 0 {
			ops = append(ops, store.Op{Key: append([]byte(nil), it.Key()...), Delete: true})
		}
	}
	cursor := s.Cursor()
	if !h.aged && h.r.IntN(2) == 0 {
		cursor = kv.Cursor{}
	}
	err = errors.Join(it.Close(), s.Apply(h.t.Context(), &store.Batch{Ops: ops}, cursor), s.Close())
	if err != nil {
		return err
	}
	return h.start()
}

func (h *indexHistory) checkpoint() error {
	h.note("checkpoint")
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Hour)
	defer cancel()
	if h.tb == nil {
		if err := h.start(); err != nil {
			return err
		}
	}
	info, err := h.log.Info(ctx)
	if err != nil {
		return err
	}
	if err := h.tb.f.WaitApplied(ctx, fold.Seq(info.Last)); err != nil {
		return err
	}
	synctest.Wait()
	if err := h.tb.check(ctx); err != nil {
		return err
	}
	report, err := h.tb.f.VerifyIndexes(ctx)
	if err == nil && report.Rows == 0 && len(h.last) > 20 {
		err = errors.New("nothing was verified")
	}
	return err
}
