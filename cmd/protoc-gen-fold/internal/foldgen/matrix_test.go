package foldgen_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// TestMatrix generates the schemas of each case of testdata/matrix. A case is proto files, what they become, in files
// named gen/…, and maybe "opt", the plugin's parameters, "managed", the go_package prefix of buf's managed mode, or
// "edition2024", which gives the files the edition that the compiler of these tests can't read yet.
func TestMatrix(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join(testdata, "matrix", "*.txtar"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			req, want := matrixCase(t, archive)
			got, text := generate(req)
			if text != "" {
				t.Fatalf("plugin error:%s", text)
			}
			if *update {
				rewriteArchive(t, file, archive, got)
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("generated code differs; run the test with -update, and commit the result only if it is meant (-want +got):\n%s", diff)
			}
			sameInAnyOrder(t, req, got)
			for name, text := range got {
				checkSize(t, name, text)
			}
			typeCheck(t, req, got)
		})
	}
}

// matrixCase is the request of a case, and the generated files that it holds.
func matrixCase(t *testing.T, archive *txtar.Archive) (*pluginpb.CodeGeneratorRequest, map[string]string) {
	t.Helper()
	files, want := sources{}, map[string]string{}
	opt, managed, newest := "", "", false
	for _, f := range archive.Files {
		name, generated := strings.CutPrefix(f.Name, "gen/")
		switch {
		case generated:
			want[name] = string(f.Data)
		case f.Name == "opt":
			opt = strings.TrimSpace(string(f.Data))
		case f.Name == "managed":
			managed = strings.TrimSpace(string(f.Data))
		case f.Name == "edition2024":
			newest = true
		default:
			files[f.Name] = string(f.Data)
		}
	}
	req, err := compile(files)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(opt, "module=") {
		req.Parameter = nil
	}
	req = with(req, opt)
	for _, fd := range req.GetProtoFile() {
		if !slices.Contains(req.GetFileToGenerate(), fd.GetName()) {
			continue
		}
		if newest {
			fd.Edition = descriptorpb.Edition_EDITION_2024.Enum()
		}
		if managed != "" {
			dir := path.Dir(fd.GetName())
			if fd.Options == nil {
				fd.Options = new(descriptorpb.FileOptions)
			}
			fd.Options.GoPackage = proto.String(managed + "/" + dir + ";" + strings.ReplaceAll(dir, "/", ""))
		}
	}
	return req, want
}

func rewriteArchive(t *testing.T, file string, archive *txtar.Archive, got map[string]string) {
	t.Helper()
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "gen/") })
	for _, name := range slices.Sorted(maps.Keys(got)) {
		archive.Files = append(archive.Files, txtar.File{Name: "gen/" + name, Data: []byte(got[name])})
	}
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkSize: a generated file has at most 100 lines a table and 25 an index.
func checkSize(t *testing.T, name, code string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, code, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	tables, indexes := 0, 0
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		switch name := f.Name.Name; {
		case f.Recv == nil && strings.HasPrefix(name, "Register"):
			tables++
		case f.Recv != nil && (strings.HasPrefix(name, "ListBy") || strings.HasPrefix(name, "GetBy")):
			indexes++
		}
	}
	if lines, limit := strings.Count(code, "\n"), 100*tables+25*indexes; tables == 0 || lines > limit {
		t.Errorf("%s has %d lines for %d tables and %d indexes, at most %d", name, lines, tables, indexes, limit)
	}
}

// TestSize holds the limit for every generated file of the repository.
func TestSize(t *testing.T) {
	found := 0
	for _, dir := range []string{"examples", "internal/foldtest/gen", "cmd/protoc-gen-fold/internal/testdata"} {
		for name, code := range foldFiles(readSources(t, filepath.Join(root, dir))) {
			found++
			checkSize(t, path.Join(dir, name), code)
		}
	}
	if found < 20 {
		t.Errorf("found %d generated files", found)
	}
}

