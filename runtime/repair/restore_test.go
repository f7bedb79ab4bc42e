package repair

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// fleet is a log, a node that exports into a folder of artifacts, and a rig with the node that restores.
type fleet struct {
	*rig
	backend  string
	exporter store.Store
	dir      string
	source   *countingSource
	fits     func(store.Snapshot) (Fit, error)
}

// countingSource counts what is fetched, and bends it.
type countingSource struct {
	Source
	before  func() // runs before the artifacts are listed
	fetched int
	after   func() // runs after a fetch
	bend    func(Manifest) Manifest
	err     func(id string) error
}

func (s *countingSource) Candidates(ctx context.Context) ([]Manifest, error) {
	if s.before != nil {
		s.before()
	}
	all, err := s.Source.Candidates(ctx)
	for i := range all {
		if s.bend != nil {
			all[i] = s.bend(all[i])
		}
	}
	return all, err
}

func (s *countingSource) Fetch(ctx context.Context, m Manifest) (Artifact, error) {
	if s.err != nil {
		if err := s.err(m.ID); err != nil {
			return nil, err
		}
	}
	s.fetched++
	a, err := s.Source.Fetch(ctx, m)
	if s.after != nil {
		s.after()
	}
	return a, err
}

func newFleet(t *testing.T, backend string, limits kvtest.Limits) *fleet {
	f := &fleet{rig: newRig(t, backend, kvtest.Options{Limits: limits}), backend: backend, dir: t.TempDir()}
	f.exporter = f.newStore(t, f.scope)
	f.source = &countingSource{Source: &folders{f.dir, f.exporter.Kind()}}
	f.o = Options{Mode: Auto, Source: f.source, Chunk: 2, RunBytes: 4096}
	return f
}

// newStore is a node's store, with the records that a fold keeps beside its rows.
func (f *fleet) newStore(t *testing.T, scope kv.Scope) store.Store {
	s := openStore(t, f.backend)
	f.stamp(t, s, scope)
	return s
}

func (f *fleet) stamp(t *testing.T, s store.Store, scope kv.Scope) {
	t.Helper()
	info, err := f.sim.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	setMeta(t, s, store.MetaBucket, []byte("sim"))
	setMeta(t, s, store.MetaScope, []byte(scope.String()))
	setMeta(t, s, store.MetaLog, kv.Incarnation{CreatedUnixNano: info.Created.UnixNano()}.AppendBytes(nil))
}

func setMeta(t *testing.T, s store.Store, name string, value []byte) {
	t.Helper()
	b := store.Batch{Ops: []store.Op{{Key: store.MetaKey(name), Value: value}}}
	if err := s.Apply(bounded(t), &b, s.Cursor()); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) export(t *testing.T, id string) {
	t.Helper()
	if err := f.exporter.Export(bounded(t), filepath.Join(f.dir, id)); err != nil {
		t.Fatal(err)
	}
}

// write writes numbered values, and moves nobody.
func (f *fleet) write(keys ...string) (last uint64) {
	for _, k := range keys {
		if name, ok := strings.CutPrefix(k, "-"); ok {
			last = f.sim.Remove(name)
		} else {
			last = f.sim.Set(k, fmt.Sprintf("%s/%d", k, last))
		}
	}
	return last
}

// bothAt lets both nodes follow to the head.
func (f *fleet) bothAt(t *testing.T) {
	follow(t, f.store, f.sim, head(t, f.sim))
	follow(t, f.exporter, f.sim, head(t, f.sim))
}

