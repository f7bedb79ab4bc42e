package fold

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// DefaultWatchBuffer is how many events a Watch may be behind before it ends with ErrLagged.
const DefaultWatchBuffer = 4096

// WatchOption shapes one Watch.
type WatchOption interface{ applyWatch(*watchOptions) }

type watchOptions struct {
	buffer  int
	old     bool
	initial bool
}

type watchOption func(*watchOptions)

func (f watchOption) applyWatch(o *watchOptions) { f(o) }

// WithOld keeps each row's earlier value for Event.Old, at the cost of a read for each change of the table.
func WithOld() WatchOption { return watchOption(func(o *watchOptions) { o.old = true }) }

// WithInitial begins with the rows there are, as OpPut events with Hydrating set, and goes on with every change after
// them.
func WithInitial() WatchOption { return watchOption(func(o *watchOptions) { o.initial = true }) }

// WithBuffer is how many events the watch may be behind; default 4096.
func WithBuffer(n int) WatchOption { return watchOption(func(o *watchOptions) { o.buffer = n }) }

// feed hands a table's committed changes to its watchers.
type feed struct {
	mu      sync.Mutex
	subs    map[*subscription]struct{}
	n       atomic.Int32 // len(subs)
	olds    atomic.Int32 // of them, how many want old values
	stopped bool
	err     error
}

// oldRow is a row before an update.
type oldRow struct {
	record []byte // encoded
	ok     bool
}

type feedItem struct {
	u         kv.Update
	old       oldRow
	hasOld    bool
	hydrating bool
}

// subscription is one watcher's queue.
type subscription struct {
	prefixes []string // of NATS keys; empty is all
	old      bool
	limit    int
	table    string

	mu    sync.Mutex
	queue []feedItem
	end   error
	ended bool
	wake  chan struct{}
}

func (f *feed) active() bool { return f.n.Load() > 0 }

func (f *feed) wantsOld() bool { return f.olds.Load() > 0 }

func (f *feed) add(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		s.finish(f.err)
		return
	}
	if f.subs == nil {
		f.subs = map[*subscription]struct{}{}
	}
	f.subs[s] = struct{}{}
	f.n.Add(1)
	if s.old {
		f.olds.Add(1)
	}
}

func (f *feed) remove(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.subs[s]; !ok {
		return
	}
	delete(f.subs, s)
	f.n.Add(-1)
	if s.old {
		f.olds.Add(-1)
	}
}

// stop ends every watcher, those to come too.
func (f *feed) stop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped, f.err = true, err
	for s := range f.subs {
		s.finish(err)
	}
}

func (f *feed) publish(updates []kv.Update, at []int32, olds []oldRow, hydrating bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		s.push(updates, at, olds, hydrating)
	}
}

func (s *subscription) push(updates []kv.Update, at []int32, olds []oldRow, hydrating bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	for n, i := range at {
		u := &updates[i]
		if !s.wants(u.Key) {
			continue
		}
		if len(s.queue) >= s.limit {
			s.end, s.ended = &LaggedError{Table: s.table, Buffer: s.limit}, true
			break
		}
		it := feedItem{u: *u, hydrating: hydrating}
		if s.old && n < len(olds) {
			it.old, it.hasOld = olds[n], true
		}
		s.queue = append(s.queue, it)
	}
	s.signal()
}

func (s *subscription) wants(key string) bool {
	if len(s.prefixes) == 0 {
		return true
	}
	for _, p := range s.prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

func (s *subscription) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.end, s.ended = err, true
	}
	s.signal()
}

// cause is err, or what ended the watch when err is only that the fold's store was closed after it.
func (s *subscription) cause(err error) error {
	if !errors.Is(err, store.ErrClosed) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.end, err)
}

