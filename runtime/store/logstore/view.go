package logstore

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// view is the fold of one moment; nobody writes to it.
type view struct {
	tree   *btree.BTreeG[entry]
	cursor kv.Cursor
}

// viewLocked is the view of now; s.mu is held for writing.
func (s *Store) viewLocked() *view {
	if s.current == nil {
		s.current = &view{tree: s.table.tree.Copy(), cursor: s.cursor}
	}
	return s.current
}

func (s *Store) view() (*view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.closedError()
	}
	return s.viewLocked(), nil
}

// hold is view, counted until release.
func (s *Store) hold() (*view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.closedError()
	}
	s.readers++
	return s.viewLocked(), nil
}

func (s *Store) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
}

// Get fills v with the value of key. The bytes stay valid after Release too: the store never writes to them again.
func (s *Store) Get(key []byte, v *store.Value) (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return false, s.closedError()
	}
	return get(s.table.tree, key, v), nil
}

func get(tree *btree.BTreeG[entry], key []byte, v *store.Value) bool {
	e, ok := tree.Get(probe(key))
	if ok {
		v.Hold(e.value(), nil)
	}
	return ok
}

// Iter opens an iterator over the store as it is now.
func (s *Store) Iter(o store.IterOptions) (store.Iterator, error) {
	v, err := s.hold()
	if err != nil {
		return nil, err
	}
	return newIterator(v.tree, o, s.release), nil
}

// Snapshot opens a view of now. It costs no copy; the store copies what it changes while the view is open.
func (s *Store) Snapshot() (store.Snapshot, error) {
	v, err := s.hold()
	if err != nil {
		return nil, err
	}
	return &snapshot{s: s, v: v}, nil
}

type snapshot struct {
	s      *Store
	v      *view
	closed atomic.Bool
}

func (p *snapshot) Get(key []byte, v *store.Value) (bool, error) {
	if p.closed.Load() {
		return false, errSnapshotClosed
	}
	return get(p.v.tree, key, v), nil
}

func (p *snapshot) Iter(o store.IterOptions) (store.Iterator, error) {
	if p.closed.Load() {
		return nil, errSnapshotClosed
	}
	p.s.mu.Lock()
	p.s.readers++
	p.s.mu.Unlock()
	return newIterator(p.v.tree, o, p.s.release), nil
}

func (p *snapshot) Cursor() kv.Cursor { return p.v.cursor }

func (p *snapshot) Close() error {
	if !p.closed.Swap(true) {
		p.s.release()
	}
	return nil
}

var (
	errSnapshotClosed = fmt.Errorf("logstore: snapshot: %w", store.ErrClosed)
	errIteratorClosed = fmt.Errorf("logstore: iterator: %w", store.ErrClosed)
)

// iterator walks a view. It stands on the item it shows, or, before the first move, nowhere.
type iterator struct {
	in      btree.IterG[entry]
	o       store.IterOptions
	item    entry
	release func()
	started bool
	valid   bool
}

func newIterator(tree *btree.BTreeG[entry], o store.IterOptions, release func()) *iterator {
	it := &iterator{release: release}
	it.o = store.IterOptions{Lower: bytes.Clone(o.Lower), Upper: bytes.Clone(o.Upper), Reverse: o.Reverse}
	it.in.Init(tree, false)
	return it
}

func (it *iterator) Next() bool {
	switch {
	case it.release == nil:
		return false
	case !it.started:
		return it.seek(nil)
	case !it.valid:
		return false
	case it.o.Reverse:
		return it.stand(it.in.Prev())
	}
	return it.stand(it.in.Next())
}

func (it *iterator) SeekTo(k []byte) bool {
	if it.release == nil {
		return false
	}
	if k == nil {
		k = []byte{}
	}
	return it.seek(k)
}

// seek stands on the first item at or past k in the iteration's direction; nil is its beginning.
func (it *iterator) seek(k []byte) bool {
	it.started = true
	if it.o.Reverse {
		return it.stand(it.seekReverse(k))
	}
	if k == nil || bytes.Compare(k, it.o.Lower) < 0 {
		k = it.o.Lower
	}
	return it.stand(it.in.Seek(probe(k)))
}

func (it *iterator) seekReverse(k []byte) bool {
	included := true
	if it.o.Upper != nil && (k == nil || bytes.Compare(k, it.o.Upper) >= 0) {
		k, included = it.o.Upper, false
	}
	if k == nil || !it.in.Seek(probe(k)) {
		return it.in.Last()
	}
	if included && bytes.Equal(it.in.Item().key(), k) {
		return true
	}
	return it.in.Prev()
}

// stand takes the item under the tree's iterator, if there is one and it is within the bounds.
func (it *iterator) stand(ok bool) bool {
	it.valid, it.item = false, entry{}
	if !ok {
		return false
	}
	e := it.in.Item()
	if it.o.Reverse {
		ok = bytes.Compare(e.key(), it.o.Lower) >= 0
	} else {
		ok = it.o.Upper == nil || bytes.Compare(e.key(), it.o.Upper) < 0
	}
	if ok {
		it.valid, it.item = true, e
	}
	return ok
}

func (it *iterator) Key() []byte { return it.item.key() }

func (it *iterator) Value() ([]byte, error) {
	if it.release == nil {
		return nil, errIteratorClosed
	}
	return it.item.value(), nil
}

func (it *iterator) Err() error { return nil }

func (it *iterator) Close() error {
	if it.release != nil {
		it.in.Release()
		it.release()
		it.release, it.valid, it.item = nil, false, entry{}
	}
	return nil
}
