package fold_test

import (
	"testing"
	"time"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// auditSoon audits what is owed at once, auditNever not at all.
var (
	auditSoon  = fold.RepairOptions{AuditEvery: 20 * time.Millisecond}
	auditNever = fold.RepairOptions{AuditEvery: -1}
)

// TestLivePurgeDeletesInsideTheLogLeavesNoZombie: a key that is never rewritten holds the log's head low, so no window rule
// sees that a delete marker has gone from behind it.
func TestLivePurgeDeletesInsideTheLogLeavesNoZombie(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{})
		l.put(t, "long-lived", "1")
		l.put(t, "zombie", "1")
		l.put(t, "last", "1")
		l.visit(t, "node", startOptions{})
		l.del(t, "zombie")
		l.purgeMarkers(t)
		l.put(t, "c", "1")
		if info := l.info(t); info.First != 1 || info.Messages != 3 {
			t.Fatalf("log %+v", info)
		}
		tb := l.node(t, "node", startOptions{fold: fold.Options{Repair: auditNever}})
		tb.hydrated(t)
		l.caughtUp(t, tb)
		if st := owes(t, tb, "markers"); st.Markers != "unsealed" || st.Unproven || st.Repair != nil {
			t.Errorf("status %+v", st)
		}
		wantRoute(t, tb, "t", "zombie", "1")
		tb.close(t)

		// What is owed outlives the node's end, and is told before there is a watch.
		tb = l.node(t, "node", startOptions{fold: fold.Options{Repair: auditNever}})
		if st := tb.f.Status(); st.Owed != "markers" {
			t.Errorf("right after its start it owes %q", st.Owed)
		}
		tb.close(t)
		tb = l.node(t, "node", startOptions{fold: fold.Options{Repair: auditSoon}})
		st := owes(t, tb, "")
		wantRoute(t, tb, "t", "zombie", "")
		wantRoute(t, tb, "t", "long-lived", "1")
		wantRoute(t, tb, "t", "c", "1")
		if st.Audit == nil || st.Audit.Plan != "audit: list" || st.Audit.Deleted != 1 || st.Repair != nil {
			t.Errorf("audit %+v", st.Audit)
		}
		l.wantTruth(t, tb)
		tb.close(t)
		tb = l.node(t, "node", startOptions{fold: fold.Options{Repair: auditSoon}})
		tb.hydrated(t)
		if st := tb.f.Status(); st.Owed != "" {
			t.Errorf("it owes %q again", st.Owed)
		}
	})
}

// TestLivePurgeDeletesBehindALiveWatch: the same to a live node that lags by more than its watch has asked for.
func TestLivePurgeDeletesBehindALiveWatch(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{})
		l.put(t, "long-lived", "1")
		l.put(t, "zombie", "1")
		narrow, err := natskv.Bind(bounded(t), l.js, "test", natskv.BucketConfig{Watch: natskv.WatchConfig{Batch: 4}})
		if err != nil {
			t.Fatal(err)
		}
		r := newReports()
		st := newStall(t, l.store(t, "node"))
		tb := start(t, narrow, st, startOptions{fold: fold.Options{
			Repair: auditSoon, Events: r.events(), Batch: fold.BatchOptions{Max: 4, Queue: 4},
		}})
		tb.hydrated(t)
		st.hold()
		l.burst(t, 0, 100, "1")
		l.del(t, "zombie")
		l.purgeMarkers(t)
		l.burst(t, 0, 100, "2")
		if at := tb.f.Cursor().Revision(); at != 2 {
			t.Fatalf("cursor %d", at)
		}
		st.release()
		l.caughtUp(t, tb)
		audit := owes(t, tb, "").Audit
		wantRoute(t, tb, "t", "zombie", "")
		if audit == nil || audit.Deleted != 1 {
			t.Errorf("audit %+v", audit)
		}
		if why := r.started(); len(why) != 0 {
			t.Errorf("repairs began because of %v", why)
		}
		l.wantTruth(t, tb)
	})
}

// TestLiveSealedBucketOwesNothing: a sealed bucket refuses what could take a marker out, so a gap says nothing.
func TestLiveSealedBucketOwesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{Sealed: true})
		l.put(t, "a", "1")
		l.put(t, "long-lived", "1")
		l.visit(t, "node", startOptions{})
		l.put(t, "a", "2")
		l.del(t, "a")
		l.put(t, "b", "1")
		tb := l.node(t, "node", startOptions{fold: fold.Options{Repair: auditNever}})
		tb.hydrated(t)
		l.caughtUp(t, tb)
		wantRoute(t, tb, "t", "a", "")
		if st := tb.f.Status(); st.Markers != "sealed" || st.Owed != "" {
			t.Errorf("status %+v", st)
		}
	})
}

// TestLiveLimitMarkerTTLAgeOutKeepsTheKey: the server removes values whose time is up, and says so with a marker. That is no
// delete, to a node that sees it happen and to one that was away.
func TestLiveLimitMarkerTTLAgeOutKeepsTheKey(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{MarkerTTL: time.Hour})
		l.put(t, "long-lived", "1")
		if _, err := ft.NewRouteWriter(l.bucket, fold.WithTTL(time.Second)).Put(bounded(t), route("t", "aged", "1")); err != nil {
			t.Fatal(err)
		}
		if _, err := ft.NewSessionWriter(l.bucket, fold.WithTTL(time.Second)).Put(bounded(t), &foldtestv1.Session{Region: "eu", Id: 7, User: "u"}); err != nil {
			t.Fatal(err)
		}
		l.put(t, "gone", "1")
		live := l.node(t, "live", startOptions{fold: fold.Options{Repair: auditNever}})
		applied(t, live, fold.Seq(4))
		l.visit(t, "away", startOptions{fold: fold.Options{Repair: auditNever}})
		l.del(t, "gone")
		l.until(t, "age-out markers", func(i kv.LogInfo) bool { return i.Last == 7 })
		away := l.node(t, "away", startOptions{fold: fold.Options{Repair: auditNever}})
		for _, tb := range []*tables{live, away} {
			l.caughtUp(t, tb)
			wantRoute(t, tb, "t", "aged", "1")
			wantRoute(t, tb, "t", "gone", "")
			wantRoute(t, tb, "t", "long-lived", "1")
			if row, ok := get(t, tb.sessions.Table, ft.SessionKey{Region: "eu", ID: 7}); ok {
				t.Errorf("session %v, of a table that drops what ages out", row.Value)
			}
			if !tb.f.Cursor().SeenEvicting {
				t.Errorf("cursor %v", tb.f.Cursor())
			}
			if st := tb.f.Status(); st.Repair != nil || st.Markers != "unsealed" {
				t.Errorf("status %+v", st)
			}
		}
		if digestOf(t, live) != digestOf(t, away) {
			t.Error("the two nodes differ")
		}
	})
}
