package fold

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// MaxIndexProblems is how many differences VerifyIndexes names.
const MaxIndexProblems = 20

// IndexReport is what VerifyIndexes found.
type IndexReport struct {
	// Indexes and Rows are how many were looked at, Entries how many the indexes have.
	Indexes, Rows, Entries uint64
	// Problems are the first differences, MaxIndexProblems at most; Found is how many there are.
	Problems []*IndexError
	Found    uint64
}

// Err is nil when there are no differences; else it matches store.ErrCorrupt, and is one of each *IndexError named.
func (r *IndexReport) Err() error {
	if r.Found == 0 {
		return nil
	}
	errs := make([]error, len(r.Problems))
	for i, p := range r.Problems {
		errs[i] = p
	}
	return fmt.Errorf("indexes disagree with the rows in %d places: %w", r.Found, errors.Join(errs...))
}

func (r *IndexReport) add(x *tableIndexes, index, key string, p IndexProblem) {
	r.found(&IndexError{Table: x.name, Index: index, Key: key, Problem: p})
}

func (r *IndexReport) found(e *IndexError) {
	if r.Found++; len(r.Problems) < MaxIndexProblems {
		r.Problems = append(r.Problems, e)
	}
}

// VerifyIndexes compares the indexes of all tables with the rows, both ways, in one view of the store, while the fold
// goes on. What disagrees is in the report; the error is of reading.
func (f *Fold) VerifyIndexes(ctx context.Context) (*IndexReport, error) {
	snap, err := f.snapshot()
	if err != nil {
		return nil, fmt.Errorf("verify indexes: %w", err)
	}
	defer func() { _ = snap.Close() }()
	var all []*tableIndexes
	for _, t := range f.sink.tables {
		if x := t.base().indexes; x != nil {
			all = append(all, x)
		}
	}
	return verifyIndexes(ctx, snap, all)
}

// VerifyIndexesOf is Fold.VerifyIndexes for a store that no fold has open, with nothing but the messages' descriptors.
// The messages are tables of the store's bucket; those without indexes are passed over.
func VerifyIndexesOf(ctx context.Context, g store.Getter, messages ...protoreflect.MessageDescriptor) (*IndexReport, error) {
	var all []*tableIndexes
	for _, md := range messages {
		c, err := compileTable(md)
		if err != nil {
			return nil, fmt.Errorf("verify indexes: %w", err)
		}
		x, err := newTableIndexes(c, md, dynamicRows{c: c, message: dynamicpb.NewMessageType(md)})
		if err != nil {
			return nil, fmt.Errorf("verify indexes: %w", err)
		}
		if x != nil {
			all = append(all, x)
		}
	}
	return verifyIndexes(ctx, g, all)
}

// dynamicRows are a table's rows by its descriptor alone.
type dynamicRows struct {
	c       *compiled
	message protoreflect.MessageType
}

func (d dynamicRows) isKey(key string) bool { return isCanonical(d.c.table, key) }

func (d dynamicRows) decodeRow(row *indexedRow) (proto.Message, error) {
	m := d.message.New().Interface()
	return m, d.c.codecs.decode(row.value, row.contentType, m)
}

func verifyIndexes(ctx context.Context, g store.Getter, all []*tableIndexes) (*IndexReport, error) {
	r := &IndexReport{}
	for _, x := range all {
		r.Indexes += uint64(len(x.list))
		if err := r.marks(g, x); err != nil {
			return nil, fmt.Errorf("verify indexes of table %s: %w", x.name, err)
		}
		if err := r.rows(ctx, g, x); err != nil {
			return nil, fmt.Errorf("verify indexes of table %s: %w", x.name, err)
		}
		for i := range x.list {
			if err := r.entries(ctx, g, x, &x.list[i]); err != nil {
				return nil, fmt.Errorf("verify index %s of table %s: %w", x.list[i].Name, x.name, err)
			}
		}
	}
	return r, nil
}

func (r *IndexReport) marks(g store.Getter, x *tableIndexes) error {
	var v store.Value
	for i := range x.list {
		ok, err := g.Get(x.mark(&x.list[i]), &v)
		if err != nil {
			return err
		}
		if !ok || string(v.Bytes) != x.list[i].Definition() {
			r.add(x, x.list[i].Name, "", IndexUnbuilt)
		}
		v.Release()
	}
	return nil
}

// rows finds each entry of each row.
func (r *IndexReport) rows(ctx context.Context, g store.Getter, x *tableIndexes) error {
	var set entrySet
	var scratch indexScratch
	var v store.Value
	var failed error
	_, err := eachRow(ctx, g, x, x.firstRow(), func(row *indexedRow) bool {
		r.Rows++
		x.entries(&set, &scratch, row)
		for i := range set.len() {
			ok, err := g.Get(set.at(i), &v)
			if err != nil {
				failed = err
				return false
			}
			v.Release()
			if !ok {
				r.add(x, x.indexOf(set.at(i)), row.key, IndexMissing)
			}
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}

// indexOf is the name of the index that an entry is of.
func (x *tableIndexes) indexOf(entry []byte) string {
	for i := range x.list {
		if bytes.HasPrefix(entry, x.list[i].prefix) {
			return x.list[i].Name
		}
	}
	return ""
}

// entries finds the row of each entry, and in it the entry's values.
func (r *IndexReport) entries(ctx context.Context, g store.Getter, x *tableIndexes, ix *tableIndex) error {
	it, err := g.Iter(store.IterOptions{Lower: ix.prefix, Upper: store.PrefixEnd(ix.prefix)})
	if err != nil {
		return err
	}
	w := newIndexWriter(x)
	for it.Next() {
		if err = ctx.Err(); err != nil {
			break
		}
		r.Entries++
		tuple, ok := ix.tupleLen(it.Key())
		if !ok {
			r.add(x, ix.Name, string(it.Key()), IndexExtra)
			continue
		}
		key := x.rowKey(it.Key(), tuple)
		if err = w.stored(g, key); err != nil {
			break
		}
		if !x.table.Matches(key) || !x.rows.isKey(key) || !w.before.has(it.Key()) {
			r.add(x, ix.Name, key, IndexExtra)
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

// isCanonical reports whether each token of a key of the table's shape is one that its variable is written as.
func isCanonical(t *schema.Table, key string) bool {
	for i := range t.Pattern {
		if v := t.Pattern[i].Var; v >= 0 {
			f := indexField{bound: &t.Vars[v], segment: i}
			if _, ok := f.fromKey(key); !ok {
				return false
			}
		}
	}
	return true
}
