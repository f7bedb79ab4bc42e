package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Files are a folder's files and folders, each with its mode, size and a hash of what it holds: for tests that nothing
// of it has changed.
func Files(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", len(b), sha256.Sum256(b))
		}
		rel, err := filepath.Rel(dir, path)
		files[rel] = text
		return err
	})
	return files, err
}

// unchanged notes a folder's files, and checks at the test's end that they are the same.
func unchanged(t *testing.T, dir string) func() {
	t.Helper()
	before, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		after, err := Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(before, after) {
			t.Errorf("files before and after:\n%v\n%v", before, after)
		}
	}
}

func openReadOnly(t *testing.T, h Harness, dir string) store.Store {
	t.Helper()
	s, err := h.OpenReadOnly(dir)
	if err != nil {
		t.Fatalf("open read-only: %v", err)
	}
	return s
}

func closeStore(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// testReadOnly: a store that is read is whole, refuses what would write, and leaves its files as they are, once read and
// once written to again.
func testReadOnly(t *testing.T, h Harness) {
	for _, mode := range h.modes() {
		o, s := openAt(t, h, tempDir(t), mode), Script{Seed: 10, Bulk: true}
		for n := uint64(1); n <= 80; n++ {
			o.apply(s.Batch(n))
		}
		closeStore(t, o)
		same := unchanged(t, o.dir)
		for range 2 {
			r := openReadOnly(t, h, o.dir)
			if r.Cursor().Revision() != 80 || r.Durable() != r.Cursor() {
				t.Errorf("%s: cursor %v, durable %v", mode, r.Cursor(), r.Durable())
			}
			if err := s.CheckRecovered(r); err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			refusesWrites(t, r)
			snap, err := r.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); !errors.Is(err, store.ErrBusy) {
				t.Errorf("%s: close under a snapshot: %v", mode, err)
			}
			if err := errors.Join(s.CheckRecovered(r), snap.Close()); err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			closeStore(t, r)
			if err := r.Apply(context.Background(), &store.Batch{}, kv.CursorAt(90)); !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s: apply after close: %v", mode, err)
			}
			same()
		}
		o.Store = openAt(t, h, o.dir, mode)
		o.apply(s.Batch(81))
		if err := s.CheckRecovered(o); err != nil {
			t.Errorf("%s: written to again: %v", mode, err)
		}
	}
}

func refusesWrites(t *testing.T, r store.Store) {
	t.Helper()
	at, dir := r.Cursor(), tempDir(t)
	for what, err := range map[string]error{
		"apply":      r.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put("k", "v", 99)}}, kv.CursorAt(99)),
		"bulk apply": r.Apply(t.Context(), &store.Batch{Bulk: true, Updates: []kv.Update{put("k", "v", 99), put("l", "v", 99)}}, kv.CursorAt(99)),
		"sync":       r.Sync(t.Context()),
		"settle":     r.Settle(t.Context()),
		"export":     r.Export(t.Context(), dir),
	} {
		if !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", what, err)
		}
	}
	if _, ok, err := getValue(r, dataKey("k")); ok || err != nil || r.Cursor() != at {
		t.Errorf("a refused apply left its key (%t, %v), or moved the cursor from %v to %v", ok, err, at, r.Cursor())
	}
	if !isEmptyDir(dir) {
		t.Error("a refused export left files")
	}
}

// testReadOnlyLocked: a store is read by nobody while it is written to, and the other way round.
func testReadOnlyLocked(t *testing.T, h Harness) {
	o := fiveKeys(t, h)
	if r, err := h.OpenReadOnly(o.dir); !errors.Is(err, store.ErrLocked) {
		t.Errorf("read-only open of an open store: %v, want ErrLocked", err)
		if err == nil {
			_ = r.Close()
		}
	}
	if got := childOpens(t, childTask{Op: childRead, Dir: o.dir}); got != childSawLocked {
		t.Errorf("in a second process: %q, want %q", got, childSawLocked)
	}
	closeStore(t, o)
	r := openReadOnly(t, h, o.dir)
	if s, err := h.Open(o.dir, o.m); !errors.Is(err, store.ErrLocked) {
		t.Errorf("open of a store that is read: %v, want ErrLocked", err)
		if err == nil {
			_ = s.Close()
		}
	}
	if got := childOpens(t, childTask{Op: childOpen, Dir: o.dir, Mode: o.m}); got != childSawLocked {
		t.Errorf("in a second process: %q, want %q", got, childSawLocked)
	}
	closeStore(t, r)
	if got := childOpens(t, childTask{Op: childRead, Dir: o.dir}); got != childSawOpen {
		t.Errorf("in a second process after close: %q, want %q", got, childSawOpen)
	}
}

func testReadOnlyMakesNothing(t *testing.T, h Harness) {
	missing, empty := tempDir(t), t.TempDir()
	for _, dir := range []string{missing, empty} {
		if r, err := h.OpenReadOnly(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read-only open of no store: %v, want fs.ErrNotExist", err)
			if err == nil {
				_ = r.Close()
			}
		}
		if !isEmptyDir(dir) {
			t.Errorf("%s is not empty any more", dir)
		}
	}
	if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the missing folder: %v", err)
	}
}

// testReadOnlyExport: an export, which no store has had open, has no file of a lock, and gets none.
func testReadOnlyExport(t *testing.T, h Harness) {
	o, s, dir := openNew(t, h), Script{Seed: 11}, tempDir(t)
	for n := uint64(1); n <= 30; n++ {
		o.apply(s.Batch(n))
	}
	if err := o.Export(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	same := unchanged(t, dir)
	r := openReadOnly(t, h, dir)
	if err := s.CheckRecovered(r); err != nil || r.Cursor().Revision() != 30 {
		t.Errorf("at %v: %v", r.Cursor(), err)
	}
	closeStore(t, r)
	same()
	k := o.Kind()
	if k.Backend != o.Info().Backend || !k.Reads(o.Info().Format) || k.Reads("") || k.Reads(o.Info().Format+"0") {
		t.Errorf("kind %q of %+v: it must read that format, and no other of a later build", k.Backend, o.Info())
	}
	r, err := k.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckRecovered(r); err != nil || r.Cursor().Revision() != 30 || !k.Reads(r.Info().Format) {
		t.Errorf("its kind opened %+v at %v: %v", r.Info(), r.Cursor(), err)
	}
	if err := r.Apply(t.Context(), &store.Batch{}, kv.CursorAt(31)); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("its kind opened it to be written to: %v", err)
	}
	closeStore(t, r)
	same()
	if r, err := k.Open(tempDir(t)); !errors.Is(err, fs.ErrNotExist) || r != nil {
		t.Errorf("its kind opened nothing as %v, %v", r, err)
	}
}

// lookAfterKill reads what a killed process left, as it is; nil where there is no such mode.
func lookAfterKill(t *testing.T, h Harness, s Script, dir string) *kv.Cursor {
	t.Helper()
	if h.OpenReadOnly == nil {
		return nil
	}
	same := unchanged(t, dir)
	r := openReadOnly(t, h, dir)
	c := r.Cursor()
	if err := s.CheckRecovered(r); err != nil {
		t.Errorf("read-only after the kill: %v", err)
	}
	closeStore(t, r)
	same()
	return &c
}
