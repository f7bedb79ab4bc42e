package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// ways are the public ways by which an artifact's folder becomes a store.
var ways = map[string]func(ctx context.Context, dir, dest string, o Options) error{
	"import": func(ctx context.Context, dir, dest string, o Options) error {
		_, err := Import(ctx, dir, dest, o)
		return err
	},
	"unpack": func(ctx context.Context, dir, dest string, o Options) error {
		m, b, err := packed(ctx, dir)
		if err != nil {
			return err
		}
		if err := Unpack(ctx, bytes.NewReader(b), m, dest+".artifact", o); err != nil {
			return err
		}
		_, err = Import(ctx, dest+".artifact", dest, o)
		return errors.Join(err, os.RemoveAll(dest+".artifact"))
	},
	"import packed": func(ctx context.Context, dir, dest string, o Options) error {
		m, b, err := packed(ctx, dir)
		if err != nil {
			return err
		}
		return ImportPacked(ctx, bytes.NewReader(b), m, dest, o)
	},
}

// packed is the artifact's manifest and stream.
func packed(ctx context.Context, dir string) (Manifest, []byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		return Manifest{}, nil, err
	}
	m, err := Parse(b)
	if err != nil {
		return m, nil, err
	}
	var out bytes.Buffer
	err = Pack(ctx, dir, m, &out)
	return m, out.Bytes(), err
}

func TestRoundTrip(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		want := rows(t, g.store)
		dir, m := g.export(t, "artifact")
		g.apply(t, 41, 45)
		wantNames(t, g.dir, "live", "artifact")
		if m.Rank() != 40 || m.Bucket != "hosts" || m.Scope.String() != "n.,w." || m.Log.CreatedUnixNano != testLog.CreatedUnixNano || m.Owed.At != 7 || len(m.Schemas) != 1 {
			t.Errorf("%+v", m)
		}
		before := tree(t, dir)
		v, err := Verify(bounded(t), dir, Options{Kinds: kinds()})
		if err != nil || v.Hash() != m.Hash() {
			t.Errorf("verify: %v", err)
		}
		for name, way := range ways {
			dest := g.path("dest")
			must(t, way(bounded(t), dir, dest, Options{Kinds: kinds(), Bucket: "hosts", Scope: &m.Scope, Log: testLog.CreatedUnixNano}))
			for path, text := range tree(t, dest) {
				if mode := text[:10]; mode != "drwx------" && mode != "-rw-------" {
					t.Errorf("%s: %s has mode %s", name, path, mode)
				}
			}
			if got := rowsAt(t, backend, dest); got != want {
				t.Errorf("%s: the rows differ", name)
			}
			must(t, os.RemoveAll(dest))
			wantNames(t, g.dir, "live", "artifact")
		}
		if !maps.Equal(tree(t, dir), before) {
			t.Error("the artifact was changed")
		}
	})
}

func TestEmptyFoldAndEmptyDestination(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := &ground{dir: t.TempDir()}
		s, err := openStore(backend, g.path("live"))
		must(t, err)
		defer s.Close()
		g.store = s
		must(t, os.Mkdir(g.path("artifact"), 0o700))
		must(t, os.Mkdir(g.path("dest"), 0o700))
		dir, m := g.export(t, "artifact")
		if !m.Cursor.IsNone() || m.HasScope {
			t.Errorf("%+v", m)
		}
		if _, err := Import(bounded(t), dir, g.path("dest"), Options{Kinds: kinds()}); err != nil {
			t.Fatal(err)
		}
		if got := rowsAt(t, backend, g.path("dest")); got != rows(t, s) {
			t.Errorf("%s", got)
		}
	})
}

// rewrite makes the manifest of the artifact in dir say something else.
func rewrite(t *testing.T, dir string, change func(m *Manifest)) {
	t.Helper()
	name := filepath.Join(dir, ManifestName)
	b, err := os.ReadFile(name)
	must(t, err)
	m, err := Parse(b)
	must(t, err)
	change(&m)
	m, err = m.sealed()
	must(t, err)
	must(t, os.WriteFile(name, m.Bytes(), 0o600))
}

// replaceFile puts other bytes in a file's place; it may have been a link to the store's own.
func replaceFile(t *testing.T, name string, b []byte) {
	t.Helper()
	must(t, os.Remove(name))
	must(t, os.WriteFile(name, b, 0o600))
}

