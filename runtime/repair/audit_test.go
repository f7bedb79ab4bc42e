package repair

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
)

// audit audits the rig's fold, which follows its log only when it is waited for.
func (g *rig) audit(t *testing.T, q AuditRequest) (AuditOutcome, error) {
	t.Helper()
	return g.repairer(g.store).Audit(bounded(t), q, &g.report)
}

// owes is an audit that the fold owes since it resumed at its cursor.
func (g *rig) owes(t *testing.T) AuditRequest {
	return AuditRequest{
		Cursor:      g.store.Cursor(),
		Owed:        kv.Owed{}.Add(kv.OwesMarkers, g.store.Cursor().Revision()),
		WaitApplied: func(_ context.Context, rev uint64) error { follow(t, g.store, g.sim, rev); return nil },
	}
}

func wantAudit(t *testing.T, out AuditOutcome, err error, plan protocol.AuditPlan, before uint64) {
	t.Helper()
	if want := (AuditOutcome{Plan: plan, Before: before}); err != nil || out != want {
		t.Errorf("outcome %+v, err %v, want %+v", out, err, want)
	}
}

func TestAuditDeletesWhatVanishedMarkersLeft(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		g := newRig(t, backend, kvtest.Options{})
		want := gap(t, g, 30, 3)
		g.sim.Set("key.001", "again")
		g.sim.Set("new", "v")
		g.sim.Remove("key.005") // its marker is there
		at := head(t, g.sim)
		q := g.owes(t)
		out, err := g.audit(t, q)
		wantAudit(t, out, err, protocol.AuditList, at)
		delete(want, "key.000")
		delete(want, "key.002")
		delete(want, "key.005")
		want["key.001"], want["new"] = "34=again", "35=v"
		wantRows(t, contents(t, g.store), want)
		r := &g.report
		if r.Deleted != 2 || r.Cause != "audit of markers up to revision 30" || r.Plan != "audit: list" || r.Rows != 30 || r.Listed != 29 {
			t.Errorf("report %+v", r)
		}
		for _, c := range g.folder.taken {
			if c.Op != kv.OpDelete || c.Reason != kv.ReasonRepair || c.Expect.IsUnknown() || !c.Version.IsUnknown() {
				t.Errorf("change %+v", c)
			}
		}
	})
}

func TestAuditPlans(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(g *rig, q *AuditRequest)
		plan protocol.AuditPlan
	}{
		"NothingOwed": {func(_ *rig, q *AuditRequest) { q.Owed = kv.Owed{} }, protocol.AuditNone},
		"Evicted": {func(g *rig, _ *AuditRequest) {
			g.sim.SetLimits(kvtest.Limits{Evicts: true})
			g.sim.EvictTo(10)
		}, protocol.AuditUnproven},
		"Memo": {func(_ *rig, q *AuditRequest) { q.Cursor.SeenEvicting = true }, protocol.AuditUnproven},
		"Unknown": {func(g *rig, _ *AuditRequest) {
			g.log.info = func(_ int, i kv.LogInfo) (kv.LogInfo, error) { i.Retention.Unknown = true; return i, nil }
		}, protocol.AuditUnproven},
		"EvictsMeanwhile": {func(g *rig, _ *AuditRequest) {
			g.sim.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) {
				l.SetLimits(kvtest.Limits{Evicts: true})
				l.EvictTo(10)
			}})
		}, protocol.AuditUnproven},
		"AgedOutInside": {func(g *rig, _ *AuditRequest) { g.sim.AgeOut("key.029", true) }, protocol.AuditUnproven},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			before := gap(t, g, 30, 3)
			q := g.owes(t)
			c.bend(g, &q)
			out, err := g.audit(t, q)
			wantAudit(t, out, err, c.plan, 0)
			g.wantUntouched(t, before)
			if known := !strings.Contains(name, "Meanwhile") && !strings.Contains(name, "Inside"); known && g.log.lists > 0 {
				t.Error("the bucket was listed for nothing")
			}
			if g.report.Plan != "audit: "+c.plan.String() {
				t.Errorf("the report's plan is %q", g.report.Plan)
			}
		})
	}
}

