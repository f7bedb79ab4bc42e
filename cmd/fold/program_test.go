package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// result is one run of the command.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{env: func(name string) string { return env[name] }, out: &out, err: &errs, progressAfter: time.Minute}
	code := p.run(bounded(t), args)
	return result{code, out.String(), errs.String()}
}

// world is a server with a bucket, and what a test does to both.
type world struct {
	srv    *natstest.Server
	js     jetstream.JetStream
	bucket *natskv.Bucket
}

func newWorld(t *testing.T, cfg natskv.BucketConfig, o natstest.Options) *world {
	t.Helper()
	w := &world{srv: natstest.New(t, o)}
	nc, err := w.srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	w.create(t, cfg)
	return w
}

func (w *world) create(t *testing.T, cfg natskv.BucketConfig) {
	t.Helper()
	var err error
	if w.bucket, err = natskv.Open(bounded(t), w.js, "test", cfg); err != nil {
		t.Fatal(err)
	}
}

func (w *world) put(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := ft.NewRouteWriter(w.bucket).Put(bounded(t), &foldtestv1.Route{Tenant: "t", Domain: name, NodeId: "n"}); err != nil {
			t.Fatal(err)
		}
	}
}

// moveOn takes the log past the cursor of a fold that stopped at revision 3.
func (w *world) moveOn(t *testing.T) {
	t.Helper()
	w.put(t, "a", "b", "d", "e")
	s, err := w.js.Stream(bounded(t), "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(bounded(t), jetstream.WithPurgeSequence(6)); err != nil {
		t.Fatal(err)
	}
}

// kinds are the stores that a fold may be in, as a fold that was closed leaves them.
var kinds = map[string]func(dir string) (store.Store, error){
	storePebble: func(dir string) (store.Store, error) {
		return pebblestore.Open(dir, pebblestore.Options{BallastBytes: -1})
	},
	storeLog: func(dir string) (store.Store, error) {
		return logstore.Open(filepath.Join(dir, "a.log"), logstore.Options{})
	},
}

// fold has a fold catch up and stop, and returns where its store is, and an export of it.
func (w *world) fold(t *testing.T, kind string) (path, export string) {
	t.Helper()
	dir := t.TempDir()
	s, err := kinds[kind](dir)
	if err != nil {
		t.Fatal(err)
	}
	b := fold.NewBuilder(w.bucket, s, fold.Options{Logger: slog.New(slog.DiscardHandler)})
	if _, err := ft.RegisterRoute(b); err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WaitHydrated(bounded(t)); err != nil {
		t.Fatal(err)
	}
	export = filepath.Join(t.TempDir(), "export")
	if _, err := f.Export(bounded(t), export); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if kind == storeLog {
		return filepath.Join(dir, "a.log"), export
	}
	return dir, export
}

// explain runs fold repair --explain.
func (w *world) explain(t *testing.T, path string, args ...string) result {
	t.Helper()
	return run(t, nil, append([]string{"repair", "--explain", "--server", w.srv.URL(), "--scratch", t.TempDir(), "--dir", path}, args...)...)
}

// parsed is what a run printed as JSON.
func (r result) parsed(t *testing.T) (x fold.Explanation) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &x); err != nil || r.err != "" {
		t.Fatalf("%v: code %d, output\n%s\nand\n%s", err, r.code, r.out, r.err)
	}
	return x
}

func holdsAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

