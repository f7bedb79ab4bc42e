package repair

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// fleet is a log, a node that exports into a folder of artifacts, and a rig with the node that restores.
type fleet struct {
	*rig
	backend  string
	exporter store.Store
	dir      string
	source   *countingSource
}

// countingSource counts what is fetched, and bends it.
type countingSource struct {
	Source
	fetched int
	after   func() // runs after a fetch
	bend    func(Manifest) Manifest
	err     func(id string) error
}

func (s *countingSource) Candidates(ctx context.Context) ([]Manifest, error) {
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
	f.source = &countingSource{Source: &LocalSource{Dir: f.dir, Open: openExport(backend), Scratch: f.scratch}}
	f.o = Options{Mode: Auto, Source: f.source, Chunk: 2, RunBytes: 4096}
	return f
}

// openExport opens what a backend's Export wrote.
func openExport(backend string) func(dir string) (store.Store, error) {
	return func(dir string) (store.Store, error) {
		if backend == "logstore" {
			return logstore.Open(dir, logstore.Options{Durability: logstore.None})
		}
		return pebblestore.Open(dir, pebblestore.Options{Durability: pebblestore.None})
	}
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
	q := Request{Cause: protocol.CauseExpired, Cursor: f.store.Cursor(), Known: known}
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
		if call == 3 {
			i.First, i.Last, i.Retention.First = 8, 9, 8
		}
		return i, nil
	}
	f.wantRefused(t, before, "retention window", 1)
	if f.log.infos != 3 || f.log.lists != 0 {
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

func TestRestoreFallsBackToAnOlderArtifact(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		for name, bend := range map[string]func(t *testing.T, f *fleet){
			"the newest is damaged": func(t *testing.T, f *fleet) {
				f.source.err = func(id string) error {
					if id == "b" {
						return fmt.Errorf("%w: hash", ErrArtifactInvalid)
					}
					return nil
				}
			},
			"the newest is not what was announced": func(t *testing.T, f *fleet) {
				f.source.bend = func(m Manifest) Manifest {
					if m.ID == "b" {
						m.Cursor.SeenEvicting = !m.Cursor.SeenEvicting
					}
					return m
				}
			},
			"the newest has a torn row": func(t *testing.T, f *fleet) {
				b := store.Batch{Ops: []store.Op{{Key: store.AppendKey(nil, store.SpaceData, "n.torn"), Value: []byte{0xFF}}}}
				if err := f.exporter.Apply(bounded(t), &b, f.exporter.Cursor()); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(filepath.Join(f.dir, "b")); err != nil {
					t.Fatal(err)
				}
				f.export(t, "b")
			},
		} {
			t.Run(name, func(t *testing.T) {
				f := newFleet(t, backend, kvtest.Limits{Evicts: true})
				f.aged(t)
				follow(t, f.exporter, f.sim, 9)
				f.export(t, "b")
				bend(t, f)
				out, err := f.restore(t)
				if err != nil {
					t.Fatal(err)
				}
				if f.report.Artifact != "a" || out.Cursor.Revision() != 8 || f.report.Rows != 4 || decision(&f.report, "artifact") != "refused" {
					t.Errorf("restored %q, outcome %+v, decisions %v", f.report.Artifact, out, f.report.Decisions)
				}
				f.resume(t, out)
				f.wantTruth(t)
			})
		}
	})
}

// TestRestoreErrorsThatMayPass: what may be gone at the next try is no refusal, and changes nothing.
func TestRestoreErrorsThatMayPass(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(f *fleet)
		want error
	}{
		"the fetch": {func(f *fleet) { f.source.err = func(string) error { return errBroken } }, errBroken},
		"the list of artifacts": {func(f *fleet) {
			f.source.Source = &LocalSource{Dir: f.dir, Open: openExport(f.backend), Scratch: filepath.Join(f.dir, "missing")}
		}, os.ErrNotExist},
		"the listing": {func(f *fleet) {
			f.log.list = func(_ int, keys iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
				return without(keys, func(kv.KeyVersion) bool { return false }, errBroken)
			}
		}, errBroken},
		"the log's bounds": {func(f *fleet) {
			f.log.info = func(call int, i kv.LogInfo) (kv.LogInfo, error) {
				if call == 2 {
					return i, errBroken
				}
				return i, nil
			}
		}, errBroken},
		"another log meanwhile": {func(f *fleet) {
			f.log.info = func(call int, i kv.LogInfo) (kv.LogInfo, error) {
				if call >= 2 {
					i.Created = i.Created.Add(time.Second)
				}
				return i, nil
			}
		}, kv.ErrLogReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
			f.aged(t)
			before := contents(t, f.store)
			c.bend(f)
			if _, err := f.restore(t); !errors.Is(err, c.want) || errors.Is(err, ErrRefused) {
				t.Errorf("%v, want %v", err, c.want)
			}
			f.wantUntouched(t, before)
		})
	}
}