// typeCheck compiles what the plugin and protoc-gen-go make of the request, as far as types go.
func typeCheck(t *testing.T, req *pluginpb.CodeGeneratorRequest, got map[string]string) {
	t.Helper()
	// By import path; the names of files tell which package they are of only together with the parameters.
	packages := map[string][]*ast.File{}
	fset := token.NewFileSet()
	paths := importPaths(t, req)
	for name, code := range merged(got, goCode(t, req)) {
		if strings.HasSuffix(name, "_protoopaque.pb.go") { // the same API again, under a build tag
			continue
		}
		file, err := parser.ParseFile(fset, name, code, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		importPath, ok := paths[name]
		if !ok {
			t.Fatalf("%s: no package", name)
		}
		packages[importPath] = append(packages[importPath], file)
	}
	im := &generatedImporter{known: map[string]*types.Package{}, packages: packages, fset: fset, errorf: t.Errorf,
		rest: importer.ForCompiler(fset, "gc", lookupExport(t))}
	for importPath := range packages {
		if _, err := im.Import(importPath); err != nil {
			t.Errorf("import %s: %v", importPath, err)
		}
	}
}

func merged(outputs ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, files := range outputs {
		maps.Copy(all, files)
	}
	return all
}

// importPaths are the Go packages of the generated files, as protogen works them out, by file.
func importPaths(t *testing.T, req *pluginpb.CodeGeneratorRequest) map[string]string {
	t.Helper()
	suffix := "fold"
	for param := range strings.SplitSeq(req.GetParameter(), ",") {
		if s, ok := strings.CutPrefix(param, "package_suffix="); ok {
			suffix = s
		}
	}
	plugin := newPlugin(t, req)
	paths, module := map[string]string{}, moduleOf(req)
	for _, f := range plugin.Files {
		prefix := f.GeneratedFilenamePrefix
		if module != "" {
			prefix = strings.TrimPrefix(prefix, module+"/")
		}
		importPath := string(f.GoImportPath)
		paths[prefix+".pb.go"] = importPath
		if suffix == "" {
			paths[prefix+".fold.go"] = importPath
			continue
		}
		pkg := string(f.GoPackageName) + suffix
		paths[path.Join(path.Dir(prefix), pkg, path.Base(prefix)+".fold.go")] = importPath + "/" + pkg
	}
	return paths
}

func moduleOf(req *pluginpb.CodeGeneratorRequest) string {
	for param := range strings.SplitSeq(req.GetParameter(), ",") {
		if module, ok := strings.CutPrefix(param, "module="); ok {
			return module
		}
	}
	return ""
}

// generatedImporter imports generated packages from their source, and others from the build cache.
type generatedImporter struct {
	known    map[string]*types.Package
	packages map[string][]*ast.File
	fset     *token.FileSet
	errorf   func(string, ...any)
	rest     types.Importer
}

func (im *generatedImporter) Import(importPath string) (*types.Package, error) {
	if pkg := im.known[importPath]; pkg != nil {
		return pkg, nil
	}
	files, ok := im.packages[importPath]
	if !ok {
		return im.rest.Import(importPath)
	}
	config := types.Config{Importer: im, Error: func(err error) { im.errorf("%v", err) }}
	pkg, _ := config.Check(importPath, im.fset, files, nil) // errors are told one by one
	im.known[importPath] = pkg
	return pkg, nil
}

// exports are the files with the compiled form of the packages that generated code imports, by import path.
var exports = sync.OnceValues(func() (map[string]string, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", `{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}`,
		"./runtime", "google.golang.org/protobuf/types/gofeaturespb", "google.golang.org/protobuf/types/known/...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if importPath, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			files[importPath] = file
		}
	}
	return files, nil
})

func lookupExport(t *testing.T) importer.Lookup {
	t.Helper()
	files, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	return func(importPath string) (io.ReadCloser, error) {
		file, ok := files[importPath]
		if !ok {
			return nil, fmt.Errorf("no compiled package %s", importPath)
		}
		return os.Open(file)
	}
}

// newPlugin is the request as protoc-gen-go reads it.
func newPlugin(t *testing.T, req *pluginpb.CodeGeneratorRequest) *protogen.Plugin {
	t.Helper()
	req = with(req, "")
	params := slices.DeleteFunc(strings.Split(req.GetParameter(), ","), func(p string) bool { return strings.HasPrefix(p, "package_suffix=") })
	req.Parameter = proto.String(strings.Join(params, ","))
	plugin, err := protogen.Options{}.New(req)
	if err != nil {
		t.Fatal(err)
	}
	return plugin
}

// goCode is what protoc-gen-go makes of the request.
func goCode(t *testing.T, req *pluginpb.CodeGeneratorRequest) map[string]string {
	t.Helper()
	plugin := newPlugin(t, req)
	for _, f := range plugin.Files {
		if f.Generate {
			internal_gengo.GenerateFile(plugin, f)
		}
	}
	out := map[string]string{}
	for _, f := range plugin.Response().GetFile() {
		out[f.GetName()] = f.GetContent()
	}
	return out
}
