package fold

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/store"
)

// Table reads one table's rows: from the fold as it is now, or, got by At, as of a snapshot. Every read sees one
// moment of the store. It is safe for concurrent use, and goes on serving after the fold has stopped, until Close.
type Table[K Key, V proto.Message] struct {
	t    *tableState[K, V]
	view store.Getter // nil: the store as it is now
}

// At is the table as of the snapshot. It is valid until the snapshot is closed.
func (t *Table[K, V]) At(s *Snapshot) *Table[K, V] { return &Table[K, V]{t: t.t, view: s.s} }

func (t *Table[K, V]) snapshot() bool { return t.view != nil }

func (t *Table[K, V]) getter() (store.Getter, error) {
	if t.view != nil {
		return t.view, nil
	}
	return t.t.live()
}

// all is the whole table.
func (t *Table[K, V]) all() Prefix[K] { return Prefix[K]{bytes: []byte(t.t.c.table.Prefix())} }

// Get is the value at k: a new message, which is the caller's own; false when there is no such row.
func (t *Table[K, V]) Get(ctx context.Context, k K) (V, bool, error) {
	row, ok, err := t.GetRow(ctx, k)
	return row.Value, ok, err
}

// GetRow is the row at k; false when there is none.
func (t *Table[K, V]) GetRow(ctx context.Context, k K) (Row[K, V], bool, error) {
	if err := ctx.Err(); err != nil {
		return Row[K, V]{}, false, err
	}
	g, err := t.getter()
	if err != nil {
		return Row[K, V]{}, false, err
	}
	return t.t.readRow(g, k)
}

// GetInto decodes the value at k into dst, which is reset first. It allocates nothing but what the message's own
// fields need. When there is no such row it is false and dst is left alone.
func (t *Table[K, V]) GetInto(ctx context.Context, k K, dst V) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	g, err := t.getter()
	if err != nil {
		return false, err
	}
	row := Row[K, V]{Value: dst}
	return t.t.readInto(g, k, readDst, &row)
}

// Has reports whether there is a row at k, without decoding it.
func (t *Table[K, V]) Has(ctx context.Context, k K) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	g, err := t.getter()
	if err != nil {
		return false, err
	}
	var row Row[K, V]
	return t.t.readInto(g, k, readNone, &row)
}

// Peek is the value at k from memory: no I/O, no allocation, no error. The message is shared with everyone who
// peeks: don't change it. It is only for tables registered with Resident; on any other table, on one got by At, and
// before Start, it panics, since "not there" would be a lie.
func (t *Table[K, V]) Peek(k K) (V, bool) {
	if t.t.residents == nil || t.snapshot() {
		panic("fold: Peek of table " + t.t.c.name + ", which is not resident: register it with fold.Resident(), or use Get")
	}
	if !t.t.ready.Load() {
		panic("fold: Peek of table " + t.t.c.name + " before its fold was started")
	}
	return t.t.residents.Load(k)
}

// List yields the rows of a prefix in key order.
func (t *Table[K, V]) List(ctx context.Context, p Prefix[K], opts ...ReadOption) iter.Seq2[Row[K, V], error] {
	o := readOptionsOf(opts)
	return func(yield func(Row[K, V], error) bool) {
		if p.err != nil {
			yield(Row[K, V]{}, p.err)
			return
		}
		lower, upper := t.prefixBounds(p)
		t.scan(ctx, lower, upper, o, yield)
	}
}

// Range yields the rows between two bounds in key order. It is an error for a table some of whose key does not keep the
// order of values.
func (t *Table[K, V]) Range(ctx context.Context, lo, hi Bound[K], opts ...ReadOption) iter.Seq2[Row[K, V], error] {
	o := readOptionsOf(opts)
	return func(yield func(Row[K, V], error) bool) {
		if err := t.t.c.ordered(); err != nil {
			yield(Row[K, V]{}, err)
			return
		}
		lower, upper := t.prefixBounds(t.all())
		if lo.kind != boundNone {
			b, err := boundKey(lo.key, lo.kind == boundExcl)
			if err != nil {
				yield(Row[K, V]{}, err)
				return
			}
			lower = b
		}
		if hi.kind != boundNone {
			b, err := boundKey(hi.key, hi.kind == boundIncl)
			if err != nil {
				yield(Row[K, V]{}, err)
				return
			}
			upper = b
		}
		t.scan(ctx, lower, upper, o, yield)
	}
}

