package rounds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
)

// scheduled runs a node's scheduler in a bubble, and notes what it tells.
type scheduled struct {
	*node
	mu      sync.Mutex
	results []Result
	errs    []error
	risks   []Outlook
	looks   []Outlook
	failed  []error
	rounds  []time.Time // when each ended
	ended   error
	sch     *Scheduler
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

func schedule(n *node, o SchedulerOptions) *scheduled {
	n.t.Helper()
	s := &scheduled{node: n}
	note := func(f func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	}
	o.Round = n.round
	o.Events = Events{
		Looked: func(l Outlook) { note(func() { s.looks = append(s.looks, l) }) },
		RoundDone: func(r Result, err error) {
			note(func() {
				s.results, s.errs, s.rounds = append(s.results, r), append(s.errs, err), append(s.rounds, time.Now())
			})
		},
		Risk:       func(l Outlook) { note(func() { s.risks = append(s.risks, l) }) },
		LookFailed: func(err error) { note(func() { s.failed = append(s.failed, err) }) },
	}
	sch, err := NewScheduler(o)
	must(n.t, err)
	ctx, stop := context.WithCancel(bounded(n.t))
	s.stop, s.sch = stop, sch
	s.wg.Go(func() { s.ended = sch.Run(ctx) })
	return s
}

// close ends the scheduler and checks how it ended.
func (s *scheduled) close() {
	s.stop()
	s.wg.Wait()
	if !errors.Is(s.ended, context.Canceled) {
		s.t.Errorf("the scheduler ended with %v", s.ended)
	}
	s.node.close()
}

func (s *scheduled) published() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.results {
		if r.Ending == Published {
			n++
		}
	}
	return n
}

// after lets the time go on, with the log followed and written each minute.
func after(d time.Duration, each func()) {
	for range int(d / time.Minute) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if each != nil {
			each()
		}
	}
}

// TestSchedulerExportsInTime: on a log that keeps messages for 8 h, exports come every 2 h and up to a tenth more,
// whatever the number of nodes, and nobody is ever at risk.
func TestSchedulerExportsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		fleet := []*node{n, n.another("node-2"), n.another("node-3")}
		n.write("a")
		var all []*scheduled
		for _, one := range fleet {
			one.follow()
			all = append(all, schedule(one, SchedulerOptions{Most: 24 * time.Hour}))
		}
		last := time.Now()
		rank, rounds := uint64(0), 0
		after(13*time.Hour, func() {
			n.write(fmt.Sprint("k", time.Now().Unix()))
			for _, one := range fleet {
				one.follow()
			}
			if now := n.newest(); now != rank {
				gap := time.Since(last)
				if first := rank == 0; first && gap > 2*time.Minute || !first && (gap < 2*time.Hour-time.Minute || gap > 2*time.Hour+14*time.Minute) {
					t.Errorf("export %d came after %v", rounds, gap)
				}
				rank, last = now, time.Now()
				rounds++
			}
		})
		if rounds != 6 && rounds != 7 {
			t.Errorf("%d exports in 13 h", rounds)
		}
		total := 0
		for _, s := range all {
			s.close()
			total += s.exports
			if len(s.risks) > 0 || len(s.failed) > 0 {
				t.Errorf("%d risks, failures %v", len(s.risks), s.failed)
			}
			if l := s.looks[len(s.looks)-1]; l.Period != 2*time.Hour || !l.Ends || !l.HasNewest {
				t.Errorf("the period is %v, and it ends: %v", l.Period, l.Ends)
			}
		}
		if total != rounds {
			t.Errorf("%d exports for %d artifacts", total, rounds)
		}
	})
}

// TestSchedulerTellsOfRisk: while uploads fail, it tells when a restore becomes impossible, before it is; and it is right.
func TestSchedulerTellsOfRisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		n.write("a")
		n.follow()
		s := schedule(n, SchedulerOptions{Most: 24 * time.Hour})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n.newest() != 1 {
			t.Fatal("no first export")
		}
		n.objects.set("put .tar")
		var impossible time.Time
		after(12*time.Hour, func() {
			n.log.Set(fmt.Sprint("k", time.Now().Unix()), "v") // a key of its own: nothing is superseded
			n.follow()
			info, err := n.log.Info(bounded(t))
			must(t, err)
			if impossible.IsZero() && !protocol.ResumeWindowOK(1, info.First) {
				impossible = time.Now()
			}
		})
		s.close()
		if impossible.IsZero() || len(s.risks) == 0 {
			t.Fatalf("impossible at %v, %d risks", impossible, len(s.risks))
		}
		first := s.risks[0]
		ahead := impossible.Sub(first.ImpossibleAt)
		if ahead < -2*time.Minute || ahead > 5*time.Minute { // it says what may be, at the earliest
			t.Errorf("it was impossible at %v, and foretold for %v", impossible, first.ImpossibleAt)
		}
		if told := s.looks[len(s.looks)-1]; told.ImpossibleAt.After(time.Now()) || !told.Ends {
			t.Errorf("in the end it tells %v", told.ImpossibleAt)
		}
		// Failed rounds are tried again, each at most a period after the last one.
		if len(s.errs) < 7 || s.published() != 1 {
			t.Errorf("%d rounds, %d published", len(s.errs), s.published())
		}
	})
}

