package sequencer

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova/jslog"
)

// TestReplicasGivenLater: a stream of one server has one control subject, and keeps it when it is given replicas. Its leader
// sends one message after the other then, and the log refuses none.
func TestReplicasGivenLater(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := natstest.NewCluster(t, 3)
	nc, js := join(t, c)
	log, err := jslog.Create(ctx, nc, js, addr, jslog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if n := log.InFlight(); n != 0 {
		t.Errorf("%d messages may be in flight on one server", n)
	}
	s, err := js.Stream(ctx, jslog.StreamName(addr))
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.Replicas = 3
	if _, err := js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	for { // a leader of three
		info, err := s.Info(ctx)
		if err == nil && info.Cluster != nil && info.Cluster.Leader != "" && len(info.Cluster.Replicas) == 2 && info.Cluster.Replicas[0].Current && info.Cluster.Replicas[1].Current {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	var troubles atomic.Int64
	l, err := Start(ctx, OfJetStream(log), Options{Node: "one", WindowBytes: 1 << 20, Events: Events{Recovering: func(error) { troubles.Add(1) }}})
	if err != nil {
		t.Fatal(err)
	}
	if n := log.InFlight(); n != 1 {
		t.Errorf("%d messages may be in flight on replicas", n)
	}
	const n = 200
	results := make(chan Result, n)
	for i := range n { // each of them is a frame
		if err := l.Submit(ctx, Append{Records: bodies(string(make([]byte, fullFrame/2)) + strconv.Itoa(i))}, func(r Result) { results <- r }); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		if r := <-results; r.Err != nil {
			t.Error(r.Err)
		}
	}
	if troubles.Load() > 0 {
		t.Errorf("it got into trouble %d times", troubles.Load())
	}
	if err := l.Stop(ctx); err != nil {
		t.Error(err)
	}
}
