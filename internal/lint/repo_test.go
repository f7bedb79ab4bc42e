package lint

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	module = "github.com/typedfold/fold"
	root   = "../.."
)

// pkg is what go list says of a package, with its tests left out.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
	Standard   bool
}

// path is the package's path inside the module; ok is false for a package of another one.
func (p *pkg) path() (path string, ok bool) { return inModule(p.ImportPath) }

func inModule(importPath string) (path string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

var listed = sync.OnceValues(func() ([]*pkg, error) {
	out, err := goTool("list", "-deps", "-json=ImportPath,Name,Dir,GoFiles,Imports,Deps,Standard", "./...")
	if err != nil {
		return nil, err
	}
	var all []*pkg
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		p := new(pkg)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// packages are the module's packages, by their path inside it.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]*pkg{}
	for _, p := range all {
		if path, ok := p.path(); ok {
			own[path] = p
		}
	}
	if len(own) < 10 || own["runtime"] == nil {
		t.Fatalf("go list found %d packages of the module, and no runtime among them", len(own))
	}
	return own
}

// goTool runs the go command in the repository's root and returns what it printed.
func goTool(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.New("go " + args[0] + ": " + err.Error() + "\n" + stderr.String())
	}
	return string(out), err
}

// repoFiles are the paths of the repository's files, from its root, with forward slashes. Files that .gitignore names
// are left out.
func repoFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone since its folder was read
			}
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && slices.Contains([]string{".git", ".tmp", "bin"}, rel) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() && !ignored(rel) {
			files = append(files, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func ignored(file string) bool {
	return slices.Contains([]string{".test", ".prof", ".out"}, filepath.Ext(file)) || file == "coverage.txt"
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// under reports whether a path is a folder or lies in it.
func under(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}
