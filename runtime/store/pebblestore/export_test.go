package pebblestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/store/storetest"
)

// TestExportOfAStoreThatWroteNothing: a store that was opened with nothing to replay, not even an empty log, exports
// what it has all the same. A power loss during an open leaves such a one.
func TestExportOfAStoreThatWroteNothing(t *testing.T) {
	dir, script := t.TempDir(), storetest.Script{Seed: 6}
	db := filepath.Join(dir, "db")
	s := mustOpen(t, db, testOptions(storetest.ModeNone))
	for n := uint64(1); n <= 20; n++ {
		mustApply(t, s, script, n)
	}
	if err := errors.Join(s.Settle(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(db, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	for _, name := range logs {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	s = mustOpen(t, db, testOptions(storetest.ModeNone))
	defer mustClose(t, s)
	for _, name := range []string{"first", "second"} {
		to := filepath.Join(dir, name)
		if err := s.Export(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		c, err := Open(to, Options{ReadOnly: true})
		if err != nil {
			t.Fatalf("%s export: %v", name, err)
		}
		if err := script.CheckRecovered(c); err != nil || c.Cursor().Revision() != 20 {
			t.Errorf("%s export: cursor %v, %v", name, c.Cursor(), err)
		}
		mustClose(t, c)
	}
}
