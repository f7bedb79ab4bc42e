package artifact

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

func TestLocalSource(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		all := &ground{dir: t.TempDir(), store: g.store}
		all.export(t, "older")
		g.apply(t, 41, 41)
		want := rows(t, g.store)
		all.export(t, "newer")
		torn, m := all.export(t, "torn")
		replaceFile(t, torn+"/"+m.Files[0].Path, []byte("torn"))
		all.export(t, ".hidden")
		must(t, os.Mkdir(all.path("foreign"), 0o700))
		must(t, os.WriteFile(all.path("note.txt"), nil, 0o600))
		must(t, g.store.Export(bounded(t), all.path("bare")))
		before := tree(t, all.dir)

		src := &LocalSource{Dir: all.dir, Artifact: Options{Kinds: kinds()}, Scratch: g.path("scratch/below")}
		found, err := src.Candidates(bounded(t))
		must(t, err)
		var ids []string
		for _, m := range found {
			ids = append(ids, m.ID)
			if bad := m.ID == "foreign" || m.ID == "bare"; bad != errors.Is(m.Err, repair.ErrArtifactInvalid) || bad != (m.Err != nil) {
				t.Errorf("%s: %v", m.ID, m.Err)
			}
		}
		if !slices.Equal(ids, []string{"newer", "torn", "older", "bare", "foreign"}) {
			t.Fatalf("candidates %q", ids)
		}
		if m := found[0]; m.Cursor != kv.CursorAt(41) || !m.HasScope || m.Scope.String() != "n.,w." || m.Owed.At != 7 || m.Log.CreatedUnixNano != testLog.CreatedUnixNano || m.Created.IsZero() {
			t.Errorf("manifest %+v", m)
		}

		a, err := src.Fetch(bounded(t), found[0])
		must(t, err)
		snap, err := a.Snapshot()
		must(t, err)
		if got := rows(t, a.(*Opened).Store); got != want || snap.Cursor() != found[0].Cursor || a.Manifest().ID != "newer" {
			t.Errorf("fetched %+v", a.Manifest())
		}
		if err := a.Close(); !errors.Is(err, store.ErrBusy) {
			t.Errorf("closed in use: %v", err)
		}
		must(t, errors.Join(snap.Close(), a.Close()))
		for _, id := range []string{"torn", "foreign", "bare", "missing", "note.txt", "..", ".", "a/b", "../" + "x", ""} {
			if _, err := src.Fetch(bounded(t), repair.Manifest{ID: id}); !errors.Is(err, repair.ErrArtifactInvalid) {
				t.Errorf("fetch of %q: %v", id, err)
			}
		}
		wantNames(t, src.Scratch)
		if !maps.Equal(tree(t, all.dir), before) {
			t.Error("the artifacts were changed")
		}
	})
}

func TestLocalSourceWithoutArtifacts(t *testing.T) {
	src := &LocalSource{Dir: t.TempDir() + "/missing", Artifact: Options{Kinds: kinds()}}
	if all, err := src.Candidates(bounded(t)); len(all) != 0 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	g := &ground{dir: t.TempDir()}
	s, err := openStore(logstore.Backend, t.TempDir())
	must(t, err)
	defer s.Close()
	g.store = s
	g.export(t, "empty")
	src.Dir = g.dir
	all, err := src.Candidates(bounded(t))
	if err != nil || len(all) != 1 || !errors.Is(all[0].Err, repair.ErrArtifactInvalid) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestLocalSourceErrorsThatMayPass: what is wrong here says nothing about the artifact.
func TestLocalSourceErrorsThatMayPass(t *testing.T) {
	g := newGround(t, logstore.Backend)
	dir, _ := g.export(t, "a")
	src := &LocalSource{Dir: g.dir, Artifact: Options{Kinds: kinds()}, Scratch: t.TempDir()}
	passes := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || errors.Is(err, repair.ErrArtifactInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(bounded(t))
	cancel()
	_, err := src.Fetch(ctx, repair.Manifest{ID: "a"})
	passes("fetch, cancelled", err, context.Canceled)
	_, err = src.Candidates(ctx)
	passes("candidates, cancelled", err, context.Canceled)
	for _, short := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.EFBIG} {
		k := logstore.Kind()
		k.Open = func(string) (store.Store, error) { return nil, &fs.PathError{Op: "open", Err: short} }
		_, err := (&LocalSource{Dir: g.dir, Artifact: Options{Kinds: []store.Kind{k}}, Scratch: src.Scratch}).Fetch(bounded(t), repair.Manifest{ID: "a"})
		passes("fetch on a short machine", err, short)
	}
	_, err = (&LocalSource{Dir: g.dir}).Fetch(bounded(t), repair.Manifest{ID: "a"})
	if err == nil || errors.Is(err, repair.ErrArtifactInvalid) || !strings.Contains(err.Error(), "kinds") {
		t.Errorf("without kinds: %v", err)
	}
	_, err = (&LocalSource{Dir: g.dir, Artifact: src.Artifact, Scratch: dir + "/" + ManifestName}).Fetch(bounded(t), repair.Manifest{ID: "a"})
	passes("no scratch", err, syscall.ENOTDIR)
	_, err = (&LocalSource{Dir: dir + "/" + ManifestName, Artifact: src.Artifact}).Candidates(bounded(t))
	passes("no folder of artifacts", err, syscall.ENOTDIR)
	wantNames(t, src.Scratch)
}
