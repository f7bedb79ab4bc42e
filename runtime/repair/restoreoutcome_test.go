package repair

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

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
				f.exportWith(t, "b", store.Op{Key: store.AppendKey(nil, store.SpaceData, "n.torn"), Value: []byte{0xFF}})
			},
			"the newest has a torn accepted row, of the last key": func(t *testing.T, f *fleet) {
				refused := kv.Update{Key: "n.zzz", Value: []byte("9"), Version: kv.Revision(9), UnixNano: 9, Op: kv.OpPut, Rejected: true}
				f.exportWith(t, "b",
					store.Op{Key: store.AppendKey(nil, store.SpaceData, refused.Key), Value: store.AppendRecord(nil, &refused)},
					store.Op{Key: store.AppendKey(nil, store.SpaceAccepted, refused.Key), Value: []byte{0xFF}})
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

// TestRestoreOfWhatIsPublishedMeanwhile: the only artifact that is good is published once the repair has begun, and ends
// after what the log held then.
func TestRestoreOfWhatIsPublishedMeanwhile(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		f.write("n.old", "n.dead")
		f.bothAt(t)
		f.write("-n.dead", "n.gap")
		follow(t, f.exporter, f.sim, head(t, f.sim))
		f.sim.EvictTo(head(t, f.sim))
		f.source.before = func() {
			f.write("n.later")
			follow(t, f.exporter, f.sim, head(t, f.sim))
			f.export(t, "a")
		}
		out, err := f.restore(t)
		if err != nil {
			t.Fatal(err)
		}
		if f.report.Artifact != "a" || out.Cursor.Revision() != head(t, f.sim) {
			t.Errorf("restored %q, outcome %+v", f.report.Artifact, out)
		}
		f.resume(t, out)
		f.wantTruth(t)
	})
}

// exportWith exports again, with rows that no fold writes.
func (f *fleet) exportWith(t *testing.T, id string, ops ...store.Op) {
	t.Helper()
	b := store.Batch{Ops: ops}
	if err := errors.Join(f.exporter.Apply(bounded(t), &b, f.exporter.Cursor()), os.RemoveAll(filepath.Join(f.dir, id))); err != nil {
		t.Fatal(err)
	}
	f.export(t, id)
}

// TestRestoreErrorsThatMayPass: what may be gone at the next try is no refusal, and changes nothing.
func TestRestoreErrorsThatMayPass(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(f *fleet)
		want error
	}{
		"the fetch": {func(f *fleet) { f.source.err = func(string) error { return errBroken } }, errBroken},
		"the list of artifacts": {func(f *fleet) {
			f.source.Source = &folders{os.DevNull, f.exporter.Kind()}
		}, syscall.ENOTDIR},
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
		var r Report
		if out, err := c.run(t, f, src, log, &r); err != nil || out.Cursor.SeenEvicting != aged || r.Evicted != aged {
			t.Errorf("aged out %v: outcome %+v (%v), the report says %v", aged, out, err, r.Evicted)
		}
	}
}

// TestRefusedRestoreTellsOfEviction that it saw only after it had begun, so that the fold remembers it though it stops.
func TestRefusedRestoreTellsOfEviction(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.aged(t)
	before := contents(t, f.store)
	f.log.info = func(call int, i kv.LogInfo) (kv.LogInfo, error) {
		if call == 1 {
			i.Retention.Unknown = true
			f.write("n.dead", "n.other", "n.third")
			f.sim.EvictTo(head(t, f.sim))
		}
		return i, nil
	}
	f.wantRefused(t, before, "retention window", 0)
	if !f.report.Evicted {
		t.Error("the report says nothing of it")
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
