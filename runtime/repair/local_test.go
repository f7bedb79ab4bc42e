package repair

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// files are all files of a folder, with their contents and modes.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		all[name] = i.Mode().String() + i.ModTime().String() + string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLocalSource(t *testing.T) {
	eachStore(t, func(t *testing.T, backend string) {
		f := newFleet(t, backend, kvtest.Limits{Evicts: true})
		owed := kv.Owed{Why: kv.OwesMarkers, At: 2}
		f.write("n.a", "n.b")
		follow(t, f.exporter, f.sim, 2)
		f.export(t, "older")
		setMeta(t, f.exporter, store.MetaOwed, owed.AppendBytes(nil))
		f.write("n.c")
		follow(t, f.exporter, f.sim, 3)
		f.export(t, "newer")
		f.export(t, ".unfinished")
		if err := os.WriteFile(filepath.Join(f.dir, "note.txt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		damage(t, f, "torn")
		before := files(t, f.dir)

		src := f.source.Source.(*LocalSource)
		all, err := src.Candidates(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range all {
			ids = append(ids, m.ID)
		}
		if !slices.Equal(ids, []string{"newer", "older", "torn"}) {
			t.Fatalf("candidates %v", ids)
		}
		m := all[0]
		if m.Cursor != kv.CursorAt(3) || !m.HasScope || !m.Scope.IsAll() || m.Owed != owed || m.Log.CreatedUnixNano == 0 || m.Created.IsZero() || m.Err != nil {
			t.Errorf("manifest %+v", m)
		}
		if !errors.Is(all[2].Err, ErrArtifactInvalid) {
			t.Errorf("the torn one: %+v", all[2])
		}
		emptyDir(t, f.scratch)

		a, err := src.Fetch(bounded(t), m)
		if err != nil {
			t.Fatal(err)
		}
		snap, err := a.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		wantRows(t, contents(t, snap), truth(f.sim, f.scope, 3))
		if snap.Cursor() != m.Cursor || a.Manifest().ID != "newer" || a.Manifest().Cursor != m.Cursor {
			t.Errorf("cursor %v, manifest %+v", snap.Cursor(), a.Manifest())
		}
		if err := a.Close(); !errors.Is(err, store.ErrBusy) {
			t.Errorf("closed in use: %v", err)
		}
		if err := errors.Join(snap.Close(), a.Close()); err != nil {
			t.Error(err)
		}
		for _, id := range []string{"torn", "missing", "..", ".", "a/b", "../" + filepath.Base(f.dir), ""} {
			if _, err := src.Fetch(bounded(t), Manifest{ID: id}); !errors.Is(err, ErrArtifactInvalid) {
				t.Errorf("fetch of %q: %v", id, err)
			}
		}
		emptyDir(t, f.scratch)
		after := files(t, f.dir)
		for name, b := range before {
			if after[name] != b {
				t.Errorf("%s was written to", name)
			}
		}
		if len(after) != len(before) {
			t.Errorf("%d files, were %d", len(after), len(before))
		}
	})
}

// damage makes an export that does not open.
func damage(t *testing.T, f *fleet, id string) {
	t.Helper()
	f.export(t, id)
	n := 0
	for name := range files(t, filepath.Join(f.dir, id)) {
		if err := os.Remove(name); err != nil { // an export may be hard links, so nothing is written into them
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Repeat("torn", 50)), 0o600); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("an export without files")
	}
}

func TestLocalSourceSaysWhyItCanNotRead(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.write("n.a")
	f.bothAt(t)
	f.write("n.b", "n.c")
	f.sim.EvictTo(3)
	damage(t, f, "torn")
	refused := f.wantRefused(t, contents(t, f.store), `artifact "torn" at cursor none can't be read`, 0)
	if len(refused.Candidates) != 1 || !errors.Is(refused.Candidates[0].Err, ErrArtifactInvalid) {
		t.Errorf("candidates %+v", refused.Candidates)
	}
}

func TestLocalSourceTakesNoLinks(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{})
	f.write("n.a")
	follow(t, f.exporter, f.sim, 1)
	f.export(t, "linked")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(f.dir, "linked", "more")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.source.Source.Fetch(bounded(t), Manifest{ID: "linked"}); !errors.Is(err, ErrArtifactInvalid) || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v", err)
	}
}

// TestLocalSourceEmpty: a store without a cursor is no artifact, and no folder is no error.
func TestLocalSourceEmpty(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{})
	f.export(t, "empty")
	all, err := f.source.Source.Candidates(bounded(t))
	if err != nil || len(all) != 1 || !errors.Is(all[0].Err, ErrArtifactInvalid) {
		t.Errorf("%+v, %v", all, err)
	}
	none := &LocalSource{Dir: filepath.Join(f.dir, "missing")}
	if all, err := none.Candidates(bounded(t)); len(all) != 0 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestLocalSourceErrorsThatMayPass: what is wrong here says nothing about the artifact.
func TestLocalSourceErrorsThatMayPass(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{})
	f.write("n.a")
	follow(t, f.exporter, f.sim, 1)
	f.export(t, "a")
	src := f.source.Source.(*LocalSource)
	ctx, cancel := context.WithCancel(bounded(t))
	cancel()
	if _, err := src.Fetch(ctx, Manifest{ID: "a"}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrArtifactInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := src.Candidates(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	src.Scratch = os.DevNull
	if _, err := src.Fetch(bounded(t), Manifest{ID: "a"}); !errors.Is(err, syscall.ENOTDIR) || errors.Is(err, ErrArtifactInvalid) {
		t.Errorf("%v", err)
	}
}
