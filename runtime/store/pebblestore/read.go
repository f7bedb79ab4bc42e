package pebblestore

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Get fills v with the value of key.
func (s *Store) Get(key []byte, v *store.Value) (bool, error) { return get(s.db, &s.refs, key, v) }

// Iter opens an iterator over the store as it is now.
func (s *Store) Iter(o store.IterOptions) (store.Iterator, error) { return iter(s.db, &s.refs, o) }

// Snapshot opens a read view of now.
func (s *Store) Snapshot() (store.Snapshot, error) {
	if err := s.refs.acquire(); err != nil {
		return nil, err
	}
	snap := &Snapshot{snap: s.db.NewSnapshot(), refs: &s.refs}
	c, _, err := readCursor(snap.snap)
	if err != nil {
		return nil, errors.Join(err, snap.Close())
	}
	snap.cursor = c
	return snap, nil
}

// Snapshot is a read view of one moment.
type Snapshot struct {
	snap   *pebble.Snapshot
	refs   *refs
	cursor kv.Cursor
	closed atomic.Bool
}

// Get fills v with the value that key had.
func (s *Snapshot) Get(key []byte, v *store.Value) (bool, error) {
	if s.closed.Load() {
		return false, store.ErrClosed
	}
	return get(s.snap, s.refs, key, v)
}

// Iter opens an iterator over the view.
func (s *Snapshot) Iter(o store.IterOptions) (store.Iterator, error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	return iter(s.snap, s.refs, o)
}

// Cursor is the cursor that the view is consistent with.
func (s *Snapshot) Cursor() kv.Cursor { return s.cursor }

// Close gives the view up; a second one does nothing.
func (s *Snapshot) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	err := s.snap.Close()
	s.refs.release()
	return err
}

func get(r pebble.Reader, refs *refs, key []byte, v *store.Value) (bool, error) {
	if err := refs.acquire(); err != nil {
		return false, err
	}
	b, closer, err := r.Get(key)
	if err != nil {
		refs.release()
		if errors.Is(err, pebble.ErrNotFound) {
			return false, nil
		}
		return false, readError("get", err)
	}
	v.Hold(b, hold(refs, closer))
	return true, nil
}

func iter(r pebble.Reader, refs *refs, o store.IterOptions) (store.Iterator, error) {
	if err := refs.acquire(); err != nil {
		return nil, err
	}
	if bytes.Compare(o.Lower, firstSpaceKey) < 0 {
		o.Lower = firstSpaceKey
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: o.Lower, UpperBound: o.Upper})
	if err != nil {
		refs.release()
		return nil, readError("iter", err)
	}
	return &Iterator{it: it, refs: refs, reverse: o.Reverse}, nil
}

// Iterator walks keys in order over one fixed view. It is used by one goroutine.
type Iterator struct {
	it      *pebble.Iterator
	refs    *refs
	seek    []byte
	reverse bool
	started bool
}

// Next moves to the next key, the first one at first.
func (i *Iterator) Next() bool {
	started := i.started
	i.started = true
	switch {
	case i.reverse && started:
		return i.it.Prev()
	case i.reverse:
		return i.it.Last()
	case started:
		return i.it.Next()
	}
	return i.it.First()
}

// SeekTo moves to the first key at or past k in the iteration's direction.
func (i *Iterator) SeekTo(k []byte) bool {
	i.started = true
	if !i.reverse {
		return i.it.SeekGE(k)
	}
	i.seek = append(append(i.seek[:0], k...), 0) // the least key past k
	return i.it.SeekLT(i.seek)
}

// Key is the key, until the next move.
func (i *Iterator) Key() []byte { return i.it.Key() }

// Value is the value, until the next move.
func (i *Iterator) Value() ([]byte, error) {
	v, err := i.it.ValueAndErr()
	if err != nil {
		return nil, readError("iter", err)
	}
	return v, nil
}

// Err is what ended the iteration, nil at its end.
func (i *Iterator) Err() error {
	if err := i.it.Error(); err != nil {
		return readError("iter", err)
	}
	return nil
}

// Close ends the iteration; a second one does nothing.
func (i *Iterator) Close() error {
	if i.refs == nil {
		return nil
	}
	err := i.it.Close()
	i.refs.release()
	i.refs = nil
	return err
}
