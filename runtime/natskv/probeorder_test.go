package natskv_test

import (
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// TestAProbeReadsTheHeadFirst: a message that is written between a probe's two questions, and is not delivered, is pending for
// the second one. Asked the other way round, the head would be past a message that nobody counts.
func TestAProbeReadsTheHeadFirst(t *testing.T) {
	r := newEvictingRig(t)
	pull := answer{subject: "CONSUMER.MSG.NEXT"} // both requests get lost, so nothing is delivered
	p := newProxy(t, r, pull, pull)
	w := proxied(t, r, p, kv.AllKeys(), natskv.WatchConfig{Batch: 10, ProbeEvery: 50 * time.Millisecond})
	p.delay("STREAM.INFO", func() { r.put(t, "k.2", "v") })
	if got := w.until(t, 2); len(got) != 1 || got[0].Key != "k.2" {
		t.Errorf("a frontier of 2 with %s", got.text())
	}
}
