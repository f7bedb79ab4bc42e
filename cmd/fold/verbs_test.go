package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/s3test"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/pebblestore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// shelf is an object store in a folder.
type shelf struct{ dir, url string }

func newShelf(t *testing.T) shelf {
	dir := t.TempDir()
	return shelf{dir, "file://" + filepath.ToSlash(dir)}
}

// publish has fold export publish a stopped fold.
func (w *world) publish(t *testing.T, s shelf, path string) exported {
	t.Helper()
	scratch := t.TempDir()
	defer empty(t, scratch)
	return read[exported](t, run(t, nil, "export", path, "--publish", s.url, "--key", "node/a", "--server", w.srv.URL(), "--scratch", scratch, "--json"))
}

// spoil changes one byte in the middle of each file whose name ends so.
func spoil(t *testing.T, dir, end string) {
	t.Helper()
	spoiled := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, end) {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) == 0 {
			return err
		}
		spoiled++
		b[len(b)/3] ^= 1
		return os.WriteFile(path, b, 0o600)
	})
	if err != nil || spoiled == 0 {
		t.Fatalf("%d files spoiled, %v", spoiled, err)
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%s holds %v, %v", dir, files, err)
	}
}

// TestArtifactGoesRound: a stopped fold is exported, published, listed, verified, imported and compared.
func TestArtifactGoesRound(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
			w.put(t, "a", "b", "c")
			path, live := w.fold(t, kind)
			digest := w.digest(t)
			out, scratch := t.TempDir(), t.TempDir()
			to := filepath.Join(out, "export")
			e := read[exported](t, run(t, nil, "export", path, "--to", to, "--json"))
			if e.To != to || e.Artifact.Cursor.Revision != 3 || e.Artifact.Bucket != "test" || e.Published != nil {
				t.Errorf("exported %+v", e)
			}
			for _, dir := range []string{to, live} { // from outside, and by the fold while it ran
				v := read[verified](t, run(t, nil, "verify", dir, "--json"))
				if v.Store.Digest != digest || v.Store.Rows != 3 || v.Store.Path != dir || v.Artifact.Cursor.Revision != 3 || v.Artifact.Files == 0 {
					t.Errorf("verified %+v", v)
				}
				if d := read[difference](t, run(t, nil, "diff", path, dir, "--json")); !d.Same || d.Equal != 3 {
					t.Errorf("difference %+v", d)
				}
			}
			s := newShelf(t)
			if e := w.publish(t, s, path); e.To != "" || !e.Published.Newest || e.Published.Key != "node/a" {
				t.Errorf("published %+v %+v", e, e.Published)
			}
			r := run(t, nil, "verify", s.url, "--key", "node/a", "--scratch", scratch)
			if r.code != exitOK || r.err != "" {
				t.Errorf("code %d, %s", r.code, r.err)
			}
			holdsAll(t, r.out, "is good", digest)
			empty(t, scratch)
			for _, from := range [][]string{{to}, {s.url, "--key", "node/a"}, {s.url, "--key", "node/a", "--server", w.srv.URL()}} {
				at := filepath.Join(t.TempDir(), "new")
				r := run(t, nil, append([]string{"import", "--to", at}, from...)...)
				if r.code != exitOK || r.err != "" {
					t.Errorf("%q: code %d, %s", from, r.code, r.err)
				}
				holdsAll(t, r.out, "at cursor 3", at)
				if x := read[storeFacts](t, run(t, nil, "inspect", at, "--json")); x.Digest != digest || x.Cursor.Revision != 3 {
					t.Errorf("imported %+v", x)
				}
			}
		})
	}
}

