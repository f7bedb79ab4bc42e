package logstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// TestSymbolicLink: a log that is opened by a link is the file that the link leads to, with its lock, before and after
// it is rewritten.
func TestSymbolicLink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "data", "fold.log"), filepath.Join(dir, "link.log")
	if err := os.Mkdir(filepath.Dir(real), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("data", "fold.log"), link); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *Store {
		t.Helper()
		s, err := Open(path, Options{Durability: None})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i, path := range []string{link, real, link} { // at first the link leads to nothing
		s := open(path)
		for _, other := range []string{link, real} {
			if second, err := Open(other, Options{}); !errors.Is(err, store.ErrLocked) {
				t.Errorf("%s is open, and %s opens too: %v %v", path, other, second, err)
			}
		}
		if got := s.Cursor().Revision(); got != uint64(i) {
			t.Errorf("open %d: at %d", i, got)
		}
		b := &store.Batch{Updates: []kv.Update{{Key: "k", Op: kv.OpPut, Value: []byte("v"), Version: kv.Revision(uint64(i) + 1)}}}
		if err := s.Apply(t.Context(), b, kv.CursorAt(uint64(i)+1)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Settle(t.Context()), s.Close()); err != nil {
			t.Fatal(err)
		}
		if at, err := os.Readlink(link); err != nil || at != filepath.Join("data", "fold.log") {
			t.Errorf("open %d: the link is %q, %v", i, at, err)
		}
	}
}
