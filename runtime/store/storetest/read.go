package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

func testTupleOrder(t *testing.T, h Harness) {
	o := openNew(t, h)
	want := []string{"t", "t.z", "t1", "t1.a", "t1.a.x", "t1.b", "t1-x.a", "t10.a", "t10.b", "t2.a"}
	b := &store.Batch{}
	for i, k := range want {
		b.Updates = append([]kv.Update{put(k, k, uint64(i+1))}, b.Updates...)
	}
	o.apply(b, kv.CursorAt(20))
	keys := func(prefix string, reverse bool) (out []string) {
		t.Helper()
		p := store.AppendKey(nil, store.SpaceData, prefix)
		pairs, err := collect(o, store.IterOptions{Lower: p, Upper: store.PrefixEnd(p), Reverse: reverse})
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range pairs {
			out = append(out, store.NATSKey([]byte(kv.key)))
		}
		return out
	}
	if got := keys("", false); !slices.Equal(got, want) {
		t.Errorf("order is %q, want %q", got, want)
	}
	if got := keys("t1.", false); !slices.Equal(got, want[3:6]) {
		t.Errorf("under t1. there is %q, want %q", got, want[3:6])
	}
	slices.Reverse(want)
	if got := keys("", true); !slices.Equal(got, want) {
		t.Errorf("reverse order is %q, want %q", got, want)
	}
}

// fiveKeys is a store with the index keys i10, i20 … i50 over two levels of writes, so that iteration merges.
func fiveKeys(t *testing.T, h Harness) *opened {
	o := openNew(t, h)
	b := &store.Batch{Ops: []store.Op{
		{Key: []byte("h99"), Value: []byte("h")}, {Key: []byte("i30"), Value: []byte("30")}, {Key: []byte("i10"), Value: []byte("10")},
		{Key: []byte("i50"), Value: []byte("50")}, {Key: []byte("i25"), Value: []byte("x")}, {Key: []byte("j"), Value: []byte("j")},
	}}
	o.apply(b, kv.CursorAt(1))
	o.reopen()
	o.apply(&store.Batch{Ops: []store.Op{{Key: []byte("i25"), Delete: true}, {Key: []byte("i20"), Value: []byte("20")}, {Key: []byte("i40"), Value: []byte("40")}}}, kv.CursorAt(2))
	return o
}

