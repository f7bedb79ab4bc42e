package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
)

// read is what a run printed as JSON.
func read[T any](t *testing.T, r result) (x T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &x); err != nil || r.err != "" || strings.HasPrefix(r.out, "{\n  \"error\"") {
		t.Fatalf("%v: code %d, output\n%s\nand\n%s", err, r.code, r.out, r.err)
	}
	return x
}

// digest is what a fold that follows the bucket says of it.
func (w *world) digest(t *testing.T) string {
	t.Helper()
	s, err := kinds[storeLog](t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := fold.NewBuilder(w.bucket, s, fold.Options{Logger: slog.New(slog.DiscardHandler)})
	if _, err := ft.RegisterRoute(b); err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(bounded(t))
	if err == nil {
		err = f.WaitHydrated(bounded(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	d, err := snap.Digest(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestInspectsAnyStore(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
			w.put(t, "a", "b")
			if _, err := w.bucket.Put(bounded(t), "route.t.bad", []byte{0xff}, kv.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			path, export := w.fold(t, kind)
			want := w.digest(t)
			info, err := w.bucket.Info(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []string{path, export} {
				files, err := storetest.Files(strings.TrimSuffix(at, "a.log"))
				if err != nil {
					t.Fatal(err)
				}
				r := run(t, nil, "inspect", at, "--json")
				x := read[storeFacts](t, r)
				if r.code != exitOK || x.Rows != 3 || x.Rejected != 1 || x.Cursor.Revision != 3 || x.Bucket != "test" || x.Scope != ">" ||
					x.Digest != want || !maps.Equal(x.Counts, map[string]uint64{"route": 3}) || x.Bytes == 0 || x.Path != at ||
					x.Log.UnixNano != info.Created.UnixNano() || x.Owed != nil || !strings.Contains(x.Schemas["foldtest.v1.Route"], "key: ") {
					t.Errorf("code %d, %+v, log %+v", r.code, x, x.Log)
				}
				r = run(t, nil, "inspect", at)
				if r.code != exitOK || r.err != "" {
					t.Errorf("code %d, %s", r.code, r.err)
				}
				holdsAll(t, r.out, at, `test`, "3, 1 of them rejected", "foldtest.v1.Route", want)
				if now, err := storetest.Files(strings.TrimSuffix(at, "a.log")); err != nil || !maps.Equal(now, files) {
					t.Errorf("files were\n%v\nand are, %v,\n%v", files, err, now)
				}
			}
		})
	}
}

// TestInspectTellsMemoAndDebt: what only some folds have.
func TestInspectTellsMemoAndDebt(t *testing.T) {
	dir := t.TempDir()
	s, err := kinds[storeLog](dir)
	if err != nil {
		t.Fatal(err)
	}
	owed := kv.Owed{}.Add(kv.OwesMarkers, 1<<60)
	c := kv.CursorAt(1<<60 + 1)
	c.SeenEvicting, c.WrittenAt = true, 1767323045000
	b := &store.Batch{Ops: []store.Op{{Key: store.MetaKey(store.MetaOwed), Value: owed.AppendBytes(nil)}}}
	if err := s.Apply(context.Background(), b, c); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.log")
	r := run(t, nil, "inspect", path)
	if r.code != exitFailed {
		t.Errorf("an open store: code %d, %s", r.code, r.out)
	}
	holdsAll(t, r.err, "hint: the fold is running")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r = run(t, nil, "inspect", path)
	holdsAll(t, r.out, "1152921504606846977, written at 2026-01-02T03:04:05Z, and retention was seen", "an audit ("+owed.Why.String()+") up to revision 1152921504606846976", "not recorded")
	r = run(t, nil, "inspect", path, "--json")
	holdsAll(t, r.out, `"revision": "1152921504606846977"`, `"up_to": "1152921504606846976"`, `"seen_evicting": true`, `"written_at": "2026-01-02T03:04:05Z"`)
}

func TestInspectUsage(t *testing.T) {
	for _, args := range [][]string{{"inspect"}, {"inspect", "a", "b"}, {"inspect", "a", "--store", "x"}, {"inspect", "a", "--timeout", "0s"}} {
		if r := run(t, nil, args...); r.code != exitUsage {
			t.Errorf("%q: code %d, %s%s", args, r.code, r.out, r.err)
		}
	}
	if r := run(t, nil, "inspect", filepath.Join(t.TempDir(), "none")); r.code != exitFailed {
		t.Errorf("code %d", r.code)
	}
}