// TestRestoreUsesNoShortListing: a listing without a key that the log holds would delete it.
func TestRestoreUsesNoShortListing(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.aged(t)
	before := contents(t, f.store)
	f.log.list = func(_ int, keys iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
		return without(keys, every, nil)
	}
	var short *ImplausibleListingError
	if _, err := f.restore(t); !errors.As(err, &short) {
		t.Errorf("%v", err)
	}
	f.wantUntouched(t, before)
}

// TestRestoreBrake: many deletes need a second listing, and only what both lack goes.
func TestRestoreBrake(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	var gone []string
	for i := range 15 {
		f.write(fmt.Sprintf("n.%02d", i))
		gone = append(gone, fmt.Sprintf("-n.%02d", i))
	}
	f.bothAt(t)
	f.write(gone...)
	follow(t, f.exporter, f.sim, head(t, f.sim))
	f.export(t, "a")
	f.sim.EvictTo(head(t, f.sim))
	f.log.list = func(call int, keys iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
		if call == 2 { // n.03 is written between the two
			f.write("n.03")
		}
		return keys
	}
	out, err := f.restore(t)
	if err != nil {
		t.Fatal(err)
	}
	if f.log.lists != 2 || f.report.Deleted != 14 || contents(t, f.store)["n.03"] == "" {
		t.Errorf("%d listings, %d deleted, rows %v", f.log.lists, f.report.Deleted, contents(t, f.store))
	}
	f.resume(t, out)
	f.wantTruth(t)
}

