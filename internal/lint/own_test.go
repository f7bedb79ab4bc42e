package lint

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestOwnRepository does what the README tells those who want tables in a repository of their own: its files, its schema
// under another path, buf generate, and a build of what came out.
func TestOwnRepository(t *testing.T) {
	home, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var schema string
	files := map[string]string{}
	for _, b := range blocksOf("README.md", read(t, "README.md")) {
		switch {
		case b.lang == "proto":
			schema = regexp.MustCompile(`go_package = ".*"`).ReplaceAllString(b.text, `go_package = "example.com/own/gen/routes/v1;routesv1"`)
			schema = strings.ReplaceAll(schema, "package routes.v1;", "package own.routes.v1;")
		case b.lang == "yaml" && strings.Contains(b.text, "modules:"):
			files["buf.yaml"] = b.text
		case b.lang == "yaml" && strings.Contains(b.text, "plugins:"):
			files["buf.gen.yaml"] = b.text
		}
	}
	files["proto/routes/v1/routes.proto"] = schema
	files["third_party/fold/v1/options.proto"] = read(t, "proto/fold/v1/options.proto")
	files["go.mod"] = ownGoMod(t, home)
	files["go.sum"] = read(t, "go.sum")
	for name, text := range files {
		if text == "" {
			t.Fatalf("README.md has no %s", name)
		}
		write(t, filepath.Join(dir, name), text)
	}
	buf := filepath.Join(t.TempDir(), "buf")
	if _, err := goTool("build", "-modfile=tools/go.mod", "-o", buf, "github.com/bufbuild/buf/cmd/buf"); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, buf, "generate")
	for _, name := range []string{"gen/routes/v1/routes.pb.go", "gen/routes/v1/routesv1fold/routes.fold.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "gen/fold")); err == nil {
		t.Error("the options were generated too; two packages would register one file")
	}
	runIn(t, dir, "go", "build", "./...")
}

// ownGoMod is a module that has this one, as it is here, with all that it requires, and the plugins as tools.
func ownGoMod(t *testing.T, home string) string {
	t.Helper()
	requires := regexp.MustCompile(`(?ms)^require \(.*?^\)$`).FindAllString(read(t, "go.mod"), -1)
	if len(requires) == 0 {
		t.Fatal("go.mod has no block of requires")
	}
	return fmt.Sprintf(`module example.com/own

go 1.26.0

%s

require %s v0.0.0

replace %s => %s

tool (
	google.golang.org/protobuf/cmd/protoc-gen-go
	%s/cmd/protoc-gen-fold
)
`, strings.Join(requires, "\n\n"), module, module, home, module)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runIn runs a command in another module.
func runIn(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
