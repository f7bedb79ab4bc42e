package dst

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// mistake is a bug that is planted into a port. A schedule of the story has to find it, and say so.
type mistake struct {
	name, story string
	says        string
	// plant is made anew for each schedule.
	plant func() plant
	// export: a schedule with exports finds it.
	export bool
}

// changed is a store whose applies are changed on their way.
type changed struct {
	store.Store
	apply  func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error
	export func(s store.Store, ctx context.Context, dir string) error
}

func (s *changed) Apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	if s.apply == nil {
		return s.Store.Apply(ctx, b, c)
	}
	return s.apply(s.Store, ctx, b, c)
}

func (s *changed) Export(ctx context.Context, dir string) error {
	if s.export == nil {
		return s.Store.Export(ctx, dir)
	}
	return s.export(s.Store, ctx, dir)
}

func onApply(apply func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error) plant {
	return plant{store: func(s store.Store) store.Store { return &changed{Store: s, apply: apply} }}
}

// without is a batch without some of its operations.
func without(b *store.Batch, out func(store.Op) bool) *store.Batch {
	less := &store.Batch{Updates: b.Updates, Bulk: b.Bulk}
	for _, op := range b.Ops {
		if !out(op) {
			less.Ops = append(less.Ops, op)
		}
	}
	return less
}

// misled is a bucket that misleads.
type misled struct {
	kv.Bucket
	omits string // a key, from listings, counts and reads
	blind bool   // to what is remembered of the log
	next  func(u []kv.Update) []kv.Update
}

func (m *misled) Info(ctx context.Context) (kv.LogInfo, error) {
	i, err := m.Bucket.Info(ctx)
	if m.omits != "" {
		i.Subjects--
		i.Messages--
	}
	return i, err
}

func (m *misled) LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		for k, err := range m.Bucket.LastVersions(ctx, scope) {
			if (m.omits == "" || k.Key != m.omits) && !yield(k, err) {
				return
			}
		}
	}
}

func (m *misled) Entry(ctx context.Context, key string) (kv.Entry, error) {
	if key == m.omits {
		return kv.Entry{}, kv.ErrKeyNotFound
	}
	return m.Bucket.Entry(ctx, key)
}

func (m *misled) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	if m.blind {
		req.Known = kv.Incarnation{}
	}
	w, err := m.Bucket.Open(ctx, req)
	if err != nil || m.next == nil {
		return w, err
	}
	return &misledWatch{w, m}, nil
}

type misledWatch struct {
	kv.Watch
	m *misled
}

func (w *misledWatch) Next(ctx context.Context, into kv.Delivery, limit, maxBytes int) (kv.Delivery, error) {
	had := len(into.Updates)
	d, err := w.Watch.Next(ctx, into, limit, maxBytes)
	if err == nil {
		d.Updates = append(d.Updates[:had:had], w.m.next(d.Updates[had:])...)
	}
	return d, err
}

func onBucket(m *misled) plant {
	return plant{bucket: func(b kv.Bucket) kv.Bucket { m.Bucket = b; return m }}
}

// poor is an artifact that lacks a row, under the cursor that it should have it at.
type poor struct {
	*memArtifact
	key string
}

func (a poor) Snapshot() (store.Snapshot, error) {
	s, err := a.memArtifact.Snapshot()
	return poorView{s, a.key}, err
}

type poorView struct {
	store.Snapshot
	key string
}

func (v poorView) Iter(o store.IterOptions) (store.Iterator, error) {
	it, err := v.Snapshot.Iter(o)
	return poorIter{it, v.key}, err
}

type poorIter struct {
	store.Iterator
	key string
}

func (i poorIter) Next() bool {
	ok := i.Iterator.Next()
	for ok && string(i.Key()) == string(store.AppendKey(nil, store.SpaceData, i.key)) {
		ok = i.Iterator.Next()
	}
	return ok
}

const notTruth = "not the truth"