// TestRestoreOutcome: the memo of either side and what the artifact owes go on; what the fold owed is settled.
func TestRestoreOutcome(t *testing.T) {
	at := kv.Revision(10)
	for name, c := range map[string]struct {
		local, artifact kv.Cursor
		evicts          bool
		log             kv.Incarnation
		owed, says      kv.Owed
		want            Outcome
	}{
		"the artifact's memo and time": {kv.CursorAt(5), kv.Cursor{Version: at, SeenEvicting: true, WrittenAt: 77}, false, kv.Incarnation{}, kv.Owed{}, kv.Owed{},
			Outcome{Cursor: kv.Cursor{Version: at, SeenEvicting: true, WrittenAt: 77}, Known: kv.Incarnation{CreatedUnixNano: 1e9}}},
		"the fold's memo": {kv.Cursor{Version: kv.Revision(5), SeenEvicting: true, WrittenAt: 66}, kv.CursorAt(10), false, kv.Incarnation{}, kv.Owed{}, kv.Owed{},
			Outcome{Cursor: kv.Cursor{Version: at, SeenEvicting: true}, Known: kv.Incarnation{CreatedUnixNano: 1e9}}},
		"what the log shows": {kv.CursorAt(5), kv.CursorAt(10), true, kv.Incarnation{}, kv.Owed{}, kv.Owed{},
			Outcome{Cursor: kv.Cursor{Version: at, SeenEvicting: true}, Known: kv.Incarnation{CreatedUnixNano: 1e9}}},
		"no memo": {kv.CursorAt(5), kv.CursorAt(10), false, kv.Incarnation{CreatedUnixNano: 1e9, Samples: []kv.Sample{{Revision: 9, UnixNano: 8}}}, kv.Owed{}, kv.Owed{},
			Outcome{Cursor: kv.CursorAt(10), Known: kv.Incarnation{CreatedUnixNano: 1e9, Samples: []kv.Sample{{Revision: 9, UnixNano: 8}}}}},
		"what is owed": {kv.CursorAt(5), kv.CursorAt(10), false, kv.Incarnation{}, kv.Owed{Why: kv.OwesMarkers, At: 8}, kv.Owed{Why: kv.OwesListing, At: 9},
			Outcome{Cursor: kv.CursorAt(10), Known: kv.Incarnation{CreatedUnixNano: 1e9}, Owed: kv.Owed{Why: kv.OwesMarkers | kv.OwesListing, At: 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			src, view := artifactOf(kv.AllKeys(), c.artifact)
			src.m.Owed = c.says
			if c.log.CreatedUnixNano != 0 {
				view.rows[string(store.MetaKey(store.MetaLog))] = c.log.AppendBytes(nil)
			}
			view.rows[string(store.MetaKey(store.MetaOwed))] = c.owed.AppendBytes(nil)
			log := &bentLog{Log: &listedLog{}}
			log.info = func(call int, i kv.LogInfo) (kv.LogInfo, error) {
				i.Retention.EvictsCurrentValues = c.evicts && call == 2 // not when the repair was planned
				return i, nil
			}
			f := &mapFold{mapView: mapView{rows: map[string][]byte{}, cursor: c.local}}
			p := New(log, f, f, kv.AllKeys(), Options{Mode: Restore, Source: src})
			q := Request{Cause: protocol.CauseExpired, Cursor: c.local, Owed: kv.Owed{Why: kv.OwesIdentity, At: 4}}
			var r Report
			got, err := p.Repair(t.Context(), q, &r)
			if err != nil || got.Cursor != c.want.Cursor || got.Owed != c.want.Owed || got.Known.CreatedUnixNano != c.want.Known.CreatedUnixNano ||
				!slices.Equal(got.Known.Samples, c.want.Known.Samples) || got.Relist {
				t.Errorf("outcome %+v (%v), want %+v", got, err, c.want)
			}
			if r.NewCursor != c.want.Cursor.String() {
				t.Errorf("report %+v", r)
			}
		})
	}
}

// TestRestoreRemembersAListedAgeOut: a marker of an aged-out value says what the log's bounds don't.
func TestRestoreRemembersAListedAgeOut(t *testing.T) {
	for _, aged := range []bool{false, true} {
		c := diffCase{local: map[string]uint64{"a.b": 3}, artifact: map[string]uint64{"b.c": 4}}
		f, src, sim := c.folds()
		log := &bentLog{Log: sim}
		log.info = func(_ int, i kv.LogInfo) (kv.LogInfo, error) {
			i.Retention.EvictsCurrentValues = false
			return i, nil
		}
		log.list = func(_ int, keys iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error] {
			return func(yield func(kv.KeyVersion, error) bool) {
				for k, err := range keys {
					if k.Op == kv.OpDelete && aged {
						k.Op = kv.OpAgedOut
					}
					if !yield(k, err) {
						return
					}
				}
			}
		}
		if out, err := c.run(t, f, src, log, &Report{}); err != nil || out.Cursor.SeenEvicting != aged {
			t.Errorf("aged out %v: outcome %+v (%v)", aged, out, err)
		}
	}
}

// TestRestoreSeedsANodeWithoutACursor: an empty node of an evicting bucket begins with the artifact.
func TestRestoreSeedsANodeWithoutACursor(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		f.aged(t)
		b := store.Batch{Updates: []kv.Update{}}
		for key := range contents(t, f.store) {
			b.Updates = append(b.Updates, kv.Update{Key: key, Op: kv.OpDelete})
		}
		if err := f.store.Apply(bounded(t), &b, kv.Cursor{}); err != nil {
			t.Fatal(err)
		}
		out, err := f.restore(t)
		if err != nil {
			t.Fatal(err)
		}
		f.resume(t, out)
		f.wantTruth(t)
	})
}

// TestRestoreLeavesARowThatMovedOn: the fold's row is another one by the time of the commit.
func TestRestoreLeavesARowThatMovedOn(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.aged(t)
	f.folder.before = func(call int, _ []Change) error {
		if call == 1 {
			apply(t, f.store, f.store.Cursor(), kv.Update{Key: "n.both", Value: []byte("own"), Version: kv.Revision(9), Op: kv.OpPut},
				kv.Update{Key: "n.dead", Value: []byte("own"), Version: kv.Revision(9), Op: kv.OpPut})
		}
		return nil
	}
	if _, err := f.restore(t); err != nil {
		t.Fatal(err)
	}
	if rows := contents(t, f.store); rows["n.both"] != "9=own" || rows["n.dead"] != "9=own" || f.folder.skipped != 2 {
		t.Errorf("rows %v, %d skipped", rows, f.folder.skipped)
	}
}

