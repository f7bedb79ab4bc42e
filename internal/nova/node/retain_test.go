package node

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
)

// TestMaxBytesKeepsWhatItSays: of frames of uneven sizes, as many of the oldest ones go as leave MaxBytes, and no more.
func TestMaxBytesKeepsWhatItSays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, memory := range map[string]bool{"files": false, "memory": true} {
		t.Run(name, func(t *testing.T) {
			n, _ := testNode(t, natstest.New(t))
			const limit = 1_000_000
			if err := n.Create(ctx, addr, jslog.Config{Memory: memory, Retention: jslog.Retention{MaxBytes: limit}}); err != nil {
				t.Fatal(err)
			}
			s := stream(t, n)
			r := rand.New(rand.NewPCG(1, 2))
			var sizes []uint64
			describe := func() uint64 {
				d, err := s.log.Describe(ctx)
				if err != nil {
					t.Fatal(err)
				}
				return d.Bytes - s.log.ControlBytes()
			}
			for range 40 { // half of them small and old, half of them large and new, and then the other way round
				for _, most := range []int{100, 100_000, 100_000, 100} {
					a := one("")
					a.Records[0].Body = make([]byte, 1+r.IntN(most))
					sizes = append(sizes, uint64(len(a.Records[0].Body)))
					if _, err := s.Append(ctx, a); err != nil {
						t.Fatal(err)
					}
				}
				before := describe()
				if err := s.retain(ctx); err != nil {
					t.Fatal(err)
				}
				after := describe()
				first := s.first(ctx, t)
				if before > limit && after < limit || before <= limit && after != before {
					t.Fatalf("%d bytes, of which %d are left: the limit is %d", before, after, limit)
				}
				// The oldest frame that is left would be gone if it were not needed; the estimate is off by a little for each
				// message of the log at most.
				const slack = 4096
				if first < uint64(len(sizes))-1 && after > limit+sizes[first]+slack {
					t.Fatalf("%d bytes are left, of which the oldest frame has %d: the limit is %d", after, sizes[first], limit)
				}
			}
			if s.first(ctx, t) == 0 {
				t.Error("nothing was removed")
			}
		})
	}
}

// first is the number of the first record that is left.
func (s *Stream) first(ctx context.Context, t *testing.T) uint64 {
	t.Helper()
	at, err := s.log.From(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, state, err := frame.ParseHead(at.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return state.Next
}

// TestSmallMaxBytes: with a limit that the log's own messages exceed, the newest record is left.
func TestSmallMaxBytes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, _ := testNode(t, natstest.New(t))
	if err := n.Create(ctx, addr, jslog.Config{Retention: jslog.Retention{MaxBytes: 1}}); err != nil {
		t.Fatal(err)
	}
	s := stream(t, n)
	for range 50 {
		a := one("")
		a.Records = append(a.Records, nova.Record{Body: make([]byte, 1000)})
		if _, err := s.Append(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.retain(ctx); err != nil {
		t.Fatal(err)
	}
	if first := s.first(ctx, t); first != 98 {
		t.Errorf("the first record that is left is %d", first)
	}
}
