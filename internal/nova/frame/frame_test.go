package frame

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/typedfold/fold/internal/nova"
)

func rich() Frame {
	return Frame{
		Epoch: 300,
		State: State{Next: 7, Token: "gen-42", Fence: 3, Timestamp: 1000},
		Batches: []Batch{
			{Token: "gen-42", Records: []nova.Record{{Body: []byte("a"), Timestamp: 1000}, {Body: []byte{}, Timestamp: 1005}}},
			{Token: "other", HasMatch: true, Match: 9, Records: []nova.Record{{
				Body: []byte("b"), Timestamp: 1005,
				Headers: []nova.Header{{Name: "n", Value: []byte("v")}, {Name: "n", Value: []byte{}}},
			}}},
		},
	}
}

func TestFrame(t *testing.T) {
	f := rich()
	wire := Append(nil, &f)
	got, err := Parse(wire)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, f) {
		t.Errorf("read %+v, want %+v", got, f)
	}
	if epoch, s, err := ParseHead(wire); err != nil || epoch != 300 || s != f.State {
		t.Errorf("head %d %+v, %v", epoch, s, err)
	}
	if got, want := f.After(), (State{Next: 10, Token: "gen-42", Fence: 3, Timestamp: 1005}); got != want {
		t.Errorf("after %+v, want %+v", got, want)
	}
	size := Head
	for i := range f.Batches {
		size += BatchSize(&f.Batches[i])
	}
	if len(wire) > size {
		t.Errorf("%d bytes, but at most %d were announced", len(wire), size)
	}
}

func TestEmptyFrame(t *testing.T) {
	f := Frame{Epoch: 1, State: State{Next: 0}}
	got, err := Parse(Append(nil, &f))
	if err != nil || !reflect.DeepEqual(got, f) || got.After() != f.State {
		t.Errorf("read %+v, %v", got, err)
	}
}

// TestCutFrame: a frame that is cut anywhere is an error, or a whole frame of fewer batches, never one that was not
// written.
func TestCutFrame(t *testing.T) {
	f := rich()
	wire := Append(nil, &f)
	whole := map[int]bool{len(AppendHead(nil, f.Epoch, f.State)): true}
	first := f
	first.Batches = f.Batches[:1]
	whole[len(Append(nil, &first))] = true
	for n := range wire {
		_, err := Parse(wire[:n])
		if (err == nil) != whole[n] {
			t.Errorf("cut to %d of %d bytes: %v", n, len(wire), err)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestUnknownVersion(t *testing.T) {
	if _, err := Parse([]byte{2, 0, 0, 0, 0, 0}); !errors.Is(err, ErrVersion) {
		t.Errorf("%v", err)
	}
}

func FuzzFrame(f *testing.F) {
	r := rich()
	f.Add(Append(nil, &r))
	f.Add(Append(nil, &Frame{}))
	f.Add([]byte{1, 0x80, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Parse(b)
		var s Scanner
		before, records, scanErr := scan(&s, b)
		if (err == nil) != (scanErr == nil) || err != nil && err.Error() != scanErr.Error() {
			t.Fatalf("%x is read with %v, and scanned with %v", b, err, scanErr)
		}
		if err != nil {
			return
		}
		var want []nova.Record
		for _, b := range frame.Batches {
			want = append(want, b.Records...)
		}
		if before != frame.State || !reflect.DeepEqual(records, want) {
			t.Fatalf("%x is read as %+v, and scanned as %+v, %+v", b, frame, before, records)
		}
		if again := Append(nil, &frame); !bytes.Equal(again, b) {
			t.Errorf("%x was read, and is written as %x", b, again)
		}
	})
}
