package natskv

import (
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// mutedWatch is an idleWatch that asks for nothing, though nothing is outstanding.
func mutedWatch() *watch {
	w := idleWatch(BucketConfig{}, kv.AllKeys())
	w.b.cfg.Watch.Batch, w.outstanding = -1, 0
	return w
}

// wantBehind takes the next delivery, which comes after a cut or does not.
func wantBehind(t *testing.T, w *watch, rev uint64, behind bool) {
	t.Helper()
	if d, err := next(t, w); err != nil || d.Frontier != rev || d.Behind != behind {
		t.Errorf("frontier %d, behind %t, %v; want %d, %t", d.Frontier, d.Behind, err, rev, behind)
	}
}

// TestWhatComesAfterACutSaysSo: while the server had no request of the watch, what was written and vanished can't be told from
// what never was. The first that comes then says that it is behind, and what follows it does not.
func TestWhatComesAfterACutSaysSo(t *testing.T) {
	t.Run("a connection that was lost", func(t *testing.T) {
		w := mutedWatch()
		w.outstanding = math.MaxInt
		w.onMessage(delivery(5, 1, 0))
		wantBehind(t, w, 5, false)
		w.onConnection(nats.CONNECTED)
		w.outstanding = math.MaxInt
		w.onMessage(delivery(6, 2, 0))
		wantBehind(t, w, 6, true)
		w.onMessage(delivery(7, 3, 0))
		wantBehind(t, w, 7, false)
	})
	t.Run("a slow reader", func(t *testing.T) {
		w := mutedWatch()
		w.onMessage(delivery(5, 1, 1))
		wantBehind(t, w, 5, false) // and all that was asked for has come
		w.outstanding = math.MaxInt
		w.onMessage(delivery(9, 2, 0))
		wantBehind(t, w, 9, true)
		w.onMessage(delivery(10, 3, 0))
		wantBehind(t, w, 10, false)
	})
}

// TestAFrontierAfterACutSaysSo too, where no delivery came. It ends the cut when the head was read since; a head that was read
// before says nothing of what is written after.
func TestAFrontierAfterACutSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		read time.Duration // after the cut
		next bool          // what comes then is behind
	}{"read since": {time.Second, false}, "read before": {-time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			w := mutedWatch()
			w.outstanding = math.MaxInt
			w.onMessage(delivery(5, 1, 0))
			wantBehind(t, w, 5, false)
			w.cutAt = time.Now()
			w.claim = &claim{head: 9, delivered: 1, at: w.cutAt.Add(c.read)}
			wantBehind(t, w, 9, true)
			w.onMessage(delivery(10, 2, 0))
			wantBehind(t, w, 10, c.next)
		})
	}
}

// TestAProbeWaitsForTheDeliveriesThatItCounts: the head that it read is no frontier before they are handed out.
func TestAProbeWaitsForTheDeliveriesThatItCounts(t *testing.T) {
	w := mutedWatch()
	w.outstanding = math.MaxInt
	w.onMessage(delivery(5, 1, 0))
	w.claim = &claim{head: 9, delivered: 2, at: time.Now()}
	wantBehind(t, w, 5, false)
	if d, ok, err := w.take(t.Context(), kv.Delivery{}, 100, 1<<20); ok || err != nil {
		t.Errorf("with a delivery on its way: frontier %d, %v", d.Frontier, err)
	}
	w.onMessage(delivery(7, 2, 0))
	wantBehind(t, w, 9, false)
}
