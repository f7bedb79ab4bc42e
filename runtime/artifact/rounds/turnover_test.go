package rounds

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		then, now kv.LogInfo
		want      uint64
	}{
		"no limit":             {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000}, want: 0},
		"empty":                {now: kv.LogInfo{Last: 10, MaxBytes: 1000}, want: 0},
		"by messages":          {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxMessages: 15}, want: 5},
		"full of messages":     {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxMessages: 10}, want: 0},
		"more than its limit":  {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxMessages: 5, MaxBytes: 10}, want: 0},
		"by bytes":             {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxBytes: 1999}, want: 9},
		"rounded up":           {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1001, MaxBytes: 2001}, want: 9},
		"the nearer limit":     {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxBytes: 3000, MaxMessages: 12}, want: 2},
		"the nearer one again": {now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxBytes: 1300, MaxMessages: 100}, want: 3},
		"messages grow":        {then: kv.LogInfo{Last: 8, Bytes: 400}, now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxBytes: 2000}, want: 3},
		"messages shrink":      {then: kv.LogInfo{Last: 8, Bytes: 990}, now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxBytes: 2000}, want: 10},
		"the log shrank":       {then: kv.LogInfo{Last: 8, Bytes: 4000}, now: kv.LogInfo{Last: 10, Messages: 10, Bytes: 1000, MaxBytes: 2000}, want: 10},
		"of no bytes":          {now: kv.LogInfo{Last: 10, Messages: 10, MaxBytes: math.MaxUint64}, want: math.MaxUint64},
	} {
		var l looks
		if c.then.Last > 0 {
			l.add(c.then)
		}
		if got := l.room(c.now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestSchedulerKnowsAnEmptyBucketsRoom: a log that may hold ten times what it does loses nothing until it is full, and the
// time that it foretells is never too late.
func TestSchedulerKnowsAnEmptyBucketsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1000
		n := newNode(t, kvtest.Limits{MaxMessages: limit})
		live := n.round.Live
		n.round.Live = func(ctx context.Context) (kv.LogInfo, error) {
			i, err := live(ctx)
			i.Bytes, i.MaxBytes = 100*i.Messages, 100*limit
			return i, err
		}
		for i := range 100 {
			n.write(fmt.Sprint("before", i))
		}
		n.follow()
		s := schedule(n, SchedulerOptions{Most: 100 * time.Hour})
		i, evicted := 0, time.Duration(0)
		begin := time.Now()
		after(16*time.Hour, func() {
			i++
			n.write(fmt.Sprint("k", i))
			n.follow()
			if info, err := n.log.Info(bounded(t)); err != nil || info.First > 2 && evicted == 0 {
				evicted = time.Since(begin)
			}
		})
		s.close()
		if evicted < 14*time.Hour || evicted > 16*time.Hour {
			t.Fatalf("it evicted after %v", evicted)
		}
		told := 0
		for _, l := range s.looks {
			// The first artifact, of revision 100, is good for a thousand writes.
			if l.Ends && l.HasNewest && l.Newest.Manifest.Rank() == 100 {
				told++
				if left := l.ImpossibleAt.Sub(begin); left < 16*time.Hour || left > 17*time.Hour {
					t.Errorf("the first artifact is foretold to be of use for %v", left)
				}
			}
		}
		if told == 0 || len(s.risks) > 0 {
			t.Errorf("%d looks told of an end, %d risks", told, len(s.risks))
		}
		if last := s.looks[len(s.looks)-1]; last.Period < 4*time.Hour-10*time.Minute || last.Period > 4*time.Hour+15*time.Minute {
			t.Errorf("the period of a full log is %v", last.Period)
		}
	})
}