// TestNewestGoodGeneration: what is spoiled is passed over, and nothing is left when all is.
func TestNewestGoodGeneration(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	s, args := newShelf(t), []string{"--key", "node/a"}
	w.put(t, "a")
	path, _ := w.fold(t, storeLog)
	w.publish(t, s, path)
	old := read[listing](t, run(t, nil, append([]string{"artifacts", s.url, "--json"}, args...)...)).Generations[0]
	w.put(t, "b")
	path, _ = w.fold(t, storePebble)
	e := w.publish(t, s, path)
	spoil(t, s.dir, e.Artifact.Name+".tar")
	scratch, at := t.TempDir(), t.TempDir()
	r := run(t, nil, append([]string{"verify", s.url, "--scratch", scratch, "--json"}, args...)...)
	if r.code != exitFailed {
		t.Errorf("a spoiled artifact: code %d, %s", r.code, r.out)
	}
	holdsAll(t, r.out, "artifact invalid", `"code": 1`)
	empty(t, scratch)
	if v := read[verified](t, run(t, nil, append([]string{"verify", s.url, "--generation", old.Name, "--json"}, args...)...)); v.Artifact.Name != old.Name || v.Store.Rows != 1 {
		t.Errorf("verified %+v", v)
	}
	if r := run(t, nil, append([]string{"import", s.url, "--to", at, "--generation", e.Artifact.Name}, args...)...); r.code != exitFailed {
		t.Errorf("a spoiled generation by name: code %d, %s", r.code, r.out)
	}
	empty(t, at)
	i := read[imported](t, run(t, nil, append([]string{"import", s.url, "--to", filepath.Join(at, "new"), "--json"}, args...)...))
	if i.Artifact.Name != old.Name || len(i.Refused) != 1 || !strings.Contains(i.Refused[0], e.Artifact.Name) {
		t.Errorf("imported %+v", i)
	}
	spoil(t, s.dir, old.Name+".tar")
	at = t.TempDir()
	for _, more := range [][]string{nil, {"--server", w.srv.URL()}} {
		r = run(t, nil, append(append([]string{"import", s.url, "--to", at}, args...), more...)...)
		if r.code != exitFailed {
			t.Errorf("nothing good: code %d, %s", r.code, r.out)
		}
		holdsAll(t, r.err, old.Name, e.Artifact.Name, "hint:")
		empty(t, at)
	}
}

func TestArtifactsAreListed(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	s := newShelf(t)
	args := []string{"artifacts", s.url, "--key", "node/a"}
	r := run(t, nil, args...)
	if r.code != exitOK {
		t.Errorf("none: code %d, %s", r.code, r.err)
	}
	holdsAll(t, r.out, "no artifacts")
	w.put(t, "a")
	path, _ := w.fold(t, storeLog)
	first := w.publish(t, s, path)
	w.put(t, "b", "c")
	path2, _ := w.fold(t, storePebble)
	second := w.publish(t, s, path2)
	l := read[listing](t, run(t, nil, append(args, "--json")...))
	if len(l.Generations) != 2 || l.Log != nil {
		t.Fatalf("listing %+v", l)
	}
	for i, e := range []exported{second, first} {
		g := l.Generations[i]
		if g.Name != e.Artifact.Name || g.Current != (i == 0) || g.Fresh != nil || g.About.Cursor != e.Artifact.Cursor || g.Stored == nil ||
			g.Age < 0 || g.Age > 3600 || g.About.Backend != e.Artifact.Backend || g.About.Bytes != e.Artifact.Bytes {
			t.Errorf("generation %d: %+v of %+v", i, g, g.About)
		}
	}
	stream, err := w.js.Stream(bounded(t), "KV_test")
	if err == nil {
		err = stream.Purge(bounded(t), jetstream.WithPurgeSequence(3))
	}
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--server", w.srv.URL())
	l = read[listing](t, run(t, nil, append(args, "--json")...))
	if l.Log.First != 3 || l.Log.Last != 3 || !*l.Generations[0].Fresh || *l.Generations[1].Fresh {
		t.Errorf("listing %+v", l)
	}
	r = run(t, nil, args...)
	if r.code != exitOK {
		t.Errorf("code %d, %s", r.code, r.err)
	}
	holdsAll(t, r.out, "revisions 3 to 3", "fresh, newest", "stale", "pebble", "append-log")
	w.put(t, "d", "e", "f")
	if err := stream.Purge(bounded(t), jetstream.WithPurgeSequence(6)); err != nil {
		t.Fatal(err)
	}
	if r = run(t, nil, args...); r.code != exitFailed || strings.Contains(r.out, "fresh") || r.err != "" {
		t.Errorf("all stale: code %d, %s%s", r.code, r.out, r.err)
	}
	r = run(t, nil, "import", s.url, "--key", "node/a", "--bucket", "test", "--server", w.srv.URL(), "--to", filepath.Join(t.TempDir(), "x"))
	if r.code != exitFailed {
		t.Errorf("import of stale ones: code %d, %s", r.code, r.out)
	}
	holdsAll(t, r.err, "hint:", "window")
}

