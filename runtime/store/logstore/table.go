package logstore

import (
	"bytes"

	"github.com/tidwall/btree"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// entry is a key and its value in one allocation, never written to after it was made.
type entry struct {
	buf  []byte
	klen int
}

func (e entry) key() []byte   { return e.buf[:e.klen:e.klen] }
func (e entry) value() []byte { return e.buf[e.klen:] }

func (e entry) size() int64 { return putSize(e.klen, len(e.buf)-e.klen) }

// probe is an entry to search with; it borrows key.
func probe(key []byte) entry { return entry{buf: key, klen: len(key)} }

// table is the ordered map of the fold, with the encoded size of what lives in it.
type table struct {
	tree *btree.BTreeG[entry]
	live int64
}

func newTable() table {
	less := func(a, b entry) bool { return bytes.Compare(a.buf[:a.klen], b.buf[:b.klen]) < 0 }
	return table{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (t *table) set(e entry) {
	old, replaced := t.tree.Set(e)
	t.live += e.size()
	if replaced {
		t.live -= old.size()
	}
}

// load is set for a key that is likely greater than all before it.
func (t *table) load(e entry) {
	old, replaced := t.tree.Load(e)
	t.live += e.size()
	if replaced {
		t.live -= old.size()
	}
}

func (t *table) put(key, value []byte) {
	buf := make([]byte, 0, len(key)+len(value))
	t.load(entry{buf: append(append(buf, key...), value...), klen: len(key)})
}

func (t *table) delete(key []byte) {
	if old, ok := t.tree.Delete(probe(key)); ok {
		t.live -= old.size()
	}
}

// batch applies a batch that is in the log.
func (t *table) batch(b *store.Batch) {
	for i := range b.Updates {
		u := &b.Updates[i]
		switch {
		case u.Op == kv.OpPut:
			buf := make([]byte, 0, 1+len(u.Key)+store.RecordSize(u))
			buf = store.AppendRecord(store.AppendKey(buf, store.SpaceData, u.Key), u)
			t.set(entry{buf: buf, klen: 1 + len(u.Key)})
		case u.Op.Removes():
			t.delete(store.AppendKey(make([]byte, 0, 1+len(u.Key)), store.SpaceData, u.Key))
		}
	}
	for i := range b.Ops {
		if o := &b.Ops[i]; o.Delete {
			t.delete(o.Key)
		} else {
			t.put(o.Key, o.Value)
		}
	}
}