// TestSchedulerMeasuresTurnover: a log of at most 100 messages that gets one a minute turns over in 100 minutes.
func TestSchedulerMeasuresTurnover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxMessages: 100})
		for i := range 100 {
			n.write(fmt.Sprint("before", i))
		}
		n.follow()
		s := schedule(n, SchedulerOptions{})
		i := 0
		after(5*time.Hour, func() {
			i++
			n.write(fmt.Sprint("k", i))
			n.follow()
		})
		s.close()
		last := s.looks[len(s.looks)-1]
		// Two readings three minutes apart may have four writes between them.
		if last.Period < 18*time.Minute || last.Period > 26*time.Minute {
			t.Errorf("the period is %v", last.Period)
		}
		if got := s.published(); got < 10 || got > 16 {
			t.Errorf("%d exports in 5 h", got)
		}
		if left := time.Until(last.ImpossibleAt); !last.Ends || left < 60*time.Minute || left > 100*time.Minute {
			t.Errorf("a restore is impossible in %v", left)
		}
	})
}

// TestSchedulerOnALogThatKeepsItsValues: it exports as seldom as it may, and nothing is at risk.
func TestSchedulerOnALogThatKeepsItsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{})
		n.write("a")
		n.follow()
		s := schedule(n, SchedulerOptions{})
		after(20*time.Hour, func() { n.write("a"); n.follow() }) // each write takes the log's window along
		s.close()
		if got := s.published(); got < 3 || got > 4 || len(s.risks) > 0 {
			t.Errorf("%d exports, %d risks", got, len(s.risks))
		}
	})
}

// TestSchedulerOnALogThatIsQuiet: an artifact of all that was written is not exported again, which would leave one more in
// the object store each period; what is written after it is exported within a look.
func TestSchedulerOnALogThatIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		n.write("a", "b")
		n.follow()
		s := schedule(n, SchedulerOptions{})
		after(20*time.Hour, nil)
		if got := s.published(); got != 1 || len(s.risks) > 0 {
			t.Errorf("%d exports of a quiet log, %d risks", got, len(s.risks))
		}
		n.write("b")
		n.follow()
		after(6*time.Minute, nil)
		s.close()
		if n.newest() != 3 {
			t.Errorf("the pointer is at %d", n.newest())
		}
	})
}

// TestSchedulerAfterARecreatedBucket: the old log's artifact is replaced at once, not after a period.
func TestSchedulerAfterARecreatedBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		n.write("a", "b", "c")
		n.follow()
		s := schedule(n, SchedulerOptions{Least: 20 * time.Minute})
		after(30*time.Minute, nil)
		if n.newest() != 3 {
			t.Fatalf("the pointer is at %d", n.newest())
		}
		n.log.Recreate()
		n.write("a")
		n.follow()
		after(25*time.Minute, nil)
		if n.newest() != 1 {
			t.Errorf("the pointer is at %d", n.newest())
		}
		s.close()
	})
}

// TestSchedulerGoesOnBesideFailures: what can't be read is told, and what was seen last counts on.
func TestSchedulerGoesOnBesideFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: time.Hour})
		n.write("a")
		n.follow()
		n.objects.set("read ")
		live := n.round.Live
		var broken atomic.Bool
		n.round.Live = func(ctx context.Context) (kv.LogInfo, error) {
			if broken.Load() {
				return kv.LogInfo{}, errFault
			}
			return live(ctx)
		}
		s := schedule(n, SchedulerOptions{Most: time.Hour})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.failed) == 0 || len(s.failed) > 100 || !errors.Is(s.failed[0], errFault) || n.exports != 0 {
			t.Errorf("%d failures, %d exports", len(s.failed), n.exports)
		}
		n.objects.set("")
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.published() != 1 || len(s.risks) != 0 {
			t.Errorf("%d rounds, %d risks", len(s.results), len(s.risks))
		}
		broken.Store(true)
		after(time.Hour, func() { n.write("a"); n.follow() })
		if s.published() < 2 {
			t.Errorf("no export without the log's bounds: %d", s.published())
		}
		s.close()
	})
}

// TestSchedulerGivesItsLeaseBack: the end of its context ends a round that is under way.
func TestSchedulerGivesItsLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{})
		n.write("a")
		n.follow()
		n.export = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s := schedule(n, SchedulerOptions{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, held := n.held(); !held {
			t.Error("no round is under way")
		}
		s.close()
		n.wantFree()
		n.wantClean()
	})
}

// TestSchedulerDoesNotTrustAClockAhead: an artifact from the future is as old as it is known here.
func TestSchedulerDoesNotTrustAClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		n.ahead = 100 * time.Hour
		n.write("a")
		n.follow()
		s := schedule(n, SchedulerOptions{})
		after(5*time.Hour, func() { n.write("a"); n.follow() })
		s.close()
		if got := s.published(); got != 3 {
			t.Errorf("%d exports in 5 h", got)
		}
	})
}

