package fold

import (
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

// TestAReadingRaisesNoAgeLimit: a watch lags, or is cut off, messages age out that it was never given, and the age limit is
// raised. A reading of the log comes before the next watch is opened: the limit that took the messages is still known then.
func TestAReadingRaisesNoAgeLimit(t *testing.T) {
	created := time.Unix(9, 0)
	info := func(created time.Time, limit time.Duration) kv.LogInfo {
		return kv.LogInfo{Created: created, Retention: kv.Retention{EvictsCurrentValues: true, AgeLimit: limit}}
	}
	var l incarnation
	for _, step := range []struct {
		tell func(kv.LogInfo)
		i    kv.LogInfo
		want time.Duration
	}{
		{l.opened, info(created, 2*time.Hour), 2 * time.Hour},
		{l.read, info(created, 4*time.Hour), 2 * time.Hour},
		{l.read, info(created, time.Hour), time.Hour},
		{l.read, info(created.Add(1), time.Minute), time.Hour},
		{l.opened, info(created, 4*time.Hour), 4 * time.Hour},
		{l.read, info(created, 0), 0},
		{l.read, info(created, 4*time.Hour), 0},
	} {
		step.tell(step.i)
		if got := time.Duration(l.get().AgeLimit); got != step.want {
			t.Fatalf("after %v the limit is %v, not %v", step.i.Retention.AgeLimit, got, step.want)
		}
	}
}
