package fold_test

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

// dstKey is a route's key.
func dstKey(key string) ft.RouteKey {
	tokens := strings.SplitN(key, ".", 3)
	return ft.RouteKey{Tenant: tokens[1], Domain: tokens[2]}
}

// dstMissed lets the fold have the first messages and miss the rest, on a log that drops what is below 6.
func dstMissed(w *dstWorld) {
	w.write(dstSeen...)
	w.follow()
	w.write(dstUnseen...)
	w.log.EvictTo(6)
}

func TestFailure_CursorExpired_BucketEvictsCurrentValues(t *testing.T) {
	failing(t, story(t, "expired at a start, restored"), func(w *dstWorld) { w.wantTruth("restore") })
}

func TestFailure_CursorExpired_BucketEvictsCurrentValues_NoSource(t *testing.T) {
	failing(t, &dstStory{limits: dstEvicts, before: dstMissed}, func(w *dstWorld) {
		w.wantStop(fold.ErrRepairRefused, "there is no source of artifacts")
	})
}

func TestFailure_DataWithoutCursor_BucketEvictsCurrentValues(t *testing.T) {
	failing(t, story(t, "data without a cursor on an evicting log, restored"), func(w *dstWorld) { w.wantTruth("restore") })
}

// TestFailure_EveryMessageSuperseded: on a log that evicts, that looks like an expiry; the next export makes it good.
func TestFailure_EveryMessageSuperseded(t *testing.T) {
	failing(t, &dstStory{limits: dstEvicts, before: func(w *dstWorld) {
		w.write("n.a", "n.b", "n.c")
		w.follow()
		w.export("old", 3, -1)
		w.write("n.c", "n.a", "n.b", "n.c", "n.a", "n.b")
	}}, func(w *dstWorld) {
		w.wantStop(fold.ErrRepairRefused, "is not ahead of the fold's cursor 3")
		w.export("new", 9, -1)
		w.write("n.a")
		w.wantTruth("restore")
	})
}

