package rounds

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

// settle lets the time go on, and the scheduler with it.
func settle(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

// TestPauses: another node's lease is looked at a quarter of its TTL later, and a failure after a success waits as long as
// the first one did.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		n.write("a")
		n.follow()
		guard, won, err := n.another("holder").round.Lease.TryAcquire(bounded(t), 5*time.Hour)
		if err != nil || !won {
			t.Fatal(won, err)
		}
		s := schedule(n, SchedulerOptions{})
		settle(time.Hour)
		for i, r := range s.results {
			if r.Ending != NotHeld {
				t.Fatalf("round %d ended %v", i, r.Ending)
			}
			if i == 0 {
				continue
			}
			if gap := s.rounds[i].Sub(s.rounds[i-1]); gap < ttl/4*9/10 || gap > ttl/4 {
				t.Errorf("the lease was looked at after %v", gap)
			}
		}
		if len(s.results) < 24 || s.sch.Status().Failures != 0 || s.sch.Status().Hint == "" { // it is a log that evicts
			t.Errorf("%d rounds, %+v", len(s.results), s.sch.Status())
		}
		_, err = guard.Abandon(bounded(t))
		must(t, err)
		n.objects.set("put .tar")
		settle(20 * time.Minute)
		n.objects.set("")
		settle(time.Hour)
		if s.published() != 1 {
			t.Fatalf("%d published", s.published())
		}
		n.objects.set("put .tar")
		n.write("a")
		n.follow()
		before := len(s.rounds)
		settle(90 * time.Minute) // the next one is due after two hours
		s.close()
		if len(s.rounds) < before+3 {
			t.Fatalf("%d rounds, %d before", len(s.rounds), before)
		}
		for i, want := range []time.Duration{firstRetry, 2 * firstRetry} {
			if gap := s.rounds[before+1+i].Sub(s.rounds[before+i]); gap < want*9/10 || gap > want {
				t.Errorf("failure %d after a success was followed by a pause of %v, not %v", i, gap, want)
			}
		}
	})
}

// TestStatusTellsARound follows one round, read by another goroutine all the time.
func TestStatusTellsARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{})
		n.write("a")
		n.follow()
		n.export = func(ctx context.Context) error { time.Sleep(time.Minute); return nil }
		idle, err := NewScheduler(SchedulerOptions{Round: n.round})
		must(t, err)
		if st := idle.Status(); st.Running || st.Hint != "" || !st.Looked.IsZero() || !st.Ended.IsZero() {
			t.Errorf("before Run: %+v", st)
		}
		s := schedule(n, SchedulerOptions{})
		stop := make(chan struct{})
		s.wg.Go(func() {
			for range time.Tick(time.Second) {
				select {
				case <-stop:
					return
				default:
					_ = s.sch.Status()
				}
			}
		})
		settle(30 * time.Second)
		began := time.Now()
		if st := s.sch.Status(); !st.Running || began.Sub(st.Began) > 30*time.Second || st.Looked.IsZero() || st.Outlook.HasNewest || !st.Ended.IsZero() || st.Hint != "" {
			t.Errorf("within the round: %+v", st)
		}
		settle(time.Minute)
		if st := s.sch.Status(); st.Running || st.Last.Ending != Published || st.Err != nil || st.Ended.Before(began) || st.Failures != 0 || !st.Outlook.HasNewest ||
			st.Next.Before(time.Now()) || st.Next != st.Outlook.Next || st.Hint != "" {
			t.Errorf("after the round: %+v", st)
		}
		close(stop)
		s.close()
		if st := s.sch.Status(); st.Last.Ending != Published || st.Running {
			t.Errorf("after Run: %+v", st)
		}
	})
}

// TestStatusHints: what a person can do is told while it is so, and no longer.
func TestStatusHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{MaxAge: 8 * time.Hour})
		n.write("a")
		n.follow()
		live, down := n.round.Live, true
		n.round.Live = func(ctx context.Context) (kv.LogInfo, error) {
			if down {
				return kv.LogInfo{}, hinted{errFault}
			}
			return live(ctx)
		}
		must(t, n.objects.SwapPointer(bounded(t), "routes.manifest.json", []byte("{"), ""))
		n.objects.set("put .tar")
		s := schedule(n, SchedulerOptions{Most: 24 * time.Hour})
		wants := func(what string, check func(Status) bool, hints ...string) {
			t.Helper()
			st := s.sch.Status()
			if !check(st) || len(hints) == 0 && st.Hint != "" {
				t.Errorf("%s: %+v", what, st)
			}
			for _, h := range hints {
				if !strings.Contains(st.Hint, h) {
					t.Errorf("%s: the hint %q does not say %q", what, st.Hint, h)
				}
			}
		}
		settle(time.Minute)
		wants("no log", func(st Status) bool { return errors.Is(st.LookErr, errFault) && st.Looked.IsZero() && st.Next.IsZero() }, "can't be read: start the server")
		down = false
		settle(10 * time.Minute)
		wants("rounds fail", func(st Status) bool {
			return st.LookErr == nil && st.Failures > 1 && errors.Is(st.Err, errFault) && st.Last.Ending == Failed && st.AtRisk &&
				errors.Is(st.Outlook.Newest.Err, artifact.ErrInvalid) && st.Next.After(time.Now())
		}, "export rounds in a row failed here: ", errFault.Error(), "there is no artifact", "the pointer is no manifest")
		n.objects.set("")
		settle(time.Hour)
		wants("all is well", func(st Status) bool { return st.Failures == 0 && st.Err == nil && !st.AtRisk && st.Outlook.HasNewest })
		down = true
		settle(10 * time.Minute)
		wants("no log any more", func(st Status) bool { return st.LookErr != nil && st.Outlook.HasNewest && !st.AtRisk }, "can't be read")
		down = false
		n.objects.set("put .tar")
		n.write("b")
		after(6*time.Hour, nil)
		wants("at risk", func(st Status) bool { return st.AtRisk && st.LookErr == nil },
			"no node can be restored from "+s.sch.Status().Outlook.ImpossibleAt.UTC().Format(time.RFC3339), "in a row failed")
		s.close()
	})
}

// hinted is an error that says what to do.
type hinted struct{ error }

func (h hinted) Hint() string { return "start the server" }

func (h hinted) Unwrap() error { return h.error }
