package pebblestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// TestTablesThatAreNotAsTheManifestSays: a store one of whose tables is gone, or was cut, is damaged; it is not one that was
// never there, which a caller would make anew.
func TestTablesThatAreNotAsTheManifestSays(t *testing.T) {
	for name, harm := range map[string]func(table string) error{
		"gone": os.Remove,
		"cut":  func(table string) error { return os.Truncate(table, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			s, err := Open(dir, Options{Durability: Sync})
			if err != nil {
				t.Fatal(err)
			}
			b := store.Batch{Updates: []kv.Update{{Key: "a", Value: []byte("1"), Op: kv.OpPut, Version: kv.Revision(1)}}}
			err = errors.Join(s.Apply(t.Context(), &b, kv.CursorAt(1)), s.Settle(t.Context()), s.Close())
			tables, globErr := filepath.Glob(filepath.Join(dir, "*.sst"))
			if err = errors.Join(err, globErr); err != nil || len(tables) == 0 {
				t.Fatal(tables, err)
			}
			if err := harm(tables[0]); err != nil {
				t.Fatal(err)
			}
			s, err = Open(dir, Options{Durability: Sync})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, store.ErrCorrupt) || errors.Is(err, os.ErrNotExist) {
				t.Errorf("opened with %v", err)
			}
		})
	}
}

// TestOptionsOfAnotherOrder: a store whose keys are said to be in another order, or merged otherwise, is of another format.
func TestOptionsOfAnotherOrder(t *testing.T) {
	for _, name := range []string{"leveldb.BytewiseComparator", "pebble.concatenate"} {
		dir := filepath.Join(t.TempDir(), "store")
		s, err := Open(dir, Options{Durability: Sync})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "OPTIONS-*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(name), []byte("another")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err = Open(dir, Options{Durability: Sync})
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, store.ErrFormat) {
			t.Errorf("%s: opened with %v", name, err)
		}
	}
}