func (w *world) state(t *testing.T) string {
	t.Helper()
	s, err := w.js.Stream(bounded(t), "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	i := s.CachedInfo().State
	return fmt.Sprintf("%d to %d, %d messages, %d consumers", i.FirstSeq, i.LastSeq, i.Msgs, i.Consumers)
}

func TestExplainsAnyStore(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
			w.put(t, "a", "b", "c")
			path, export := w.fold(t, kind)
			if r := w.explain(t, path, "--store", kind); r.code != exitOK {
				t.Errorf("code %d\n%s%s", r.code, r.out, r.err)
			} else {
				holdsAll(t, r.out, `of bucket "test" would resume.`, "revisions 1 to 3")
			}
			w.moveOn(t)
			before := w.state(t)
			for _, at := range []string{path, export} {
				folder := strings.TrimSuffix(at, "a.log")
				files, err := storetest.Files(folder)
				if err != nil {
					t.Fatal(err)
				}
				r := w.explain(t, at)
				if r.code != exitOK || r.err != "" {
					t.Errorf("code %d, %s", r.code, r.err)
				}
				holdsAll(t, r.out, "would repair itself", "cursor expired", "relist", "3 deletes and 0 puts, of 3 rows; 2 keys listed", "delete route.t.a",
					"read every current value anew", "plan_repair", "mode=auto")
				x := w.explain(t, at, "--json").parsed(t)
				if x.Verdict != fold.WouldRepair || x.Cursor != 3 || x.First != 6 || x.Last != 7 || x.Repair.Deleted != 3 {
					t.Errorf("explanation %+v", x)
				}
				if now, err := storetest.Files(folder); err != nil || !maps.Equal(now, files) {
					t.Errorf("files were\n%v\nand are, %v,\n%v", files, err, now)
				}
			}
			if now := w.state(t); now != before {
				t.Errorf("the bucket was %s, and is %s", before, now)
			}
		})
	}
}

func TestExplainsRefusalAndRestore(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, natskv.BucketConfig{MaxBytes: 1 << 20, DiscardOld: true}, natstest.Options{})
			w.put(t, "a", "b", "c")
			path, _ := w.fold(t, kind)
			w.put(t, "x", "y")
			_, artifact := w.fold(t, kind)
			s, err := w.js.Stream(bounded(t), "KV_test")
			if err == nil {
				err = s.Purge(bounded(t), jetstream.WithPurgeSequence(6))
			}
			if err != nil {
				t.Fatal(err)
			}
			r := w.explain(t, path)
			if r.code != exitFailed || r.err != "" {
				t.Errorf("code %d, %s", r.code, r.err)
			}
			holdsAll(t, r.out, "would refuse, and serve what it holds", "no restore source", "hint:", "artifact source")
			r = w.explain(t, path, "--json")
			if x := r.parsed(t); r.code != exitFailed || x.Verdict != fold.WouldRefuse || x.Refusal.Hint == "" {
				t.Errorf("code %d, %+v", r.code, x)
			}
			missing := filepath.Join(t.TempDir(), "none")
			r = w.explain(t, path, "--artifact", missing, "--artifact", artifact)
			if r.code != exitOK {
				t.Errorf("code %d, %s", r.code, r.err)
			}
			holdsAll(t, r.out, "would repair itself", "restore", artifact, "0 deletes and 2 puts", "resume from revision 5")
			if r = w.explain(t, path, "--artifact", missing); r.code != exitFailed {
				t.Errorf("code %d, %s", r.code, r.out)
			}
			holdsAll(t, r.out, "can't be read")
		})
	}
}

func TestExplainsAnotherLog(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a", "b", "c")
	path, _ := w.fold(t, storeLog)
	if err := w.js.DeleteStream(bounded(t), "KV_test"); err != nil {
		t.Fatal(err)
	}
	r := w.explain(t, path, "--json")
	if r.code != exitFailed || r.err != "" {
		t.Errorf("no bucket: code %d, %s", r.code, r.err)
	}
	holdsAll(t, r.out, `"error": `, "bucket not found", `"code": 1`)
	w.create(t, natskv.BucketConfig{})
	w.put(t, "a")
	if r := w.explain(t, path); r.code != exitFailed {
		t.Errorf("code %d", r.code)
	} else {
		holdsAll(t, r.out, "log replaced", "AdoptNewLog")
	}
	if x := w.explain(t, path, "--json", "--adopt-new-log").parsed(t); x.Repair.Plan != "adopt" || x.Repair.Deleted != 2 {
		t.Errorf("%+v", x.Repair)
	}
	if r := w.explain(t, path, "--bucket", "other"); r.code != exitFailed {
		t.Errorf("another bucket: code %d, %s", r.code, r.out)
	}
}