var mistakes = []mistake{
	{name: "a failed batch is left out when it comes again", story: "a resume over churn", says: notTruth, plant: func() plant {
		failed := false
		return onApply(func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error {
			if failed {
				b = &store.Batch{Ops: b.Ops}
			}
			err := s.Apply(ctx, b, c)
			failed = err != nil
			return err
		})
	}},
	{name: "the cursor is committed before its rows", story: "a first start", says: notTruth, plant: func() plant {
		return onApply(func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error {
			return errors.Join(s.Apply(ctx, &store.Batch{}, c), s.Apply(ctx, b, c))
		})
	}},
	{name: "a cursor goes back", story: "a resume over churn", says: "back to", plant: func() plant {
		n := 0
		return onApply(func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error {
			if n++; n == 3 {
				c = kv.CursorAt(1)
			}
			return s.Apply(ctx, b, c)
		})
	}},
	{name: "the memo of an eviction is forgotten", story: "expired at a start, restored", says: "memo is lost", plant: func() plant {
		n := 0
		return onApply(func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error {
			if n++; n%3 == 0 {
				c = kv.Cursor{Version: c.Version}
			}
			return s.Apply(ctx, b, c)
		})
	}},
	{name: "rows lose their revisions", story: "a first start", says: notTruth, plant: func() plant {
		return onApply(func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error {
			b = &store.Batch{Updates: append([]kv.Update(nil), b.Updates...), Ops: b.Ops}
			for i := range b.Updates {
				b.Updates[i].Version = kv.Version{}
			}
			return s.Apply(ctx, b, c)
		})
	}},
	{name: "what is owed is not committed", story: "a delete marker vanished while it was away, audited", says: notTruth, plant: func() plant {
		return onApply(func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error {
			return s.Apply(ctx, without(b, func(op store.Op) bool { return string(op.Key) == string(store.MetaKey(store.MetaOwed)) }), c)
		})
	}},
	{name: "a row out of scope is deleted", story: "a resume of two prefixes", says: notTruth, plant: func() plant {
		return onApply(func(s store.Store, ctx context.Context, b *store.Batch, c kv.Cursor) error {
			b = without(b, func(store.Op) bool { return false })
			b.Ops = append(b.Ops, store.Op{Key: store.AppendKey(nil, store.SpaceData, "route.x.foreign"), Delete: true})
			return s.Apply(ctx, b, c)
		})
	}},
	{name: "an export lacks a row", story: "a first start", says: "the artifact of cursor", export: true, plant: func() plant {
		return plant{store: func(s store.Store) store.Store {
			return &changed{Store: s, export: func(s store.Store, ctx context.Context, dir string) error {
				b, err := everything(s)
				if err != nil {
					return err
				}
				b = without(b, func(op store.Op) bool {
					return string(op.Key) == string(store.AppendKey(nil, store.SpaceData, "route.n.a"))
				})
				to, err := logstore.Open(dir+"/"+logstore.ExportName, logstore.Options{Durability: logstore.None})
				if err != nil {
					return err
				}
				return errors.Join(to.Apply(ctx, b, s.Cursor()), to.Close())
			}}
		}}
	}},
	{name: "a listing leaves out a key", story: "a delete marker vanished while it was away, audited", says: "a repair deletes the current value", plant: func() plant {
		return onBucket(&misled{omits: "route.n.keep"})
	}},
	{name: "a watch of a scope skips an update", story: "a resume of two prefixes", says: notTruth, plant: func() plant {
		return onBucket(&misled{next: func(u []kv.Update) []kv.Update {
			if len(u) > 0 && u[0].Key == "route.m.b" {
				return u[1:]
			}
			return u
		}})
	}},
	{name: "a watch goes back to an older update", story: "a first start", says: "after revision", plant: func() plant {
		return onBucket(&misled{next: func(u []kv.Update) []kv.Update {
			if len(u) > 0 && u[0].Key == "route.n.d" {
				again := u[0]
				again.Version = kv.Revision(1)
				return append(u, again)
			}
			return u
		}})
	}},
	{name: "another log is taken for the same", story: "re-created with more messages while it watched, adopted", says: "the fold is at 8 of 8", plant: func() plant {
		return onBucket(&misled{blind: true})
	}},
	{name: "an artifact lacks a row", story: "expired at a start, restored", says: notTruth, plant: func() plant {
		return plant{artifact: func(a *memArtifact) repair.Artifact { return poor{a, "route.n.gap"} }}
	}},
}

// TestMistakesAreFound plants each mistake, and has it found by one of a few schedules that are right without it.
func TestMistakesAreFound(t *testing.T) {
	dir := scratch(t)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			o := begin(t, dir, told(t, m.story))
			var errs []error
			for s := range probes(o.w.story, m.export) {
				if _, err := o.play(t, s, plant{}); err != nil {
					t.Fatalf("%v: wrong without the mistake: %v", s, err)
				}
				_, err := o.play(t, s, m.plant())
				if err != nil && strings.Contains(err.Error(), m.says) {
					return
				}
				errs = append(errs, err)
			}
			t.Errorf("no schedule says %q: %v", m.says, errs)
		})
	}
}

// probes are schedules without a fault, and with one that fails an apply, or ends the process after one.
func probes(st *story, export bool) iter.Seq[schedule] {
	return func(yield func(schedule) bool) {
		s := schedule{story: st, backend: storeLog, face: faceFold, order: orderYield, max: 1, export: export}
		if !yield(s) {
			return
		}
		for at := 1; at <= 4; at++ {
			for _, kind := range []string{transient, crashAfter} {
				s.faults = []storeFault{{kind, at}}
				if !yield(s) {
					return
				}
			}
		}
	}
}