// TestAuditLeavesAKeyThatComesBack: a key is written again between the listing that lacks it and its delete.
func TestAuditLeavesAKeyThatComesBack(t *testing.T) {
	for _, when := range []string{"AfterTheListing", "BeforeTheDelete"} {
		t.Run(when, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			gap(t, g, 30, 2)
			back := func() {
				g.sim.Set("key.000", "back")
				follow(t, g.store, g.sim, head(t, g.sim))
			}
			q := g.owes(t)
			if when == "AfterTheListing" {
				wait := q.WaitApplied
				q.WaitApplied = func(ctx context.Context, rev uint64) error { back(); return wait(ctx, rev) }
			} else {
				g.folder.before = func(int, []Change) error { back(); return nil }
			}
			at := head(t, g.sim)
			out, err := g.audit(t, q)
			wantAudit(t, out, err, protocol.AuditList, at)
			wantRows(t, contents(t, g.store), truth(g.sim, g.scope, head(t, g.sim)))
			if skipped := g.folder.skipped == 1; skipped != (when == "BeforeTheDelete") {
				t.Errorf("%d skipped", g.folder.skipped)
			}
		})
	}
}

// TestAuditSuspects: the bucket lists a value that the fold does not have.
func TestAuditSuspects(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile   func(l *kvtest.Log) // after the listing, and before the fold is read
		contradicts bool
	}{
		"Deleted":           {func(l *kvtest.Log) { l.Remove("lost") }, false},
		"DeletedNoMarker":   {func(l *kvtest.Log) { l.Remove("lost"); l.PurgeMarkers() }, false},
		"Written":           {func(l *kvtest.Log) { l.Remove("lost"); l.Set("lost", "later") }, false},
		"MissedByTheFold":   {func(*kvtest.Log) {}, true},
		"OthersWereWritten": {func(l *kvtest.Log) { l.Set("other", "v") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			gap(t, g, 30, 2)
			g.sim.Set("lost", "v")
			at := head(t, g.sim)
			apply(t, g.store, kv.CursorAt(at)) // it has applied everything, and lacks this key
			before := contents(t, g.store)
			q := g.owes(t)
			q.WaitApplied = func(context.Context, uint64) error { c.meanwhile(g.sim); return nil }
			out, err := g.audit(t, q)
			if !c.contradicts {
				wantAudit(t, out, err, protocol.AuditList, at)
				delete(before, "key.000")
				delete(before, "key.001")
				wantRows(t, contents(t, g.store), before)
				return
			}
			wantRewound(t, err, "lost", fmt.Sprint(at))
			g.wantUntouched(t, before)
		})
	}
}

func wantRewound(t *testing.T, err error, texts ...string) {
	t.Helper()
	var changed *kv.LogChangedError
	if !errors.As(err, &changed) || !errors.Is(err, kv.ErrLogRewound) || changed.Replaced || errors.Is(err, ErrRefused) {
		t.Fatalf("got %v", err)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not name %q", err, s)
		}
	}
}

// TestAuditFindsARewoundLog: the log lost its end and has grown as long as it was, with other messages.
func TestAuditFindsARewoundLog(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	for i := range 20 {
		g.sim.Set(fmt.Sprintf("key.%03d", i), "v")
	}
	fill(t, g.store, g.sim, g.scope, 20)
	g.sim.Rewind(10)
	for i := range 10 {
		g.sim.Set(fmt.Sprintf("key.%03d", i), "other")
	}
	before := contents(t, g.store)
	_, err := g.audit(t, g.owes(t))
	wantRewound(t, err, "key.000", "revision 1:", "revision 11")
	g.wantUntouched(t, before)
	if g.report.Error == "" {
		t.Error("the report has no error")
	}
}

