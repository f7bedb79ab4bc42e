package repair

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// gap makes a fold of n keys, of which the bucket then loses some.
func gap(t *testing.T, g *rig, n, lost int) map[string]string {
	t.Helper()
	for i := range n {
		g.sim.Set(fmt.Sprintf("key.%03d", i), "v")
	}
	fill(t, g.store, g.sim, kv.AllKeys(), head(t, g.sim))
	for i := range lost {
		g.sim.Remove(fmt.Sprintf("key.%03d", i))
	}
	g.sim.PurgeMarkers()
	return contents(t, g.store)
}

var errBroken = errors.New("broken")

func every(kv.KeyVersion) bool { return true }

func even(k kv.KeyVersion) bool { return (k.Key[len(k.Key)-1]-'0')%2 == 0 }

// listingFaults are listings that must not be used.
var listingFaults = map[string]struct {
	bend func(l *bentLog, sim *kvtest.Log)
	want error // nil is a listing that is not plausible
}{
	"FailsAtTheBegin": {func(l *bentLog, sim *kvtest.Log) {
		sim.Inject(kvtest.Fault{At: kvtest.PointList, Err: errBroken})
	}, errBroken},
	"FailsInTheMiddle": {func(l *bentLog, _ *kvtest.Log) {
		l.list = func(_ int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			return without(k, even, errBroken)
		}
	}, errBroken},
	"IsShort": {func(l *bentLog, _ *kvtest.Log) {
		l.list = func(_ int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			return without(k, even, nil)
		}
	}, nil},
	"IsEmpty": {func(l *bentLog, _ *kvtest.Log) {
		l.list = func(_ int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			return without(k, every, nil)
		}
	}, nil},
	"IsShortAndRepeats": {func(l *bentLog, _ *kvtest.Log) {
		l.list = func(_ int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			return func(yield func(kv.KeyVersion, error) bool) {
				for range 2 {
					without(k, even, nil)(yield)
				}
			}
		}
	}, nil},
	"IsOfAnotherLog": {func(l *bentLog, sim *kvtest.Log) {
		sim.Inject(kvtest.Fault{At: kvtest.PointList, Do: (*kvtest.Log).Recreate})
	}, nil},
	"TheLogWentBack": {func(l *bentLog, sim *kvtest.Log) {
		sim.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) { l.Rewind(4) }})
	}, nil},
	"IsFromTheFuture": {func(l *bentLog, _ *kvtest.Log) {
		l.list = func(_ int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			return func(yield func(kv.KeyVersion, error) bool) {
				for k, err := range k {
					k.Version = kv.Revision(k.Version.Rank() + 1000)
					yield(k, err)
				}
			}
		}
	}, nil},
	"NoInfoAfterwards": {func(l *bentLog, _ *kvtest.Log) {
		l.info = func(call int, i kv.LogInfo) (kv.LogInfo, error) {
			if call > 1 {
				return i, errBroken
			}
			return i, nil
		}
	}, errBroken},
}

func TestRelistUsesNoBadListing(t *testing.T) {
	for name, f := range listingFaults {
		for _, runBytes := range []int{0, 256} {
			t.Run(fmt.Sprint(name, runBytes), func(t *testing.T) {
				g := newRig(t, "logstore", kvtest.Options{})
				g.o.RunBytes = runBytes
				before := gap(t, g, 30, 5)
				f.bend(g.log, g.sim)
				_, err := g.repair(t, g.request(protocol.CauseExpired))
				wantFault(t, err, f.want)
				g.wantUntouched(t, before)
			})
		}
	}
}

// wantFault checks that a listing was not used, and that it may be tried again.
func wantFault(t *testing.T, err, want error) {
	t.Helper()
	var implausible *ImplausibleListingError
	if want != nil && !errors.Is(err, want) || want == nil && (!errors.As(err, &implausible) || implausible.Hint() == "") || errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

func TestRelistEndsWithItsContext(t *testing.T) {
	for _, point := range []string{"list", "walk", "chunk"} {
		t.Run(point, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			g.o.Chunk = 2
			before := gap(t, g, 30, 5)
			ctx, cancel := context.WithCancel(bounded(t))
			defer cancel()
			switch point {
			case "list":
				g.sim.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(*kvtest.Log) { cancel() }})
			case "walk":
				g.log.info = func(call int, i kv.LogInfo) (kv.LogInfo, error) {
					if call == 2 {
						cancel()
					}
					return i, nil
				}
			case "chunk":
				g.folder.before = func(int, []Change) error { cancel(); return nil }
			}
			_, err := g.repairer(g.store).Repair(ctx, g.request(protocol.CauseExpired), &g.report)
			if !errors.Is(err, context.Canceled) || g.folder.calls > 1 {
				t.Errorf("%d chunks, err %v", g.folder.calls, err)
			}
			wantRows(t, contents(t, g.store), before)
		})
	}
}