func (s *subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next waits for what is queued, and takes it; after the last of it, the error that ended the watch.
func (s *subscription) next(ctx context.Context, into []feedItem) ([]feedItem, error) {
	for {
		if err := ctx.Err(); err != nil {
			return into, err
		}
		s.mu.Lock()
		into, s.queue = s.queue, into[:0]
		ended, end := s.ended, s.end
		s.mu.Unlock()
		switch {
		case len(into) > 0:
			return into, nil
		case ended:
			return into, end
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return into, ctx.Err()
		}
	}
}

// Watch yields each accepted change of the rows in the prefixes (none given: the whole table), after it is committed,
// in revision order. It ends with the context's error, with ErrLagged when the reader is too slow, or with ErrStopped
// when the fold stops. What was committed before the range began is not in it, except under WithInitial. A table got
// by At has no changes to watch.
func (t *Table[K, V]) Watch(ctx context.Context, prefixes []Prefix[K], opts ...WatchOption) iter.Seq2[Event[K, V], error] {
	o := watchOptions{buffer: DefaultWatchBuffer}
	for _, opt := range opts {
		if opt != nil {
			opt.applyWatch(&o)
		}
	}
	return func(yield func(Event[K, V], error) bool) {
		sub := &subscription{table: t.t.c.name, old: o.old, limit: max(o.buffer, 1), wake: make(chan struct{}, 1)}
		for _, p := range prefixes {
			if p.err != nil {
				yield(Event[K, V]{}, p.err)
				return
			}
			sub.prefixes = append(sub.prefixes, string(p.bytes))
		}
		sub.prefixes = disjoint(sub.prefixes)
		if t.snapshot() {
			yield(Event[K, V]{}, errors.New("watch: a table of a snapshot does not change"))
			return
		}
		if err := t.t.started(); err != nil {
			yield(Event[K, V]{}, err)
			return
		}
		after, ok := t.subscribe(sub), true
		defer t.t.feed.remove(sub)
		if o.initial {
			if after, ok = t.yieldInitial(ctx, sub, yield); !ok {
				return
			}
		}
		t.yieldFeed(ctx, sub, after, yield)
	}
}

// disjoint leaves out the prefixes that begin with another one of them.
func disjoint(prefixes []string) []string {
	slices.Sort(prefixes)
	var kept []string
	for _, p := range prefixes {
		if len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	return kept
}

// subscribe adds the watcher, and gives the revision up to which everything was committed before. One that wants old
// values does not begin within a commit, which may have found nobody to note them for.
func (t *Table[K, V]) subscribe(sub *subscription) (after uint64) {
	if sub.old {
		t.t.count.commits.Lock()
		defer t.t.count.commits.Unlock()
	}
	t.t.feed.add(sub)
	return t.t.store.Cursor().Revision()
}

// yieldInitial yields the rows of one moment, and gives the revision that they are as of.
func (t *Table[K, V]) yieldInitial(ctx context.Context, sub *subscription, yield func(Event[K, V], error) bool) (uint64, bool) {
	snap, err := t.t.store.Snapshot()
	if err != nil {
		yield(Event[K, V]{}, sub.cause(err))
		return 0, false
	}
	defer func() { _ = snap.Close() }()
	view := &Table[K, V]{t: t.t, view: snap}
	prefixes := sub.prefixes
	if len(prefixes) == 0 {
		prefixes = []string{view.all().String()}
	}
	for _, p := range prefixes {
		for row, err := range view.List(ctx, NewPrefix[K]([]byte(p), nil)) {
			ev := Event[K, V]{Op: OpPut, Reason: ReasonUser, Key: row.Key, New: row.Value, Rev: row.Rev, Time: row.Time, Hydrating: true}
			if sub.old {
				ev.old = &keptOld[K, V]{t: t.t, key: row.Key} // the first that is told of the row
			}
			if !yield(ev, sub.cause(err)) || err != nil {
				return 0, false
			}
		}
	}
	return snap.Cursor().Revision(), true
}

func (t *Table[K, V]) yieldFeed(ctx context.Context, sub *subscription, after uint64, yield func(Event[K, V], error) bool) {
	var items []feedItem
	for {
		var err error
		if items, err = sub.next(ctx, items); err != nil {
			yield(Event[K, V]{}, err)
			return
		}
		for i := range items {
			it := &items[i]
			if rev := it.u.Version.Rank(); rev != 0 && rev <= after {
				continue
			}
			ev, err := t.feedEvent(it)
			if !yield(ev, err) || err != nil {
				return
			}
		}
		clear(items)
	}
}

func (t *Table[K, V]) feedEvent(it *feedItem) (Event[K, V], error) {
	u := it.u
	switch {
	case u.Rejected: // the row was dropped
		u.Op, u.Value = kv.OpDelete, nil
	case u.Op == kv.OpDelete && u.Reason == kv.ReasonMaxAge:
		u.Op = kv.OpAgedOut
	}
	ev, rej := ParseEvent(t.t.desc, RawEntry(u)) // the fold's validator has judged it
	if rej != nil {
		return ev, rej
	}
	ev.Hydrating = it.hydrating
	if it.hasOld {
		ev.old = &keptOld[K, V]{t: t.t, key: ev.Key, row: it.old}
	}
	return ev, nil
}

// keptOld is a row that was noted before its change.
type keptOld[K Key, V proto.Message] struct {
	t   *tableState[K, V]
	key K
	row oldRow
}

func (o *keptOld[K, V]) oldOf(int) (V, bool, error) {
	var row Row[K, V]
	if !o.row.ok {
		return row.Value, false, nil
	}
	rec, err := store.ParseRecord(o.row.record)
	if err == nil {
		err = o.t.fillRow(&rec, o.key, readNew, &row)
	}
	return row.Value, err == nil, err
}

// capture notes, for each update of the parts, the row before it: as the store has it, or as an earlier update of the
// same batch leaves it.
func (t *tableState[K, V]) capture(segs []*segment, parts []part) error {
	if !t.feed.wantsOld() {
		return nil
	}
	batch := map[string]oldRow{}
	for n, p := range parts {
		p := p.(*tablePart[K, V])
		p.olds = p.olds[:0]
		for _, i := range p.at {
			u := &segs[n].updates[i]
			old, seen := batch[u.Key]
			if !seen {
				var err error
				if old, err = acceptedRecord(t.store, u.Key); err != nil {
					return err
				}
			}
			p.olds = append(p.olds, old)
			switch {
			case endsRow(u):
				old = oldRow{}
			case u.Op == kv.OpPut:
				old = oldRow{record: store.AppendRecord(nil, u), ok: true}
			}
			batch[u.Key] = old
		}
	}
	return nil
}

// acceptedRecord is a copy of the record that reads of the key see, if there is one.
func acceptedRecord(g store.Getter, key string) (oldRow, error) {
	for _, space := range []store.Space{store.SpaceData, store.SpaceAccepted} {
		var v store.Value
		ok, err := g.Get(store.AppendKey(nil, space, key), &v)
		if err != nil || !ok {
			return oldRow{}, err
		}
		b := append([]byte(nil), v.Bytes...)
		v.Release()
		rec, err := store.ParseRecord(b)
		if err != nil {
			return oldRow{}, err
		}
		if space == store.SpaceAccepted || !rec.Rejected {
			return oldRow{record: b, ok: true}, nil
		}
	}
	return oldRow{}, nil
}
