package fold_test

import (
	"testing"
	"testing/synctest"
	"time"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

// inLives has one fold live as often as asked, on each backend and in virtual time.
func inLives(t *testing.T, limits kvtest.Limits, f func(t *testing.T, log *kvtest.Log, live func(o fold.RepairOptions, during func(tb *tables)))) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			log := kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: limits})
			f(t, log, func(o fold.RepairOptions, during func(tb *tables)) {
				t.Helper()
				tb := start(t, log, openStore(t, b, dir), startOptions{fold: fold.Options{Repair: o}})
				during(tb)
				tb.close(t)
			})
		})
	})
}

// setRoutes writes one route of each domain.
func setRoutes(t *testing.T, log *kvtest.Log, node string, domains ...string) {
	t.Helper()
	for _, d := range domains {
		setRoute(t, log, route("t", d, node))
	}
}

// wantOwed checks what a fold owes that has this many routes.
func wantOwed(t *testing.T, tb *tables, owed string, rows uint64) {
	t.Helper()
	n, err := tb.routes.Count(t.Context(), ft.RouteAll())
	if st := tb.f.Status(); err != nil || n != rows || st.Owed != owed || st.Error != "" {
		t.Errorf("%d rows (%v), status %+v; want %d rows, and %q owed", n, err, st, rows, owed)
	}
}

var evicting = kvtest.Limits{Evicts: true}

// TestAdoptionOutlivesAFailedOpen: the adoption of a log that evicts has left the fold without a cursor, and the watch after
// it does not open, or the fold ends before it does.
func TestAdoptionOutlivesAFailedOpen(t *testing.T) {
	adopts := fold.RepairOptions{AdoptNewLog: true}
	for name, times := range map[string]int{"once": 1, "until the next start": 1000} {
		t.Run(name, func(t *testing.T) {
			inLives(t, evicting, func(t *testing.T, log *kvtest.Log, live func(fold.RepairOptions, func(*tables))) {
				setRoutes(t, log, "1", "a", "b", "c", "d")
				live(fold.RepairOptions{}, func(tb *tables) { tb.caughtUp(t, log) })
				log.Recreate()
				setRoutes(t, log, "2", "a", "b", "c")
				log.EvictTo(2)
				log.Inject(kvtest.Fault{At: kvtest.PointOpen, Skip: 1, Times: times, Fail: true})
				live(adopts, func(tb *tables) { time.Sleep(time.Minute) })
				log.Inject()
				live(adopts, func(tb *tables) {
					time.Sleep(3 * time.Hour)
					wantOwed(t, tb, "listing", 2)
					wantRoute(t, tb, "t", "b", "2")
					wantRoute(t, tb, "t", "c", "2")
				})
			})
		})
	}
}

