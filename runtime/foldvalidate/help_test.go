package foldvalidate_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/store/logstore"
)

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func openStore(t testing.TB) fold.Store {
	t.Helper()
	s, err := logstore.Open(filepath.Join(t.TempDir(), "fold.log"), logstore.Options{Durability: logstore.None})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
