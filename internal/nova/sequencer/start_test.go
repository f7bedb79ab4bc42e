package sequencer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

// TestNewbornLog: reads that don't show the first frame yet are taken for what they are, and end within a bound.
func TestNewbornLog(t *testing.T) {
	for reads := range 12 {
		synctest.Test(t, func(t *testing.T) {
			log := newFakeLog(t, 4)
			log.newborn = reads
			l, err := Start(t.Context(), log, Options{Node: "one"})
			if err != nil {
				t.Fatalf("%d reads of an older log: %v", reads, err)
			}
			if err := l.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog(t, 4)
		log.newborn = 1 << 30
		began := time.Now()
		if _, err := Start(t.Context(), log, Options{Node: "one"}); !errors.Is(err, jslog.ErrDamaged) || time.Since(began) > 6*time.Second {
			t.Errorf("a log without a frame, after %v: %v", time.Since(began), err)
		}
	})
}

func TestOptionsMakeSense(t *testing.T) {
	for name, o := range map[string]Options{
		"no name": {}, "window": {Node: "a", Window: -1}, "bytes": {Node: "a", MaxBytes: -1},
		"acks": {Node: "a", AckTimeout: -1}, "recovery": {Node: "a", RecoverTimeout: -1},
	} {
		if l, err := Start(t.Context(), newFakeLog(t, 4), o); err == nil {
			t.Errorf("%s: a leader of %+v", name, l.o)
		}
	}
}

// TestEvents: what a leader does is told, once, with the right figures.
func TestEvents(t *testing.T) {
	var told []string
	var frames []Committed
	note := func(what string) func() { return func() { told = append(told, what) } }
	o := Options{Node: "one", Events: Events{
		Committed: func(c Committed) { frames = append(frames, c) }, Missed: note("missed"), Refused: note("refused"),
		Fenced:     func(token string, fence uint64) { told = append(told, "fenced "+token) },
		Indefinite: func(n int) { told = append(told, "indefinite") }, Recovering: func(error) { told = append(told, "recovering") },
		Recovered: func(time.Duration) { told = append(told, "recovered") },
	}}
	synctest.Test(t, func(t *testing.T) {
		w := &troubled{t: t, log: newFakeLog(t, 8), results: map[string]Result{}}
		var err error
		if w.l, err = Start(t.Context(), w.log, o); err != nil {
			t.Fatal(err)
		}
		w.submit(protocol.Append{}, "a", "b")
		w.submit(protocol.Append{HasMatch: true, Match: 9}, "miss")
		w.submit(protocol.Append{Token: "none"}, "out")
		if _, err := w.fence("t")(); err != nil {
			t.Fatal(err)
		}
		w.log.script(nth(losesAnswer, 1))
		w.submit(protocol.Append{Token: "t"}, "c")
		w.after(10 * time.Second)
		w.want("2", "c")
		w.stop()
	})
	if want := []string{"missed", "refused", "fenced t", "recovering", "recovered"}; !slices.Equal(told, want) {
		t.Errorf("%q, not %q", told, want)
	}
	if len(frames) != 3 || frames[0].Records != 1 || frames[0].Batches != 1 || frames[0].Bytes != 9 || frames[2].Took < 5*time.Second {
		t.Errorf("%+v", frames)
	}
}

// TestNothingIsAdmittedBehindAStop: the kernel is told that the leader leads no more.
func TestNothingIsAdmittedBehindAStop(t *testing.T) {
	trouble(t, 8, func(w *troubled) {
		w.log.script(nth(delays, 1))
		w.submit(protocol.Append{}, "a")
		if err := w.l.enqueue(item{stop: true}); err != nil {
			t.Fatal(err)
		}
		w.submit(protocol.Append{}, "b")
		w.log.land()
		w.after(time.Second)
		w.want("0", "a")
		w.wantLog("a")
		if r := w.results["b"]; !errors.Is(r.Err, ErrStopped) {
			t.Errorf("behind a stop: %+v", r)
		}
	})
}
