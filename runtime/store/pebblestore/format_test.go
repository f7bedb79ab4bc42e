package pebblestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/store"
)

// TestForeignDatabase: a directory of another program, or of a Pebble long past, is told apart from a failing disk.
func TestForeignDatabase(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "CURRENT"), []byte("MANIFEST-000001\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Options{MinFreeBytes: -1, BallastBytes: -1})
	if err == nil {
		err = errors.Join(errors.New("it opens"), s.Close())
	}
	if !errors.Is(err, store.ErrFormat) {
		t.Errorf("%v, want %v", err, store.ErrFormat)
	}
}