func TestAuditIsExplained(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	path, _ := w.fold(t, storeLog)
	if r := w.explain(t, path, "--audit"); r.code != exitOK {
		t.Errorf("code %d, %s", r.code, r.err)
	} else {
		holdsAll(t, r.out, "audit:", "nothing is owed")
	}
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		text string
	}{
		"no --explain":  {[]string{"repair", "--dir", dir}, "a fold repairs itself"},
		"no --dir":      {[]string{"repair", "--explain"}, "--dir is missing"},
		"store":         {[]string{"repair", "--explain", "--dir", dir, "--store", "x"}, `"x"`},
		"mode":          {[]string{"repair", "--explain", "--dir", dir, "--mode", "x"}, `"x"`},
		"restore":       {[]string{"repair", "--explain", "--dir", dir, "--mode", "restore"}, "--artifact"},
		"timeout":       {[]string{"repair", "--explain", "--dir", dir, "--timeout", "0s"}, "--timeout"},
		"unknown flag":  {[]string{"repair", "--nothing"}, "--nothing"},
		"argument":      {[]string{"repair", "now"}, "now"},
		"unknown verb":  {[]string{"mend"}, "mend"},
		"json on error": {[]string{"repair", "--json"}, ""},
	} {
		r := run(t, nil, c.args...)
		if r.code != exitUsage {
			t.Errorf("%s: code %d: %s%s", name, r.code, r.out, r.err)
		}
		holdsAll(t, r.err, c.text)
	}
	if r := run(t, nil); r.code != exitOK || !strings.Contains(r.out, "repair") {
		t.Errorf("no verb: code %d, %s", r.code, r.out)
	}
	r := run(t, nil, "repair", "--explain", "--dir", dir)
	if r.code != exitFailed {
		t.Errorf("no store: code %d, %s", r.code, r.err)
	}
	holdsAll(t, r.err, "neither a log file, nor a folder")
	if files, err := storetest.Files(dir); err != nil || len(files) != 1 {
		t.Errorf("the folder holds %v, %v", files, err)
	}
}

// TestUnreachable: a server that is gone, and one that never answers.
func TestUnreachable(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	path, _ := w.fold(t, storeLog)
	w.srv.Stop()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, server := range map[string]string{"gone": w.srv.Addr(), "silent": silent.Addr().String()} {
		began := time.Now()
		args := []string{"repair", "--explain", "--dir", path, "--timeout", "1s", "--server", "nats://user:geheim@" + server}
		r := run(t, nil, args...)
		if r.code != exitUnreachable || r.out != "" {
			t.Errorf("%s: code %d, %s%s", name, r.code, r.out, r.err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		j := run(t, nil, append(args, "--json")...)
		holdsAll(t, j.out, `"code": 3`)
		if strings.Contains(r.err+j.out+j.err, "geheim") {
			t.Errorf("%s: a secret was printed: %s%s", name, r.err, j.out)
		}
	}
}

func TestCredentials(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{User: "node", Password: "geheim"})
	w.put(t, "a")
	path, _ := w.fold(t, storeLog)
	args := []string{"repair", "--explain", "--dir", path}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		code int
	}{
		"environment":    {env: map[string]string{"NATS_USER": "node", "NATS_PASSWORD": "geheim"}},
		"flag":           {env: map[string]string{"NATS_USER": "x", "NATS_PASSWORD": "geheim"}, args: []string{"--user", "node"}},
		"none":           {code: exitUnreachable},
		"wrong":          {env: map[string]string{"NATS_USER": "node", "NATS_PASSWORD": "verkehrt"}, code: exitUnreachable},
		"no such file":   {args: []string{"--creds", filepath.Join(t.TempDir(), "none.creds")}, code: exitUnreachable},
		"no credentials": {env: map[string]string{"NATS_CREDS_BASE64": "geheim"}, code: exitUnreachable},
	} {
		env := map[string]string{"NATS_URL": w.srv.URL()}
		maps.Copy(env, c.env)
		r := run(t, env, append(args, c.args...)...)
		if r.code != c.code {
			t.Errorf("%s: code %d, %s%s", name, r.code, r.out, r.err)
		}
		if strings.Contains(r.out+r.err, "geheim") || strings.Contains(r.out+r.err, "verkehrt") {
			t.Errorf("%s: a secret was printed: %s%s", name, r.out, r.err)
		}
	}
}