// attacks are what may be wrong with an artifact, each with what its refusal must say.
func attacks(t *testing.T, secret string) map[string]struct {
	do   func(dir string, m *Manifest)
	want error
	says string
} {
	first := func(dir string, m *Manifest) string { return filepath.Join(dir, filepath.FromSlash(m.Files[0].Path)) }
	type attack = struct {
		do   func(dir string, m *Manifest)
		want error
		says string
	}
	inFirst := func(change func(b []byte) []byte) func(string, *Manifest) {
		return func(dir string, m *Manifest) {
			b, err := os.ReadFile(first(dir, m))
			must(t, err)
			replaceFile(t, first(dir, m), change(bytes.Clone(b)))
		}
	}
	says := func(change func(m *Manifest)) func(string, *Manifest) {
		return func(dir string, _ *Manifest) { rewrite(t, dir, change) }
	}
	return map[string]attack{
		"a byte is another": {inFirst(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), nil, "hash"},
		"a file is cut":     {inFirst(func(b []byte) []byte { return b[:len(b)-1] }), nil, "bytes"},
		"a file is longer":  {inFirst(func(b []byte) []byte { return append(b, 0) }), nil, "bytes"},
		"a file is missing": {func(dir string, m *Manifest) { must(t, os.Remove(first(dir, m))) }, nil, "missing"},
		"a file too many": {func(dir string, _ *Manifest) {
			must(t, os.WriteFile(filepath.Join(dir, DataName, "more"), nil, 0o600))
		}, nil, "does not name"},
		"a file beside": {func(dir string, _ *Manifest) { must(t, os.WriteFile(filepath.Join(dir, "more"), nil, 0o600)) }, nil, "does not name"},
		"a hidden file": {func(dir string, _ *Manifest) { must(t, os.WriteFile(filepath.Join(dir, ".x"), nil, 0o600)) }, nil, "does not name"},
		"a folder too many": {func(dir string, _ *Manifest) {
			must(t, os.Mkdir(filepath.Join(dir, DataName, "more"), 0o700))
		}, nil, "does not name"},
		"a symbolic link": {func(dir string, m *Manifest) {
			must(t, os.Rename(first(dir, m), secret))
			must(t, os.Symlink(secret, first(dir, m)))
		}, nil, "no regular file"},
		"a symbolic link inside": {func(dir string, m *Manifest) {
			must(t, os.Rename(first(dir, m), filepath.Join(dir, DataName, "aside")))
			must(t, os.Symlink("aside", first(dir, m)))
		}, nil, ""},
		"a link for the folder": {func(dir string, _ *Manifest) {
			must(t, os.Rename(filepath.Join(dir, DataName), secret))
			must(t, os.Symlink(secret, filepath.Join(dir, DataName)))
		}, nil, ""},
		"a link for the manifest": {func(dir string, _ *Manifest) {
			must(t, os.Rename(filepath.Join(dir, ManifestName), secret))
			must(t, os.Symlink(secret, filepath.Join(dir, ManifestName)))
		}, nil, "no regular file"},
		"a pipe": {func(dir string, m *Manifest) {
			must(t, os.Remove(first(dir, m)))
			must(t, syscall.Mkfifo(first(dir, m), 0o600))
		}, nil, "no regular file"},
		"a pipe for the manifest": {func(dir string, _ *Manifest) {
			must(t, os.Remove(filepath.Join(dir, ManifestName)))
			must(t, syscall.Mkfifo(filepath.Join(dir, ManifestName), 0o600))
		}, nil, "no regular file"},
		"a folder for a file": {func(dir string, m *Manifest) {
			must(t, os.Remove(first(dir, m)))
			must(t, os.Mkdir(first(dir, m), 0o700))
		}, nil, "does not name"},
		"no manifest": {func(dir string, _ *Manifest) { must(t, os.Remove(filepath.Join(dir, ManifestName))) }, fs.ErrNotExist, "missing"},
		"a manifest too large": {func(dir string, _ *Manifest) {
			must(t, os.Truncate(filepath.Join(dir, ManifestName), MaxManifest+1))
		}, ErrTooLarge, "limit"},
		"a manifest that is none": {func(dir string, _ *Manifest) {
			must(t, os.WriteFile(filepath.Join(dir, ManifestName), []byte("{}"), 0o600))
		}, nil, "missing"},
		"a lying size":     {says(func(m *Manifest) { m.Files[0].Size-- }), nil, "bytes"},
		"a lying hash":     {says(func(m *Manifest) { m.Files[0].Hash[31] ^= 1 }), nil, "hash"},
		"another file":     {says(func(m *Manifest) { m.Files[0].Path = "data/zz" }), nil, ""},
		"another cursor":   {says(func(m *Manifest) { m.Cursor = kv.CursorAt(41) }), nil, "cursor"},
		"another memo":     {says(func(m *Manifest) { m.Cursor.SeenEvicting = true }), nil, "cursor"},
		"another bucket":   {says(func(m *Manifest) { m.Bucket = "other" }), nil, "bucket"},
		"another scope":    {says(func(m *Manifest) { m.Scope = kv.AllKeys() }), nil, "scope"},
		"no scope":         {says(func(m *Manifest) { m.HasScope = false }), nil, "scope"},
		"another log":      {says(func(m *Manifest) { m.Log.CreatedUnixNano++ }), nil, "log"},
		"another age":      {says(func(m *Manifest) { m.Log.AgeLimit++ }), nil, "age limit"},
		"another sample":   {says(func(m *Manifest) { m.Log.Samples[0].Revision++ }), nil, "log"},
		"nothing owed":     {says(func(m *Manifest) { m.Owed = kv.Owed{} }), nil, "owes"},
		"another schema":   {says(func(m *Manifest) { m.Schemas = map[string]string{"x.v1.Host": ""} }), nil, "schema"},
		"another backend":  {says(func(m *Manifest) { m.Backend = "fjall" }), store.ErrFormat, "fjall"},
		"a newer format":   {says(func(m *Manifest) { m.Format += "0" }), store.ErrFormat, "format"},
		"a size of no use": {says(func(m *Manifest) { m.Files[0].Size = 1 << 62 }), store.ErrDiskFull, "free"},
	}
}

