package frame

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/typedfold/fold/internal/nova"
)

func plain(n, size int) Frame {
	b := Batch{Records: make([]nova.Record, n)}
	for i := range b.Records {
		b.Records[i] = nova.Record{Body: bytes.Repeat([]byte{byte(i)}, size), Timestamp: 1000}
	}
	return Frame{State: State{Next: 7, Timestamp: 1000}, Batches: []Batch{b}}
}

// scan is what a scanner gives of a frame, in memory of its own.
func scan(s *Scanner, wire []byte) (State, []nova.Record, error) {
	before, err := s.Begin(wire)
	if err != nil {
		return State{}, nil, err
	}
	var all []nova.Record
	for {
		records, err := s.Next()
		if err != nil || len(records) == 0 {
			return before, all, err
		}
		all = append(all, records...)
	}
}

// TestAScannerIsUsedAgain: it gives what Parse gives, also after a frame that can't be read.
func TestAScannerIsUsedAgain(t *testing.T) {
	var s Scanner
	big := plain(1000, 3)
	big.Batches = append(big.Batches, plain(1000, 200).Batches...)
	many := plain(scanned-1, 1)
	for range 3 {
		many.Batches = append(many.Batches, plain(1, 1).Batches...)
	}
	for _, f := range []Frame{rich(), plain(3, 0), big, rich(), many, plain(1, 127), plain(2, 128), plain(1, 1<<14-1), plain(1, 1<<14), {State: State{Next: 3}}, rich()} {
		wire := Append(nil, &f)
		var want []nova.Record
		for _, b := range f.Batches {
			want = append(want, b.Records...)
		}
		before, got, err := scan(&s, wire)
		if err != nil || before != f.State || !reflect.DeepEqual(got, want) {
			t.Fatalf("scanned %+v, %+v, %v, want %+v", before, got, err, f)
		}
		_, got, err = scan(&s, wire[:len(wire)-1])
		if len(want) > 0 && (!errors.Is(err, ErrCorrupt) || len(got) >= len(want) || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)])) {
			t.Fatalf("of a frame that was cut %d records are given of %d, %v", len(got), len(want), err)
		}
	}
}

func TestAScannerAllocatesNothing(t *testing.T) {
	f := plain(1000, 128)
	wire := Append(nil, &f)
	var s Scanner
	n := testing.AllocsPerRun(100, func() {
		if _, err := s.Begin(wire); err != nil {
			t.Fatal(err)
		}
		got := 0
		for records, err := s.Next(); err != nil || len(records) > 0; records, err = s.Next() {
			if err != nil {
				t.Fatal(err)
			}
			got += len(records)
		}
		if got != 1000 {
			t.Fatal(got)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAScannerOfSmallFramesIsSmall: a reader that follows a quiet stream has one, and there are many.
func TestAScannerOfSmallFramesIsSmall(t *testing.T) {
	var s Scanner
	f := plain(1, 10)
	if _, _, err := scan(&s, Append(nil, &f)); err != nil || cap(s.buf) > 4 {
		t.Errorf("room for %d records, %v", cap(s.buf), err)
	}
}

func BenchmarkScan(b *testing.B) {
	f := plain(1000, 128)
	wire := Append(nil, &f)
	var s Scanner
	b.SetBytes(int64(len(wire)))
	for b.Loop() {
		if _, err := s.Begin(wire); err != nil {
			b.Fatal(err)
		}
		for records, err := s.Next(); err != nil || len(records) > 0; records, err = s.Next() {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