// TestRelistWhenRetentionIsEditedMeanwhile: the bucket begins to evict while it is listed.
func TestRelistWhenRetentionIsEditedMeanwhile(t *testing.T) {
	edit := func(l *kvtest.Log) {
		l.SetLimits(kvtest.Limits{Evicts: true})
		l.EvictTo(12)
	}
	ageOut := func(l *kvtest.Log) { l.AgeOut("key.029", true) } // the log begins where it did
	for name, c := range map[string]struct {
		mode    Mode
		edit    func(*kvtest.Log)
		at      kvtest.Point
		plan    protocol.Plan
		lost    int
		listing int // which one meets it
	}{
		"Relist":          {Relist, edit, kvtest.PointList, protocol.PlanRefuseRelist, 1, 1},
		"Auto":            {Auto, edit, kvtest.PointList, protocol.PlanNoSource, 1, 1},
		"SecondListing":   {Relist, edit, kvtest.PointList, protocol.PlanRefuseRelist, 15, 2},
		"AgedOutInside":   {Relist, ageOut, kvtest.PointList, protocol.PlanRefuseRelist, 1, 1},
		"AgedOutInSecond": {Auto, ageOut, kvtest.PointList, protocol.PlanNoSource, 15, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			g.o.Mode = c.mode
			before := gap(t, g, 30, c.lost)
			g.sim.Inject(kvtest.Fault{At: c.at, Skip: c.listing - 1, Do: c.edit})
			q := g.request(protocol.CauseExpired)
			_, err := g.repair(t, q)
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Plan != c.plan || !refused.Cursor.SeenEvicting {
				t.Errorf("got %v", err)
			}
			if g.report.Plan != c.plan.String() {
				t.Errorf("the report's plan is %q", g.report.Plan)
			}
			g.wantUntouched(t, before)
		})
	}
}

// TestRelistBrake: a first listing that lacks most of the keys does not have them deleted.
func TestRelistBrake(t *testing.T) {
	for _, runBytes := range []int{0, 256} {
		g := newRig(t, "logstore", kvtest.Options{})
		g.o.RunBytes = runBytes
		want := gap(t, g, 60, 3)
		for i := range 3 {
			delete(want, fmt.Sprintf("key.%03d", i))
		}
		g.log.info = func(_ int, i kv.LogInfo) (kv.LogInfo, error) { i.Subjects = 0; return i, nil } // or a short listing is no listing
		g.log.list = func(call int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			if call == 1 {
				return without(k, even, nil)
			}
			return k
		}
		if _, err := g.repair(t, g.request(protocol.CauseExpired)); err != nil {
			t.Fatal(err)
		}
		wantRows(t, contents(t, g.store), want)
		if g.log.lists != 2 || decision(&g.report, "needs_second_listing") != "true" || decision(&g.report, "missing_from_both_listings") != "3" {
			t.Errorf("%d listings, report %+v", g.log.lists, g.report)
		}
	}
}

// TestRelistBrakeSecondListing: what is wrong with the second listing is the end of it, and tombstones are no values.
func TestRelistBrakeSecondListing(t *testing.T) {
	for name, f := range listingFaults {
		if name == "FailsAtTheBegin" || name == "IsOfAnotherLog" || name == "TheLogWentBack" || name == "NoInfoAfterwards" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			before := gap(t, g, 60, 20)
			f.bend(g.log, g.sim)
			bend := g.log.list
			g.log.list = func(call int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
				if call == 1 {
					return k
				}
				return bend(call, k)
			}
			_, err := g.repair(t, g.request(protocol.CauseExpired))
			wantFault(t, err, f.want)
			g.wantUntouched(t, before)
		})
	}
	t.Run("Tombstones", func(t *testing.T) {
		g := newRig(t, "logstore", kvtest.Options{})
		want := gap(t, g, 60, 0)
		for i := range 20 {
			g.sim.Remove(fmt.Sprintf("key.%03d", i))
			delete(want, fmt.Sprintf("key.%03d", i))
		}
		if _, err := g.repair(t, g.request(protocol.CauseExpired)); err != nil {
			t.Fatal(err)
		}
		wantRows(t, contents(t, g.store), want)
	})
}