// refused tells that dest did not come about, and that nothing else did.
func refused(t *testing.T, g *ground, err, want error, says string) {
	t.Helper()
	if want == nil {
		want = ErrInvalid
	}
	if err == nil || !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %v with %q", err, want, says)
	}
	if want != store.ErrDiskFull && !errors.Is(err, ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
	for _, name := range names(t, g.dir) {
		if name != "live" && name != "artifact" {
			t.Errorf("%s is there", name)
		}
	}
}

func TestAttackedFolders(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		for what, a := range attacks(t, "") {
			if a.do == nil {
				t.Fatal(what)
			}
		}
		for what := range attacks(t, "") {
			t.Run(what, func(t *testing.T) {
				secret := filepath.Join(t.TempDir(), "secret")
				a := attacks(t, secret)[what]
				dir, m := g.export(t, "artifact")
				defer os.RemoveAll(dir)
				a.do(dir, &m)
				_, err := Import(bounded(t), dir, g.path("dest"), Options{Kinds: kinds()})
				refused(t, g, err, a.want, a.says)
				if _, err := Verify(bounded(t), dir, Options{Kinds: kinds()}); err == nil || !errors.Is(err, ErrInvalid) {
					t.Errorf("verify: %v", err)
				}
				if err := Pack(bounded(t), dir, m, io.Discard); !errors.Is(err, ErrInvalid) {
					t.Errorf("pack: %v", err)
				}
			})
		}
	})
}

