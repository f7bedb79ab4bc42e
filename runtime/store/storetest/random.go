package storetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"pgregory.net/rapid"
)

// testBulkIsPlain applies the same random batches to a store with Bulk, to one without, and to the model. The stores
// are emptied, not made anew, for each series: what earlier series left below must not show.
func testBulkIsPlain(t *testing.T, h Harness) {
	p := &plainAndBulk{h: h, ctx: t.Context(), root: t.TempDir()}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	rapid.Check(t, func(rt *rapid.T) {
		m := NewModel()
		if err := errors.Join(p.open(), p.empty()); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			b, c := drawBatch(rt, m.Cursor), kv.CursorAt(m.Cursor.Revision()+100)
			m.Apply(b, c)
			for i, s := range p.stores {
				b.Bulk = i == 1 && rapid.IntRange(0, 4).Draw(rt, "bulk") > 0
				if err := s.Apply(p.ctx, b, c); err != nil {
					rt.Fatalf("apply: %v", err)
				}
			}
			switch rapid.IntRange(0, 19).Draw(rt, "then") {
			case 0:
				if err := errors.Join(p.close(), p.open()); err != nil {
					rt.Fatal(err)
				}
			case 1:
				if err := p.stores[1].Settle(p.ctx); err != nil {
					rt.Fatalf("settle: %v", err)
				}
			}
			for i, s := range p.stores {
				if err := m.Check(s); err != nil || s.Cursor() != m.Cursor {
					rt.Fatalf("bulk %v: cursor %v, want %v: %v", i == 1, s.Cursor(), m.Cursor, err)
				}
			}
		}
	})
}

// plainAndBulk is the pair of stores.
type plainAndBulk struct {
	h      Harness
	ctx    context.Context
	root   string
	stores [2]store.Store
}

func (p *plainAndBulk) open() (err error) {
	for i := range p.stores {
		if p.stores[i] != nil {
			continue
		}
		if p.stores[i], err = p.h.Open(filepath.Join(p.root, strconv.Itoa(i)), p.h.anyMode()); err != nil {
			p.stores[i] = nil
			return fmt.Errorf("open: %w", err)
		}
	}
	return nil
}

func (p *plainAndBulk) close() (err error) {
	for i, s := range p.stores {
		if s != nil {
			err = errors.Join(err, s.Close())
			p.stores[i] = nil
		}
	}
	return err
}

// empty removes all keys and the cursor.
func (p *plainAndBulk) empty() error {
	for _, s := range p.stores {
		pairs, err := collect(s, store.IterOptions{})
		if err != nil {
			return err
		}
		b := &store.Batch{}
		for _, pair := range pairs {
			b.Ops = append(b.Ops, store.Op{Key: []byte(pair.key), Delete: true})
		}
		if err := s.Apply(p.ctx, b, kv.Cursor{}); err != nil {
			return err
		}
	}
	return nil
}

// drawBatch draws from few keys, so that a batch repeats them and batches overlap. Some are prefixes of others.
func drawBatch(rt *rapid.T, after kv.Cursor) *store.Batch {
	keys := rapid.SampledFrom([]string{"a", "a.b", "a.b.c", "a-b", "ab", "b", "t1.x", "t10.x", "t1", "long.shared.prefix.one", "long.shared.prefix.two", "long.shared.prefix-x"})
	b := &store.Batch{}
	for i := range rapid.IntRange(0, 30).Draw(rt, "updates") {
		u := kv.Update{
			Key:     keys.Draw(rt, "key"),
			Op:      rapid.SampledFrom([]kv.Op{kv.OpPut, kv.OpPut, kv.OpPut, kv.OpDelete, kv.OpPurge, kv.OpAgedOut}).Draw(rt, "op"),
			Version: kv.Revision(after.Revision() + uint64(i) + 1),
		}
		if u.Op == kv.OpPut {
			u.Value = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(rt, "value")
			u.UnixNano = int64(rapid.IntRange(0, 2).Draw(rt, "time"))
			u.ContentType = rapid.SampledFrom([]string{"", "", "text/plain"}).Draw(rt, "type")
		}
		b.Updates = append(b.Updates, u)
	}
	for range rapid.IntRange(0, 6).Draw(rt, "ops") {
		space := rapid.SampledFrom(allSpaces).Draw(rt, "space")
		b.Ops = append(b.Ops, store.Op{
			Key:    store.AppendKey(nil, space, keys.Draw(rt, "op key")+strconv.Itoa(rapid.IntRange(0, 1).Draw(rt, "suffix"))),
			Value:  rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(rt, "op value"),
			Delete: rapid.IntRange(0, 2).Draw(rt, "op delete") == 0,
		})
		if rapid.IntRange(0, 4).Draw(rt, "same key as an update") == 0 && len(b.Updates) > 0 {
			b.Ops[len(b.Ops)-1].Key = dataKey(b.Updates[0].Key)
		}
	}
	return b
}
