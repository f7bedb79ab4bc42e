package node

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// BenchmarkBesideSessions times one-shots while four sessions submit all that the server lets them, 8 MiB each, without the
// network. The figures are p50-ms and p99-ms.
func BenchmarkBesideSessions(b *testing.B) {
	srv := natstest.New(b)
	nc, err := srv.Connect(nats.ReconnectBufSize(-1))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	n, err := New(nc, js, Options{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	if err := n.Create(ctx, addr, jslog.Config{}); err != nil {
		b.Fatal(err)
	}
	s, err := n.Stream(ctx, addr)
	if err != nil {
		b.Fatal(err)
	}
	flooding, stop := context.WithCancel(ctx)
	full := make(chan struct{}, 4)
	for range 4 {
		session, err := s.OpenSession(ctx, "")
		if err != nil {
			b.Fatal(err)
		}
		go flood(flooding, session, full)
	}
	for range 4 {
		<-full
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := s.Append(ctx, one("x")); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	stop()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	if err := n.Close(ctx); err != nil {
		b.Error(err)
	}
}

// flood submits batches of 100 records, 8 MiB of them at a time, and says when they are full.
func flood(ctx context.Context, s *Session, full chan<- struct{}) {
	const most, size = 8 << 20, 100 * (8 + 128)
	room := semaphore.NewWeighted(most)
	body := make([]byte, 128)
	for i := 0; room.Acquire(ctx, size) == nil; i++ {
		if i == most/size {
			full <- struct{}{}
		}
		records := make([]nova.Record, 100)
		for j := range records {
			records[j].Body = body
		}
		if s.Submit(ctx, records, nil, func(sequencer.Result) { room.Release(size) }) != nil {
			return
		}
	}
}
