package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// plainRow is a row as its record says, read without the code that wrote it: a byte with the version's length and flags, the
// version, the time if the third flag is set, and the value.
func plainRow(record []byte) (string, error) {
	if len(record) < 9 || record[0]&^0x20 != 8 {
		return "", fmt.Errorf("a record that begins with %x", record[:min(len(record), 9)])
	}
	version, rest, nanos := binary.BigEndian.Uint64(record[1:9]), record[9:], uint64(0)
	if record[0]&0x20 != 0 {
		for shift := 0; ; shift += 7 {
			if len(rest) == 0 {
				return "", fmt.Errorf("a time that does not end: %x", record)
			}
			b := rest[0]
			nanos, rest = nanos|uint64(b&0x7f)<<shift, rest[1:]
			if b < 0x80 {
				break
			}
		}
	}
	return fmt.Sprintf("%d at %d: %q", version, nanos, rest), nil
}

// TestRowsAreWhatTheBatchesSay: what all parts here compare a store with is made by the code that a store has too, so a mistake
// in it would be on both sides. Here the rows are read by hand.
func TestRowsAreWhatTheBatchesSay(t *testing.T) {
	const batches = 40
	truth, want := newTruth(3, false), map[string]string{}
	s, err := newLogDisk().open(storeDir, storetest.ModeNone, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for n := uint64(1); n <= batches; n++ {
		b, c := truth.batch(n)
		if err := s.Apply(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
		for _, u := range b.Updates {
			switch u.Op {
			case kv.OpPut:
				want[u.Key] = fmt.Sprintf("%d at %d: %q", n, u.UnixNano, u.Value)
			case kv.OpDelete, kv.OpPurge: // and not one that aged out
				delete(want, u.Key)
			}
		}
	}
	got := map[string]string{}
	it, err := s.Iter(store.IterOptions{Lower: []byte("d"), Upper: []byte("e")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = it.Close() }()
	for it.Next() {
		record, err := it.Value()
		if err != nil {
			t.Fatal(err)
		}
		key := string(bytes.ReplaceAll(it.Key()[1:], []byte{0}, []byte(".")))
		if got[key], err = plainRow(record); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := it.Err(); err != nil || len(want) < 100 || !maps.Equal(got, want) {
		t.Errorf("%v: got %d rows, want %d:\n%v\n%v", err, len(got), len(want), got, want)
	}
}