// TestSuperseded: an older fold does not replace a newer artifact.
func TestSuperseded(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	s := newShelf(t)
	w.put(t, "a")
	old, _ := w.fold(t, storeLog)
	w.put(t, "b")
	path, _ := w.fold(t, storeLog)
	newest := w.publish(t, s, path)
	args := []string{"export", old, "--publish", s.url, "--key", "node/a", "--server", w.srv.URL()}
	r := run(t, nil, args...)
	if r.code != exitSuperseded || r.err != "" {
		t.Errorf("code %d, %s", r.code, r.err)
	}
	holdsAll(t, r.out, "not published", "revision 2")
	r = run(t, nil, append(args, "--json")...)
	if e := read[exported](t, r); r.code != exitSuperseded || e.Published.Newest || e.Published.Superseded != 2 {
		t.Errorf("code %d, %+v", r.code, e.Published)
	}
	if l := read[listing](t, run(t, nil, "artifacts", s.url, "--key", "node/a", "--json")); len(l.Generations) != 1 || l.Generations[0].Name != newest.Artifact.Name {
		t.Errorf("listing %+v", l)
	}
}

func TestDiffers(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a", "b", "c")
	a, _ := w.fold(t, storePebble)
	w.put(t, "b", "x", "y", "z")
	kvs, err := w.js.KeyValue(bounded(t), "test")
	if err == nil {
		err = kvs.Delete(bounded(t), "route.t.a")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, b := w.fold(t, storeLog)
	files, err := storetest.Files(a)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, nil, "diff", a, b, "--json", "--examples", "2")
	d := read[difference](t, r)
	if r.code != exitFailed || d.Same || d.Equal != 1 || d.OnlyA != 1 || d.OnlyB != 3 || d.Differ != 1 || d.A.Cursor.Revision != 3 || d.B.Cursor.Revision != 8 {
		t.Errorf("code %d, %+v", r.code, d)
	}
	want := []rowExample{{"route.t.a", 1, 0}, {"route.t.b", 2, 4}, {"route.t.x", 0, 5}, {"route.t.y", 0, 6}}
	if len(d.Examples) != len(want) {
		t.Fatalf("examples %+v", d.Examples)
	}
	for i, e := range want {
		if d.Examples[i] != e {
			t.Errorf("example %d is %+v, not %+v", i, d.Examples[i], e)
		}
	}
	r = run(t, nil, "diff", b, a)
	if r.code != exitFailed || r.err != "" {
		t.Errorf("code %d, %s", r.code, r.err)
	}
	holdsAll(t, r.out, "differ", "1 rows are the same, and 1 differ", "route.t.z")
	if now, err := storetest.Files(a); err != nil || len(now) != len(files) {
		t.Errorf("files were %v and are %v, %v", files, now, err)
	}
}