func TestRelistLeavesARowThatMovedOn(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	want := gap(t, g, 30, 4)
	g.o.Chunk = 3
	moved := kv.Update{Key: "key.001", Value: []byte("later"), Version: kv.Revision(900), Op: kv.OpPut}
	g.folder.before = func(call int, _ []Change) error {
		if call == 1 {
			apply(t, g.store, g.store.Cursor(), moved)
		}
		return nil
	}
	if _, err := g.repair(t, g.request(protocol.CauseExpired)); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2, 3} {
		delete(want, fmt.Sprintf("key.%03d", i))
	}
	want["key.001"] = "900=later"
	wantRows(t, contents(t, g.store), want)
	if g.folder.calls != 2 || g.folder.skipped != 1 {
		t.Errorf("%d chunks, %d skipped", g.folder.calls, g.folder.skipped)
	}
}

func TestRelistChunkErrorIsTheEndAndIsBegunAgain(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	want := gap(t, g, 30, 5)
	g.o.Chunk = 2
	g.folder.before = func(call int, _ []Change) error {
		if call == 2 {
			return errBroken
		}
		return nil
	}
	if _, err := g.repair(t, g.request(protocol.CauseExpired)); !errors.Is(err, errBroken) || g.folder.calls != 2 || g.report.Deleted != 2 {
		t.Errorf("%d chunks, %d deleted, err %v", g.folder.calls, g.report.Deleted, err)
	}
	if _, err := g.repair(t, g.request(protocol.CauseExpired)); err != nil || g.report.Deleted != 3 {
		t.Errorf("%d deleted, err %v", g.report.Deleted, err)
	}
	for i := range 5 {
		delete(want, fmt.Sprintf("key.%03d", i))
	}
	wantRows(t, contents(t, g.store), want)
}

// brokenFold is a fold whose reading fails somewhere.
type brokenFold struct {
	Fold
	at string // snapshot, iter, next, value, close
}

func (f brokenFold) Snapshot() (store.Snapshot, error) {
	if f.at == "snapshot" {
		return nil, errBroken
	}
	s, err := f.Fold.Snapshot()
	return brokenView{s, f.at}, err
}

type brokenView struct {
	store.Snapshot
	at string
}

func (v brokenView) Iter(o store.IterOptions) (store.Iterator, error) {
	if v.at == "iter" {
		return nil, errBroken
	}
	it, err := v.Snapshot.Iter(o)
	return &brokenIter{Iterator: it, at: v.at}, err
}

type brokenIter struct {
	store.Iterator
	at string
	n  int
}

func (i *brokenIter) Next() bool {
	i.n++
	return (i.at != "next" || i.n < 4) && i.Iterator.Next()
}

func (i *brokenIter) Err() error {
	if i.at == "next" && i.n >= 4 {
		return errBroken
	}
	return i.Iterator.Err()
}

func (i *brokenIter) Value() ([]byte, error) {
	switch {
	case i.at == "value" && i.n == 3:
		return nil, errBroken
	case i.at == "record" && i.n == 3:
		return []byte{0xFF}, nil
	}
	return i.Iterator.Value()
}

func (i *brokenIter) Close() error {
	if err := i.Iterator.Close(); err != nil || i.at != "close" {
		return err
	}
	return errBroken
}

func TestRelistStoreErrors(t *testing.T) {
	for _, at := range []string{"snapshot", "iter", "next", "value", "record", "close"} {
		t.Run(at, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			before := gap(t, g, 30, 5)
			_, err := g.repairer(brokenFold{g.store, at}).Repair(bounded(t), g.request(protocol.CauseExpired), &g.report)
			if want := errBroken; !errors.Is(err, want) && (at != "record" || !errors.Is(err, store.ErrCorrupt)) {
				t.Errorf("got %v", err)
			}
			g.wantUntouched(t, before)
		})
	}
}

func TestRelistRowOfUnknownVersion(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	want := gap(t, g, 5, 0)
	apply(t, g.store, g.store.Cursor(), kv.Update{Key: "nobody.knows", Op: kv.OpPut})
	if _, err := g.repair(t, g.request(protocol.CauseExpired)); err != nil {
		t.Fatal(err)
	}
	wantRows(t, contents(t, g.store), want)
}