// restore repairs a fold whose watch was refused, as the open of one tells it.
func (f *fleet) restore(t *testing.T) (Outcome, error) {
	t.Helper()
	known, err := store.LogOf(f.store)
	if err != nil {
		t.Fatal(err)
	}
	q := Request{Cause: protocol.CauseExpired, Cursor: f.store.Cursor(), Known: known, Fits: f.fits}
	w, err := f.sim.Open(bounded(t), kv.OpenRequest{Scope: f.scope, After: q.Cursor, Known: known})
	switch {
	case q.Cursor.IsNone():
		q.Cause = protocol.CauseNoCursor
	case !errors.Is(err, kv.ErrCursorExpired):
		t.Fatalf("the cursor did not expire: %v", err)
	default:
		q.Err = err
	}
	if w != nil {
		if err := w.Close(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	return f.repair(t, q)
}

// resume commits the outcome, and follows to the head.
func (f *fleet) resume(t *testing.T, out Outcome) {
	t.Helper()
	apply(t, f.store, out.Cursor)
	info, err := f.sim.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if !protocol.ResumeWindowOK(out.Cursor.Revision(), info.First) || out.Known.CreatedUnixNano != info.Created.UnixNano() {
		t.Fatalf("outcome %+v can't be resumed on %+v", out, info)
	}
	follow(t, f.store, f.sim, info.Last)
}

func (f *fleet) wantTruth(t *testing.T) {
	t.Helper()
	wantRows(t, contents(t, f.store), truth(f.sim, f.scope, head(t, f.sim)))
}

// wantRefused checks that the restore was refused for that reason, and the fold is as it was.
func (f *fleet) wantRefused(t *testing.T, before map[string]string, why string, fetched int) *RestoreRefusedError {
	t.Helper()
	_, err := f.restore(t)
	var refused *RestoreRefusedError
	if !errors.As(err, &refused) || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), why) {
		t.Fatalf("%v, want a refusal with %q", err, why)
	}
	f.wantUntouched(t, before)
	if f.source.fetched != fetched || refused.Hint() == "" || f.report.Error != err.Error()[strings.Index(err.Error(), "bucket"):] {
		t.Errorf("%d fetched, want %d; hint %q; report %q", f.source.fetched, fetched, refused.Hint(), f.report.Error)
	}
	return refused
}

// aged makes the usual story: the node is away, a key ages out, a gap write ages out too, and a key is deleted.
func (f *fleet) aged(t *testing.T) {
	f.write("n.old", "n.dead", "n.both", "m.rest")
	f.bothAt(t)
	f.write("n.gap", "-n.dead", "n.both", "m.new")
	follow(t, f.exporter, f.sim, head(t, f.sim))
	f.export(t, "a")
	f.write("n.later")
	f.sim.EvictTo(head(t, f.sim))
}

func TestRestoreRecoversWhatAgedOut(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		f.aged(t)
		out, err := f.restore(t)
		if err != nil {
			t.Fatal(err)
		}
		if f.store.Cursor() != kv.CursorAt(4) || out.Cursor != (kv.Cursor{Version: kv.Revision(8), SeenEvicting: true}) || out.Relist {
			t.Errorf("the store is at %v, outcome %+v", f.store.Cursor(), out)
		}
		r := &f.report
		if r.Put != 3 || r.Deleted != 1 || r.Rows != 4 || r.Listed != 1 || r.Artifact != "a" || r.Plan != "restore" ||
			decision(r, "restore_ahead") != "true" || decision(r, "restore_allowed") != "true" || decision(r, "listing_plausible") != "true" {
			t.Errorf("report %+v", r)
		}
		f.resume(t, out)
		f.wantTruth(t)
		rows := contents(t, f.store)
		if rows["n.old"] == "" || rows["n.gap"] == "" || rows["n.dead"] != "" {
			t.Errorf("rows %v", rows)
		}
	})
}

func TestRestoreOfAScope(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		f.aged(t)
		outside := contents(t, f.store)["m.rest"]
		f.scope = prefixes(t, "n")
		out, err := f.restore(t)
		if err != nil {
			t.Fatal(err)
		}
		rows := contents(t, f.store)
		if rows["m.rest"] != outside || rows["m.new"] != "" {
			t.Errorf("outside of the scope: %v", rows)
		}
		delete(rows, "m.rest")
		wantRows(t, rows, truth(f.sim, f.scope, out.Cursor.Revision()))
	})
}

// TestRestoreFromAnArtifactMidCatchUp: the exporter had no cursor, and was exported before it was through the listing,
// so it lacks what the node has and the bucket lists.
func TestRestoreFromAnArtifactMidCatchUp(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		f.write("n.live", "n.dead", "n.same")
		follow(t, f.store, f.sim, 3)
		f.write("n.x", "-n.dead", "n.y", "n.live", "n.z")
		f.sim.EvictTo(6)
		follow(t, f.exporter, f.sim, 6) // has n.y only; n.live and n.z come later
		f.export(t, "a")
		f.folder.before = func(_ int, changes []Change) error {
			for _, c := range changes {
				if c.Key == "n.live" {
					t.Errorf("a live key is touched: %+v", c)
				}
			}
			return nil
		}
		// n.same aged out, and an exporter that began with the listing never had it: by its word it is gone, and that is
		// the seed's rule.
		out, err := f.restore(t)
		if err != nil {
			t.Fatal(err)
		}
		f.resume(t, out)
		rows := contents(t, f.store)
		if rows["n.live"] == "" || rows["n.dead"] != "" || rows["n.y"] == "" || rows["n.z"] == "" {
			t.Errorf("rows %v", rows)
		}
		for key, row := range truth(f.sim, f.scope, head(t, f.sim)) {
			if rows[key] != row && key != "n.same" && key != "n.x" {
				t.Errorf("%s is %q, want %q", key, rows[key], row)
			}
		}
	})
}

