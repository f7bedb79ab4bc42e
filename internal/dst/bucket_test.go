package dst

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// plant is a mistake in one of the ports, which the harness has to find.
type plant struct {
	store    func(store.Store) store.Store
	bucket   func(kv.Bucket) kv.Bucket
	artifact func(*memArtifact) repair.Artifact
}

func (p plant) aStore(s store.Store) store.Store {
	if p.store == nil {
		return s
	}
	return p.store(s)
}

func (p plant) aBucket(b kv.Bucket) kv.Bucket {
	if p.bucket == nil {
		return b
	}
	return p.bucket(b)
}

func (p plant) anArtifact(a *memArtifact) repair.Artifact {
	if p.artifact == nil {
		return a
	}
	return p.artifact(a)
}

// bucket is the fold's way to its log.
type bucket struct {
	*kvtest.Log
	w *world
}

// step is the virtual time between two updates that come one by one; within window come four.
const (
	step   = time.Millisecond
	window = 4*step - step/2
)

// watch hands out what its order says, and loses an update where the schedule says so.
type watch struct {
	kv.Watch
	w      *world
	gapped bool // revisions follow each other, so that a lost one shows
}

func (b *bucket) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	w, err := b.Log.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	return watch{w, b.w, !req.After.IsNone() && req.Scope.IsAll() && !b.w.story.limits.Sealed}, nil
}

func (h watch) Next(ctx context.Context, into kv.Delivery, limit, maxBytes int) (kv.Delivery, error) {
	if h.w.order != orderBurst {
		limit = 1
		t := time.NewTimer(step)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return into, ctx.Err()
		}
	}
	had := len(into.Updates)
	d, err := h.Watch.Next(ctx, into, limit, maxBytes)
	if err == nil && len(d.Updates) > had && h.gapped && h.w.loses() {
		d.Updates = slices.Delete(d.Updates, had, had+1)
	}
	return d, err
}

// loses counts a delivery in which a lost update would show, and reports whether it is to lose one.
func (w *world) loses() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.measured {
		return false
	}
	w.resumed++
	if w.atLog == nil || w.atLog.kind != gap || w.atLog.at != w.resumed {
		return false
	}
	w.tally.hit(gap)
	w.bent = true
	return true
}

func (b *bucket) Info(ctx context.Context) (kv.LogInfo, error) {
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

func (b *bucket) LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
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

// strike injects the schedule's fault of the log.
func (w *world) strike() {
	if w.atLog == nil || w.atLog.kind == gap {
		return
	}
	k := logKinds[w.atLog.kind]
	f := k.fault
	f.Skip = w.atLog.at - 1
	f.Do = func(l *kvtest.Log) {
		w.mu.Lock()
		w.tally.hit(w.atLog.kind)
		w.bent, w.moved = w.bent || k.lies, w.moved || k.recreates
		w.mu.Unlock()
		if k.recreates {
			l.Recreate()
			w.write("n.a", "n.brief", "-n.brief", "n.fresh")
		}
	}
	w.log.Inject(f)
}
