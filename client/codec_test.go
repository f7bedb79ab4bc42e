package client

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
)

func readOf(n int, headers bool) *novav1.ReadResponse {
	m := &novav1.ReadResponse{Next: &novav1.Position{SeqNum: uint64(n), Timestamp: 7}}
	for i := range n {
		r := &novav1.SequencedRecord{SeqNum: uint64(i), Timestamp: int64(i) - 1, Body: bytes.Repeat([]byte{byte(i)}, i*37%300)}
		if headers {
			r.Headers = []*novav1.Header{{Name: "a", Value: []byte("b")}}
		}
		m.Records = append(m.Records, r)
	}
	return m
}

// FuzzReadResponse: whatever this codec reads, the library reads the same, and refuses what it refuses.
func FuzzReadResponse(f *testing.F) {
	for _, m := range []*novav1.ReadResponse{{}, readOf(0, false), readOf(1, false), readOf(200, false), readOf(2, true)} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...)) // a field that is there twice
		f.Add(append(b, 0x18, 1))
		if len(b) > 3 {
			f.Add(b[:len(b)-3])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want, got novav1.ReadResponse
		wantErr := proto.Unmarshal(b, &want)
		in := bytes.Clone(b)
		gotErr := codec{}.Unmarshal(in, &got)
		clear(in) // the buffer is used again
		if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !proto.Equal(&want, &got) {
			t.Fatalf("%x gives\n%v, %v, not\n%v, %v", b, &got, gotErr, &want, wantErr)
		}
		if !readRecords(b, &got) {
			return
		}
		for _, r := range got.Records {
			if cap(r.Body) != len(r.Body) {
				t.Fatalf("a body of %d bytes can grow into %d of another's", len(r.Body), cap(r.Body)-len(r.Body))
			}
		}
	})
}

// TestReadRecordsAllocs: the records, the pointers to them, the position, and a slab for every 8 KiB.
func TestReadRecordsAllocs(t *testing.T) {
	m := readOf(1000, false)
	total := 0
	for _, r := range m.Records {
		total += len(r.Body) + 12
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		var out novav1.ReadResponse
		if !readRecords(b, &out) || len(out.Records) != 1000 {
			t.Fatal("not read")
		}
	})
	if most := float64(4 + total/(slab-300) + 1); n > most {
		t.Errorf("%v allocations, want %v at most", n, most)
	}
}