// limited are settings under which the log evicts by itself.
func TestRestoreOnALimitedLog(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{MaxMessages: 6})
		for i := range 40 {
			f.write(fmt.Sprintf("n.%d", i%13), fmt.Sprintf("m.%d", i))
			if i == 5 {
				follow(t, f.store, f.sim, head(t, f.sim))
			}
			if i%7 == 3 {
				f.write(fmt.Sprintf("-m.%d", i-2))
			}
			follow(t, f.exporter, f.sim, head(t, f.sim))
			if i%10 == 9 {
				f.export(t, fmt.Sprintf("g%02d", i))
			}
		}
		f.write("n.1", "n.2", "n.3")
		out, err := f.restore(t)
		if err != nil {
			t.Fatal(err)
		}
		if f.report.Artifact != "g39" || f.source.fetched != 1 {
			t.Errorf("restored %q of %d fetched", f.report.Artifact, f.source.fetched)
		}
		f.resume(t, out)
		f.wantTruth(t)
	})
}

func TestRestoreOnALogOfAge(t *testing.T) {
	for backend := range backends {
		t.Run(backend, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, backend, kvtest.Limits{MaxAge: time.Hour})
				f.write("n.old", "n.dead")
				f.bothAt(t)
				time.Sleep(50 * time.Minute)
				f.write("n.gap", "-n.dead")
				follow(t, f.exporter, f.sim, head(t, f.sim))
				time.Sleep(50 * time.Minute)
				f.write("n.tail")
				follow(t, f.exporter, f.sim, head(t, f.sim))
				f.export(t, "a")
				f.write("n.more")
				time.Sleep(30 * time.Minute)
				out, err := f.restore(t)
				if err != nil {
					t.Fatal(err)
				}
				f.resume(t, out)
				f.wantTruth(t)
				if rows := contents(t, f.store); len(rows) != 4 || rows["n.dead"] != "" {
					t.Errorf("rows %v", rows)
				}
			})
		})
	}
}

// TestRestoreRefusedWhenRetentionPassesTheArtifact: the listing takes so long that the log loses a write after the
// artifact's cursor, for which the listing can't vouch any more.
func TestRestoreRefusedWhenRetentionPassesTheArtifact(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		f.aged(t)
		before := contents(t, f.store)
		f.log.list = func(_ int, keys iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			return func(yield func(kv.KeyVersion, error) bool) {
				f.write("n.dead", "n.other", "n.third")
				f.sim.EvictTo(head(t, f.sim))
				for k, err := range keys {
					if !yield(k, err) {
						return
					}
				}
			}
		}
		f.wantRefused(t, before, "retention window", 1)
	})
}

// TestRestoreRefusedWhenRetentionPassesWithoutAListing: nothing vanished, so nothing is listed, and the log is read
// again all the same.
func TestRestoreRefusedWhenRetentionPassesWithoutAListing(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.write("n.a")
	f.bothAt(t)
	f.write("n.b", "n.c", "n.d")
	follow(t, f.exporter, f.sim, 3)
	f.export(t, "a")
	f.sim.EvictTo(4)
	before := contents(t, f.store)
	f.log.info = func(call int, i kv.LogInfo) (kv.LogInfo, error) {
		if call == 4 {
			i.First, i.Last, i.Retention.First = 8, 9, 8
		}
		return i, nil
	}
	f.wantRefused(t, before, "retention window", 1)
	if f.log.infos != 4 || f.log.lists != 0 {
		t.Errorf("%d readings, %d listings", f.log.infos, f.log.lists)
	}
}

func TestRestoreRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		story   func(t *testing.T, f *fleet)
		why     string
		fetched int
	}{
		"no artifact": {func(t *testing.T, f *fleet) {
			f.write("n.a")
			f.bothAt(t)
			f.write("n.b", "n.c", "n.d")
			f.sim.EvictTo(4)
		}, "no artifact", 0},
		"stale": {func(t *testing.T, f *fleet) {
			f.write("n.a")
			f.bothAt(t)
			f.write("n.b")
			follow(t, f.exporter, f.sim, 2)
			f.export(t, "a")
			f.write("n.c", "n.d")
			f.sim.EvictTo(4)
		}, "retention window", 0},
		"not ahead": {func(t *testing.T, f *fleet) {
			f.write("n.a")
			f.bothAt(t)
			f.export(t, "a")
			f.write("n.c", "n.d")
			f.sim.EvictTo(3)
		}, "not ahead", 0},
		"of a part of the scope": {func(t *testing.T, f *fleet) {
			setMeta(t, f.exporter, store.MetaScope, []byte("n.a,n.b"))
			f.aged(t)
			f.scope = prefixes(t, "n.")
		}, "does not cover", 0},
		"without a scope": {func(t *testing.T, f *fleet) {
			b := store.Batch{Ops: []store.Op{{Key: store.MetaKey(store.MetaScope), Delete: true}}}
			if err := f.exporter.Apply(bounded(t), &b, f.exporter.Cursor()); err != nil {
				t.Fatal(err)
			}
			f.aged(t)
		}, "no key scope", 0},
		"of another log": {func(t *testing.T, f *fleet) {
			f.write("n.a", "n.b", "n.c", "n.d")
			follow(t, f.exporter, f.sim, 4)
			f.export(t, "a")
			f.sim.Recreate()
			f.stamp(t, f.store, f.scope)
			f.write("n.a")
			follow(t, f.store, f.sim, 1)
			f.write("n.b", "n.c", "n.d", "n.e")
			f.sim.EvictTo(5)
		}, "another log", 0},
		"of an end that the log has lost": {func(t *testing.T, f *fleet) {
			f.write("n.a")
			f.bothAt(t)
			f.write("n.b", "n.c", "n.d", "n.e")
			follow(t, f.exporter, f.sim, 5)
			known, err := store.LogOf(f.exporter)
			if err != nil {
				t.Fatal(err)
			}
			known.Samples = []kv.Sample{{Revision: 5, UnixNano: f.sim.Truth(kv.AllKeys(), 5)["n.e"].UnixNano}}
			setMeta(t, f.exporter, store.MetaLog, known.AppendBytes(nil))
			f.export(t, "a")
			f.sim.EvictTo(4)
			f.sim.Rewind(4)
			f.write("n.x", "n.y")
		}, "no resume position", 1},
		"beyond the log's end": {func(t *testing.T, f *fleet) {
			f.write("n.a")
			f.bothAt(t)
			f.write("n.b", "n.c", "n.d", "n.e")
			follow(t, f.exporter, f.sim, 5)
			f.export(t, "a")
			f.sim.EvictTo(4)
			f.sim.Rewind(4)
		}, "beyond the log's end", 0},
		"of another bucket": {func(t *testing.T, f *fleet) {
			setMeta(t, f.exporter, store.MetaBucket, []byte("other"))
			f.aged(t)
		}, `of bucket "other"`, 1},
		"not what its manifest says": {func(t *testing.T, f *fleet) {
			f.aged(t)
			f.source.bend = func(m Manifest) Manifest { m.Cursor.Version = kv.Revision(9); return m }
		}, "arrived with cursor 8", 1},
		"of another scope than its manifest says": {func(t *testing.T, f *fleet) {
			f.aged(t)
			f.scope = prefixes(t, "n")
			f.source.bend = func(m Manifest) Manifest { m.Scope = f.scope; return m }
		}, `arrived with scope ">"`, 1},
		"of another log than its manifest says": {func(t *testing.T, f *fleet) {
			f.aged(t)
			f.source.bend = func(m Manifest) Manifest { m.Log = kv.Incarnation{}; return m }
		}, "arrived from a log", 1},
		"overtaken while it was fetched": {func(t *testing.T, f *fleet) {
			f.aged(t)
			f.source.after = func() { f.write("n.p", "n.q"); f.sim.EvictTo(head(t, f.sim)) }
		}, "retention window", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
			c.story(t, f)
			f.wantRefused(t, contents(t, f.store), c.why, c.fetched)
			if len(f.report.Decisions) == 0 {
				t.Error("no decision is on record")
			}
		})
	}
}
