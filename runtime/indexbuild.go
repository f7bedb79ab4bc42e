package fold

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/store"
)

// A batch of a rebuild has at most so many ops, and begins none past so many bytes of keys.
const (
	rebuildOps   = 16_384
	rebuildBytes = 4 << 20
)

// compileIndexes gives the table its indexes.
func (t *tableState[K, V]) compileIndexes() (err error) {
	t.indexes, err = newTableIndexes(t.c, t.desc.message().Descriptor(), t)
	t.entries = newIndexWriter(t.indexes)
	return err
}

func (t *tableState[K, V]) isKey(key string) bool {
	_, err := t.desc.cfg.ParseKey(key)
	return err == nil
}

func (t *tableState[K, V]) decodeRow(row *indexedRow) (proto.Message, error) {
	k, err := t.desc.cfg.ParseKey(row.key)
	if err != nil {
		return nil, err
	}
	v := t.desc.newValue()
	return v, t.desc.decodeInto(t.c, row.value, row.contentType, k, v)
}

// indexBuild makes the index entries of a store those of the tables, before anything is folded. What it does in a
// crash's stead it does again: a mark is taken away before the first entry of its index, and set after the last, so
// that only a whole index has one.
type indexBuild struct {
	store  store.Store
	tables []anyTable
	log    *slog.Logger
	told   func(RebuildProgress)
	limit  int // ops in a batch; 0 is rebuildOps

	ops  []store.Op
	size int
}

func (b *indexBuild) run(ctx context.Context) error {
	built, err := b.marks(ctx)
	if err == nil {
		err = b.sweep(ctx, built)
	}
	if err != nil {
		return fmt.Errorf("remove old index entries: %w", err)
	}
	for _, t := range b.tables {
		x := t.base().indexes
		if x == nil {
			continue
		}
		missing := slices.DeleteFunc(slices.Clone(x.list), func(ix tableIndex) bool { return built[string(ix.prefix)] })
		if len(missing) == 0 {
			continue
		}
		if err := b.build(ctx, t.base(), missing); err != nil {
			return fmt.Errorf("build indexes of table %s: %w", x.name, err)
		}
	}
	if err := b.flush(ctx, false); err != nil {
		return fmt.Errorf("mark indexes as built: %w", err)
	}
	return nil
}

// marks finds the indexes of the tables that are built, by their prefix, and takes the marks of all others away: of
// indexes that were removed or defined anew, and of tables that this fold does not have, since it would not keep them.
func (b *indexBuild) marks(ctx context.Context) (map[string]bool, error) {
	want := map[string]*tableIndex{} // by mark
	for _, t := range b.tables {
		if x := t.base().indexes; x != nil {
			for i := range x.list {
				want[string(x.mark(&x.list[i]))] = &x.list[i]
			}
		}
	}
	built := map[string]bool{}
	prefix := store.MetaKey(store.MetaIndex)
	it, err := b.store.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return nil, err
	}
	for it.Next() {
		var value []byte
		if value, err = it.Value(); err != nil {
			break
		}
		if ix := want[string(it.Key())]; ix != nil && string(value) == ix.Definition() {
			built[string(ix.prefix)] = true
			continue
		}
		b.add(store.Op{Key: bytes.Clone(it.Key()), Delete: true})
	}
	err = cmp.Or(err, it.Err())
	err = cmp.Or(err, it.Close())
	if err != nil {
		return nil, err
	}
	return built, b.flush(ctx, false)
}

// sweep removes every entry that is none of a built index.
func (b *indexBuild) sweep(ctx context.Context, built map[string]bool) error {
	keep := make([][]byte, 0, len(built))
	for prefix := range built {
		keep = append(keep, []byte(prefix))
	}
	slices.SortFunc(keep, bytes.Compare)
	from, removed := []byte{byte(store.SpaceIndex)}, 0
	for from != nil {
		next, err := b.sweepBatch(ctx, from, keep)
		if err != nil {
			return err
		}
		removed += len(b.ops)
		if err := b.flush(ctx, next != nil); err != nil {
			return err
		}
		from = next
	}
	if removed > 0 {
		b.log.Info("fold: old index entries removed", "entries", removed)
	}
	return nil
}

// sweepBatch gathers deletes from a key on, up to a batch, and says where to go on; nil at the end.
func (b *indexBuild) sweepBatch(ctx context.Context, from []byte, keep [][]byte) (next []byte, err error) {
	end := store.PrefixEnd([]byte{byte(store.SpaceIndex)})
	it, err := b.store.Iter(store.IterOptions{Lower: from, Upper: end})
	if err != nil {
		return nil, err
	}
	ok := it.Next()
	for ok {
		if err = ctx.Err(); err != nil {
			break
		}
		key := it.Key()
		if i := slices.IndexFunc(keep, func(p []byte) bool { return bytes.HasPrefix(key, p) }); i >= 0 {
			ok = it.SeekTo(store.PrefixEnd(keep[i]))
			continue
		}
		if b.full() {
			next = bytes.Clone(key)
			break
		}
		b.add(store.Op{Key: bytes.Clone(key), Delete: true})
		ok = it.Next()
	}
	err = cmp.Or(err, it.Err())
	return next, cmp.Or(err, it.Close())
}

