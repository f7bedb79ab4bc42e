package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

const root = "../.."

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"--version"}, nil, &out); err != nil || !strings.HasPrefix(out.String(), "protoc-gen-fold ") {
		t.Errorf("--version: %q %v", out.String(), err)
	}
	out.Reset()
	if err := run([]string{"--help"}, nil, &out); err != nil || out.String() != usage {
		t.Errorf("--help: %q %v", out.String(), err)
	}
	if err := run([]string{"generate"}, nil, &out); err == nil {
		t.Error("an argument is accepted")
	}
	if err := run(nil, strings.NewReader("\xFF"), &out); err == nil {
		t.Error("a broken request is accepted")
	}
	out.Reset()
	if err := run(nil, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	res := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(out.Bytes(), res); err != nil || res.Error != nil || len(res.File) != 0 || res.GetSupportedFeatures() == 0 {
		t.Errorf("empty request: %v %v", res, err)
	}
}

// buf runs the module's own buf, and gives back what it prints.
func buf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "-modfile=tools/go.mod", "buf"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ownTemplate is a folder whose code has a buf template of its own, which make checkgenerate compares.
const ownTemplate = "validatetest"

// generated reads all generated Go files in folders named gen, into which buf.gen.yaml writes; test data has its own test.
func generated(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ownTemplate || strings.HasPrefix(d.Name(), ".") && path != dir) {
			return filepath.SkipDir
		}
		rel, _ := filepath.Rel(dir, path)
		inGen := slices.Contains(strings.Split(filepath.ToSlash(rel), "/"), "gen")
		if !inGen || !strings.HasSuffix(path, ".pb.go") && !strings.HasSuffix(path, ".fold.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		files[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestBufGenerate makes all generated code of the repository anew, elsewhere: it must be what is committed.
func TestBufGenerate(t *testing.T) {
	dir := t.TempDir()
	if out, err := buf(t, "generate", "--output", dir); err != nil {
		t.Fatalf("buf generate: %v\n%s", err, out)
	}
	if diff := cmp.Diff(generated(t, root), generated(t, dir)); diff != "" {
		t.Errorf("generated code is not up to date; run go tool -modfile=tools/go.mod buf generate (-committed +generated):\n%s", diff)
	}
}

// generateModule runs buf with this plugin on a module of these files and options.proto.
func generateModule(t *testing.T, files map[string]string) (dir, out string, err error) {
	t.Helper()
	dir = t.TempDir()
	options, err := os.ReadFile(filepath.Join(root, "proto/fold/v1/options.proto"))
	if err != nil {
		t.Fatal(err)
	}
	files["buf.yaml"] = "version: v2\n"
	files["fold/v1/options.proto"] = string(options)
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	template := `{"version": "v2", "plugins": [{"local": ["go", "run", "./cmd/protoc-gen-fold"], "out": "gen", "opt": "paths=source_relative", "strategy": "all"}]}`
	out, err = buf(t, "generate", "--template", template, "--output", dir, dir)
	return dir, out, err
}

// TestBufDiagnostics: a wrong schema fails buf generate, with a place on each line.
func TestBufDiagnostics(t *testing.T) {
	_, out, err := generateModule(t, map[string]string{"bad/v1/bad.proto": `syntax = "proto3";
package bad.v1;
import "fold/v1/options.proto";
option go_package = "example.com/bad/v1;badv1";
message Bad {
  option (fold.v1.table) = {
    bucket: "b", key: "bad.{x}.{nam}"
  };
  string name = 1;
  float x = 2;
}
message Worse {
  option (fold.v1.table).key = "worse.{}";
  string name = 1;
}
`})
	if err == nil {
		t.Fatalf("buf generate accepts it:\n%s", out)
	}
	for _, want := range []string{
		"\nbad/v1/bad.proto:7:28: fold: field \"x\" is float",
		"\nbad/v1/bad.proto:7:33: fold: {nam}: \"nam\" is not a field of Bad\n    hint: did you mean \"name\"?",
		"\nbad/v1/bad.proto:13:39: fold: key pattern: the variable at offset 6 has no name",
		"\nbad/v1/bad.proto:13:3: fold: table Worse has no bucket",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// TestBufEdition2024: the newest edition is read.
func TestBufEdition2024(t *testing.T) {
	dir, out, err := generateModule(t, map[string]string{"e/v1/e.proto": `edition = "2024";
package e.v1;
import "fold/v1/options.proto";
option go_package = "example.com/e/v1;ev1";
message Entry {
  option (fold.v1.table) = {bucket: "b", key: "e.{name}"};
  string name = 1;
}
`})
	if err != nil {
		t.Fatalf("buf generate: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "gen/e/v1/ev1fold/e.fold.go"))
	if err != nil || !strings.Contains(string(text), `fold.RequiredFields(m, "name")`) {
		t.Errorf("generated %q %v", text, err)
	}
}