func testBounds(t *testing.T, h Harness) {
	o := fiveKeys(t, h)
	for _, c := range []struct {
		lower, upper string
		want         []string
	}{
		{"i", "j", []string{"i10", "i20", "i30", "i40", "i50"}},
		{"i20", "i40", []string{"i20", "i30"}},
		{"i15", "i41", []string{"i20", "i30", "i40"}},
		{"i50", "j", []string{"i50"}},
		{"i51", "j", nil},
		{"i30", "i30", nil},
		{"i40", "i20", nil},
		{"", "i20", []string{"h99", "i10"}},
		{"i40", "", []string{"i40", "i50", "j"}},
	} {
		for _, reverse := range []bool{false, true} {
			opt := store.IterOptions{Reverse: reverse}
			if c.lower != "" {
				opt.Lower = []byte(c.lower)
			}
			if c.upper != "" {
				opt.Upper = []byte(c.upper)
			}
			pairs, err := collect(o, opt)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range pairs {
				got = append(got, p.key)
			}
			want := slices.Clone(c.want)
			if reverse {
				slices.Reverse(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("[%q, %q) reverse %v: %q, want %q", c.lower, c.upper, reverse, got, want)
			}
		}
	}
}

func testSeekTo(t *testing.T, h Harness) {
	o := fiveKeys(t, h)
	for _, c := range []struct {
		seek    string
		reverse bool
		want    string // the key found, then the one after it; "" is the end
		next    string
	}{
		{"i20", false, "i20", "i30"},
		{"i21", false, "i30", "i40"},
		{"a", false, "i10", "i20"},
		{"i50", false, "i50", ""},
		{"i51", false, "", ""},
		{"z", false, "", ""},
		{"i20", true, "i20", "i10"},
		{"i21", true, "i20", "i10"},
		{"z", true, "i50", "i40"},
		{"i10", true, "i10", ""},
		{"i09", true, "", ""},
		{"a", true, "", ""},
	} {
		name := fmt.Sprintf("seek %s reverse %v", c.seek, c.reverse)
		it, err := o.Iter(store.IterOptions{Lower: []byte("i"), Upper: []byte("j"), Reverse: c.reverse})
		if err != nil {
			t.Fatal(err)
		}
		at := func(ok bool) string {
			if !ok {
				return ""
			}
			v, err := it.Value()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if string(it.Key()) != "i"+string(v) {
				t.Errorf("%s: key %q has value %q", name, it.Key(), v)
			}
			return string(it.Key())
		}
		for range 2 { // an iterator can seek again, from wherever it is
			seek := []byte(c.seek)
			if got := at(it.SeekTo(seek)); got != c.want {
				t.Errorf("%s: at %q, want %q", name, got, c.want)
			}
			clear(seek)
			if got := at(it.Next()); got != c.next {
				t.Errorf("%s: then at %q, want %q", name, got, c.next)
			}
		}
		if err := errors.Join(it.Err(), it.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testIteratorFixed(t *testing.T, h Harness) {
	o := fiveKeys(t, h)
	for _, reverse := range []bool{false, true} {
		it, err := o.Iter(store.IterOptions{Lower: []byte("i"), Upper: []byte("j"), Reverse: reverse})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for it.Next() {
			n++
			o.apply(&store.Batch{Bulk: n%2 == 0, Ops: []store.Op{
				{Key: []byte("i" + strconv.Itoa(10*n) + "5"), Value: []byte("new")}, {Key: []byte("i30"), Delete: true},
			}}, kv.CursorAt(uint64(10+n)))
		}
		if err := errors.Join(it.Err(), it.Close()); err != nil {
			t.Fatal(err)
		}
		if n != 5 {
			t.Errorf("reverse %v: saw %d keys, want the 5 of when it was opened", reverse, n)
		}
		ops := []store.Op{{Key: []byte("i30"), Value: []byte("30")}}
		for i := range n {
			ops = append(ops, store.Op{Key: []byte("i" + strconv.Itoa(10*(i+1)) + "5"), Delete: true})
		}
		o.apply(&store.Batch{Ops: ops}, kv.CursorAt(99))
	}
}

func testSnapshotFixed(t *testing.T, h Harness) {
	o, s := openNew(t, h), Script{Seed: 2, Bulk: true}
	var snaps []store.Snapshot
	for n := uint64(1); n <= 60; n++ {
		o.apply(s.Batch(n))
		if n%15 == 0 {
			snap, err := o.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			snaps = append(snaps, snap)
		}
	}
	if err := o.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, snap := range snaps {
		if got, want := snap.Cursor().Revision(), uint64(15*(i+1)); got != want {
			t.Errorf("snapshot's cursor is %d, want %d", got, want)
		}
		m, err := s.FoldAt(snap.Cursor())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(snap); err != nil {
			t.Errorf("snapshot at %v: %v", snap.Cursor(), err)
		}
		if err := snap.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testReadersDuringApply: batch n writes n under ten keys; a view that shows two numbers saw half a batch.
func testReadersDuringApply(t *testing.T, h Harness) {
	const batches, width = 300, 10
	o := openNew(t, h)
	batch := func(n uint64) *store.Batch {
		b := &store.Batch{Bulk: n%50 == 0}
		for i := range width {
			b.Updates = append(b.Updates, put("k"+strconv.Itoa(i), "", n))
		}
		return b
	}
	o.apply(batch(1), kv.CursorAt(1))

	one := func(g store.Getter) (uint64, error) {
		pairs, err := collect(g, store.IterOptions{Lower: []byte("d"), Upper: []byte("e")})
		if err != nil {
			return 0, err
		}
		if len(pairs) != width {
			return 0, fmt.Errorf("a view has %d keys, want %d", len(pairs), width)
		}
		for _, p := range pairs {
			if p.value != pairs[0].value {
				return 0, fmt.Errorf("a view mixes batches: %q and %q", pairs[0].value, p.value)
			}
		}
		r, err := store.ParseRecord([]byte(pairs[0].value))
		return r.Version.Rank(), err
	}
	snapshot := func() error {
		s, err := o.Snapshot()
		if err != nil {
			return err
		}
		n, err := one(s)
		if err == nil && n != s.Cursor().Revision() {
			err = fmt.Errorf("a snapshot at %v holds batch %d", s.Cursor(), n)
		}
		for i := range width {
			v, ok, gerr := getValue(s, dataKey("k"+strconv.Itoa(i)))
			if r, perr := store.ParseRecord([]byte(v)); gerr != nil || !ok || perr != nil || r.Version.Rank() != n {
				err = errors.Join(err, gerr, perr, fmt.Errorf("get in a snapshot at %v: found %v, batch %v", s.Cursor(), ok, r.Version))
			}
		}
		return errors.Join(err, s.Close())
	}
	last := make([]uint64, 3)
	readers := []func() error{
		snapshot,
		func() error { _, err := one(o); return err },
		func() error { // a key never goes back, nor behind the cursor read before it
			floor := max(last[2], o.Cursor().Revision())
			v, _, err := getValue(o, dataKey("k3"))
			if err != nil {
				return err
			}
			r, err := store.ParseRecord([]byte(v))
			if last[2] = r.Version.Rank(); last[2] < floor {
				return fmt.Errorf("get shows batch %d after batch %d", last[2], floor)
			}
			return err
		},
	}
	done := make(chan struct{})
	errs := make(chan error, len(readers))
	var wg sync.WaitGroup
	for _, read := range readers {
		wg.Go(func() {
			for {
				if err := read(); err != nil {
					errs <- err
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := uint64(2); n <= batches; n++ {
		if err := o.Apply(t.Context(), batch(n), kv.CursorAt(n)); err != nil {
			t.Errorf("apply: %v", err)
			break
		}
	}
	close(done)
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if n, err := one(o); err != nil || n != batches {
		t.Errorf("at the end: batch %d, %v", n, err)
	}
}

func testCloseOpenReaders(t *testing.T, h Harness) {
	o := fiveKeys(t, h)
	it, err := o.Iter(store.IterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := o.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); !errors.Is(err, store.ErrBusy) {
		t.Fatal("close with an open iterator and an open snapshot: no error")
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	if err := o.Close(); !errors.Is(err, store.ErrBusy) {
		t.Fatal("close with an open snapshot: no error")
	}
	if v, ok, err := getValue(snap, []byte("i10")); err != nil || !ok || !bytes.Equal([]byte(v), []byte("10")) {
		t.Errorf("after a refused close a snapshot shows %q, %v, %v", v, ok, err)
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
	o.apply(&store.Batch{}, kv.CursorAt(9)) // a refused close leaves the store open
	o.reopen()
	if o.Cursor() != kv.CursorAt(9) {
		t.Errorf("cursor is %v", o.Cursor())
	}
}
