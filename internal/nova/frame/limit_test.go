package frame

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/nova"
)

func TestUvarint(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<21 - 1, 1 << 21, 1 << 40} {
		if want := len(binary.AppendUvarint(nil, uint64(n))); uvarint(n) != want {
			t.Errorf("%d needs %d bytes, not %d", n, want, uvarint(n))
		}
	}
}

// batchOf is a batch of so many records and headers that counts for at most so many bytes, all of whose parts have about one size.
func batchOf(records, headers, part, bytes int) []nova.Record {
	out := []nova.Record{}
	for range records {
		if bytes < 8 {
			break
		}
		r := nova.Record{Body: make([]byte, min(part, bytes-8)), Timestamp: 1}
		bytes -= r.Bytes()
		h := nova.Header{Name: strings.Repeat("n", part), Value: make([]byte, part)}
		r.Headers = slices.Repeat([]nova.Header{h}, min(headers, bytes/(2+2*part)))
		bytes -= len(r.Headers) * (2 + 2*part)
		out = append(out, r)
	}
	return out
}

// TestEveryBatchUpToTheLimitFits, of whatever it consists; and one of the limit of all batches fits where messages may be an
// eighth larger.
func TestEveryBatchUpToTheLimitFits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 34))
	fit := func(message, most, records, headers, part int) {
		t.Helper()
		b := Batch{Token: strings.Repeat("t", nova.MaxTokenBytes), HasMatch: true, Match: 1 << 62, Records: batchOf(records, headers, part, most)}
		size := Head + BatchSize(&b)
		if n := nova.BatchBytes(b.Records); n > most || size > message {
			t.Fatalf("a batch of %d records that counts for %d bytes of %d makes a message of %d bytes of %d", len(b.Records), n, most, size, message)
		}
		state := State{Next: 1 << 62, Fence: 1 << 62, Token: strings.Repeat("o", nova.MaxTokenBytes)}
		if got := len(Append(make([]byte, 0, size), &Frame{Epoch: 1 << 62, State: state, Batches: []Batch{b}})); len(b.Records) > 0 && got > size {
			t.Fatalf("it has %d bytes, and was to have %d at most", got, size)
		}
	}
	for _, message := range []int{20_000, 64 << 10, 1<<20 - 1024, 2 << 20} {
		for range 10 {
			part := []int{0, 1, r.IntN(40), 126 + r.IntN(4), 16382 + r.IntN(4), r.IntN(message)}[r.IntN(6)]
			fit(message, MaxBatch(message), 1+r.IntN(nova.MaxBatchRecords), r.IntN(1+200_000/(part+1)), part)
		}
		for _, records := range []int{1, nova.MaxBatchRecords} {
			fit(message, MaxBatch(message), records, 2000/records*500, 0) // nothing but headers
			fit(message, MaxBatch(message), records, 0, 128)
		}
	}
	whole := nova.MaxBatchBytes + nova.MaxBatchBytes/8
	for _, headers := range []int{0, 1, 500, 500_000} {
		for _, records := range []int{1, nova.MaxBatchRecords} {
			for _, part := range []int{0, 1, 100, 128} {
				fit(whole, nova.MaxBatchBytes, records, min(headers, 600_000/records), part)
			}
		}
	}
	if MaxBatch(1<<20-1024) < 1_000_000 || MaxBatch(8<<20) != nova.MaxBatchBytes || MaxBatch(0) != 0 {
		t.Errorf("%d, %d, %d", MaxBatch(1<<20-1024), MaxBatch(8<<20), MaxBatch(0))
	}
}
