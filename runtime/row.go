package fold

import (
	"fmt"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// readBuf is one read's working memory.
type readBuf struct {
	key []byte
	val store.Value
}

var readBufs = sync.Pool{New: func() any { return &readBuf{key: make([]byte, 0, 128)} }}

// dataKey puts the store key of k into the buffer.
func dataKey[K Key](b *readBuf, k K) error {
	key, err := k.AppendKey(append(b.key[:0], byte(store.SpaceData)))
	if err != nil {
		return err
	}
	store.Ordered(key[1:])
	b.key = key
	return nil
}

// readMode is what a read does about the value.
type readMode uint8

const (
	readNew  readMode = iota // decodes into a new message
	readDst                  // decodes into the message that is there
	readNone                 // leaves it alone
)

// readRow is the row of k in one view of the store.
func (t *tableState[K, V]) readRow(g store.Getter, k K) (row Row[K, V], ok bool, err error) {
	if ok, err = t.readInto(g, k, readNew, &row); !ok || err != nil {
		return Row[K, V]{}, false, err
	}
	return row, true, nil
}

// readInto fills row with k's row as the view has it.
func (t *tableState[K, V]) readInto(g store.Getter, k K, mode readMode, row *Row[K, V]) (bool, error) {
	b := readBufs.Get().(*readBuf)
	defer readBufs.Put(b)
	if err := dataKey(b, k); err != nil {
		return false, err
	}
	ok, err := g.Get(b.key, &b.val)
	if err != nil || !ok {
		return false, err
	}
	rec, err := store.ParseRecord(b.val.Bytes)
	if err == nil && !rec.Rejected {
		err = t.fillRow(&rec, k, mode, row)
	}
	stale := rec.Rejected
	b.val.Release()
	switch {
	case err != nil:
		return false, fmt.Errorf("table %s: %w", t.c.name, err)
	case !stale:
		return true, nil
	}
	live, ok := g.(store.Store)
	if !ok {
		return t.readStale(g, b, k, mode, row)
	}
	// More than one read must see one moment.
	ok = false
	err = consistent(live, func(g store.Getter) (err error) {
		ok, err = t.readInto(g, k, mode, row)
		return err
	})
	return ok, err
}

// readStale reads the last accepted record of a key whose newest one was rejected. b.key is the key's data key.
func (t *tableState[K, V]) readStale(g store.Getter, b *readBuf, k K, mode readMode, row *Row[K, V]) (bool, error) {
	b.key[0] = byte(store.SpaceAccepted)
	ok, err := g.Get(b.key, &b.val)
	if err != nil || !ok {
		return false, err
	}
	rec, err := store.ParseRecord(b.val.Bytes)
	if err == nil {
		err = t.fillRow(&rec, k, mode, row)
	}
	b.val.Release()
	if err != nil {
		return false, fmt.Errorf("table %s: %w", t.c.name, err)
	}
	b.key[0] = byte(store.SpaceRejected)
	if ok, err = g.Get(b.key, &b.val); err != nil || !ok {
		return ok, err
	}
	row.Stale, err = parseRejection(b.val.Bytes)
	b.val.Release()
	if err != nil {
		return false, fmt.Errorf("table %s: %w", t.c.name, err)
	}
	return true, nil
}

func (t *tableState[K, V]) fillRow(rec *store.Record, k K, mode readMode, row *Row[K, V]) error {
	row.Key = k
	row.Rev = Rev[K]{key: k, seq: rec.Version.Rank()}
	row.Time = recordTime(rec)
	switch mode {
	case readNone:
		return nil
	case readNew:
		row.Value = t.desc.newValue()
	}
	if err := t.desc.decodeInto(t.c, rec.Value, rec.ContentType, k, row.Value); err != nil {
		return fmt.Errorf("revision %v: %w", rec.Version, err)
	}
	return nil
}

func recordTime(r *store.Record) time.Time {
	u := kv.Update{UnixNano: r.UnixNano}
	return u.Time()
}

// consistent gives f one view of the store: g itself for what needs one read, a snapshot for what may need more.
func consistent(s store.Store, f func(store.Getter) error) error {
	snap, err := s.Snapshot()
	if err != nil {
		return err
	}
	defer func() { _ = snap.Close() }()
	return f(snap)
}
