package frame

import (
	"bytes"
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

// TestADecoderIsUsedAgain: what is read is as if it were new, also after a frame that can't be read.
func TestADecoderIsUsedAgain(t *testing.T) {
	var d Decoder
	big := plain(1000, 3)
	big.Batches = append(big.Batches, plain(1000, 200).Batches...)
	for _, f := range []Frame{rich(), plain(3, 0), big, rich(), plain(1, 127), plain(2, 128), plain(1, 1<<14-1), plain(1, 1<<14), {State: State{Next: 3}}, rich()} {
		wire := Append(nil, &f)
		got, err := d.Parse(wire)
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Fatalf("read %+v, %v, want %+v", got, err, f)
		}
		if n := uint64(len(d.Records())); n != f.Count() {
			t.Fatalf("%d records, want %d", n, f.Count())
		}
		if _, err := d.Parse(wire[:len(wire)-1]); len(f.Batches) > 0 && (err == nil || len(d.Records()) > 0) {
			t.Fatalf("a frame that was cut gives %d records, %v", len(d.Records()), err)
		}
	}
}

func TestADecoderAllocatesNothing(t *testing.T) {
	f := plain(1000, 128)
	wire := Append(nil, &f)
	var d Decoder
	n := testing.AllocsPerRun(100, func() {
		if _, err := d.Parse(wire); err != nil || len(d.Records()) != 1000 {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
