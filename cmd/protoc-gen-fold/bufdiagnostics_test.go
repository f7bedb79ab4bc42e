package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite what the golden files say of buf; commit the result only if the difference is meant")

// TestBufGoldenDiagnostics runs buf itself on each wrong schema of the golden files. Its compiler notes fewer places than
// the one that the other test uses: where it makes a difference, the case has a file "buf" with what buf prints.
func TestBufGoldenDiagnostics(t *testing.T) {
	cases, err := filepath.Glob("internal/testdata/diagnostics/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	plugin, bufPath := filepath.Join(t.TempDir(), "protoc-gen-fold"), ""
	for _, tool := range []struct {
		out  *string
		args []string
	}{
		{nil, []string{"build", "-o", plugin, "."}},
		{&bufPath, []string{"tool", "-modfile=../../tools/go.mod", "-n", "buf"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "go", tool.args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", tool.args, err, out)
		}
		if tool.out != nil {
			*tool.out = strings.TrimSpace(string(out))
		}
	}
	options, err := os.ReadFile(filepath.Join(root, "proto/fold/v1/options.proto"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := bufDiagnose(t, bufPath, plugin, archive, options)
			want, same := expected(archive)
			if got == want {
				return
			}
			if !*update {
				t.Errorf("buf says something else (-want +got):\n%s", cmp.Diff(want, got))
				return
			}
			archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "buf" })
			if got != same {
				archive.Files = append(archive.Files, txtar.File{Name: "buf", Data: []byte(got)})
			}
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// expected is what buf should print for a case, and what the compiler of the other test gives.
func expected(archive *txtar.Archive) (want, other string) {
	for _, f := range archive.Files {
		switch f.Name {
		case "buf":
			want = string(f.Data)
		case "diagnostics":
			other = string(f.Data)
		}
	}
	if want == "" {
		want = other
	}
	return want, other
}

// bufDiagnose is what buf prints for the case, without its own words before it.
func bufDiagnose(t *testing.T, bufPath, plugin string, archive *txtar.Archive, options []byte) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{"buf.yaml": []byte("version: v2\n")}
	opts, generate := []string{"paths=source_relative"}, []string(nil)
	for _, f := range archive.Files {
		switch f.Name {
		case "opt":
			opts = append(opts, strings.TrimSpace(string(f.Data)))
		case "generate":
			generate = strings.Fields(string(f.Data))
		case "buf", "diagnostics":
		default:
			files[f.Name] = f.Data
		}
	}
	imported := false // a module that has options of its own elsewhere has no others
	for _, text := range files {
		imported = imported || strings.Contains(string(text), `import "fold/v1/options.proto"`)
	}
	if _, own := files["fold/v1/options.proto"]; imported && !own {
		files["fold/v1/options.proto"] = options
	}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	template := fmt.Sprintf(`{"version": "v2", "plugins": [{"local": %q, "out": "gen", "opt": %q, "strategy": "all"}]}`, plugin, strings.Join(opts, ","))
	args := []string{"generate", "--template", template, "--output", dir, dir}
	for _, file := range generate {
		args = append(args, "--path", filepath.Join(dir, filepath.FromSlash(file)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bufPath, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("buf accepts it:\n%s", out)
	}
	text, ok := strings.CutPrefix(string(out), fmt.Sprintf("Failure: plugin %s: ", plugin))
	if !ok {
		t.Fatalf("not an error of the plugin:\n%s", out)
	}
	return strings.TrimPrefix(text, "\n")
}