// TestSchedulerMissesTheFirstArtifact: a log that evicts and has no artifact at all is at risk once a round has failed.
func TestSchedulerMissesTheFirstArtifact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		n.write("a")
		n.follow()
		n.objects.set("put .tar")
		s := schedule(n, SchedulerOptions{})
		after(5*time.Minute, nil)
		s.close()
		if len(s.risks) == 0 || s.risks[0].HasNewest || !s.risks[0].Ends || s.risks[0].ImpossibleAt.After(time.Now()) || len(s.errs) < 2 {
			t.Errorf("%d risks after %d rounds", len(s.risks), len(s.errs))
		}
	})
}

func TestSchedulerOptionsValidate(t *testing.T) {
	n := newNode(t, kvtest.Limits{})
	defer n.close()
	for want, o := range map[string]SchedulerOptions{
		"no Round":  {},
		"negative":  {Round: n.round, Least: -1},
		"over":      {Round: n.round, Least: 2 * time.Hour, Most: time.Hour},
		"over most": {Round: n.round, Most: time.Minute},
	} {
		if _, err := NewScheduler(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	s, err := NewScheduler(SchedulerOptions{Round: n.round, Least: 12 * time.Hour})
	if err != nil || s.o.Most != 12*time.Hour {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestLooks(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	info := func(log int64, minute int, first, last uint64) kv.LogInfo {
		return kv.LogInfo{Created: time.Unix(0, log), First: first, Last: last, ServerTime: begin.Add(time.Duration(minute) * time.Minute)}
	}
	evicting := kv.Retention{EvictsCurrentValues: true}
	var l looks
	for i := range 1000 {
		l.add(info(1, i, 1, uint64(10*i)))
	}
	if len(l.all) > maxLooks || l.all[0].last != 0 || l.all[len(l.all)-1].last != 9990 {
		t.Errorf("%d readings from %+v", len(l.all), l.all[0])
	}
	if got := l.turnover(evicting); got.Revisions*uint64(time.Minute) != 10*uint64(got.Over) {
		t.Errorf("turnover %+v", got)
	}
	l.add(info(1, 1000, 5000, 9991)) // an age that it does not tell took the first 4999 within a minute
	if got := l.turnover(evicting); got.Revisions != 4999 || got.Over != int64(time.Minute) {
		t.Errorf("turnover %+v", got)
	}
	near := looks{log: 1, all: []look{{at: begin, last: 5}, {at: begin.Add(time.Millisecond), last: 6}}}
	if got := near.turnover(evicting); got.Revisions != 1 || got.Over != int64(shortest) {
		t.Errorf("turnover of readings a moment apart %+v", got)
	}
	if got := l.turnover(kv.Retention{EvictsCurrentValues: true, AgeLimit: time.Hour}); got != (protocol.Turnover{MaxAge: int64(time.Hour)}) {
		t.Errorf("turnover %+v", got)
	}
	if got := l.turnover(kv.Retention{}); got != (protocol.Turnover{}) {
		t.Errorf("turnover %+v", got)
	}
	l.add(info(1, 1000, 5000, 9999)) // at the same moment: the later one counts
	if last := l.all[len(l.all)-1]; last.last != 9999 || len(l.all) < 2 {
		t.Errorf("%+v", l.all)
	}
	for what, i := range map[string]kv.LogInfo{"another log": info(2, 1001, 1, 20_000), "rewound": info(1, 1001, 5000, 9000), "an older clock": info(1, 999, 5000, 9999)} {
		again := looks{log: l.log, all: append([]look{}, l.all...)}
		if again.add(i); len(again.all) != 1 || again.turnover(evicting) != (protocol.Turnover{}) {
			t.Errorf("%s: %+v", what, again.all)
		}
	}
}

func TestWhole(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	m := artifact.Manifest{Cursor: kv.CursorAt(50), Created: at}
	var l looks
	if got := l.whole(&m); got != at.UnixNano() {
		t.Errorf("of its export: %d", got)
	}
	m.Log.Samples = []kv.Sample{{Revision: 40, UnixNano: 4000}, {Revision: 60, UnixNano: 6000}}
	if got := l.whole(&m); got != 4000 {
		t.Errorf("of a sample: %d", got)
	}
	m.Cursor = kv.Cursor{Version: kv.Revision(50), SeenEvicting: true, WrittenAt: 5}
	if got := l.whole(&m); got != 5_000_000 {
		t.Errorf("of its cursor: %d", got)
	}
	m.Log.CreatedUnixNano = 7
	for _, log := range []int64{7, 8} {
		l = looks{log: log, all: []look{{at: time.Unix(1, 0), last: 50}, {at: time.Unix(2, 0), last: 51}}}
		want := int64(5_000_000)
		if log == 7 {
			want = time.Unix(1, 0).UnixNano()
		}
		if got := l.whole(&m); got != want {
			t.Errorf("of a reading of log %d: %d", log, got)
		}
	}
}