// TestEvictionDuringAHydrate: retention takes what a first hydrate has not been given yet, and no reading of the log after
// it tells: the watch is lost before, or the process, or the reading fails.
func TestEvictionDuringAHydrate(t *testing.T) {
	for name, then := range map[string]func(l *kvtest.Log){
		"watch lost":    (*kvtest.Log).LoseWatches,
		"reading fails": func(l *kvtest.Log) { l.Inject(kvtest.Fault{At: kvtest.PointInfo, Fail: true}) },
		"ends":          func(l *kvtest.Log) { l.Inject(kvtest.Fault{At: kvtest.PointNext, Delay: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			inLives(t, evicting, func(t *testing.T, log *kvtest.Log, live func(fold.RepairOptions, func(*tables))) {
				setRoutes(t, log, "1", "a", "b", "c", "d", "e", "f", "g", "h")
				log.Inject(kvtest.Fault{At: kvtest.PointNext, Times: 4, Limit: 1},
					kvtest.Fault{At: kvtest.PointNext, Skip: 1, Do: func(l *kvtest.Log) { l.EvictTo(5) }},
					kvtest.Fault{At: kvtest.PointNext, Skip: 3, Do: then})
				live(fold.RepairOptions{}, func(*tables) { time.Sleep(time.Minute) })
				live(fold.RepairOptions{}, func(tb *tables) {
					time.Sleep(time.Hour)
					tb.caughtUp(t, log)
					wantOwed(t, tb, "listing", 5)
				})
			})
		})
	}
}

// TestHydrateOfALogThatCanEvict: nothing is owed once it is known that nothing was evicted meanwhile.
func TestHydrateOfALogThatCanEvict(t *testing.T) {
	inLives(t, evicting, func(t *testing.T, log *kvtest.Log, live func(fold.RepairOptions, func(*tables))) {
		setRoutes(t, log, "1", "a", "b", "c")
		live(fold.RepairOptions{AuditEvery: -1}, func(tb *tables) {
			time.Sleep(time.Second)
			wantOwed(t, tb, "", 3)
		})
	})
}

// TestAgedOutIsRemembered: only the server's marker of an aged-out value shows that a log has ever evicted, and it is gone
// when the fold is repaired or audited.
func TestAgedOutIsRemembered(t *testing.T) {
	inLives(t, kvtest.Limits{}, func(t *testing.T, log *kvtest.Log, live func(fold.RepairOptions, func(*tables))) {
		setRoutes(t, log, "1", "old", "a", "b")
		live(fold.RepairOptions{}, func(tb *tables) { tb.caughtUp(t, log) })
		log.AgeOut(routeKey("t", "old").String(), true)
		live(fold.RepairOptions{}, func(tb *tables) {
			tb.caughtUp(t, log)
			wantRoute(t, tb, "t", "old", "1")
		})
		setRoutes(t, log, "2", "a", "b", "a", "b")
		log.PurgeMarkers()
		live(fold.RepairOptions{}, func(tb *tables) {
			ended(t, tb)
			wantRoute(t, tb, "t", "old", "1")
			if st := tb.f.Status(); st.Repair == nil || st.Repair.Plan != "no restore source" {
				t.Errorf("status %+v", st)
			}
		})
	})
}

// TestAgedOutIsSeenByAHydrate: the value of an age-out marker that a re-list delivers is one that the fold lacks.
func TestAgedOutIsSeenByAHydrate(t *testing.T) {
	inLives(t, kvtest.Limits{}, func(t *testing.T, log *kvtest.Log, live func(fold.RepairOptions, func(*tables))) {
		setRoutes(t, log, "1", "old", "a")
		log.AgeOut(routeKey("t", "old").String(), true)
		live(fold.RepairOptions{}, func(tb *tables) {
			time.Sleep(time.Hour)
			wantOwed(t, tb, "listing", 1)
		})
	})
}

// TestAuditRemembersEviction: an audit that finds an age-out marker, or retention at work, is remembered by later ones.
func TestAuditRemembersEviction(t *testing.T) {
	inLives(t, kvtest.Limits{}, func(t *testing.T, log *kvtest.Log, live func(fold.RepairOptions, func(*tables))) {
		often := fold.RepairOptions{Mode: fold.RepairOff, AuditEvery: time.Second}
		setRoutes(t, log, "1", "old", "gone", "a")
		live(often, func(tb *tables) { tb.caughtUp(t, log) })
		log.Remove(routeKey("t", "gone").String())
		log.PurgeMarkers()
		setRoutes(t, log, "2", "a")
		live(often, func(tb *tables) {
			tb.caughtUp(t, log) // which owes markers
			log.SetLimits(evicting)
			log.EvictTo(2)
			time.Sleep(5 * time.Second)
			log.SetLimits(kvtest.Limits{})
		})
		live(often, func(tb *tables) {
			time.Sleep(time.Hour)
			wantRoute(t, tb, "t", "old", "1")
			wantOwed(t, tb, "identity+markers", 3)
		})
	})
}
