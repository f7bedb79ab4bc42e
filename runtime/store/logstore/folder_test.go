package logstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// A directory of something else, such as a Pebble store, is no place for a log: a wrong path would begin an empty fold.
func TestOpenRefusesAForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "MANIFEST-000001"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := logstore.Open(dir, logstore.Options{}); !errors.Is(err, store.ErrFormat) {
		if err == nil {
			_ = s.Close()
		}
		t.Fatalf("opened a directory of another store: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the directory now has %v, %v", entries, err)
	}
}