func TestVerifyRefusesASpoiledFolder(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	_, export := w.fold(t, storeLog)
	spoil(t, filepath.Join(export, artifact.DataName), "")
	to := t.TempDir()
	for _, args := range [][]string{{"verify", export}, {"import", export, "--to", to}} {
		r := run(t, nil, args...)
		if r.code != exitFailed {
			t.Errorf("%s: code %d, %s", args[0], r.code, r.out)
		}
		holdsAll(t, r.err, "artifact invalid", "hint:")
	}
	empty(t, to)
}

func TestRemoteUsage(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	_, export := w.fold(t, storeLog)
	s := newShelf(t)
	for _, args := range [][]string{
		{"verify"}, {"verify", s.url}, {"verify", "ftp://user:geheim@x", "--key", "a"}, {"verify", s.url, "--key", "../a"}, {"verify", s.url, "--key", "a/"}, {"verify", export, "--key", "a"},
		{"artifacts", s.url}, {"artifacts", s.dir, "--key", "a"}, {"import", export}, {"import", export, "--to", "x", "--server", "y"},
		{"import", s.url, "--key", "a", "--to", "x", "--generation", "y", "--bucket", "z"},
		{"export", export}, {"export", export, "--to", filepath.Join(t.TempDir(), "x")}, {"export", export, "--to", "x", "--key", "a"},
		{"export", export, "--publish", s.url}, {"diff", export}, {"diff", export, export, "--examples", "-1"}, {"diff", export, export, "--timeout", "-1s"},
	} {
		if r := run(t, nil, args...); r.code != exitUsage || r.out != "" || strings.Contains(r.err, "geheim") {
			t.Errorf("%q: code %d, %s%s", args, r.code, r.out, r.err)
		}
	}
	gone := filepath.Join(s.dir, "gone")
	if r := run(t, nil, "artifacts", "file://"+filepath.ToSlash(gone), "--key", "a"); r.code != exitFailed {
		t.Errorf("no folder: code %d, %s", r.code, r.out)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("a listing made the folder: %v", err)
	}
	if r := run(t, nil, "verify", s.url, "--key", "a"); r.code != exitFailed {
		t.Errorf("no artifact: code %d, %s", r.code, r.out)
	}
}

