package storetest

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"pgregory.net/rapid"
)

// testBulkIsPlain applies the same random batches to a store with Bulk, to one without, and to the model.
func testBulkIsPlain(t *testing.T, h Harness) {
	root := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var stores [2]store.Store
		open := func() {
			for i := range stores {
				if stores[i], err = h.Open(fmt.Sprintf("%s/%d", dir, i), h.anyMode()); err != nil {
					rt.Fatalf("open: %v", err)
				}
			}
		}
		closeAll := func() {
			for i := range stores {
				if stores[i] == nil {
					continue
				}
				if err := stores[i].Close(); err != nil {
					rt.Errorf("close: %v", err)
				}
				stores[i] = nil
			}
		}
		open()
		defer closeAll()
		m := NewModel()
		for n := range rapid.IntRange(1, 8).Draw(rt, "batches") {
			b, c := drawBatch(rt, m.Cursor), kv.CursorAt(m.Cursor.Revision()+uint64(n)+1)
			for i, s := range stores {
				b.Bulk = i == 1 && rapid.IntRange(0, 4).Draw(rt, "bulk") > 0
				if err := s.Apply(t.Context(), b, c); err != nil {
					rt.Fatalf("apply: %v", err)
				}
			}
			m.Apply(b, c)
			switch rapid.IntRange(0, 9).Draw(rt, "then") {
			case 0:
				closeAll()
				open()
			case 1:
				if err := stores[1].Settle(t.Context()); err != nil {
					rt.Fatalf("settle: %v", err)
				}
			}
			for i, s := range stores {
				if err := m.Check(s); err != nil || s.Cursor() != m.Cursor {
					rt.Fatalf("bulk %v: cursor %v, want %v: %v", i == 1, s.Cursor(), m.Cursor, err)
				}
			}
		}
	})
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