// TestRestoreCutAndBegunAgain: a restore that ends after any of its chunks is begun again under the old cursor.
func TestRestoreCutAndBegunAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		f.o.Chunk = 1
		f.aged(t)
		cuts := 0
		for done := false; !done; cuts++ {
			calls := 0
			f.folder.before = func(int, []Change) error {
				if calls++; calls == 2 {
					return errCut
				}
				return nil
			}
			out, err := f.restore(t)
			if done = err == nil; done {
				f.resume(t, out)
				f.wantTruth(t)
			} else if !errors.Is(err, errCut) || f.store.Cursor() != kv.CursorAt(4) {
				t.Fatalf("cut %d: %v at %v", cuts, err, f.store.Cursor())
			}
		}
		if cuts != 4 {
			t.Errorf("%d runs for 4 changes, one each", cuts)
		}
	})
}

func TestRestoreEndsWithItsContext(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.o.Chunk = 1
	f.aged(t)
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	f.folder.before = func(int, []Change) error { cancel(); return nil }
	_, err := f.repairer(f.store).Repair(ctx, Request{Cause: protocol.CauseExpired, Cursor: f.store.Cursor()}, &f.report)
	if !errors.Is(err, context.Canceled) || f.folder.calls != 1 {
		t.Errorf("%v after %d chunks", err, f.folder.calls)
	}
	if _, err := f.repairer(f.store).Repair(ctx, Request{Cause: protocol.CauseExpired, Cursor: f.store.Cursor()}, &f.report); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestRestoreThroughFiles: so many keys that every sequence goes through files; what is folded comes in key order.
func TestRestoreThroughFiles(t *testing.T) {
	const n = 12_000
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.o.Chunk = 500
	for i := range n {
		f.write(fmt.Sprintf("n.%05d", i))
	}
	f.bothAt(t)
	for i := range n {
		if i%2 == 0 {
			f.write(fmt.Sprintf("-n.%05d", i))
		} else {
			f.write(fmt.Sprintf("n.%05d", i))
		}
	}
	follow(t, f.exporter, f.sim, head(t, f.sim))
	f.export(t, "a")
	f.write("n.00000", "n.00002")
	f.sim.EvictTo(2 * n)
	out, err := f.restore(t)
	if err != nil {
		t.Fatal(err)
	}
	if f.report.Put != n/2 || f.report.Deleted != n/2-2 || f.folder.calls != (n-2+499)/500 {
		t.Errorf("report %d put, %d deleted, in %d chunks", f.report.Put, f.report.Deleted, f.folder.calls)
	}
	f.resume(t, out)
	f.wantTruth(t)
}

// TestRestoreChunksAreBounded: large values make small chunks.
func TestRestoreChunksAreBounded(t *testing.T) {
	src, view := artifactOf(kv.AllKeys(), kv.CursorAt(10))
	sizes := []int{chunkBytes / 2, chunkBytes / 3, chunkBytes, 10, 2 * chunkBytes, 10, 10}
	for i, size := range sizes {
		u := kv.Update{Key: fmt.Sprintf("k.%d", i), Value: make([]byte, size), Version: kv.Revision(uint64(i + 1))}
		view.rows[string(store.AppendKey(nil, store.SpaceData, u.Key))] = store.AppendRecord(nil, &u)
	}
	f := &mapFold{mapView: mapView{rows: map[string][]byte{}}, changed: map[string]bool{}}
	var chunks []int
	to := folderFunc(func(c []Change) error {
		size := 0
		for i := range c {
			size += c[i].Size()
		}
		if len(c) > 1 && size > chunkBytes {
			t.Errorf("a chunk of %d changes has %d bytes", len(c), size)
		}
		chunks = append(chunks, len(c))
		return f.Fold(t.Context(), c)
	})
	p := New(&listedLog{}, f, to, kv.AllKeys(), Options{Mode: Restore, Source: src, Chunk: 100})
	if _, err := p.Repair(t.Context(), Request{Cause: protocol.CauseNoCursor}, &Report{}); err != nil {
		t.Fatal(err)
	}
	if want := []int{2, 1, 1, 1, 2}; !slices.Equal(chunks, want) || len(f.revs()) != len(sizes) {
		t.Errorf("chunks of %v, want %v", chunks, want)
	}
}

type folderFunc func([]Change) error

func (f folderFunc) Fold(_ context.Context, c []Change) error { return f(c) }

// keepOld is one side of a key under KEEP_OLD: the newest message, whether it was refused, and the accepted one
// beside it.
type keepOld struct {
	newest   uint64
	rejected bool
	accepted uint64
}

func (k keepOld) into(v mapView, key string) {
	if k.newest == 0 {
		return
	}
	u := kv.Update{Key: key, Value: fmt.Appendf(nil, "%d", k.newest), Version: kv.Revision(k.newest), UnixNano: int64(k.newest), Rejected: k.rejected}
	v.rows[string(store.AppendKey(nil, store.SpaceData, key))] = store.AppendRecord(nil, &u)
	if k.accepted != 0 {
		u := kv.Update{Key: key, Value: fmt.Appendf(nil, "%d", k.accepted), Version: kv.Revision(k.accepted), UnixNano: int64(k.accepted)}
		v.rows[string(store.AppendKey(nil, store.SpaceAccepted, key))] = store.AppendRecord(nil, &u)
	}
}

// TestRestoreKeepsOldRows: the accepted message goes before the newest, in one chunk, and only when it is later than
// what the fold serves.
func TestRestoreKeepsOldRows(t *testing.T) {
	for _, c := range []struct {
		local, artifact keepOld
		want            []uint64
	}{
		{keepOld{}, keepOld{8, true, 6}, []uint64{6, 8}},
		{keepOld{}, keepOld{8, true, 0}, []uint64{8}},
		{keepOld{}, keepOld{8, false, 0}, []uint64{8}},
		{keepOld{5, false, 0}, keepOld{8, true, 6}, []uint64{6, 8}},
		{keepOld{6, false, 0}, keepOld{8, true, 6}, []uint64{8}},
		{keepOld{7, false, 0}, keepOld{8, true, 6}, []uint64{8}},
		{keepOld{7, true, 3}, keepOld{8, true, 6}, []uint64{6, 8}},
		{keepOld{7, true, 6}, keepOld{8, true, 6}, []uint64{8}},
		{keepOld{7, true, 0}, keepOld{8, true, 6}, []uint64{6, 8}},
		{keepOld{8, true, 6}, keepOld{8, true, 6}, nil},
	} {
		src, view := artifactOf(kv.AllKeys(), kv.CursorAt(10))
		f := &mapFold{mapView: mapView{rows: map[string][]byte{}}}
		for _, key := range []string{"a", "b", "c"} {
			c.local.into(f.mapView, key)
			c.artifact.into(view, key)
		}
		for max := 1; max < 5; max++ {
			var revs []uint64
			calls, r := 0, Report{}
			to := folderFunc(func(chunk []Change) error {
				calls++
				byKey := map[string][]uint64{}
				for _, x := range chunk {
					if x.Expect != kv.Revision(c.local.newest) || x.Rejected || x.Op != kv.OpPut || string(x.Value) != x.Version.String() || x.UnixNano != int64(x.Version.Rank()) {
						t.Errorf("%+v: change %+v", c, x)
					}
					byKey[x.Key] = append(byKey[x.Key], x.Version.Rank())
					if x.Key == "b" {
						revs = append(revs, x.Version.Rank())
					}
				}
				for key, got := range byKey {
					if !slices.Equal(got, c.want) {
						t.Errorf("%+v: key %s has %v in a chunk, want %v", c, key, got, c.want)
					}
				}
				if len(chunk) > max && len(chunk) > len(c.want) {
					t.Errorf("a chunk of %d, at most %d", len(chunk), max)
				}
				return nil
			})
			p := New(&listedLog{}, f, to, kv.AllKeys(), Options{Mode: Restore, Source: src, Chunk: max})
			if _, err := p.Repair(t.Context(), Request{Cause: protocol.CauseNoCursor}, &r); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(revs, c.want) || (calls > 0) != (c.want != nil) || c.want != nil && r.Put != 3 {
				t.Errorf("%+v, chunks of %d: folded %v in %d calls, %d put", c, max, revs, calls, r.Put)
			}
		}
	}
}

// TestRestoreWithoutCandidates: the seed of a first node is said how to come by.
func TestRestoreWithoutCandidates(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.write("n.a", "n.b", "n.c")
	f.sim.EvictTo(3)
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if hint := f.wantRefused(t, map[string]string{}, "no artifact", 0).Hint(); !strings.Contains(hint, "first node") {
		t.Errorf("hint %q", hint)
	}
	if !maps.Equal(contents(t, f.store), map[string]string{}) {
		t.Error("rows came from nowhere")
	}
}