// TestAuditFindsARevisionThatWasWrittenTwice: each key stands at the revision that the fold has, with another message.
func TestAuditFindsARevisionThatWasWrittenTwice(t *testing.T) {
	for _, runBytes := range []int{0, 512} { // in memory, and through a file
		g := newRig(t, "logstore", kvtest.Options{})
		g.o.RunBytes = runBytes
		for i := range 20 {
			g.sim.Set(fmt.Sprintf("key.%03d", i), "v")
		}
		fill(t, g.store, g.sim, g.scope, 20)
		g.sim.Rewind(10)
		for i := range 10 {
			g.sim.Set(fmt.Sprintf("key.%03d", 10+i), "other")
		}
		before := contents(t, g.store)
		_, err := g.audit(t, g.owes(t))
		wantRewound(t, err, "key.010", "revision 11")
		g.wantUntouched(t, before)
	}
}

// TestAuditContradiction: the fold has a later value of a key than the log, though the log has gone on after it.
func TestAuditContradiction(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{History: 2})
	g.sim.Set("back", "one")
	rev := g.sim.Set("back", "two")
	g.sim.Set("other", "v")
	fill(t, g.store, g.sim, g.scope, 3)
	g.sim.RemoveMessage(rev)
	before := contents(t, g.store)
	_, err := g.audit(t, g.owes(t))
	wantRewound(t, err, "back", "revision 2 ", "revision 1,")
	g.wantUntouched(t, before)
}

func TestAuditOfAnotherLog(t *testing.T) {
	t.Run("Replaced", func(t *testing.T) {
		g := newRig(t, "logstore", kvtest.Options{})
		before := gap(t, g, 10, 2)
		info, err := g.sim.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g.sim.Recreate()
		for i := range 20 {
			g.sim.Set(fmt.Sprint("other.", i), "v")
		}
		q := g.owes(t)
		q.Known.CreatedUnixNano = info.Created.UnixNano()
		if _, err := g.audit(t, q); !errors.Is(err, kv.ErrLogReplaced) || !strings.Contains(err.Error(), info.Created.UTC().Format(time.RFC3339Nano)) {
			t.Errorf("got %v", err)
		}
		g.wantUntouched(t, before)
	})
	t.Run("EndsBeforeTheCursor", func(t *testing.T) {
		g := newRig(t, "logstore", kvtest.Options{})
		before := gap(t, g, 10, 0)
		g.sim.Rewind(9)
		_, err := g.audit(t, g.owes(t))
		wantRewound(t, err)
		g.wantUntouched(t, before)
	})
}

func TestAuditUsesNoBadListing(t *testing.T) {
	for name, f := range listingFaults {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			before := gap(t, g, 30, 5)
			q := g.owes(t)
			f.bend(g.log, g.sim)
			_, err := g.audit(t, q)
			wantFault(t, err, f.want)
			if errors.Is(err, kv.ErrLogRewound) {
				t.Errorf("a bad listing is no contradiction: %v", err)
			}
			for k := range before {
				if _, ok := contents(t, g.store)[k]; !ok {
					t.Errorf("%s was deleted", k)
				}
			}
		})
	}
}

func TestAuditBrake(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	want := gap(t, g, 60, 3)
	for i := range 3 {
		delete(want, fmt.Sprintf("key.%03d", i))
	}
	g.log.info = func(_ int, i kv.LogInfo) (kv.LogInfo, error) { i.Subjects = 0; return i, nil }
	g.log.list = func(call int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
		if call == 1 {
			return without(k, even, nil)
		}
		return k
	}
	at := head(t, g.sim)
	out, err := g.audit(t, g.owes(t))
	wantAudit(t, out, err, protocol.AuditList, at)
	wantRows(t, contents(t, g.store), want)
	if g.log.lists != 2 {
		t.Errorf("%d listings", g.log.lists)
	}
}

