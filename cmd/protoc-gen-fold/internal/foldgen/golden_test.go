package foldgen_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

var update = flag.Bool("update", false, "rewrite the golden files; commit the result only if the difference is meant")

const testdata = "../testdata"

// TestGolden generates each case of testdata and compares with what is committed there, which package golden compiles
// and runs.
func TestGolden(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join(testdata, "*", "proto"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases in %s: %v", testdata, err)
	}
	for _, protos := range cases {
		dir := filepath.Dir(protos)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			req, err := compile(readSources(t, protos))
			if err != nil {
				t.Fatal(err)
			}
			params, _ := os.ReadFile(filepath.Join(dir, "opt"))
			req = with(req, strings.TrimSpace(string(params)))
			got, text := generate(req)
			if text != "" {
				t.Fatalf("plugin error:%s", text)
			}
			if *update {
				rewrite(t, filepath.Join(dir, "gen"), got, goCode(t, req))
			}
			want := maps.Collect(foldFiles(readSources(t, filepath.Join(dir, "gen"))))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("generated code differs; run the test with -update, and commit the result only if it is meant (-want +got):\n%s", diff)
			}
			sameInAnyOrder(t, req, got)
		})
	}
}

func foldFiles(files sources) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for name, text := range files {
			if strings.HasSuffix(name, ".fold.go") && !yield(name, text) {
				return
			}
		}
	}
}

// sameInAnyOrder asks for the files in other orders, a directory at a time, and for each alone.
func sameInAnyOrder(t *testing.T, req *pluginpb.CodeGeneratorRequest, want map[string]string) {
	t.Helper()
	files := slices.Clone(req.GetFileToGenerate())
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		shuffled := with(req, "", files...)
		shuffleFiles(random, shuffled)
		got, text := generate(shuffled)
		if diff := cmp.Diff(want, got); text != "" || diff != "" {
			t.Errorf("order %v changes the output: %s%s", files, text, diff)
		}
	}
	byDir := map[string][]string{}
	for _, file := range files {
		byDir[path.Dir(file)] = append(byDir[path.Dir(file)], file)
	}
	together := map[string]string{}
	for dir, files := range byDir {
		got, text := generate(with(req, "", files...))
		if text != "" {
			t.Errorf("%s alone: %s", dir, text)
		}
		maps.Copy(together, got)
	}
	if diff := cmp.Diff(want, together); diff != "" {
		t.Errorf("directories alone give another output (-together +alone):\n%s", diff)
	}
	single := map[string]string{}
	for _, file := range files {
		got, text := generate(with(req, "", file))
		if text != "" {
			t.Errorf("%s alone: %s", file, text)
		}
		maps.Copy(single, got)
	}
	if diff := cmp.Diff(want, single); diff != "" {
		t.Errorf("files alone give another output (-together +alone):\n%s", diff)
	}
}

// shuffleFiles puts the request's files into another order in which each comes after what it imports.
func shuffleFiles(random *rand.Rand, req *pluginpb.CodeGeneratorRequest) {
	files := slices.Clone(req.GetProtoFile())
	random.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	req.ProtoFile = nil
	for added := map[string]bool{}; len(added) < len(files); {
		for _, f := range files {
			ready := !slices.ContainsFunc(f.GetDependency(), func(name string) bool { return !added[name] })
			if ready && !added[f.GetName()] {
				added[f.GetName()] = true
				req.ProtoFile = append(req.ProtoFile, f)
			}
		}
	}
}

func rewrite(t *testing.T, dir string, outputs ...map[string]string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, files := range outputs {
		for name, text := range files {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDiagnostics compares what the plugin says of each wrong schema. A case is proto files, an optional file "opt" of
// parameters, an optional file "generate" of what to generate, and the expected text.
func TestDiagnostics(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join(testdata, "diagnostics", "*.txtar"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, want := diagnose(t, archive)
			if *update && got != want {
				i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "diagnostics" })
				if i < 0 {
					archive.Files = append(archive.Files, txtar.File{Name: "diagnostics"})
					i = len(archive.Files) - 1
				}
				archive.Files[i].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("diagnostics differ (-want +got):\n%s", diff)
			}
		})
	}
}

func diagnose(t *testing.T, archive *txtar.Archive) (got, want string) {
	t.Helper()
	files, params := sources{}, ""
	var only []string
	for _, f := range archive.Files {
		switch {
		case f.Name == "buf": // what it is under buf itself; see package main
		case f.Name == "diagnostics":
			want = string(f.Data)
		case f.Name == "opt":
			params = strings.TrimSpace(string(f.Data))
		case f.Name == "generate":
			only = strings.Fields(string(f.Data))
		default:
			files[f.Name] = string(f.Data)
		}
	}
	req, err := compile(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range req.GetProtoFile() {
		if fd.GetOptions().GetGoPackage() == "" {
			t.Fatalf("%s has no go_package", fd.GetName())
		}
	}
	out, text := generate(with(req, params, only...))
	if text == "" {
		t.Fatalf("the plugin accepts it, and generates %v", slices.Sorted(maps.Keys(out)))
	}
	return strings.TrimPrefix(text, "\n") + "\n", want
}

// TestPositions: compilers differ in how deep into an option they note places; what is nearest above is taken.
func TestPositions(t *testing.T) {
	req, err := compile(sources{"t/v1/t.proto": `syntax = "proto3";
package t.v1;
import "fold/v1/options.proto";
option go_package = "example.com/t/v1;tv1";
message Route {
  option (fold.v1.table) = {key: "route.{tenat}" bucket: "b"};
  string tenant = 1;
}
`})
	if err != nil {
		t.Fatal(err)
	}
	file := req.ProtoFile[len(req.ProtoFile)-1]
	for _, c := range []struct {
		depth int // the longest path that is kept
		want  string
	}{
		{5, "\nt/v1/t.proto:6:42: fold: "}, {4, "\nt/v1/t.proto:6:3: fold: "}, {2, "\nt/v1/t.proto:5:1: fold: "}, {0, "\nt/v1/t.proto:1:1: fold: "},
	} {
		file.SourceCodeInfo.Location = slices.DeleteFunc(file.SourceCodeInfo.Location, func(l *descriptorpb.SourceCodeInfo_Location) bool {
			return len(l.Path) > c.depth
		})
		if _, text := generate(req); !strings.HasPrefix(text, c.want) {
			t.Errorf("places of depth %d: %s, want %s", c.depth, text, c.want)
		}
	}
}
