package fold_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// checkedStore has its exports opened by open.
type checkedStore struct {
	store.Store
	open func(store.Kind, string) (store.Store, error)
}

func (s *checkedStore) Kind() store.Kind {
	k := s.Store.Kind()
	return store.Kind{Backend: k.Backend, Reads: k.Reads, Open: func(dir string) (store.Store, error) { return s.open(k, dir) }}
}

// TestExportUnderWrites: an export is the fold as it was at one commit, and holds the next ones no longer than the store
// needs to write its files: here the checks wait for one.
func TestExportUnderWrites(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		var tb *tables
		checks := 0
		s := &checkedStore{Store: openStore(t, b, dir), open: func(k store.Kind, dir string) (store.Store, error) {
			checks++
			for n := range 20 {
				setRoute(t, log, route("t", fmt.Sprint(n), "after"))
			}
			applied(t, tb, fold.Seq(40))
			return k.Open(dir)
		}}
		tb = start(t, log, s, startOptions{})
		for n := range 20 {
			setRoute(t, log, route("t", fmt.Sprint(n), "before"))
		}
		tb.caughtUp(t, log)
		before := digestOf(t, tb)
		out := filepath.Join(dir, "artifact")
		m, err := tb.f.Export(bounded(t), out)
		if err != nil || m.Cursor.Revision() != 20 || m.Bucket != "test" || !m.Scope.IsAll() || len(m.Schemas) != 7 || m.Log.CreatedUnixNano == 0 || checks != 1 {
			t.Fatalf("%+v, %v, %d checks", m, err, checks)
		}
		if digestOf(t, tb) == before {
			t.Error("nothing was applied meanwhile")
		}
		tb.close(t)

		copied := filepath.Join(dir, "copy")
		if _, err := artifact.Import(bounded(t), out, copied, artifact.Options{Kinds: []store.Kind{s.Store.Kind()}, Bucket: "test", Scope: &m.Scope, Log: m.Log.CreatedUnixNano}); err != nil {
			t.Fatal(err)
		}
		imported, err := openExport(b, copied)
		if err != nil {
			t.Fatal(err)
		}
		if at := imported.Cursor().Revision(); at != 20 {
			t.Errorf("the copy opens at revision %d", at)
		}
		again := start(t, log, imported, startOptions{})
		again.caughtUp(t, log)
		wantRoute(t, again, "t", "7", "after")
	})
}

// TestExportThatFails: the fold goes on, and nothing is left.
func TestExportThatFails(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir, out := newLog(), t.TempDir(), t.TempDir()
		s := &checkedStore{Store: openStore(t, b, dir), open: func(store.Kind, string) (store.Store, error) { return nil, store.ErrCorrupt }}
		tb := start(t, log, s, startOptions{})
		setRoute(t, log, route("t", "a", "1"))
		tb.caughtUp(t, log)
		if m, err := tb.f.Export(bounded(t), filepath.Join(out, "artifact")); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%+v, %v", m, err)
		}
		if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
		if _, err := tb.f.Export(bounded(t), filepath.Join(out, "missing", "artifact")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("into no folder: %v", err)
		}
		setRoute(t, log, route("t", "a", "2"))
		tb.caughtUp(t, log)
		wantRoute(t, tb, "t", "a", "2")
	})
}

// openExport opens an imported store to go on with it.
func openExport(b backend, dir string) (store.Store, error) {
	if b.name == "logstore" {
		return logstore.Open(dir, logstore.Options{Durability: logstore.None})
	}
	return pebblestore.Open(dir, pebblestore.Options{Durability: pebblestore.None})
}
