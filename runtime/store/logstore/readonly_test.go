package logstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// TestReadOnlyLeavesWhatACrashLeft: a torn tail and a rewrite that did not finish stay, and count for nothing.
func TestReadOnlyLeavesWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fold.log")
	s, err := logstore.Open(path, logstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for rev := uint64(1); rev <= 3; rev++ {
		b := store.Batch{Updates: []kv.Update{{Key: "k", Value: []byte("value"), Version: kv.Revision(rev), Op: kv.OpPut}}}
		if err := s.Apply(t.Context(), &b, kv.CursorAt(rev)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{path: whole[:len(whole)-4], path + ".tmp": []byte("half a rewrite")} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, err := storetest.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = logstore.Open(path, logstore.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if s.Cursor() != kv.CursorAt(2) || s.Recovery().TornBytes == 0 {
		t.Errorf("cursor %v, recovery %+v", s.Cursor(), s.Recovery())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := storetest.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, was := range before {
		if after[name] != was || len(after) != len(before) {
			t.Errorf("%s: was %s, is %s", name, was, after[name])
		}
	}
}
