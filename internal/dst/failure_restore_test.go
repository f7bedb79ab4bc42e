package dst

import (
	"context"
	"fmt"
	"strings"
	"testing"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/repair"
)

// keyOf is a route's key.
func keyOf(key string) ft.RouteKey {
	tokens := strings.SplitN(key, ".", 3)
	return ft.RouteKey{Tenant: tokens[1], Domain: tokens[2]}
}

// missed lets the fold have the first messages and miss the rest, on a log that drops what is below 6.
func missed(w *world) {
	w.write(seen...)
	w.follow()
	w.write(unseen...)
	w.log.EvictTo(6)
}

func TestFailure_CursorExpired_BucketEvictsCurrentValues(t *testing.T) {
	failing(t, told(t, "expired at a start, restored"), func(w *world) { w.wantTruth("restore") })
}

func TestFailure_CursorExpired_BucketEvictsCurrentValues_NoSource(t *testing.T) {
	failing(t, &story{limits: evicts, before: missed}, func(w *world) {
		w.wantStop(fold.ErrRepairRefused, "there is no source of artifacts")
	})
}

func TestFailure_DataWithoutCursor_BucketEvictsCurrentValues(t *testing.T) {
	failing(t, told(t, "data without a cursor on an evicting log, restored"), func(w *world) { w.wantTruth("restore") })
}

// TestFailure_EveryMessageSuperseded: on a log that evicts, that looks like an expiry; the next export makes it good.
func TestFailure_EveryMessageSuperseded(t *testing.T) {
	failing(t, &story{limits: evicts, before: func(w *world) {
		w.write("n.a", "n.b", "n.c")
		w.follow()
		w.exporter("old", 3, -1)
		w.write("n.c", "n.a", "n.b", "n.c", "n.a", "n.b")
	}}, func(w *world) {
		w.wantStop(fold.ErrRepairRefused, "is not ahead of the fold's cursor 3")
		w.exporter("new", 9, -1)
		w.write("n.a")
		w.wantTruth("restore")
	})
}

// TestFailure_EvictionTurnedOff: what retention took before is remembered for good.
func TestFailure_EvictionTurnedOff(t *testing.T) {
	for _, mode := range []fold.RepairOptions{{}, {Mode: fold.RepairRelist}} {
		t.Run(mode.Mode.String(), func(t *testing.T) {
			failing(t, &story{limits: evicts, repair: mode, before: func(w *world) {
				w.write("n.old", "n.dead", "n.both")
				w.follow()
				w.log.EvictTo(2)
				w.follow() // sees it
				w.log.SetLimits(kvtest.Limits{})
				w.write("n.both", "-n.dead", "n.new")
				w.exporter("a", 6, -1)
				w.log.PurgeMarkers()
				w.write("n.both", "n.new")
			}}, func(w *world) {
				if _, at := w.onDisk(); !at.SeenEvicting {
					t.Fatalf("the cursor %v forgot", at)
				}
				if mode.Mode == fold.RepairRelist {
					w.wantStop(fold.ErrRepairRefused, "evicts current values, or did")
					return
				}
				w.wantTruth("restore")
				if _, at := w.onDisk(); !at.SeenEvicting {
					t.Errorf("the cursor %v forgot", at)
				}
			})
		})
	}
}

// TestFailure_WriteAgedOutBeforeAnyNodeFoldedIt: nobody holds it, so every node that needs it stops.
func TestFailure_WriteAgedOutBeforeAnyNodeFoldedIt(t *testing.T) {
	failing(t, &story{limits: evicts, before: func(w *world) {
		w.write(seen...)
		w.follow()
		w.write("n.more")
		w.exporter("ahead", 3, -1)
		w.write("n.gone", "n.both")
		w.log.EvictTo(6)
	}}, func(w *world) {
		w.wantStop(fold.ErrRepairRefused, "outside the log's retention window, which starts at revision 6")
	})
}

func TestFailure_RelistOnABucketThatEvicts(t *testing.T) {
	relist := fold.RepairOptions{Mode: fold.RepairRelist}
	failing(t, &story{limits: evicts, repair: relist, before: missed}, func(w *world) {
		w.wantStop(fold.ErrRepairRefused, "evicts current values")
		if w.log.Calls(kvtest.PointList) != 0 {
			w.t.Error("the bucket was listed")
		}
	})
}

func TestFailure_Restore_NoArtifactAhead(t *testing.T) {
	failing(t, &story{limits: evicts, before: func(w *world) {
		w.write(seen...)
		w.exporter("behind", 3, -1)
		w.follow()
		w.write(unseen...)
		w.log.EvictTo(6)
	}}, func(w *world) { w.wantStop(fold.ErrRepairRefused, "is not ahead of the fold's cursor 3") })
}

func TestFailure_Restore_StaleArtifact(t *testing.T) {
	failing(t, &story{limits: evicts, before: func(w *world) {
		away(w)
		w.write("n.more", "n.last")
		w.log.EvictTo(9)
	}}, func(w *world) { w.wantStop(fold.ErrRepairRefused, "outside the log's retention window") })
}