// Keys yields the keys of a prefix in order, and decodes no values.
func (t *Table[K, V]) Keys(ctx context.Context, p Prefix[K], opts ...ReadOption) iter.Seq2[K, error] {
	opts = append(opts[:len(opts):len(opts)], KeysOnly())
	return func(yield func(K, error) bool) {
		for row, err := range t.List(ctx, p, opts...) {
			if !yield(row.Key, err) {
				return
			}
		}
	}
}

// First is the first row of a prefix.
func (t *Table[K, V]) First(ctx context.Context, p Prefix[K]) (Row[K, V], bool, error) {
	return one(t.List(ctx, p, Limit(1)))
}

// Last is the last row of a prefix.
func (t *Table[K, V]) Last(ctx context.Context, p Prefix[K]) (Row[K, V], bool, error) {
	return one(t.List(ctx, p, Limit(1), Reverse()))
}

// Ceil is the first row of a prefix whose key is not before k.
func (t *Table[K, V]) Ceil(ctx context.Context, p Prefix[K], k K) (Row[K, V], bool, error) {
	return t.beside(ctx, p, k, false)
}

// Floor is the last row of a prefix whose key is not after k.
func (t *Table[K, V]) Floor(ctx context.Context, p Prefix[K], k K) (Row[K, V], bool, error) {
	return t.beside(ctx, p, k, true)
}

func (t *Table[K, V]) beside(ctx context.Context, p Prefix[K], k K, floor bool) (row Row[K, V], ok bool, err error) {
	if p.err != nil {
		return row, false, p.err
	}
	if err := t.t.c.ordered(); err != nil {
		return row, false, err
	}
	lower, upper := t.prefixBounds(p)
	edge, err := boundKey(k, floor)
	if err != nil {
		return row, false, err
	}
	if floor {
		upper = minKey(upper, edge)
	} else {
		lower = maxKey(lower, edge)
	}
	return one(func(yield func(Row[K, V], error) bool) {
		t.scan(ctx, lower, upper, readOptions{limit: 1, reverse: floor}, yield)
	})
}

func one[K Key, V proto.Message](rows iter.Seq2[Row[K, V], error]) (Row[K, V], bool, error) {
	for row, err := range rows {
		return row, err == nil, err
	}
	return Row[K, V]{}, false, nil
}

// prefixBounds are the store keys between which a prefix's rows lie.
func (t *Table[K, V]) prefixBounds(p Prefix[K]) (lower, upper []byte) {
	lower = store.AppendKey(nil, store.SpaceData, string(p.bytes))
	if t.t.c.table.Singleton() {
		return lower, append(lower[:len(lower):len(lower)], 0)
	}
	return lower, store.PrefixEnd(lower)
}

// boundKey is the store key of k, or the first one after it.
func boundKey[K Key](k K, after bool) ([]byte, error) {
	b := readBuf{}
	if err := dataKey(&b, k); err != nil {
		return nil, err
	}
	if after {
		b.key = append(b.key, 0)
	}
	return b.key, nil
}

func minKey(a, b []byte) []byte {
	if a == nil || string(b) < string(a) {
		return b
	}
	return a
}

func maxKey(a, b []byte) []byte {
	if string(b) > string(a) {
		return b
	}
	return a
}

