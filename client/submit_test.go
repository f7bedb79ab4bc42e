package client

import (
	"context"
	"testing"

	"golang.org/x/sync/semaphore"
)

// TestSubmitAllocs bounds what a Submit of one record costs: its ticket with a channel, and the batch's slices as they grow.
func TestSubmitAllocs(t *testing.T) {
	p := &Producer{room: semaphore.NewWeighted(1 << 40), wake: make(chan struct{}, 1)}
	ctx := context.Background()
	records := Bodies(make([]byte, 128))
	if n := testing.AllocsPerRun(5000, func() { p.Submit(ctx, records...) }); n > 3 {
		t.Fatalf("%v allocations", n)
	}
}