// TestObjectStoreUnreachable: a server that never answers, whose URL has a secret.
func TestObjectStoreUnreachable(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "geheim")
	url := "s3://bucket/folder?region=us-east-1&use_path_style=true&endpoint=http://user:geheim@" + silent.Addr().String()
	began := time.Now()
	for _, args := range [][]string{{"artifacts", url}, {"verify", url}, {"import", url, "--to", filepath.Join(t.TempDir(), "x")}} {
		r := run(t, nil, append(args, "--key", "a", "--timeout", "500ms")...)
		if r.code != exitUnreachable || strings.Contains(r.out+r.err, "geheim") {
			t.Errorf("%s: code %d, %s%s", args[0], r.code, r.out, r.err)
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestExportLeavesTheStore: its rows, and the reserve of disk space that the fold made or did not make.
func TestExportLeavesTheStore(t *testing.T) {
	for _, ballast := range []int64{-1, 1 << 20} {
		dir := t.TempDir()
		s, err := pebblestore.Open(dir, pebblestore.Options{BallastBytes: ballast})
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "export")
		r := run(t, nil, "export", dir, "--to", to)
		if r.code != exitFailed {
			t.Errorf("an open store: code %d, %s", r.code, r.out)
		}
		holdsAll(t, r.err, "open already", "hint: the fold is running")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if r := run(t, nil, "export", dir, "--to", to); r.code != exitOK {
			t.Errorf("code %d, %s", r.code, r.err)
		}
		info, err := os.Stat(filepath.Join(dir, "ballast"))
		if ballast < 0 && !os.IsNotExist(err) || ballast > 0 && (err != nil || info.Size() != ballast) {
			t.Errorf("a reserve of %d bytes is %v, %v", ballast, info, err)
		}
	}
}

// TestS3GoesRound: the same verbs against a server that enforces conditional writes.
func TestS3GoesRound(t *testing.T) {
	srv := s3test.New(t)
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a", "b")
	path, _ := w.fold(t, storePebble)
	s := shelf{url: strings.Replace(srv.Bucket(t), "?", "/folds?", 1)}
	e := w.publish(t, s, path)
	if !e.Published.Newest {
		t.Errorf("published %+v", e.Published)
	}
	args := []string{s.url, "--key", "node/a", "--json"}
	if l := read[listing](t, run(t, nil, append([]string{"artifacts"}, args...)...)); len(l.Generations) != 1 || !l.Generations[0].Current {
		t.Errorf("listing %+v", l)
	}
	if v := read[verified](t, run(t, nil, append([]string{"verify"}, args...)...)); v.Store.Digest != w.digest(t) {
		t.Errorf("verified %+v", v)
	}
	secret := strings.Replace(s.url, "http%3A%2F%2F", "http%3A%2F%2Fuser%3Ageheim%40", 1)
	for _, more := range [][]string{nil, {"--json"}} {
		r := run(t, nil, append([]string{"verify", secret, "--key", "node/a"}, more...)...)
		if r.code != exitOK || secret == s.url || strings.Contains(r.out+r.err, "geheim") || !strings.Contains(r.out, "***") {
			t.Errorf("code %d, %s%s", r.code, r.out, r.err)
		}
	}
	to := filepath.Join(t.TempDir(), "new")
	if i := read[imported](t, run(t, nil, append([]string{"import", "--to", to}, args...)...)); i.Artifact.Name != e.Artifact.Name {
		t.Errorf("imported %+v", i)
	}
	if d := read[difference](t, run(t, nil, "diff", path, to, "--json")); !d.Same || d.Equal != 2 {
		t.Errorf("difference %+v", d)
	}
}

func TestProgressTellsCounts(t *testing.T) {
	var out bytes.Buffer
	p := &progress{to: &out}
	p.now("importing x")
	p.rows.Add(3)
	p.bytes.Store(70)
	p.tell(4 * time.Second)
	if out.String() != "fold: importing x, 3 rows read, 70 bytes moved (4s)\n" {
		t.Errorf("told %q", &out)
	}
}

// TestValuesDiffer: two stores with other values under one revision.
func TestValuesDiffer(t *testing.T) {
	args := []string{"diff", "--json"}
	for _, value := range []string{"one", "two"} {
		dir := t.TempDir()
		s, err := kinds[storeLog](dir)
		if err != nil {
			t.Fatal(err)
		}
		b := &store.Batch{Updates: []kv.Update{{Key: "a", Op: kv.OpPut, Version: kv.Revision(1), Value: []byte(value)}}}
		if err := s.Apply(bounded(t), b, kv.CursorAt(1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		args = append(args, filepath.Join(dir, "a.log"))
	}
	r := run(t, nil, args...)
	if d := read[difference](t, r); r.code != exitFailed || d.Differ != 1 || d.Equal != 0 {
		t.Errorf("code %d, %+v", r.code, d)
	}
}

// TestNoArtifactsAtAll: a server doesn't make the user name a bucket where there is nothing under the key.
func TestNoArtifactsAtAll(t *testing.T) {
	s := newShelf(t)
	args := []string{s.url, "--key", "node/a", "--server", "nats://127.0.0.1:1"}
	if r := run(t, nil, append([]string{"artifacts"}, args...)...); r.code != exitFailed || r.out != "There are no artifacts under \"node/a\".\n" {
		t.Errorf("code %d: %s%s", r.code, r.out, r.err)
	}
	to := filepath.Join(t.TempDir(), "x")
	if r := run(t, nil, append([]string{"import", "--to", to}, args...)...); r.code != exitFailed || !strings.Contains(r.err, "there is no artifact under \"node/a\"") {
		t.Errorf("code %d: %s", r.code, r.err)
	}
}
