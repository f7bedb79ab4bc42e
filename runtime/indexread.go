package fold

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/store"
)

// MaxNotUniqueKeys is how many keys a NotUniqueError names.
const MaxNotUniqueKeys = 16

// IndexKey is the tuple that an index is asked for; generated code makes it.
type IndexKey struct {
	tokens []byte
	err    error
}

// NewIndexKey takes the tuple's tokens, joined by dots, and the error of encoding them, which each read then returns.
// It owns the tokens.
func NewIndexKey(tokens []byte, err error) IndexKey {
	store.Ordered(tokens)
	if len(tokens) > maxIndexToken {
		tokens = shortTokens(tokens)
	}
	return IndexKey{tokens: tokens, err: err}
}

// ThenTime appends a dot and an instant to a tuple, unless err says that an earlier token failed; for generated code.
func ThenTime(dst []byte, err error, field string, t Time) ([]byte, error) {
	if err != nil {
		return dst, err
	}
	return AppendTime(append(dst, '.'), field, t)
}

// ThenSpan is ThenTime for a length of time.
func ThenSpan(dst []byte, err error, field string, s Span) ([]byte, error) {
	if err != nil {
		return dst, err
	}
	return AppendSpan(append(dst, '.'), field, s)
}

// IndexedTable is a table as its generated index methods pass it on: a *Table, or an *UnorderedTable.
type IndexedTable[K Key, V proto.Message] interface{ whole() *Table[K, V] }

func (t *Table[K, V]) whole() *Table[K, V] { return t }

func (t *UnorderedTable[K, V]) whole() *Table[K, V] { return t.t }

// ListIndex yields the rows that have this tuple in the index of that name, in the order of their keys. Entries and rows
// are of one moment. It is for generated code.
func ListIndex[K Key, V proto.Message](ctx context.Context, t IndexedTable[K, V], index string, key IndexKey, opts ...ReadOption) iter.Seq2[Row[K, V], error] {
	o := readOptionsOf(opts)
	return func(yield func(Row[K, V], error) bool) {
		t := t.whole()
		err := t.readIndex(ctx, index, key, o.reverse, func(r *indexReader[K, V]) error {
			for n := 0; o.limit <= 0 || n < o.limit; n++ {
				if ok, err := r.next(ctx); err != nil || !ok {
					return err
				}
				row, err := r.row(o.keysOnly)
				if err != nil {
					return err
				}
				if !yield(row, nil) {
					r.left = true
					return nil
				}
			}
			return nil
		})
		if err != nil {
			yield(Row[K, V]{}, err)
		}
	}
}

// CountIndex is how many rows have this tuple in the index of that name. It reads no rows. It is for generated code.
func CountIndex[K Key, V proto.Message](ctx context.Context, t IndexedTable[K, V], index string, key IndexKey) (n uint64, err error) {
	err = t.whole().readIndex(ctx, index, key, false, func(r *indexReader[K, V]) error {
		for {
			if ok, err := r.next(ctx); err != nil || !ok {
				return err
			}
			n++
		}
	})
	return n, err
}

// GetIndex is the one row that has this tuple in the unique index of that name; false when there is none, and a
// *NotUniqueError when there are more. It is for generated code.
func GetIndex[K Key, V proto.Message](ctx context.Context, t IndexedTable[K, V], index string, key IndexKey) (row Row[K, V], ok bool, err error) {
	err = t.whole().readIndex(ctx, index, key, false, func(r *indexReader[K, V]) (err error) {
		if ok, err = r.next(ctx); err != nil || !ok {
			return err
		}
		if row, err = r.row(false); err != nil {
			return err
		}
		if more, err := r.next(ctx); err != nil || !more {
			return err
		}
		return r.notUnique(ctx, row.Key)
	})
	if err != nil {
		return Row[K, V]{}, false, err
	}
	return row, ok, nil
}

// indexReader is one read of an index.
type indexReader[K Key, V proto.Message] struct {
	t     *Table[K, V]
	index *tableIndex
	view  store.Getter
	it    store.Iterator
	tuple int  // the length of what all the entries begin with
	left  bool // the caller has had enough
}

// readIndex has f read the entries of a tuple, and the rows, in one view.
func (t *Table[K, V]) readIndex(ctx context.Context, index string, key IndexKey, reverse bool, f func(*indexReader[K, V]) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	x := t.t.indexes
	ix, err := x.byName(index)
	if err == nil {
		err = key.err
	}
	if err != nil {
		return err
	}
	r := indexReader[K, V]{t: t, index: ix, view: t.view}
	fail := func(err error) error {
		return fmt.Errorf("read index %s of table %s: %w", ix.Name, x.name, err)
	}
	if r.view == nil {
		s, err := t.t.live()
		if err != nil {
			return fail(err)
		}
		snap, err := s.Snapshot()
		if err != nil {
			return fail(err)
		}
		defer func() { _ = snap.Close() }()
		r.view = snap
	}
	lower := make([]byte, 0, len(ix.prefix)+len(key.tokens)+1)
	lower = append(append(append(lower, ix.prefix...), key.tokens...), 0)
	r.tuple = len(lower)
	if r.it, err = r.view.Iter(store.IterOptions{Lower: lower, Upper: store.PrefixEnd(lower), Reverse: reverse}); err != nil {
		return fail(err)
	}
	defer func() { // also when the caller's loop panics
		if closeErr := r.it.Close(); closeErr != nil && err == nil && !r.left {
			err = fail(closeErr)
		}
	}()
	if err = f(&r); err != nil && ctx.Err() == nil {
		return fail(err)
	}
	return err
}

// next moves to the next entry.
func (r *indexReader[K, V]) next(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if r.it.Next() {
		return true, nil
	}
	return false, r.it.Err()
}

func (r *indexReader[K, V]) key() (K, string, error) {
	text := r.t.t.indexes.rowKey(r.it.Key(), r.tuple)
	k, err := r.t.t.desc.cfg.ParseKey(text)
	return k, text, err
}

// row is the row that the entry stands for.
func (r *indexReader[K, V]) row(keysOnly bool) (row Row[K, V], err error) {
	k, text, err := r.key()
	if err != nil {
		return row, &IndexError{Table: r.t.t.c.name, Index: r.index.Name, Key: text, Problem: IndexExtra}
	}
	mode := readNew
	if keysOnly {
		mode = readNone
	}
	ok, err := r.t.t.readInto(r.view, k, mode, &row)
	if err == nil && !ok {
		err = &IndexError{Table: r.t.t.c.name, Index: r.index.Name, Key: text, Problem: IndexExtra}
	}
	return row, err
}

// notUnique names the rows that share a tuple: the first, and those from the entry on that is read now.
func (r *indexReader[K, V]) notUnique(ctx context.Context, first K) error {
	e := &NotUniqueError{Table: r.t.t.c.name, Index: r.index.Name, Keys: []string{KeyString(first)}}
	for {
		if len(e.Keys) == MaxNotUniqueKeys {
			e.More = true
			return e
		}
		_, text, _ := r.key()
		e.Keys = append(e.Keys, text)
		if ok, err := r.next(ctx); err != nil || !ok {
			if err != nil {
				return err
			}
			return e
		}
	}
}
