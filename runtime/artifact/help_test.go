package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

func kinds() []store.Kind { return []store.Kind{pebblestore.Kind(), logstore.Kind()} }

func openStore(backend, dir string) (store.Store, error) {
	if backend == pebblestore.Backend {
		s, err := pebblestore.Open(dir, pebblestore.Options{BallastBytes: -1, MinFreeBytes: -1})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := logstore.Open(dir, logstore.Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func eachBackend(t *testing.T, run func(t *testing.T, backend string)) {
	for _, b := range []string{pebblestore.Backend, logstore.Backend} {
		t.Run(b, func(t *testing.T) { run(t, b) })
	}
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ground is a folder with a store, that what is made of it lies beside.
type ground struct {
	dir   string
	store store.Store
}

func (g *ground) path(name string) string { return filepath.Join(g.dir, name) }

var testLog = kv.Incarnation{CreatedUnixNano: 1_700_000_000_123_456_789, AgeLimit: 3_600_000_000_000, Samples: []kv.Sample{{Revision: 4, UnixNano: 1_700_000_001_000_000_001}}}

// newGround is a store of some keys at cursor 40, with all records that a fold keeps.
func newGround(t testing.TB, backend string) *ground {
	t.Helper()
	g := &ground{dir: t.TempDir()}
	s, err := openStore(backend, g.path("live"))
	must(t, err)
	g.store = s
	t.Cleanup(func() { must(t, g.store.Close()) })
	meta := func(name, v string) store.Op { return store.Op{Key: store.MetaKey(name), Value: []byte(v)} }
	owed := kv.Owed{Why: kv.OwesMarkers | kv.OwesIdentity, At: 7}
	must(t, s.Apply(t.Context(), &store.Batch{Ops: []store.Op{
		meta(store.MetaBucket, "hosts"), meta(store.MetaScope, "n.,w."), meta(store.MetaSchema+"x.v1.Host", "message: x.v1.Host\nkey: n.{id} <&>\n"),
		meta(store.MetaLog, string(testLog.AppendBytes(nil))), meta(store.MetaOwed, string(owed.AppendBytes(nil))),
	}}, kv.Cursor{}))
	g.apply(t, 1, 40)
	return g
}

func (g *ground) apply(t testing.TB, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		u := kv.Update{Key: fmt.Sprintf("n.%d", n), Value: []byte(strings.Repeat("v", int(n)*50)), Version: kv.Revision(n), Op: kv.OpPut}
		must(t, g.store.Apply(t.Context(), &store.Batch{Updates: []kv.Update{u}}, kv.CursorAt(n)))
	}
}

// export is an artifact of the store in the folder name.
func (g *ground) export(t testing.TB, name string) (string, Manifest) {
	t.Helper()
	m, err := Export(bounded(t), g.store, g.path(name), ExportOptions{})
	must(t, err)
	return g.path(name), m
}

// rows are all rows of a store, and its cursor.
func rows(t testing.TB, s store.Store) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, s.Cursor())
	it, err := s.Iter(store.IterOptions{})
	must(t, err)
	for it.Next() {
		v, err := it.Value()
		must(t, err)
		fmt.Fprintf(&b, "%q %q\n", it.Key(), v)
	}
	must(t, errors.Join(it.Err(), it.Close()))
	return b.String()
}

// rowsAt are those of the store in a folder.
func rowsAt(t testing.TB, backend, dir string) string {
	t.Helper()
	s, err := openStore(backend, dir)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	return rows(t, s)
}

// names are the names in a folder, the hidden ones too.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func wantNames(t testing.TB, dir string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

// tree is everything below a folder: modes, times and contents of files.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		text := i.Mode().String()
		if e.Type().IsRegular() {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += i.ModTime().String() + string(b)
		}
		all[name] = text
		return nil
	}))
	return all
}