// scan yields the table's rows between two store keys, of one moment.
func (t *Table[K, V]) scan(ctx context.Context, lower, upper []byte, o readOptions, yield func(Row[K, V], error) bool) {
	fail := func(err error) { yield(Row[K, V]{}, fmt.Errorf("scan table %s: %w", t.t.c.name, err)) }
	if upper != nil && string(lower) >= string(upper) {
		return
	}
	view := t.view
	if view == nil {
		s, err := t.t.live()
		if err != nil {
			fail(err)
			return
		}
		snap, err := s.Snapshot()
		if err != nil {
			fail(err)
			return
		}
		defer func() { _ = snap.Close() }()
		view = snap
	}
	it, err := view.Iter(store.IterOptions{Lower: lower, Upper: upper, Reverse: o.reverse})
	if err != nil {
		fail(err)
		return
	}
	stopped := false
	defer func() {
		if err := it.Close(); err != nil && !stopped {
			fail(err)
		}
	}()
	for n := 0; o.limit <= 0 || n < o.limit; {
		if err := ctx.Err(); err != nil {
			stopped = true
			yield(Row[K, V]{}, err)
			return
		}
		if !it.Next() {
			if err := it.Err(); err != nil {
				stopped = true
				fail(err)
			}
			return
		}
		row, ok, err := t.rowAt(view, it, o.keysOnly)
		if err != nil {
			stopped = true
			fail(err)
			return
		}
		if !ok {
			continue
		}
		n++
		if !yield(row, nil) {
			stopped = true
			return
		}
	}
}

// rowAt is the row under the iterator; false for a key of another table, or of no row.
func (t *Table[K, V]) rowAt(view store.Getter, it store.Iterator, keysOnly bool) (row Row[K, V], ok bool, err error) {
	key := store.NATSKey(it.Key())
	if !t.t.c.table.Matches(key) {
		return row, false, nil
	}
	k, err := t.t.desc.cfg.ParseKey(key)
	if err != nil {
		return row, false, nil // listed by Rejected
	}
	value, err := it.Value()
	if err != nil {
		return row, false, err
	}
	rec, err := store.ParseRecord(value)
	if err != nil {
		return row, false, err
	}
	mode := readNew
	if keysOnly {
		mode = readNone
	}
	if rec.Rejected {
		ok, err = t.t.readInto(view, k, mode, &row)
		return row, ok, err
	}
	err = t.t.fillRow(&rec, k, mode, &row)
	return row, err == nil, err
}

// Count is how many rows a prefix has. For a whole table that is hydrated it is O(1) from the second call on: the
// first one counts, and the fold keeps the number from then on, across restarts. Any other prefix is a scan.
func (t *Table[K, V]) Count(ctx context.Context, p Prefix[K]) (uint64, error) {
	if p.err != nil {
		return 0, p.err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if t.snapshot() || string(p.bytes) != t.t.c.table.Prefix() {
		return t.countScan(ctx, p)
	}
	s, err := t.t.live()
	if err != nil {
		return 0, err
	}
	return t.t.count.get(s, func(g store.Getter) (uint64, error) {
		view := &Table[K, V]{t: t.t, view: g}
		return view.countScan(ctx, p)
	})
}

func (t *Table[K, V]) countScan(ctx context.Context, p Prefix[K]) (n uint64, err error) {
	for _, err := range t.Keys(ctx, p) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// Rejected yields why each key of the table whose newest message was rejected was so, in key order.
func (t *Table[K, V]) Rejected(ctx context.Context) iter.Seq2[*Rejection, error] {
	return func(yield func(*Rejection, error) bool) {
		err := t.eachRejection(ctx, func(r *Rejection) bool { return yield(r, nil) })
		if err != nil {
			yield(nil, fmt.Errorf("rejections of table %s: %w", t.t.c.name, err))
		}
	}
}

func (t *Table[K, V]) eachRejection(ctx context.Context, yield func(*Rejection) bool) error {
	lower := store.AppendKey(nil, store.SpaceRejected, t.t.c.table.Prefix())
	g, err := t.getter()
	if err != nil {
		return err
	}
	it, err := g.Iter(store.IterOptions{Lower: lower, Upper: store.PrefixEnd(lower)})
	if err != nil {
		return err
	}
	for it.Next() {
		if err = ctx.Err(); err != nil {
			break
		}
		if !t.t.c.table.Matches(store.NATSKey(it.Key())) {
			continue
		}
		var value []byte
		if value, err = it.Value(); err != nil {
			break
		}
		var r *Rejection
		if r, err = parseRejection(value); err != nil {
			break
		}
		if !yield(r) {
			return it.Close()
		}
	}
	if err == nil {
		err = it.Err()
	}
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	return err
}