func TestAuditErrors(t *testing.T) {
	suspect := func(g *rig) {
		rev := g.sim.Set("lost", "v")
		apply(t, g.store, kv.CursorAt(rev))
	}
	for name, bend := range map[string]func(g *rig, q *AuditRequest){
		"NoInfo": func(g *rig, _ *AuditRequest) { g.sim.Inject(kvtest.Fault{At: kvtest.PointInfo, Err: errBroken}) },
		"NotApplied": func(_ *rig, q *AuditRequest) {
			q.WaitApplied = func(context.Context, uint64) error { return errBroken }
		},
		"SuspectNotRead": func(g *rig, _ *AuditRequest) {
			suspect(g)
			g.log.entry = func(string) error { return errBroken }
		},
		"Folder": func(g *rig, _ *AuditRequest) { g.folder.before = func(int, []Change) error { return errBroken } },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			gap(t, g, 30, 5)
			q := g.owes(t)
			bend(g, &q)
			before := contents(t, g.store)
			if out, err := g.audit(t, q); !errors.Is(err, errBroken) || out != (AuditOutcome{}) {
				t.Errorf("outcome %+v, err %v", out, err)
			}
			got := contents(t, g.store)
			for k, v := range before {
				if got[k] != v {
					t.Errorf("%s is %q, was %q", k, got[k], v)
				}
			}
		})
	}
	for _, at := range []string{"snapshot", "iter", "next", "value", "record", "close"} {
		t.Run(at, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			gap(t, g, 30, 5)
			if _, err := g.repairer(brokenFold{g.store, at}).Audit(bounded(t), g.owes(t), &g.report); err == nil || g.folder.calls > 0 {
				t.Errorf("%d calls of the folder, err %v", g.folder.calls, err)
			}
		})
	}
}

// TestAuditWaitsForTheListingsEnd: the fold is read when it has applied all that was there when the listing was over.
func TestAuditWaitsForTheListingsEnd(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	gap(t, g, 30, 2)
	g.sim.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) { l.Set("meanwhile", "v") }})
	q, waited := g.owes(t), uint64(0)
	wait := q.WaitApplied
	q.WaitApplied = func(ctx context.Context, rev uint64) error { waited = rev; return wait(ctx, rev) }
	if _, err := g.audit(t, q); err != nil || waited != head(t, g.sim) {
		t.Errorf("it waited for revision %d of %d: %v", waited, head(t, g.sim), err)
	}
}

// TestAuditRowOfUnknownVersion: it goes when its key's last message is no value, unless a later write has come by then.
func TestAuditRowOfUnknownVersion(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile, beforeDelete func(l *kvtest.Log)
		kept                    string
	}{
		"Gone":         {nil, nil, ""},
		"Tombstone":    {func(l *kvtest.Log) { l.Remove("unknown") }, nil, ""},
		"Written":      {func(l *kvtest.Log) { l.Set("unknown", "v") }, nil, "unknown="},
		"WrittenLater": {nil, func(l *kvtest.Log) { l.Set("unknown", "v") }, "32=v"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, "logstore", kvtest.Options{})
			want := gap(t, g, 30, 1)
			apply(t, g.store, g.store.Cursor(), kv.Update{Key: "unknown", Op: kv.OpPut}, kv.Update{Key: "key.007", Op: kv.OpPut})
			q := g.owes(t)
			wait := q.WaitApplied
			q.WaitApplied = func(ctx context.Context, rev uint64) error {
				if c.meanwhile != nil {
					c.meanwhile(g.sim)
				}
				return wait(ctx, rev)
			}
			g.folder.before = func(int, []Change) error {
				if c.beforeDelete != nil {
					c.beforeDelete(g.sim)
					follow(t, g.store, g.sim, head(t, g.sim))
				}
				return nil
			}
			if _, err := g.audit(t, q); err != nil {
				t.Fatal(err)
			}
			delete(want, "key.000")
			want["key.007"] = "unknown="
			if c.kept != "" {
				want["unknown"] = c.kept
			}
			wantRows(t, contents(t, g.store), want)
		})
	}
}

// TestAuditRowOfUnknownVersionBehindASecondListing: a row that two listings lack is still read before it goes.
func TestAuditRowOfUnknownVersionBehindASecondListing(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	want := gap(t, g, 30, 12)
	apply(t, g.store, g.store.Cursor(), kv.Update{Key: "unknown", Op: kv.OpPut})
	written := false
	g.log.info = func(_ int, i kv.LogInfo) (kv.LogInfo, error) {
		if g.log.lists == 2 && !written {
			written = true
			g.sim.Set("unknown", "v")
		}
		return i, nil
	}
	if _, err := g.audit(t, g.owes(t)); err != nil || !written {
		t.Fatalf("written behind a second listing: %v; %v", written, err)
	}
	for i := range 12 {
		delete(want, fmt.Sprintf("key.%03d", i))
	}
	want["unknown"] = "unknown="
	wantRows(t, contents(t, g.store), want)
}

