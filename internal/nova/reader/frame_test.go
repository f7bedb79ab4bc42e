package reader

import (
	"fmt"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
)

// framed is a frame of batches with so many records each, from record 100 on; the time of a record is ten times its number.
func framed(batches ...int) jslog.Stored {
	f := frame.Frame{State: frame.State{Next: 100, Timestamp: 900}}
	next := 100
	for _, n := range batches {
		b := frame.Batch{Records: make([]nova.Record, n)}
		for i := range b.Records {
			b.Records[i] = nova.Record{Timestamp: int64(next * 10), Body: fmt.Append(nil, next)}
			next++
		}
		f.Batches = append(f.Batches, b)
	}
	return jslog.Stored{Seq: 1, Payload: frame.Append(nil, &f)}
}

// TestFramesAreReadInRuns: records of one frame are handed over together, whatever batches they came in, in order, from the start of
// the read to its end.
func TestFramesAreReadInRuns(t *testing.T) {
	for _, c := range []struct {
		name    string
		batches []int
		run     run
		want    string // first:count of each call, of which those of 32 records and of what is behind them are one
		next    uint64
	}{
		{"one batch", []int{3}, run{}, "100:3", 103},
		{"one by one", []int{1, 1, 1, 1}, run{}, "100:4", 104},
		{"a thousand", []int{600, 399, 1, 1, 700}, run{}, "100:1701", 1801},
		{"from within", []int{2, 2, 2}, run{next: nova.Position{SeqNum: 103}}, "103:3", 106},
		{"from behind a run", []int{1000, 5}, run{next: nova.Position{SeqNum: 1101}}, "1101:4", 1105},
		{"limited", []int{2, 2, 2}, run{left: 3}, "100:3", 103},
		{"to the tail", []int{2, 2, 2}, run{tail: 105}, "100:5", 105},
		{"behind the tail", []int{2, 2, 2}, run{tail: 105, follow: true}, "100:6 106:0", 106},
		{"since", []int{2, 2, 2}, run{since: 1031}, "104:2", 106},
		{"a fence", nil, run{}, "", 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.run
			if r.next.SeqNum == 0 {
				r.next.SeqNum = 100
			}
			if r.left == 0 {
				r.left = 1 << 40
			}
			if r.tail == 0 {
				r.tail = 1 << 40
			}
			var got []string
			first, whole := uint64(0), 0
			r.out = Each(func(rs Records) error {
				if whole == 0 || rs.First != first+uint64(whole) || whole%32 != 0 {
					got, first, whole = append(got, ""), rs.First, 0
				}
				whole += len(rs.Records)
				got[len(got)-1] = fmt.Sprintf("%d:%d", first, whole)
				for i, rec := range rs.Records {
					if n := rs.First + uint64(i); string(rec.Body) != fmt.Sprint(n) || rec.Timestamp != int64(n*10) {
						t.Errorf("record %d is %q at %d", n, rec.Body, rec.Timestamp)
					}
				}
				return nil
			})
			if err := r.frame(framed(c.batches...)); err != nil {
				t.Fatal(err)
			}
			if s := strings.Join(got, " "); s != c.want || r.next.SeqNum != c.next {
				t.Errorf("calls %q, next %d; want %q and %d", s, r.next.SeqNum, c.want, c.next)
			}
		})
	}
}
