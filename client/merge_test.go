package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"

	"github.com/typedfold/fold/client"
)

// TestWhatIsMergedFitsTheLog: records that are valid one by one are valid when the producer makes one batch of them, on a log whose
// messages have 1 MiB at most.
func TestWhatIsMergedFitsTheLog(t *testing.T) {
	run(t, single.URL(), client.StreamConfig{Memory: true}, func(ctx context.Context, t *testing.T, w *world) {
		p := w.open(ctx, t, w.a, client.WithLinger(time.Hour))
		body := make([]byte, 104_800) // ten of them count for 1 MiB less 496 bytes
		var tickets []*client.Ticket
		for range 10 {
			tickets = append(tickets, p.Submit(ctx, client.Bodies(body)...))
		}
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for i, ticket := range tickets {
			at(t, uint64(i))(ticket.Wait(ctx))
		}
	})
}

// TestAServerSaysWhatMayBeMerged, and a batch of one call is sent as it is.
func TestAServerSaysWhatMayBeMerged(t *testing.T) {
	var sizes []int
	f := &fake{session: func(_ int, s *session) error {
		if _, err := s.s.Receive(); err != nil {
			return err
		}
		err := s.send(&novav1.AppendSessionResponse{Message: &novav1.AppendSessionResponse_Opened_{
			Opened: &novav1.AppendSessionResponse_Opened{MaxBatchBytes: 100},
		}})
		for err == nil {
			var b *novav1.Batch
			if b, err = s.receive(); err == nil {
				sizes = append(sizes, len(b.GetRecords()))
				err = s.append(b)
			}
		}
		return nil
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		for range 10 {
			p.Submit(ctx, client.Bodies(make([]byte, 25-8))...)
		}
		p.Submit(ctx, client.Bodies(make([]byte, 200))...)
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if want := []int{4, 4, 2, 1}; fmt.Sprint(sizes) != fmt.Sprint(want) {
			t.Fatalf("batches of %v, not %v", sizes, want)
		}
	}, client.WithLinger(time.Hour))
}
