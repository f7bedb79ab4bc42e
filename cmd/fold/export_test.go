package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/s3test"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
)

// TestNothingIsExportedForNothing: an export that could not be published is not begun.
func TestNothingIsExportedForNothing(t *testing.T) {
	srv := s3test.New(t)
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	path, _ := w.fold(t, storeLog)
	to := filepath.Join(t.TempDir(), "export")
	missing := strings.Replace(srv.Bucket(t), "s3://", "s3://missing-", 1)
	r := run(t, nil, "export", path, "--to", to, "--publish", missing, "--key", "a", "--server", w.srv.URL())
	if r.code == exitOK {
		t.Errorf("no such bucket: code %d, %s", r.code, r.out)
	}
	holdsAll(t, r.err, "no such bucket")
	s := newShelf(t)
	r = run(t, nil, "export", path, "--to", to, "--publish", s.url, "--key", "a", "--server", w.srv.URL(), "--bucket", "missing")
	if r.code == exitOK {
		t.Errorf("no log: code %d, %s", r.code, r.out)
	}
	w.srv.Stop()
	r = run(t, nil, "export", path, "--to", to, "--publish", s.url, "--key", "a", "--server", w.srv.URL(), "--timeout", "2s")
	if r.code != exitUnreachable {
		t.Errorf("no server: code %d, %s", r.code, r.err)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("it was exported: %v", err)
	}
	empty(t, s.dir)
}

// TestAnotherFoldsKey: an artifact of another bucket is not published over.
func TestAnotherFoldsKey(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	path, _ := w.fold(t, storeLog)
	s := newShelf(t)
	first := w.publish(t, s, path)
	if _, err := natskv.Open(bounded(t), w.js, "other", natskv.BucketConfig{}); err != nil {
		t.Fatal(err)
	}
	path = t.TempDir()
	st, err := kinds[storePebble](path)
	if err != nil {
		t.Fatal(err)
	}
	batch := store.Batch{Ops: []store.Op{{Key: store.MetaKey(store.MetaBucket), Value: []byte("other")}}}
	if err := errors.Join(st.Apply(bounded(t), &batch, kv.CursorAt(9)), st.Close()); err != nil {
		t.Fatal(err)
	}
	r := run(t, nil, "export", path, "--publish", s.url, "--key", "node/a", "--server", w.srv.URL())
	if r.code != exitFailed {
		t.Errorf("code %d, %s", r.code, r.out)
	}
	holdsAll(t, r.err, `"test"`, `"other"`, "hint: give each bucket a key")
	l := read[listing](t, run(t, nil, "artifacts", s.url, "--key", "node/a", "--json"))
	if len(l.Generations) != 1 || l.Generations[0].Name != first.Artifact.Name {
		t.Errorf("listing %+v", l)
	}
}
