package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

var allSpaces = []store.Space{store.SpaceMeta, store.SpaceAccepted, store.SpaceData, store.SpaceIndex, store.SpaceRejected}

func testRoundTrip(t *testing.T, h Harness) {
	o, m := openNew(t, h), NewModel()
	if !o.Cursor().IsNone() || !o.Durable().IsNone() {
		t.Fatalf("a new store has cursor %v and durable %v, want none", o.Cursor(), o.Durable())
	}
	o.wantModel(m)
	full := put("route.a.b", "hello", 7)
	full.ContentType, full.UnixNano, full.Rejected = "application/json", 1_700_000_000_000_000_001, true
	stamp, err := kv.ParseVersion([]byte("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	b := &store.Batch{Updates: []kv.Update{full, put("route.a.c", "x", 8), {Key: "stamped", Value: []byte("v"), Version: stamp, Op: kv.OpPut}}}
	for _, s := range allSpaces {
		b.Ops = append(b.Ops, store.Op{Key: []byte{byte(s), 'o', 0, 0xFF}, Value: []byte{0, byte(s), 0xFF}})
	}
	o.applyBoth(m, b, kv.CursorAt(8))
	o.wantModel(m)

	var v store.Value
	if ok, err := o.Get(dataKey("route.a.b"), &v); err != nil || !ok {
		t.Fatalf("get: %v, %v", ok, err)
	}
	defer v.Release()
	r, err := store.ParseRecord(v.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Value) != "hello" || r.ContentType != full.ContentType || r.UnixNano != full.UnixNano || !r.Rejected || r.Version != full.Version {
		t.Fatalf("record is %+v", r)
	}
	if _, ok, err := getValue(o, dataKey("route.a")); err != nil || ok {
		t.Fatalf("get of an absent key: found %v, %v", ok, err)
	}
}

func testReopen(t *testing.T, h Harness) {
	for _, mode := range h.modes() {
		o, s := openAt(t, h, tempDir(t), mode), Script{Seed: 1, Bulk: true}
		for n := uint64(1); n <= 90; n++ {
			o.apply(s.Batch(n))
			if n%30 == 0 {
				o.reopen()
				if o.Cursor().Revision() != n || o.Durable() != o.Cursor() {
					t.Fatalf("%s: after a re-open at %d the cursor is %v, durable %v", mode, n, o.Cursor(), o.Durable())
				}
				if err := s.CheckRecovered(o); err != nil {
					t.Fatalf("%s: %v", mode, err)
				}
			}
		}
	}
}

func testRemovals(t *testing.T, h Harness) {
	o, m := openNew(t, h), NewModel()
	o.applyBoth(m, &store.Batch{Updates: []kv.Update{put("a", "1", 1), put("b", "2", 2), put("c", "3", 3)}}, kv.CursorAt(3))
	o.applyBoth(m, &store.Batch{Updates: []kv.Update{
		remove("a", kv.OpDelete, 4), remove("b", kv.OpPurge, 5), remove("c", kv.OpAgedOut, 6), remove("never", kv.OpDelete, 7), remove("aged", kv.OpAgedOut, 8),
	}}, kv.CursorAt(8))
	if len(m.Keys) != 1 {
		t.Fatalf("the model keeps %q", m.Sorted())
	}
	o.wantModel(m)
	o.reopen()
	o.wantModel(m)
}

func testLaterUpdateWins(t *testing.T, h Harness) {
	for _, bulk := range []bool{false, true} {
		o, m := openNew(t, h), NewModel()
		o.applyBoth(m, &store.Batch{Bulk: bulk, Updates: []kv.Update{
			put("a", "first", 1), remove("b", kv.OpDelete, 2), put("c", "kept", 3), put("d", "x", 4), put("a", "last", 5), put("b", "back", 6),
			remove("c", kv.OpAgedOut, 7), remove("d", kv.OpDelete, 8), put("e", "x", 9), remove("e", kv.OpPurge, 10), put("e", "y", 11),
		}}, kv.CursorAt(11))
		if want := string(store.AppendRecord(nil, &kv.Update{Value: []byte("last"), Version: kv.Revision(5)})); m.Keys[string(dataKey("a"))] != want {
			t.Fatal("the model is wrong")
		}
		o.wantModel(m)
		o.reopen()
		o.wantModel(m)
	}
}

func testOpsAfterUpdates(t *testing.T, h Harness) {
	for _, bulk := range []bool{false, true} {
		o, m := openNew(t, h), NewModel()
		ix := []byte("ix")
		o.applyBoth(m, &store.Batch{Bulk: bulk,
			Updates: []kv.Update{put("a", "update", 1), put("b", "update", 2), remove("c", kv.OpDelete, 3), put("d", "stays", 4)},
			Ops: []store.Op{
				{Key: dataKey("a"), Value: []byte("op")}, {Key: dataKey("b"), Delete: true}, {Key: dataKey("c"), Value: []byte("op")},
				{Key: ix, Value: []byte("1")}, {Key: ix, Delete: true}, {Key: ix, Value: []byte("3")},
				{Key: []byte("iy"), Value: []byte("1")}, {Key: []byte("iy"), Delete: true},
			},
		}, kv.CursorAt(4))
		if m.Keys["ix"] != "3" || m.Keys[string(dataKey("a"))] != "op" || len(m.Keys) != 4 {
			t.Fatalf("the model is wrong: %q", m.Keys)
		}
		o.wantModel(m)
		o.reopen()
		o.wantModel(m)
	}
}

func testEmptyValue(t *testing.T, h Harness) {
	o, m := openNew(t, h), NewModel()
	o.applyBoth(m, &store.Batch{
		Updates: []kv.Update{put("empty", "", 1), {Key: "bare", Op: kv.OpPut}},
		Ops:     []store.Op{{Key: []byte("i1"), Value: nil}, {Key: []byte("i2"), Value: []byte{}}, {Key: []byte("i")}},
	}, kv.CursorAt(1))
	o.wantModel(m)
	o.reopen()
	o.wantModel(m)
}

func testEmptyBatch(t *testing.T, h Harness) {
	o, m := openNew(t, h), NewModel()
	o.applyBoth(m, &store.Batch{Updates: []kv.Update{put("a", "1", 1)}}, kv.CursorAt(1))
	o.applyBoth(m, &store.Batch{}, kv.CursorAt(40))
	o.applyBoth(m, &store.Batch{Bulk: true}, kv.CursorAt(41))
	o.wantModel(m)
	o.reopen()
	o.wantModel(m)
}

func testCursorForms(t *testing.T, h Harness) {
	stamp, err := kv.ParseVersion([]byte("\xFF123456789"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []kv.Cursor{
		kv.CursorAt(1),
		kv.CursorAt(1<<64 - 1),
		{Version: stamp},
		{SeenEvicting: true},
		{Version: kv.Revision(3), SeenEvicting: true},
		{Version: stamp, SeenEvicting: true},
		{Version: kv.Revision(4), SeenEvicting: true, WrittenAt: 1<<64 - 1},
		{}, // no cursor again, as a repair of another incarnation may commit
	} {
		o, m := openNew(t, h), NewModel()
		o.applyBoth(m, &store.Batch{Updates: []kv.Update{put("a", "1", 1)}}, kv.CursorAt(9))
		o.applyBoth(m, &store.Batch{Updates: []kv.Update{put("b", "1", 2)}}, c)
		o.wantModel(m)
		s, err := o.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if s.Cursor() != c {
			t.Errorf("snapshot's cursor is %v, want %v", s.Cursor(), c)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		o.reopen()
		o.wantModel(m)
	}
}

func testKeepsNothing(t *testing.T, h Harness) {
	for _, bulk := range []bool{false, true} {
		o, m := openNew(t, h), NewModel()
		b := &store.Batch{Bulk: bulk, Updates: []kv.Update{put("a", "value", 1)}, Ops: []store.Op{{Key: []byte("ikey"), Value: []byte("value")}}}
		o.applyBoth(m, b, kv.CursorAt(1))
		copy(b.Updates[0].Value, "XXXXX")
		copy(b.Ops[0].Key, "XXXX")
		copy(b.Ops[0].Value, "XXXXX")
		b.Updates[0] = put("other", "x", 2)
		o.wantModel(m)

		key := dataKey("a")
		var v store.Value
		if ok, err := o.Get(key, &v); err != nil || !ok {
			t.Fatalf("get: %v, %v", ok, err)
		}
		copy(key, "XX")
		if !bytes.HasSuffix(v.Bytes, []byte("value")) {
			t.Errorf("value changed with the caller's key: %q", v.Bytes)
		}
		v.Release()
	}
}

// refusedBatches can't be stored as they are; what is beside the bad part must not be stored either.
func refusedBatches() map[string]*store.Batch {
	good := put("good", "1", 2)
	return map[string]*store.Batch{
		"update without an op": {Updates: []kv.Update{good, {Key: "a", Version: kv.Revision(3)}}},
		"update of unknown op": {Updates: []kv.Update{good, {Key: "a", Version: kv.Revision(3), Op: kv.OpAgedOut + 1}}},
		"update without a key": {Updates: []kv.Update{good, put("", "x", 3)}},
		"op without a key":     {Updates: []kv.Update{good}, Ops: []store.Op{{Value: []byte("x")}}},
		"op on the cursor key": {Updates: []kv.Update{good}, Ops: []store.Op{{Key: store.CursorKey(), Value: []byte("12345678")}}},
	}
}

func testRefusedBatch(t *testing.T, h Harness) {
	for name, b := range refusedBatches() {
		for _, bulk := range []bool{false, true} {
			o, m := openNew(t, h), NewModel()
			o.applyBoth(m, &store.Batch{Updates: []kv.Update{put("a", "1", 1)}}, kv.CursorAt(1))
			b.Bulk = bulk
			if err := o.Apply(t.Context(), b, kv.CursorAt(3)); err == nil {
				t.Errorf("%s (bulk %v): no error", name, bulk)
			} else if errors.Is(err, store.ErrPoisoned) {
				t.Errorf("%s (bulk %v): a bad batch poisoned the store: %v", name, bulk, err)
			}
			o.wantModel(m)
			o.applyBoth(m, &store.Batch{Updates: []kv.Update{put("b", "1", 4)}}, kv.CursorAt(4))
			o.reopen()
			o.wantModel(m)
		}
	}
}

func testCancelled(t *testing.T, h Harness) {
	o, m := openNew(t, h), NewModel()
	o.applyBoth(m, &store.Batch{Updates: []kv.Update{put("a", "1", 1)}}, kv.CursorAt(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := tempDir(t)
	for _, bulk := range []bool{false, true} {
		for what, err := range map[string]error{
			"apply":  o.Apply(ctx, &store.Batch{Bulk: bulk, Updates: []kv.Update{put("a", "2", 2), put("b", "2", 3)}}, kv.CursorAt(3)),
			"sync":   o.Sync(ctx),
			"settle": o.Settle(ctx),
			"export": o.Export(ctx, dir),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s under a cancelled context: %v", what, err)
			}
		}
		o.wantModel(m)
		if !isEmptyDir(dir) {
			t.Error("a cancelled export left files")
		}
	}
	o.reopen()
	o.wantModel(m)
}

func testLargeValues(t *testing.T, h Harness) {
	limit := h.MaxValue
	if limit == 0 {
		limit = 64 << 20
	}
	o := openNew(t, h)
	want := bytes.Repeat([]byte("0123456789abcde\n"), limit/16+1)
	check := func() {
		t.Helper()
		var v store.Value
		ok, err := o.Get(dataKey("large"), &v)
		if err != nil || !ok {
			t.Fatalf("get: %v, %v", ok, err)
		}
		defer v.Release()
		r, err := store.ParseRecord(v.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r.Value, want[:limit]) {
			t.Fatalf("value of %d bytes differs from the %d written", len(r.Value), limit)
		}
		if o.Cursor() != kv.CursorAt(1) {
			t.Fatalf("cursor is %v", o.Cursor())
		}
	}
	large := put("large", "", 1)
	large.Value = want[:limit]
	o.apply(&store.Batch{Updates: []kv.Update{large}}, kv.CursorAt(1))
	check()
	if h.MaxValue != 0 {
		large.Value = want[:limit+1]
		if err := o.Apply(t.Context(), &store.Batch{Updates: []kv.Update{large}}, kv.CursorAt(2)); err == nil {
			t.Fatal(fmt.Errorf("a value of %d bytes was taken, the limit is %d", limit+1, limit))
		}
		check()
	}
	o.reopen()
	check()
}
