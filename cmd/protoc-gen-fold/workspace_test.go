package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The workspace of a user: schemas in three packages, the options, and no go_package, which managed mode sets.
var workspace = map[string]string{
	"buf.yaml": "version: v2\n",
	"hosts/v1/hosts.proto": `edition = "2024";
package hosts.v1;
import "fold/v1/options.proto";
import "hosts/v1/zone.proto";
import "kinds/v1/kind.proto";
option (fold.v1.file) = {bucket: "edge"};

// Host is one machine.
message Host {
  option (fold.v1.table) = {key: "host.{zone}.{kind}.{name}"};
  Zone zone = 1;
  kinds.v1.Kind kind = 2;
  string name = 3;
}

message Disk {
  option (fold.v1.table) = {key: "disk.{host}.{slot}" bind: BIND_FILL};
  string host = 1;
  uint32 slot = 2;
  string model = 3;
}
`,
	"hosts/v1/zone.proto": `syntax = "proto3";
package hosts.v1;
import "fold/v1/options.proto";

enum Zone {
  ZONE_UNSPECIFIED = 0;
  ZONE_EAST = 1;
}

message ZoneState {
  option (fold.v1.table) = {bucket: "edge" key: "zone.{zone}"};
  Zone zone = 1;
  bool open = 2;
}
`,
	"kinds/v1/kind.proto": `syntax = "proto2";
package kinds.v1;

enum Kind {
  KIND_SMALL = 1;
}
`,
	"sites/v1/site.proto": `syntax = "proto3";
package sites.v1;
import "fold/v1/options.proto";
import "hosts/v1/zone.proto";

message Site {
  option (fold.v1.table) = {bucket: "edge" key: "site.{zone}.{path...}"};
  hosts.v1.Zone zone = 1;
  string path = 2;
}
`,
	"use/use_test.go": `package use

import (
	"testing"

	hostsv1 "example.com/ws/gen/hosts/v1"
	"example.com/ws/gen/hosts/v1/hostsv1fold"
	"example.com/ws/gen/sites/v1/sitesv1fold"
	fold "github.com/typedfold/fold/runtime"
)

func Test(t *testing.T) {
	host := &hostsv1.Host{}
	host.SetZone(hostsv1.Zone_ZONE_EAST)
	host.SetKind(1)
	host.SetName("a.b")
	k, err := hostsv1fold.HostKeyOf(host)
	if err != nil || k.String() != "host.pa1.pa1.a/2Eb" {
		t.Error(k, err)
	}
	disk, rej := hostsv1fold.ParseDisk(fold.RawEntry{Key: "disk.h.b12", Op: fold.OpPut})
	if rej != nil || disk.New.GetHost() != "h" || disk.New.GetSlot() != 12 {
		t.Error(disk, rej)
	}
	if p := sitesv1fold.SiteByZone(hostsv1.Zone_ZONE_EAST); p.String() != "site.pa1." {
		t.Error(p)
	}
}
`,
}

// TestBufWorkspace: buf asks for all directories at once or for each by itself, as the user has it, and the code is the
// same; it compiles, is vetted, and runs.
func TestBufWorkspace(t *testing.T) {
	plugin := buildPlugin(t)
	dir := writeWorkspace(t)
	var outputs []map[string]string
	for _, strategy := range []string{"", `, "strategy": "all"`} {
		template := `{"version": "v2",
			"managed": {"enabled": true, "override": [{"file_option": "go_package_prefix", "value": "example.com/ws/gen"}], "disable": [{"file_option": "go_package", "path": "fold/v1"}]},
			"plugins": [
				{"local": ["go", "tool", "-modfile=tools/go.mod", "protoc-gen-go"], "out": "gen", "opt": "paths=source_relative"},
				{"local": "` + filepath.ToSlash(plugin) + `", "out": "gen", "opt": "paths=source_relative"` + strategy + `}]}`
		if err := os.RemoveAll(filepath.Join(dir, "gen")); err != nil {
			t.Fatal(err)
		}
		if out, err := buf(t, "generate", "--template", template, "--output", dir, "--exclude-path", filepath.Join(dir, "fold"), dir); err != nil {
			t.Fatalf("buf generate%s: %v\n%s", strategy, err, out)
		}
		outputs = append(outputs, generated(t, dir))
	}
	want := []string{
		"gen/hosts/v1/hosts.pb.go", "gen/hosts/v1/hostsv1fold/hosts.fold.go", "gen/hosts/v1/hostsv1fold/zone.fold.go", "gen/hosts/v1/zone.pb.go", "gen/kinds/v1/kind.pb.go",
		"gen/sites/v1/site.pb.go", "gen/sites/v1/sitesv1fold/site.fold.go",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(outputs[0]))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(outputs[0], outputs[1]); diff != "" {
		t.Errorf("the strategies give different code (-directory +all):\n%s", diff)
	}
	useWorkspace(t, dir)
}

// buildPlugin compiles the plugin as a user installs it.
func buildPlugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "protoc-gen-fold")
	goRun(t, root, nil, "build", "-o", path, "./cmd/protoc-gen-fold")
	return path
}

// writeWorkspace writes the workspace and the options, as a Go module that has this one for the runtime.
func writeWorkspace(t *testing.T) string {
	t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// The same versions of modules as here, so that nothing is looked up.
	_, requires, _ := strings.Cut(read("go.mod"), "\nrequire (")
	requires, _, _ = strings.Cut(requires, "\ntool ")
	files := maps.Clone(workspace)
	files["fold/v1/options.proto"] = read("proto/fold/v1/options.proto")
	files["go.sum"] = read("go.sum")
	files["go.mod"] = "module example.com/ws\n\ngo 1.26.0\n\nreplace github.com/typedfold/fold => " + filepath.ToSlash(here) +
		"\n\nrequire github.com/typedfold/fold v0.0.0\n\nrequire (" + requires
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// useWorkspace compiles, vets and runs what was generated.
func useWorkspace(t *testing.T, dir string) {
	t.Helper()
	goRun(t, dir, []string{"GOFLAGS=-mod=mod"}, "vet", "./...")
	goRun(t, dir, []string{"GOFLAGS=-mod=mod"}, "test", "./...")
}

func goRun(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