func TestExpectations(t *testing.T) {
	g := newGround(t, logstore.Backend)
	dir, m := g.export(t, "artifact")
	all, other := kv.AllKeys(), m.Scope
	for what, c := range map[string]struct {
		o    Options
		want error
	}{
		"bucket":   {Options{Bucket: "other"}, ErrUnexpected},
		"scope":    {Options{Scope: &all}, ErrUnexpected},
		"log":      {Options{Log: 5}, ErrUnexpected},
		"size":     {Options{MaxBytes: m.Size() - 1}, ErrTooLarge},
		"disk":     {Options{MinFreeBytes: 1 << 60}, store.ErrDiskFull},
		"backend":  {Options{Kinds: []store.Kind{pebblestore.Kind()}}, store.ErrFormat},
		"as it is": {Options{Bucket: "hosts", Scope: &other, Log: testLog.CreatedUnixNano, MaxBytes: m.Size(), MinFreeBytes: -1}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			if c.o.Kinds == nil {
				c.o.Kinds = kinds()
			}
			for name, way := range ways {
				dest := g.path("dest")
				err := way(bounded(t), dir, dest, c.o)
				if c.want == nil {
					must(t, err)
					must(t, os.RemoveAll(dest))
					continue
				}
				t.Log(name)
				refused(t, g, err, c.want, "")
				var hint interface{ Hint() string }
				if c.want != store.ErrDiskFull && (!errors.As(err, &hint) || hint.Hint() == "") {
					t.Errorf("%v has no hint", err)
				}
			}
		})
	}
	for _, o := range []Options{{}, {Kinds: kinds(), MaxBytes: -1}} {
		if _, err := Import(bounded(t), dir, g.path("dest"), o); err == nil || errors.Is(err, ErrInvalid) {
			t.Errorf("%v", err)
		}
		if _, err := Verify(bounded(t), dir, o); err == nil || errors.Is(err, ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
}

// TestExpectationsOfWhatIsNotRecorded: what an artifact does not say is not what was expected.
func TestExpectationsOfWhatIsNotRecorded(t *testing.T) {
	g := &ground{dir: t.TempDir()}
	s, err := openStore(logstore.Backend, g.path("live"))
	must(t, err)
	defer s.Close()
	g.store = s
	g.apply(t, 1, 3)
	dir, _ := g.export(t, "artifact")
	all := kv.AllKeys()
	for _, o := range []Options{{Bucket: "hosts"}, {Scope: &all}, {Log: 1}} {
		o.Kinds = kinds()
		_, err := Import(bounded(t), dir, g.path("dest"), o)
		refused(t, g, err, ErrUnexpected, "")
	}
}

// TestOlderArtifact: a log of format 2, under manifests of schema 1 and 2.
func TestOlderArtifact(t *testing.T) {
	log := []byte("PGSS\x02\x00")
	for _, text := range []string{older(1, ""), older(2, `{"Prefix":"n."}`)} {
		g := &ground{dir: t.TempDir()}
		must(t, os.MkdirAll(g.path("artifact/data"), 0o700))
		must(t, os.WriteFile(g.path("artifact/data/fold.snap"), log, 0o600))
		h := blake3.Sum256(log)
		text = strings.Replace(text, hash1, Hash(h).String(), 1)
		text = strings.Replace(text, "0000000000000007", "", 1)
		must(t, os.WriteFile(g.path("artifact/"+ManifestName), []byte(text), 0o600))
		m, err := Import(bounded(t), g.path("artifact"), g.path("dest"), Options{Kinds: kinds()})
		must(t, err)
		if m.Schema == 3 || string(m.Bytes()) != text {
			t.Errorf("%+v", m)
		}
		if got := rowsAt(t, logstore.Backend, g.path("dest")); got != "none\n" {
			t.Errorf("%s", got)
		}
	}
}

func TestDestinationTaken(t *testing.T) {
	g := newGround(t, logstore.Backend)
	dir, m := g.export(t, "artifact")
	_, stream, err := packed(bounded(t), dir)
	must(t, err)
	must(t, os.Mkdir(g.path("full"), 0o700))
	must(t, os.WriteFile(g.path("full/precious"), []byte("x"), 0o600))
	must(t, os.WriteFile(g.path("file"), []byte("x"), 0o600))
	must(t, os.Symlink("nowhere", g.path("link")))
	before := tree(t, g.dir)
	for _, dest := range []string{"full", "file", "link", "missing/dest", "live"} {
		o := Options{Kinds: kinds()}
		_, err := Import(bounded(t), dir, g.path(dest), o)
		_, exportErr := Export(bounded(t), g.store, g.path(dest), ExportOptions{})
		for what, err := range map[string]error{
			"import": err, "export": exportErr,
			"unpack":        Unpack(bounded(t), bytes.NewReader(stream), m, g.path(dest), o),
			"import packed": ImportPacked(bounded(t), bytes.NewReader(stream), m, g.path(dest), o),
		} {
			if err == nil || errors.Is(err, ErrInvalid) {
				t.Errorf("%s to %s: %v", what, dest, err)
			}
		}
	}
	if !maps.Equal(tree(t, g.dir), before) {
		t.Error("something was changed")
	}
}

func TestImportEndsWithItsContext(t *testing.T) {
	g := newGround(t, pebblestore.Backend)
	dir, _ := g.export(t, "artifact")
	for name, way := range ways {
		ctx, cancel := context.WithCancel(bounded(t))
		n := 0
		o := Options{Kinds: kinds(), steps: func(step string) error {
			if n++; step == "file" && n > 3 {
				cancel()
			}
			return nil
		}}
		if err := way(ctx, dir, g.path("dest"), o); !errors.Is(err, context.Canceled) || errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if got := names(t, g.dir); !slices.Equal(got, []string{"artifact", "live"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, dir, Options{Kinds: kinds()}); !errors.Is(err, context.Canceled) {
		t.Errorf("verify: %v", err)
	}
	if _, err := Export(ctx, g.store, g.path("dest"), ExportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("export: %v", err)
	}
	wantNames(t, g.dir, "artifact", "live")
}
