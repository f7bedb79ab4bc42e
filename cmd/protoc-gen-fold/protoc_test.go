//go:build protoc

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestProtoc is TestBufWorkspace with the protoc that PROTOC names, or that is in the PATH. It has to know edition 2024.
func TestProtoc(t *testing.T) {
	protoc := os.Getenv("PROTOC")
	if protoc == "" {
		protoc = "protoc"
	}
	plugin, protocGenGo := buildPlugin(t), filepath.Join(t.TempDir(), "protoc-gen-go")
	goRun(t, root, nil, "build", "-modfile=tools/go.mod", "-o", protocGenGo, "google.golang.org/protobuf/cmd/protoc-gen-go")
	dir := writeWorkspace(t)
	if err := os.Mkdir(filepath.Join(dir, "gen"), 0o755); err != nil {
		t.Fatal(err)
	}
	files := []string{"hosts/v1/hosts.proto", "hosts/v1/zone.proto", "kinds/v1/kind.proto", "sites/v1/site.proto"}
	packages := "paths=source_relative"
	for _, file := range files {
		pkg := filepath.Base(filepath.Dir(filepath.Dir(file))) + "v1"
		packages += ",M" + file + "=example.com/ws/gen/" + filepath.ToSlash(filepath.Dir(file)) + ";" + pkg
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, protoc, append([]string{
		"-I.", "--plugin=protoc-gen-go=" + protocGenGo, "--plugin=protoc-gen-fold=" + plugin,
		"--go_out=gen", "--go_opt=" + packages, "--fold_out=gen", "--fold_opt=" + packages,
	}, files...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v\n%s", err, out)
	}
	if n := len(generated(t, dir)); n != 7 {
		t.Errorf("%d files were generated, want 7", n)
	}
	useWorkspace(t, dir)
}
