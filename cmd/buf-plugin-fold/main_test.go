package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"buf.build/go/bufplugin/check"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite what buf is expected to print; commit the result only if the difference is meant")

const (
	root = "../.."
	head = "syntax = \"proto3\";\npackage t.v1;\nimport \"fold/v1/options.proto\";\noption (fold.v1.file) = {bucket: \"edge\"};\n"
)

func TestSpec(t *testing.T) {
	if err := check.ValidateSpec(spec()); err != nil {
		t.Error(err)
	}
}

// tools builds the plugin under its own name, and finds buf: the folder of the one, and the path of the other.
var tools = sync.OnceValues(func() (pair [2]string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if pair[0], err = os.MkdirTemp("", "buf-plugin-fold"); err != nil {
		return pair, err
	}
	for _, args := range [][]string{
		{"build", "-o", filepath.Join(pair[0], "buf-plugin-fold"), "."},
		{"tool", "-modfile=" + root + "/tools/go.mod", "-n", "buf"},
	} {
		out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
		if err != nil {
			return pair, errors.Join(err, errors.New(string(out)))
		}
		pair[1] = strings.TrimSpace(string(out))
	}
	return pair, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if pair, _ := tools(); pair[0] != "" {
		_ = os.RemoveAll(pair[0])
	}
	os.Exit(code)
}

// runBuf runs buf in dir with the plugin in its path, without a network: what it would fetch, it is refused. What it
// prints of its findings is returned.
func runBuf(t *testing.T, dir string, args ...string) string {
	t.Helper()
	pair, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, pair[1], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+pair[0]+string(os.PathListSeparator)+os.Getenv("PATH"), "BUF_CACHE_DIR="+t.TempDir(),
		"HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if found := errors.As(err, &exit) && exit.ExitCode() == 100; found == (len(out) == 0) || err != nil && !found {
		t.Fatalf("buf %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// workspace writes a module with one file and the options that it imports.
func workspace(t *testing.T, config, proto string) string {
	t.Helper()
	dir := t.TempDir()
	options, err := os.ReadFile(filepath.Join(root, "proto/fold/v1/options.proto"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"buf.yaml": config, "proto/t/v1/t.proto": head + proto, "proto/fold/v1/options.proto": string(options)} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestBuf runs buf on each case: the rule in its first line, a schema as it was and is, and what buf prints.
func TestBuf(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	passing, failing := map[string]bool{}, map[string]bool{}
	for _, path := range cases {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rule := strings.TrimSpace(string(archive.Comment))
		want := file(archive, "want")
		if want == "" {
			passing[rule] = true
		} else {
			failing[rule] = true
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			got := runCase(t, rule, archive)
			switch {
			case got == want:
			case *update:
				i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
				archive.Files[i].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("buf prints something else (-want +got):\n%s", cmp.Diff(want, got))
			}
		})
	}
	for _, r := range spec().Rules {
		id := r.ID
		if id == "FOLD_SCHEMA" {
			id = "lint " + id
		}
		if !passing[id] || !failing[id] {
			t.Errorf("rule %s lacks a case that passes or one that fails", id)
		}
	}
}

func runCase(t *testing.T, rule string, archive *txtar.Archive) string {
	verb := "breaking"
	if id, ok := strings.CutPrefix(rule, "lint "); ok {
		verb, rule = "lint", id
	}
	config := "version: v2\nmodules:\n  - path: proto\n" + verb + ":\n  use:\n    - " + rule + "\nplugins:\n  - plugin: buf-plugin-fold\n"
	dir := workspace(t, config, file(archive, "new.proto"))
	if verb == "lint" {
		return runBuf(t, dir, verb)
	}
	return runBuf(t, dir, verb, "--against", workspace(t, config, file(archive, "old.proto")))
}

func file(archive *txtar.Archive, name string) string {
	for _, f := range archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// TestDocumentedConfig runs buf with the buf.yaml that the documents show.
func TestDocumentedConfig(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/evolution.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "```yaml\n")
	config, _, _ := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/evolution.md shows no buf.yaml")
	}
	table := func(option, more string) string {
		return "message Route {\n  option (fold.v1.table) = {" + option + "};\n  string tenant = 1;\n  string domain = 2;\n" + more + "}\n"
	}
	was := workspace(t, config, table(`key: "route.{tenant}.{domain}"`, ""))
	if got := runBuf(t, was, "lint"); got != "" {
		t.Errorf("lint: %s", got)
	}
	is := workspace(t, config, table(`key: "route.{domain}.{tenant}"`, ""))
	if got := runBuf(t, is, "breaking", "--against", was); !strings.Contains(got, "t.proto:6:29:") || !strings.Contains(got, "BREAKING") {
		t.Errorf("a changed key: %s", got)
	}
	if got := runBuf(t, workspace(t, config, table(`key: "route.{tenant}.{domain}" value: CODEC_PROTOJSON`, "  string note = 3;\n")), "breaking", "--against", was); got != "" {
		t.Errorf("a changed codec: %s", got)
	}
	if got := runBuf(t, workspace(t, config, table(`key: "route.{tenat}.{domain}"`, "")), "lint"); !strings.Contains(got, "did you mean") {
		t.Errorf("a wrong key: %s", got)
	}
}
