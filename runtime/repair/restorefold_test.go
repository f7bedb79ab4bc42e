package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

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