func TestLockedStore(t *testing.T) {
	for kind, open := range kinds {
		dir := t.TempDir()
		s, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		path := map[string]string{storePebble: dir, storeLog: filepath.Join(dir, "a.log")}[kind]
		r := run(t, nil, "repair", "--explain", "--dir", path)
		if r.code != exitFailed {
			t.Errorf("%s: code %d, %s", kind, r.code, r.err)
		}
		holdsAll(t, r.err, "open already", "hint: the fold is running")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		r = run(t, nil, "repair", "--explain", "--dir", path)
		if r.code != exitUsage || !strings.Contains(r.err, "--bucket") {
			t.Errorf("%s without a fold's record: code %d, %s", kind, r.code, r.err)
		}
	}
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{to: &out, every: progressAfter}
		stop := p.start()
		p.now("listing the bucket")
		time.Sleep(progressAfter - 1)
		synctest.Wait()
		if out.Len() != 0 {
			t.Errorf("too early: %s", &out)
		}
		p.listed.Add(7)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if out.String() != "fold: listing the bucket, 7 keys listed (2s)\n" {
			t.Errorf("told %q", &out)
		}
		stop()
		time.Sleep(time.Minute)
		if strings.Count(out.String(), "\n") != 1 {
			t.Errorf("told %q", &out)
		}
	})
}

// What differs from run to run, and what stands for it in the document.
var varying = []struct{ pattern, stands string }{
	{`"(began|ended|created|stored)": "[^"]*[^0-9"][^"]*"`, `"$1": "2026-01-02T03:04:05Z"`},
	{`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "2026-01-02T03:04:05Z"},
	{`"age_seconds": [0-9.e-]+`, `"age_seconds": 41.5`},
	{`\b[0-9a-f]{64}\b`, "27d1d86ca0a6ae2bd9a3a8d6a2dd2c9b2e0a3a4b1e6bf3e4c2f6d0d5b1f2a3c4"},
	{`-[0-9a-f]{16}\b`, "-5d0a9c1be2f4a681"},
	{`\b\d+ bytes`, "1234 bytes"},
	{`("(?:disk_)?bytes"): \d+`, "$1: 1234"},
	{`  \d+s +\d+ `, "  42s  1234 "},
	{`\b\d{19}\b`, "1767323045000000000"},
}

// shows fails when the document has no such output, with pairs of what is replaced in it, and by what.
func shows(t *testing.T, document, out string, pairs ...string) {
	t.Helper()
	out = strings.NewReplacer(pairs...).Replace(out)
	for _, v := range varying {
		out = regexp.MustCompile(v.pattern).ReplaceAllString(out, v.stands)
	}
	if !strings.Contains(document, "\n"+out+"```\n") {
		t.Errorf("docs/cli.md does not show\n%s", out)
	}
}

// TestDocument: the document shows what is printed.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a", "b", "c")
	path, _ := w.fold(t, storePebble)
	w.moveOn(t)
	for _, args := range [][]string{nil, {"--json"}} {
		shows(t, string(text), w.explain(t, path, args...).out, path, "/var/lib/node/fold")
	}
	r := run(t, nil, "repair", "--json")
	if !strings.Contains(string(text), "\n"+r.out+"```\n") {
		t.Errorf("docs/cli.md does not show\n%s", r.out)
	}
	for _, c := range (&program{}).root().Commands() {
		if name := c.Name(); name != "help" && name != "completion" && !strings.Contains(string(text), "fold "+name) {
			t.Errorf("docs/cli.md does not tell of fold %s", name)
		}
	}
	if !strings.Contains(string(text), "NATS_PASSWORD") {
		t.Error("docs/cli.md does not name the environment")
	}
}
