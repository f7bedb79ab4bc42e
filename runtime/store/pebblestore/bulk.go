package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// DefaultBulkMinUpdates is the size from which a Bulk batch is ingested. It is a measurement: a hydrate of a million
// keys of 25 bytes with values of 200 in random order, CPU for each update while it loads and again with all flushes
// and compactions that it leaves, two interleaved rounds on a busy machine (only the ratios mean anything):
//
//	batches of                     load          all
//	 1,000, not Bulk               5.2 µs        7.2-7.5 µs
//	 1,000, Bulk but not ingested  3.2-3.5 µs    5.0-5.7 µs
//	10,000, ingested               3.8-4.6 µs    6.8-7.6 µs
//	20,000, ingested               3.4-3.6 µs    5.5-5.9 µs
//	50,000, ingested               2.0 µs        5.1-5.2 µs
//
// Below some 20,000 the tables are too many: each costs several syncs of the disk, and their depth compactions.
const DefaultBulkMinUpdates = 32_000

const (
	bulkName    = "bulk-ingest.tmp"
	bulkPattern = "bulk-*.tmp"
)

// bulk writes a batch as one sorted table. Its buffers are kept from batch to batch.
type bulk struct {
	options sstable.WriterOptions
	keys    []byte
	runs    []bulkRun
	value   []byte
}

// bulkRun is one write of a key: where the key is in the arena, and what is written.
type bulkRun struct {
	head uint64 // 8 bytes of the key after the prefix that all keys share, to compare first
	off  uint32
	size uint32
	from int32 // index into Updates, or after them into Ops
}

func (w *bulk) init(o *pebble.Options, f sstable.TableFormat) { w.options = o.MakeWriterOptions(0, f) }

// applyBulk writes the last write of each key of the n-th batch, in key order, into a table with the cursor in it, and
// adds that table to the database in one step. It is durable when it returns.
func (s *Store) applyBulk(ctx context.Context, b *store.Batch, c kv.Cursor, n uint64) error {
	path := s.fs.PathJoin(s.path, bulkName)
	s.bulk.collect(b)
	s.bulk.sort()
	return s.log.guard(func() error {
		if err := s.bulk.writeTable(s.fs, path, b, c, n); err != nil {
			_ = s.fs.Remove(path) // the next bulk batch or the next open does it else
			return err
		}
		return s.db.Ingest(context.WithoutCancel(ctx), []string{path})
	})
}

// collect takes the keys of all writes.
func (w *bulk) collect(b *store.Batch) {
	w.keys, w.runs = w.keys[:0], w.runs[:0]
	for i := range b.Updates {
		u := &b.Updates[i]
		if u.Op == kv.OpAgedOut {
			continue
		}
		off := len(w.keys)
		w.keys = store.AppendKey(w.keys, store.SpaceData, u.Key)
		w.add(off, i)
	}
	for i := range b.Ops {
		off := len(w.keys)
		w.keys = append(w.keys, b.Ops[i].Key...)
		w.add(off, len(b.Updates)+i)
	}
	off := len(w.keys)
	w.keys = append(w.keys, cursorKey...)
	w.add(off, len(b.Updates)+len(b.Ops))
}

func (w *bulk) add(off, from int) {
	w.runs = append(w.runs, bulkRun{off: uint32(off), size: uint32(len(w.keys) - off), from: int32(from)})
}

func (w *bulk) key(r *bulkRun) []byte { return w.keys[r.off : r.off+r.size] }

// sort orders the writes by key and, within one key, by age.
func (w *bulk) sort() {
	shared := w.sharedPrefix()
	for i := range w.runs {
		r := &w.runs[i]
		r.head = head(w.key(r), shared)
	}
	slices.SortFunc(w.runs, func(a, b bulkRun) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		if c := bytes.Compare(w.key(&a), w.key(&b)); c != 0 {
			return c
		}
		return cmp.Compare(a.from, b.from)
	})
}

// sharedPrefix is the length of the prefix that all keys of SpaceData have in common. Keys of other spaces differ in
// their first byte, which head looks at first.
func (w *bulk) sharedPrefix() int {
	var first []byte
	shared := 0
	for i := range w.runs {
		k := w.key(&w.runs[i])
		if k[0] != byte(store.SpaceData) {
			continue
		}
		if first == nil {
			first, shared = k, len(k)
			continue
		}
		n := 0
		for n < shared && n < len(k) && k[n] == first[n] {
			n++
		}
		shared = n
	}
	return max(shared, 1)
}

// head is the key's space and the 7 bytes after the shared prefix of SpaceData. For keys of other spaces it is the
// space alone, so that heads never contradict the order of keys.
func head(k []byte, shared int) uint64 {
	h := uint64(k[0]) << 56
	if k[0] != byte(store.SpaceData) {
		return h
	}
	rest := k[shared:]
	if len(rest) >= 8 {
		return h | binary.BigEndian.Uint64(rest)>>8
	}
	var b [8]byte
	copy(b[:], rest)
	return h | binary.BigEndian.Uint64(b[:])>>8
}

func (w *bulk) writeTable(fs vfs.FS, path string, b *store.Batch, c kv.Cursor, n uint64) (err error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	t := sstable.NewWriter(objstorageprovider.NewFileWritable(f), w.options)
	defer func() { err = errors.Join(err, t.Close()) }()
	if err := writeLink(t, n); err != nil {
		return err
	}
	for i := range w.runs {
		r := &w.runs[i]
		k := w.key(r)
		if i+1 < len(w.runs) && bytes.Equal(k, w.key(&w.runs[i+1])) {
			continue // a later write of the same key wins
		}
		if err := w.writeOne(t, k, int(r.from), b, c); err != nil {
			return err
		}
	}
	return nil
}

func (w *bulk) writeOne(t *sstable.Writer, key []byte, from int, b *store.Batch, c kv.Cursor) error {
	if from < len(b.Updates) {
		u := &b.Updates[from]
		if u.Op.Removes() {
			return t.Delete(key)
		}
		w.value = store.AppendRecord(w.value[:0], u)
		return t.Set(key, w.value)
	}
	if from -= len(b.Updates); from < len(b.Ops) {
		if b.Ops[from].Delete {
			return t.Delete(key)
		}
		return t.Set(key, b.Ops[from].Value)
	}
	w.value = c.AppendBytes(w.value[:0])
	return t.Set(key, w.value)
}
