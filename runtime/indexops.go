package fold

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// rowEffect is what an update does to the row that reads see.
type rowEffect uint8

const (
	rowStays rowEffect = iota
	rowSet             // the update's value is the row
	rowEnds            // there is none
)

// effectOf is the effect of an update that is among a part's places: a rejected one is so only where the table drops
// the row, and a table that drops what ages out has it as a delete.
func effectOf(op kv.Op, rejected bool) rowEffect {
	switch {
	case rejected || op.Removes():
		return rowEnds
	case op == kv.OpPut:
		return rowSet
	}
	return rowStays
}

// indexWriter works out what a batch does to the entries of one table. It is used by the fold's worker.
type indexWriter struct {
	*tableIndexes
	scratch       indexScratch
	before, after entrySet
	keys          map[string]int // places in changes
	changes       []rowChange
	arena         []byte // keys of the ops
	// fresh tells which keys the store need not be asked for; nil when it has to be.
	fresh *newKeys
	key   []byte
	value store.Value
}

// rowChange is the last update of a batch that changed a key's row.
type rowChange struct {
	update  *kv.Update
	message proto.Message // the update's value, where it was decoded
}

func newIndexWriter(x *tableIndexes) *indexWriter {
	if x == nil {
		return nil
	}
	return &indexWriter{tableIndexes: x, keys: map[string]int{}}
}

// ops appends what the segments do to the entries: for each key, the difference between those of the row in the store
// and those of the row after the batch. It depends on nothing but the store and the segments, so a batch that failed
// can come again. The ops are valid until the next call.
func (w *indexWriter) ops(g store.Getter, segs []*segment, parts []part, ops []store.Op) ([]store.Op, error) {
	w.collect(segs, parts)
	w.arena = w.arena[:0]
	for i := range w.changes {
		c := &w.changes[i]
		w.before.reset()
		if w.fresh == nil || !w.fresh.isNew(c.update.Key) {
			if err := w.stored(g, c.update.Key); err != nil {
				return ops, err
			}
		}
		if effectOf(c.update.Op, c.update.Rejected) == rowSet {
			w.entries(&w.after, &w.scratch, &indexedRow{c.update.Key, c.update.Value, c.update.ContentType, c.message})
		} else {
			w.after.reset()
		}
		diffEntries(&w.before, &w.after,
			func(entry []byte) { ops = append(ops, store.Op{Key: w.keep(entry), Delete: true}) },
			func(entry []byte) { ops = append(ops, store.Op{Key: w.keep(entry)}) })
	}
	w.note()
	clear(w.changes)
	return ops, nil
}

// note takes the batch's keys for keys that the store has, whether or not the batch is committed.
func (w *indexWriter) note() {
	for i := range w.changes {
		if w.fresh == nil {
			return
		}
		if key := w.changes[i].update.Key; w.fresh.isNew(key) && !w.fresh.add(key) {
			w.fresh = nil
		}
	}
}

// begin finds out whether the store has keys of the table.
func (w *indexWriter) begin(g store.Getter) error {
	it, err := g.Iter(w.rowBounds(w.firstRow()))
	if err != nil {
		return err
	}
	if w.fresh = nil; !it.Next() {
		w.fresh = newNewKeys()
	}
	return cmp.Or(it.Err(), it.Close())
}

// collect finds the last change of each key, in the order of the first.
func (w *indexWriter) collect(segs []*segment, parts []part) {
	clear(w.keys)
	w.changes = w.changes[:0]
	for i, s := range segs {
		for n, at := range parts[i].places() {
			u := &s.updates[at]
			if effectOf(u.Op, u.Rejected) == rowStays {
				continue
			}
			c := rowChange{update: u}
			if w.checker == nil {
				c.message = parts[i].decoded(n)
			}
			if place, ok := w.keys[u.Key]; ok {
				w.changes[place] = c
				continue
			}
			w.keys[u.Key] = len(w.changes)
			w.changes = append(w.changes, c)
		}
	}
}

// stored fills before with the entries of the row that reads of the key see.
func (w *indexWriter) stored(g store.Getter, key string) error {
	w.before.reset()
	for _, space := range []store.Space{store.SpaceData, store.SpaceAccepted} {
		w.key = store.AppendKey(w.key[:0], space, key)
		ok, err := g.Get(w.key, &w.value)
		if err != nil || !ok {
			return err
		}
		rec, err := store.ParseRecord(w.value.Bytes)
		accepted := err == nil && (space == store.SpaceAccepted || !rec.Rejected)
		if accepted {
			w.entries(&w.before, &w.scratch, &indexedRow{key: key, value: rec.Value, contentType: rec.ContentType})
		}
		w.value.Release()
		if err != nil || accepted {
			return err
		}
	}
	return nil
}

// keep copies an entry to where it stays until the batch is committed.
func (w *indexWriter) keep(entry []byte) []byte {
	n := len(w.arena)
	w.arena = append(w.arena, entry...)
	return w.arena[n:len(w.arena):len(w.arena)]
}