func TestAuditRefusesAListingWithoutRevisions(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	before := gap(t, g, 30, 1)
	g.log.list = func(_ int, k iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
		return func(yield func(kv.KeyVersion, error) bool) {
			for k, err := range k {
				k.Version = kv.Version{}
				yield(k, err)
			}
		}
	}
	if _, err := g.audit(t, g.owes(t)); err == nil || !strings.Contains(err.Error(), "key.001") {
		t.Errorf("got %v", err)
	}
	wantRows(t, contents(t, g.store), before)
}

// TestAuditRandom: a fold that resumed over vanished markers, beside a writer, ends at the truth.
func TestAuditRandom(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 5))
		g := newRig(t, "logstore", kvtest.Options{History: 1 + r.IntN(2)})
		g.o.RunBytes = []int{1, 512, 0}[r.IntN(3)]
		g.o.Chunk = 1 + r.IntN(5)
		g.scope = []kv.Scope{kv.AllKeys(), prefixes(t, "a", "b-")}[r.IntN(2)]
		busy(r, g.sim, 60)
		fill(t, g.store, g.sim, kv.AllKeys(), uint64(r.IntN(int(head(t, g.sim))+1)))
		outside := contents(t, g.store)
		maps.DeleteFunc(outside, func(k, _ string) bool { return g.scope.Contains(k) })
		busy(r, g.sim, 40)
		g.sim.PurgeMarkers()
		resumed := head(t, g.sim)
		g.follow(t, resumed)
		// From here on every marker is delivered.
		write := func() {
			for range r.IntN(4) {
				if k := someKey(r); r.IntN(2) == 0 {
					g.sim.Set(k, "later")
				} else {
					g.sim.Remove(k)
				}
			}
		}
		q := g.owes(t)
		q.WaitApplied = func(_ context.Context, rev uint64) error { write(); g.follow(t, rev); return nil }
		g.sim.Inject(kvtest.Fault{At: kvtest.PointList, Times: 2, Do: func(*kvtest.Log) { write() }})
		g.sim.Inject(kvtest.Fault{At: kvtest.PointRead, Times: 100, Do: func(*kvtest.Log) { write() }})
		g.folder.before = func(int, []Change) error { write(); g.follow(t, head(t, g.sim)); return nil }
		if _, err := g.audit(t, q); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		g.follow(t, head(t, g.sim))
		want := truth(g.sim, g.scope, head(t, g.sim))
		maps.Copy(want, outside)
		wantRows(t, contents(t, g.store), want)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// follow applies what is in scope and left in the log.
func (g *rig) follow(t *testing.T, to uint64) {
	var updates []kv.Update
	for _, u := range g.sim.Retained() {
		if rev := u.Version.Rank(); g.scope.Contains(u.Key) && rev > g.store.Cursor().Revision() && rev <= to {
			updates = append(updates, u)
		}
	}
	apply(t, g.store, kv.CursorAt(max(to, g.store.Cursor().Revision())), updates...)
}

// TestAuditOfARowOfAnotherLog: a row that an adoption kept for a key which was listed then, and was deleted before the
// re-list, has a revision of the log before. It is past all that this log has, and says nothing here.
func TestAuditOfARowOfAnotherLog(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		g := newRig(t, backend, kvtest.Options{})
		want := gap(t, g, 30, 0)
		g.sim.Set("listed", "new")
		for _, key := range []string{"gone", "listed"} {
			apply(t, g.store, g.store.Cursor(), kv.Update{Key: key, Value: []byte("old"), Version: kv.Revision(900), Op: kv.OpPut})
		}
		at := head(t, g.sim)
		out, err := g.audit(t, g.owes(t))
		wantAudit(t, out, err, protocol.AuditList, at)
		want["listed"] = fmt.Sprintf("%d=new", at)
		wantRows(t, contents(t, g.store), want)
	})
}