// TestFailure_Restore_ArtifactGoesStaleMeanwhile: the log is read again after the artifact was fetched.
func TestFailure_Restore_ArtifactGoesStaleMeanwhile(t *testing.T) {
	failing(t, &story{limits: evicts, before: func(w *world) {
		away(w)
		w.log.EvictTo(6)
		w.write("n.more", "n.last")
	}, during: func(w *world) {
		w.log.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) { l.EvictTo(9) }})
	}}, func(w *world) { w.wantStop(fold.ErrRepairRefused, "outside the log's retention window") })
}

func TestFailure_Restore_ScopeNotCovered(t *testing.T) {
	failing(t, &story{limits: evicts, before: func(w *world) {
		away(w)
		w.artifacts[0].m.Scope = scopeOf("m.")
		w.log.EvictTo(6)
	}}, func(w *world) { w.wantStop(fold.ErrRepairRefused, "does not cover the fold's scope") })
}

// TestFailure_Restore_SourceFails: what may be gone at the next try is tried again, under the old cursor.
func TestFailure_Restore_SourceFails(t *testing.T) {
	failing(t, told(t, "expired at a start, restored"), func(w *world) {
		failures := 0
		w.fetch = func() error {
			if failures++; failures <= 3 {
				return fmt.Errorf("the object store is away")
			}
			return nil
		}
		w.wantTruth("restore")
		if failures != 4 {
			w.t.Errorf("%d tries", failures)
		}
	})
}

// TestFailure_ArtifactInvalid: it is passed over, and without another one the fold stops as it was.
func TestFailure_ArtifactInvalid(t *testing.T) {
	failing(t, told(t, "expired at a start, restored"), func(w *world) {
		w.fetch = func() error { return fmt.Errorf("torn: %w", repair.ErrArtifactInvalid) }
		w.wantStop(fold.ErrRepairRefused, "torn")
		w.fetch = nil
		w.wantTruth("restore")
	})
}

// TestFailure_LogReplaced and TestFailure_LogRewound: the fold stops as it was, and follows the new log when it is told to.
func TestFailure_LogReplaced(t *testing.T) {
	failing(t, &story{anyRevision: true, before: func(w *world) {
		w.write("n.a", "n.b")
		w.follow()
		w.log.Recreate()
		w.write("n.c", "n.d", "n.e", "n.f")
	}}, func(w *world) { stopsThenAdopts(w, fold.ErrLogReplaced) })
}

func TestFailure_LogRewound(t *testing.T) {
	failing(t, &story{anyRevision: true, before: func(w *world) {
		w.write("n.a", "n.b", "n.c", "n.d")
		w.follow()
		w.log.Rewind(2)
		w.write("n.e")
	}}, func(w *world) { stopsThenAdopts(w, fold.ErrLogRewound) })
}

func stopsThenAdopts(w *world, match error) {
	w.t.Helper()
	w.wantStop(match, "the bucket's log is not the one that the fold came from")
	adopts := *w.story
	adopts.repair.AdoptNewLog = true
	w.story = &adopts
	w.wantTruth("adopt")
}

// TestFailure_DeleteMarkerVanished: until the audit the fold says what it owes; where a listing can't tell, it says so for
// as long as it lasts.
func TestFailure_DeleteMarkerVanished(t *testing.T) {
	failing(t, told(t, "a delete marker vanished while it was away, audited"), func(w *world) { w.wantTruth("audit: list") })
	t.Run("unproven", func(t *testing.T) {
		unproven := *told(t, "a delete marker vanished while it was away, audited")
		unproven.limits, unproven.settlesOwed = evicts, false
		before := unproven.before
		unproven.before = func(w *world) {
			w.write("n.first")
			w.follow()
			w.log.EvictTo(2)
			before(w)
		}
		failing(t, &unproven, func(w *world) {
			face, err := w.start()
			if err != nil {
				w.t.Fatal(err)
			}
			if err := w.f.WaitApplied(hour(w.t), fold.Seq(w.head())); err != nil {
				w.t.Fatal(err)
			}
			if s := w.f.Status(); !strings.Contains(s.Owed, "markers") {
				w.t.Errorf("owed %q", s.Owed)
			}
			waitUntil(w, func() bool { return w.f.Status().Unproven })
			if _, ok, err := w.routes.GetRow(context.Background(), keyOf("route.n.dead")); err != nil || !ok {
				w.t.Errorf("an audit that proves nothing changed the fold: %v %v", ok, err)
			}
			if err := face.stop(); err != nil {
				w.t.Error(err)
			}
		})
	})
}

// TestFailure_ValueAgedOut: it is no delete.
func TestFailure_ValueAgedOut(t *testing.T) {
	failing(t, told(t, "an age-out marker is no delete"), func(w *world) {
		w.wantTruth("")
		rows, _ := w.onDisk()
		if rows["route.n.old"].rev == 0 || rows["route.n.a"].rev != 0 {
			w.t.Errorf("rows %v", rows)
		}
	})
}
