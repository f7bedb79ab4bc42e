package fold_test

import (
	"testing"
	"testing/synctest"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

// TestAuditEndsWithItsWatch: a watch is lost amid an audit, and another one is open before the audit has listed the bucket.
// The log may have lost its end in between, and been written again, so what is listed is not compared: the next audit is.
func TestAuditEndsWithItsWatch(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		for _, domain := range []string{"kept", "gone"} {
			setRoute(t, log, route("t", domain, "1"))
		}
		tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
		tb.caughtUp(t, log)
		tb.close(t)
		log.Remove("route.t.gone")
		log.PurgeMarkers()
		setRoute(t, log, route("t", "new", "1"))

		opened, audits := make(chan struct{}, 8), make(chan string, 8)
		tb = start(t, log, openStore(t, backends[0], dir), startOptions{fold: fold.Options{
			Repair: fold.RepairOptions{AuditEvery: time.Minute},
			Events: fold.Events{
				WatchOpened: func(fold.Cursor, uint64) { opened <- struct{}{} },
				AuditDone:   func(r *fold.RepairReport) { audits <- r.Error },
			},
		}})
		tb.caughtUp(t, log)
		<-opened
		log.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) {
			l.LoseWatches()
			<-opened
		}})
		wantRoute(t, tb, "t", "gone", "1")
		if err := <-audits; err == "" {
			t.Error("an audit outlives its watch")
		}
		if err := <-audits; err != "" {
			t.Errorf("the next audit ends with %s", err)
		}
		time.Sleep(time.Second)
		wantOwed(t, tb, "", 2)
		wantRoute(t, tb, "t", "kept", "1")
		tb.close(t)
	})
}
