package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// truth is what a store must hold at each cursor: a pure function of the cursor's revision and of the seed. It is safe
// for concurrent use.
type truth struct {
	script storetest.Script
	// narrow leaves out the values of several disk blocks.
	narrow bool

	mu   sync.Mutex
	kept map[uint64]*storetest.Model // the folds at some revisions, never changed
}

func newTruth(seed uint64, bulk bool) *truth {
	return &truth{script: storetest.Script{Seed: seed, Bulk: bulk}, kept: map[uint64]*storetest.Model{0: storetest.NewModel()}}
}

// batch is the batch that leads to revision n. Every fifth has a value of several disk blocks, so that a power cut can
// keep a part of it.
func (t *truth) batch(n uint64) (*store.Batch, kv.Cursor) {
	b, c := t.script.Batch(n)
	if n%5 == 0 && !t.narrow {
		var seed [32]byte
		seed[0], seed[1], seed[2] = byte(n), byte(n>>8), byte(t.script.Seed)
		value := make([]byte, 3<<10+n%7*1900)
		_, _ = rand.NewChaCha8(seed).Read(value) // never fails
		b.Updates = append(b.Updates, kv.Update{Key: fmt.Sprintf("wide.%d", n%3), Value: value, Version: kv.Revision(n), Op: kv.OpPut})
	}
	return b, c
}

// The folds up to revision keptAll are kept, and of those after it each keptEvery-th.
const (
	keptAll   = 128
	keptEvery = 64
)

// at is the fold of all batches up to the cursor, which nobody changes; an error when no batch leads to it.
func (t *truth) at(c kv.Cursor) (*storetest.Model, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := c.Revision()
	if n > 1<<20 {
		return nil, &rowError{fmt.Sprintf("cursor %v is past all batches", c)}
	}
	from := n
	for t.kept[from] == nil {
		from--
	}
	m := t.kept[from]
	if from < n {
		m = m.Clone()
	}
	for i := from + 1; i <= n; i++ {
		m.Apply(t.batch(i))
		if i <= keptAll || i%keptEvery == 0 {
			t.kept[i] = m.Clone()
		}
	}
	if m.Cursor != c {
		return nil, &rowError{fmt.Sprintf("cursor %v is of no batch; the batch of its revision has %v", c, m.Cursor)}
	}
	return m, nil
}

// rowError is a store that shows what it does not hold, as against one that says that it can't be read.
type rowError struct{ text string }

func (e *rowError) Error() string { return e.text }

// scan is check by one iteration from the first key to the last.
func (t *truth) scan(s store.Store) error {
	return t.moment(s, func(at kv.Cursor) error {
		if c := s.Cursor(); at != c {
			return &rowError{fmt.Sprintf("a snapshot is at cursor %v, the store at %v", at, c)}
		}
		return nil
	})
}

// moment checks one snapshot of the store at its own cursor, of which is said more by its caller.
func (t *truth) moment(s store.Store, cursor func(kv.Cursor) error) (err error) {
	snap, err := s.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	if err := cursor(snap.Cursor()); err != nil {
		return err
	}
	m, err := t.at(snap.Cursor())
	if err != nil {
		return err
	}
	it, err := snap.Iter(store.IterOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	rows := 0
	for it.Next() {
		if bytes.Equal(it.Key(), store.CursorKey()) {
			continue
		}
		v, err := it.Value()
		if err != nil {
			return err
		}
		if want, ok := m.Keys[string(it.Key())]; !ok || want != string(v) {
			return &rowError{fmt.Sprintf("at cursor %v: key %q with %d bytes; it belongs there: %t, with %d bytes", snap.Cursor(), it.Key(), len(v), ok, len(want))}
		}
		rows++
	}
	if err := it.Err(); err != nil {
		return err
	}
	if rows != len(m.Keys) {
		return &rowError{fmt.Sprintf("at cursor %v: %d keys, want %d", snap.Cursor(), rows, len(m.Keys))}
	}
	return nil
}

// check tells whether the store holds exactly the fold at its own cursor, by every way to read it.
func (t *truth) check(s store.Store) error {
	m, err := t.at(s.Cursor())
	if err != nil {
		return err
	}
	if err := m.Check(s); err != nil {
		return fmt.Errorf("at cursor %v: %w", s.Cursor(), err)
	}
	return nil
}

// checkAt is check of a store that was just opened, which must be at one of the revisions from low to high.
func (t *truth) checkAt(s store.Store, low, high uint64) error {
	var err error
	if n := s.Cursor().Revision(); n < low || n > high {
		err = fmt.Errorf("cursor %d; %d was durable and %d begun", n, low, high)
	}
	if s.Durable() != s.Cursor() {
		err = errors.Join(err, fmt.Errorf("durable %v at cursor %v", s.Durable(), s.Cursor()))
	}
	return errors.Join(err, t.check(s))
}
