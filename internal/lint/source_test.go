package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// programs are the folders of what is run, not imported; they may print, exit and log.
var programs = []string{"cmd", "examples", "internal/bench", "internal/demo", "internal/modelcheck", "internal/dst", "internal/crash", "internal/streamchaos/cmd", "internal/optiondoc"}

// allowed are the calls that library code makes all the same, by file, function and call, each with its reason.
var allowed = map[string]string{
	"runtime/table.go Peek panic": "Peek has no error to return, and \"not there\" would be a lie; its comment says so",
}

const maxLines = 500

// isLibrary reports whether the file is one that users import: no test, no program, and nothing generated.
func isLibrary(file string) bool {
	return isSource(file) && !under(file, programs...) && !under(file, testKits...)
}

func isSource(file string) bool {
	return path.Ext(file) == ".go" && !strings.Contains(file, "/testdata/") &&
		!strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(file, ".pb.go") && !strings.HasSuffix(file, ".fold.go")
}

func TestLibraryReturnsErrors(t *testing.T) {
	met := map[string]bool{}
	checked := 0
	for _, file := range repoFiles(t) {
		if !isLibrary(file) {
			continue
		}
		checked++
		calls, err := loudCalls(file, read(t, file))
		if err != nil {
			t.Error(err)
		}
		for _, c := range calls {
			key := file + " " + c.in + " " + c.what
			met[key] = true
			if allowed[key] == "" {
				t.Errorf("%s:%d: %s calls %s; library code returns errors, and the caller decides", file, c.line, c.in, c.what)
			}
		}
	}
	for key := range allowed {
		if !met[key] {
			t.Errorf("%q is allowed and nothing needs it", key)
		}
	}
	if checked < 50 {
		t.Errorf("only %d files were checked", checked)
	}
}

type call struct {
	line     int
	in, what string
}

// loudCalls are a file's calls that print, log, exit or panic.
func loudCalls(file, text string) ([]call, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imported := map[string]string{} // path by name
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = p
	}
	var calls []call
	for _, d := range f.Decls {
		in := "package"
		if fn, ok := d.(*ast.FuncDecl); ok {
			in = fn.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if what := loud(c.Fun, imported); what != "" {
					calls = append(calls, call{line: set.Position(c.Pos()).Line, in: in, what: what})
				}
			}
			return true
		})
	}
	return calls, nil
}

func loud(fun ast.Expr, imported map[string]string) string {
	switch f := fun.(type) {
	case *ast.Ident:
		if slices.Contains([]string{"panic", "print", "println"}, f.Name) {
			return f.Name
		}
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		if !ok {
			return ""
		}
		name := f.Sel.Name
		switch imported[x.Name] {
		case "fmt":
			if strings.HasPrefix(name, "Print") {
				return "fmt." + name
			}
		case "log":
			return "log." + name
		case "log/slog":
			if slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "SetDefault", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"}, name) {
				return "slog." + name
			}
		case "os":
			if name == "Exit" {
				return "os.Exit"
			}
		}
	}
	return ""
}

func TestLoudCallsAreFound(t *testing.T) {
	calls, err := loudCalls("x.go", `package x
import ("fmt"; l "log"; "log/slog"; "os")
func F(log *slog.Logger) { fmt.Println(); l.Print(); slog.Info(""); os.Exit(1); panic(0); fmt.Fprintln(os.Stderr); log.Info("") }
var _ = func() { println() }
`)
	var got []string
	for _, c := range calls {
		got = append(got, fmt.Sprintf("%d %s %s", c.line, c.in, c.what))
	}
	want := []string{"3 F fmt.Println", "3 F log.Print", "3 F slog.Info", "3 F os.Exit", "3 F panic", "4 package println"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q, %v; want %q", got, err, want)
	}
}

func TestFilesStaySmall(t *testing.T) {
	for _, file := range repoFiles(t) {
		if !isSource(file) {
			continue
		}
		if n := strings.Count(read(t, file), "\n"); n >= maxLines {
			t.Errorf("%s has %d lines; a file stays under %d", file, n, maxLines)
		}
	}
}