// TestFailure_EvictionTurnedOff: what retention took before is remembered for good.
func TestFailure_EvictionTurnedOff(t *testing.T) {
	for _, mode := range []fold.RepairOptions{{}, {Mode: fold.RepairRelist}} {
		t.Run(mode.Mode.String(), func(t *testing.T) {
			failing(t, &dstStory{limits: dstEvicts, repair: mode, before: func(w *dstWorld) {
				w.write("n.old", "n.dead", "n.both")
				w.follow()
				w.log.EvictTo(2)
				w.follow() // sees it
				w.log.SetLimits(kvtest.Limits{})
				w.write("n.both", "-n.dead", "n.new")
				w.export("a", 6, -1)
				w.log.PurgeMarkers()
				w.write("n.both", "n.new")
			}}, func(w *dstWorld) {
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
	failing(t, &dstStory{limits: dstEvicts, before: func(w *dstWorld) {
		w.write(dstSeen...)
		w.follow()
		w.write("n.more")
		w.export("ahead", 3, -1)
		w.write("n.gone", "n.both")
		w.log.EvictTo(6)
	}}, func(w *dstWorld) {
		w.wantStop(fold.ErrRepairRefused, "outside the log's retention window, which starts at revision 6")
	})
}

func TestFailure_RelistOnABucketThatEvicts(t *testing.T) {
	relist := fold.RepairOptions{Mode: fold.RepairRelist}
	failing(t, &dstStory{limits: dstEvicts, repair: relist, before: dstMissed}, func(w *dstWorld) {
		w.wantStop(fold.ErrRepairRefused, "evicts current values")
		if w.log.Calls(kvtest.PointList) != 0 {
			w.t.Error("the bucket was listed")
		}
	})
}

func TestFailure_Restore_NoArtifactAhead(t *testing.T) {
	failing(t, &dstStory{limits: dstEvicts, before: func(w *dstWorld) {
		w.write(dstSeen...)
		w.export("behind", 3, -1)
		w.follow()
		w.write(dstUnseen...)
		w.log.EvictTo(6)
	}}, func(w *dstWorld) { w.wantStop(fold.ErrRepairRefused, "is not ahead of the fold's cursor 3") })
}

func TestFailure_Restore_StaleArtifact(t *testing.T) {
	failing(t, &dstStory{limits: dstEvicts, before: func(w *dstWorld) {
		dstAway(w)
		w.write("n.more", "n.last")
		w.log.EvictTo(9)
	}}, func(w *dstWorld) { w.wantStop(fold.ErrRepairRefused, "outside the log's retention window") })
}

// TestFailure_Restore_ArtifactGoesStaleMeanwhile: the log is read again after the artifact was fetched.
func TestFailure_Restore_ArtifactGoesStaleMeanwhile(t *testing.T) {
	failing(t, &dstStory{limits: dstEvicts, before: func(w *dstWorld) {
		dstAway(w)
		w.log.EvictTo(6)
		w.write("n.more", "n.last")
	}, during: func(w *dstWorld) {
		w.log.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) { l.EvictTo(9) }})
	}}, func(w *dstWorld) { w.wantStop(fold.ErrRepairRefused, "outside the log's retention window") })
}

func TestFailure_Restore_ScopeNotCovered(t *testing.T) {
	failing(t, &dstStory{limits: dstEvicts, before: func(w *dstWorld) {
		dstAway(w)
		w.artifacts[0].m.Scope = dstScope("m.")
		w.log.EvictTo(6)
	}}, func(w *dstWorld) { w.wantStop(fold.ErrRepairRefused, "does not cover the fold's scope") })
}

// TestFailure_Restore_SourceFails: what may be gone at the next try is tried again, under the old cursor.
func TestFailure_Restore_SourceFails(t *testing.T) {
	failing(t, story(t, "expired at a start, restored"), func(w *dstWorld) {
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
	failing(t, story(t, "expired at a start, restored"), func(w *dstWorld) {
		w.fetch = func() error { return fmt.Errorf("torn: %w", repair.ErrArtifactInvalid) }
		w.wantStop(fold.ErrRepairRefused, "torn")
		w.fetch = nil
		w.wantTruth("restore")
	})
}

// TestFailure_LogReplaced and TestFailure_LogRewound: the fold stops as it was, and follows the new log when it is told to.
func TestFailure_LogReplaced(t *testing.T) {
	failing(t, &dstStory{anyRevision: true, before: func(w *dstWorld) {
		w.write("n.a", "n.b")
		w.follow()
		w.log.Recreate()
		w.write("n.c", "n.d", "n.e", "n.f")
	}}, func(w *dstWorld) { stopsThenAdopts(w, fold.ErrLogReplaced) })
}

func TestFailure_LogRewound(t *testing.T) {
	failing(t, &dstStory{anyRevision: true, before: func(w *dstWorld) {
		w.write("n.a", "n.b", "n.c", "n.d")
		w.follow()
		w.log.Rewind(2)
		w.write("n.e")
	}}, func(w *dstWorld) { stopsThenAdopts(w, fold.ErrLogRewound) })
}

func stopsThenAdopts(w *dstWorld, match error) {
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
	failing(t, story(t, "a delete marker vanished while it was away, audited"), func(w *dstWorld) { w.wantTruth("audit: list") })
	t.Run("unproven", func(t *testing.T) {
		unproven := *story(t, "a delete marker vanished while it was away, audited")
		unproven.limits, unproven.settlesOwed = dstEvicts, false
		before := unproven.before
		unproven.before = func(w *dstWorld) {
			w.write("n.first")
			w.follow()
			w.log.EvictTo(2)
			before(w)
		}
		failing(t, &unproven, func(w *dstWorld) {
			face, err := w.start()
			if err != nil {
				w.t.Fatal(err)
			}
			if err := w.f.WaitApplied(dstBounded(w.t), fold.Seq(w.head())); err != nil {
				w.t.Fatal(err)
			}
			if s := w.f.Status(); !strings.Contains(s.Owed, "markers") {
				w.t.Errorf("owed %q", s.Owed)
			}
			dstWait(w, func() bool { return w.f.Status().Unproven })
			if _, ok, err := w.routes.GetRow(context.Background(), dstKey("route.n.dead")); err != nil || !ok {
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
	failing(t, story(t, "an age-out marker is no delete"), func(w *dstWorld) {
		w.wantTruth("")
		rows, _ := w.onDisk()
		if rows["route.n.old"] == "" || rows["route.n.a"] != "" {
			w.t.Errorf("rows %v", rows)
		}
	})
}