// build makes the entries of some of a table's indexes in one pass over its rows, and then their marks. The last of
// them are gathered and not committed yet.
func (b *indexBuild) build(ctx context.Context, t *tableBase, missing []tableIndex) error {
	x := *t.indexes
	x.list = missing
	progress := RebuildProgress{Table: x.name, Index: indexNames(missing)}
	var err error
	if progress.Total, err = countRows(ctx, b.store, &x); err != nil {
		return err
	}
	var set entrySet
	var scratch indexScratch
	for from := x.firstRow(); from != nil && progress.Total > 0; {
		if from, err = eachRow(ctx, b.store, &x, from, func(row *indexedRow) bool {
			progress.Done++
			x.entries(&set, &scratch, row)
			for i := range set.len() {
				b.add(store.Op{Key: bytes.Clone(set.at(i))})
			}
			return !b.full()
		}); err != nil {
			return err
		}
		if from == nil {
			break // the rest goes with the marks, and maybe with another table's
		}
		if err := b.flush(ctx, true); err != nil {
			return err
		}
		b.tell(progress)
	}
	for i := range missing {
		b.add(store.Op{Key: x.mark(&missing[i]), Value: []byte(missing[i].Definition())})
	}
	if progress.Total > 0 {
		b.tell(progress)
		b.log.Info("fold: indexes built", "table", progress.Table, "index", progress.Index, "rows", progress.Done)
	}
	return nil
}

func indexNames(list []tableIndex) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return strings.Join(names, ",")
}

func (b *indexBuild) tell(p RebuildProgress) {
	b.log.Debug("fold: building indexes", "table", p.Table, "index", p.Index, "done", p.Done, "total", p.Total)
	if b.told != nil {
		b.told(p)
	}
}

func (b *indexBuild) full() bool {
	return len(b.ops) >= cmp.Or(b.limit, rebuildOps) || b.size >= rebuildBytes
}

func (b *indexBuild) add(op store.Op) {
	b.ops = append(b.ops, op)
	b.size += len(op.Key) + len(op.Value)
}

// flush commits what was gathered, at the cursor where the store is. more says that another batch follows.
func (b *indexBuild) flush(ctx context.Context, more bool) error {
	if len(b.ops) == 0 {
		return nil
	}
	if err := b.store.Apply(ctx, &store.Batch{Ops: b.ops, Bulk: more}, b.store.Cursor()); err != nil {
		return err
	}
	clear(b.ops)
	b.ops, b.size = b.ops[:0], 0
	return nil
}

// firstRow is the store key before which no row of the table lies.
func (x *tableIndexes) firstRow() []byte {
	return store.AppendKey(nil, store.SpaceData, x.table.Prefix())
}

// rowBounds are the store keys of the table's rows from a key on.
func (x *tableIndexes) rowBounds(from []byte) store.IterOptions {
	first := x.firstRow()
	if x.table.Singleton() {
		return store.IterOptions{Lower: from, Upper: append(first, 0)}
	}
	return store.IterOptions{Lower: from, Upper: store.PrefixEnd(first)}
}

// eachRow calls f with each row that reads see, from a store key on, until f is false. It returns the store key to go
// on from then, and nil at the end. The row's value is valid until f returns.
func eachRow(ctx context.Context, g store.Getter, x *tableIndexes, from []byte, f func(*indexedRow) bool) (next []byte, err error) {
	it, err := g.Iter(x.rowBounds(from))
	if err != nil {
		return nil, err
	}
	var accepted store.Value
	for it.Next() {
		if err = ctx.Err(); err != nil {
			break
		}
		key := store.NATSKey(it.Key())
		if !x.table.Matches(key) || !x.rows.isKey(key) {
			continue
		}
		var value []byte
		var rec store.Record
		if value, err = it.Value(); err != nil {
			break
		}
		if rec, err = store.ParseRecord(value); err != nil {
			break
		}
		if rec.Rejected {
			var ok bool
			if ok, err = g.Get(store.AppendKey(nil, store.SpaceAccepted, key), &accepted); err != nil {
				break
			}
			if !ok {
				continue
			}
			if rec, err = store.ParseRecord(accepted.Bytes); err != nil {
				accepted.Release()
				break
			}
		}
		more := f(&indexedRow{key: key, value: rec.Value, contentType: rec.ContentType})
		accepted.Release()
		if !more {
			next = append(bytes.Clone(it.Key()), 0)
			break
		}
	}
	err = cmp.Or(err, it.Err())
	return next, cmp.Or(err, it.Close())
}

// countRows is how many rows the table has.
func countRows(ctx context.Context, g store.Getter, x *tableIndexes) (n uint64, err error) {
	_, err = eachRow(ctx, g, x, x.firstRow(), func(*indexedRow) bool { n++; return true })
	return n, err
}
