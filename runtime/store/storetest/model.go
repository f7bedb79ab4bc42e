package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Model is what a store must hold: the port's contract over a map. It is not safe for concurrent use.
type Model struct {
	Cursor kv.Cursor
	// Keys are the stored bytes by store key; the cursor is not among them.
	Keys map[string]string
}

// NewModel is the model of an empty store.
func NewModel() *Model { return &Model{Keys: map[string]string{}} }

// Clone is an independent copy.
func (m *Model) Clone() *Model { return &Model{Cursor: m.Cursor, Keys: maps.Clone(m.Keys)} }

// Apply does to the model what Store.Apply does to a store.
func (m *Model) Apply(b *store.Batch, c kv.Cursor) {
	for i := range b.Updates {
		u := &b.Updates[i]
		key := string(dataKey(u.Key))
		switch {
		case u.Op.Removes():
			delete(m.Keys, key)
		case u.Op == kv.OpPut:
			m.Keys[key] = string(store.AppendRecord(nil, u))
		}
	}
	for _, op := range b.Ops {
		if op.Delete {
			delete(m.Keys, string(op.Key))
		} else {
			m.Keys[string(op.Key)] = string(op.Value)
		}
	}
	m.Cursor = c
}

// Sorted is the model's store keys in order.
func (m *Model) Sorted() []string { return slices.Sorted(maps.Keys(m.Keys)) }

// Check compares everything that g shows with the model: by iteration both ways and by Get of each key.
func (m *Model) Check(g store.Getter) error {
	want := m.Sorted()
	for _, reverse := range []bool{false, true} {
		got, err := collect(g, store.IterOptions{Reverse: reverse})
		if err != nil {
			return err
		}
		if reverse {
			slices.Reverse(got)
		}
		if err := m.sameAs(want, got); err != nil {
			return fmt.Errorf("reverse %v: %w", reverse, err)
		}
	}
	for _, k := range want {
		got, ok, err := getValue(g, []byte(k))
		if err != nil {
			return fmt.Errorf("get %q: %w", k, err)
		}
		if !ok || got != m.Keys[k] {
			return fmt.Errorf("get %q: found %v, %d bytes, want %d bytes", k, ok, len(got), len(m.Keys[k]))
		}
	}
	return nil
}

type pair struct{ key, value string }

func (m *Model) sameAs(want []string, got []pair) error {
	for i, k := range want {
		if i == len(got) {
			return fmt.Errorf("iteration ends after %d keys, want %d; next is %q", i, len(want), k)
		}
		if got[i].key != k {
			return fmt.Errorf("key %d is %q, want %q", i, got[i].key, k)
		}
		if got[i].value != m.Keys[k] {
			return fmt.Errorf("key %q has %d bytes %.40q, want %d bytes %.40q", k, len(got[i].value), got[i].value, len(m.Keys[k]), m.Keys[k])
		}
	}
	if len(got) > len(want) {
		return fmt.Errorf("iteration has %d keys, want %d; the first too many is %q", len(got), len(want), got[len(want)].key)
	}
	return nil
}

// collect reads an iteration out, without the cursor's key, which not every store has.
func collect(g store.Getter, o store.IterOptions) (pairs []pair, err error) {
	it, err := g.Iter(o)
	if err != nil {
		return nil, fmt.Errorf("iter: %w", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close iterator: %w", cerr)
		}
	}()
	for it.Next() {
		if bytes.Equal(it.Key(), store.CursorKey()) {
			continue
		}
		v, err := it.Value()
		if err != nil {
			return nil, fmt.Errorf("value of %q: %w", it.Key(), err)
		}
		pairs = append(pairs, pair{string(it.Key()), string(v)})
	}
	return pairs, it.Err()
}

// Script is an endless, reproducible series of batches. Batch n leads to the cursor of revision n.
type Script struct {
	Seed uint64
	// Bulk marks every third batch as Bulk.
	Bulk bool
}

// Batch is the n-th batch, from 1, and its cursor.
func (s Script) Batch(n uint64) (*store.Batch, kv.Cursor) {
	r := rand.New(rand.NewPCG(s.Seed, n))
	b := &store.Batch{Bulk: s.Bulk && n%3 == 0}
	for range 1 + r.IntN(24) {
		key := "t" + strconv.Itoa(r.IntN(12)) + ".k" + strconv.Itoa(r.IntN(30))
		switch r.IntN(10) {
		case 0:
			b.Updates = append(b.Updates, remove(key, kv.OpDelete, n))
		case 1:
			b.Updates = append(b.Updates, remove(key, kv.OpPurge, n))
		case 2:
			b.Updates = append(b.Updates, remove(key, kv.OpAgedOut, n))
		default:
			u := put(key, fmt.Sprintf("%d/%0*d", n, r.IntN(120), r.Uint32()), n)
			u.UnixNano = int64(n) * 1e6
			b.Updates = append(b.Updates, u)
		}
	}
	for range r.IntN(4) {
		key := store.AppendKey(nil, []store.Space{store.SpaceIndex, store.SpaceAccepted, store.SpaceRejected}[r.IntN(3)], "x"+strconv.Itoa(r.IntN(20)))
		b.Ops = append(b.Ops, store.Op{Key: key, Value: strconv.AppendUint(nil, n, 10), Delete: r.IntN(3) == 0})
	}
	b.Ops = append(b.Ops, store.Op{Key: store.MetaKey("script"), Value: strconv.AppendUint(nil, n, 10)})
	return b, kv.Cursor{Version: kv.Revision(n), SeenEvicting: n > 40, WrittenAt: max(n, 40) - 40}
}

// FoldAt is the fold of all batches up to the cursor's revision; an error when no batch leads to that cursor.
func (s Script) FoldAt(c kv.Cursor) (*Model, error) {
	m := NewModel()
	for n := uint64(1); n <= c.Revision(); n++ {
		m.Apply(s.Batch(n))
	}
	if m.Cursor != c {
		return nil, fmt.Errorf("cursor %v (written at %d) is of no batch; the batch of its revision has %v (%d)", c, c.WrittenAt, m.Cursor, m.Cursor.WrittenAt)
	}
	return m, nil
}

// CheckRecovered is the crash oracle: the store holds exactly the fold at its own cursor.
func (s Script) CheckRecovered(st store.Store) error {
	m, err := s.FoldAt(st.Cursor())
	if err != nil {
		return err
	}
	if err := m.Check(st); err != nil {
		return fmt.Errorf("at cursor %v: %w", st.Cursor(), err)
	}
	return nil
}
