package foldgen_test

import (
	"go/build/constraint"
	"strings"
	"testing"
)

// TestCommentIsNoBuildConstraint: what a schema's comments say never decides whether the generated file is compiled.
func TestCommentIsNoBuildConstraint(t *testing.T) {
	req, err := compile(sources{"t/v1/t.proto": strings.ReplaceAll(`syntax = "proto3";
package t.v1;
import "fold/v1/options.proto";
option go_package = "example.com/t/v1;tv1";
// */ first
//go:build ignore
// +build ignore
//+build ignore
//line x.go:1
message Route {
  option (fold.v1.table) = {key: "route.{tenant}" bucket: "b"};
  string tenant = 1;
}
// +build ignore
message Other {
  option (fold.v1.table) = {key: "other.{tenant}" bucket: "b"};
  string tenant = 1;
}
`, "\n", "\r\n")})
	if err != nil {
		t.Fatal(err)
	}
	got, text := generate(req)
	code := got["t/v1/tv1fold/t.fold.go"]
	if text != "" || code == "" {
		t.Fatalf("%q %s", code, text)
	}
	for line := range strings.Lines(code) {
		if constraint.IsGoBuild(line) || constraint.IsPlusBuild(line) || strings.HasPrefix(line, "//line") {
			t.Errorf("the code has the line %q", line)
		}
	}
	for _, want := range []string{"\t// + build ignore\n", "\t// */ first go:build ignore "} {
		if !strings.Contains(code, want) {
			t.Errorf("no comment %q in:\n%s", want, code)
		}
	}
}

// TestAliases: a package is imported under a name that Go takes, and that the file does not declare.
func TestAliases(t *testing.T) {
	for name, want := range map[string]string{
		"init": "initpb", "RouteKey": "RouteKeypb", "RouteByMode": "RouteByModepb", "RouteRows": "RouteRowspb", "RouteLines": "RouteLines", "string": "stringpb", "fold": "foldpb", "k": "kpb",
	} {
		req, err := compile(sources{
			"e/e.proto": `syntax = "proto3"; package e; option go_package = "example.com/e;` + name + `"; enum Mode { MODE_UNSPECIFIED = 0; }`,
			"t/v1/t.proto": `syntax = "proto3";
package t.v1;
import "e/e.proto";
import "fold/v1/options.proto";
option go_package = "example.com/t/v1;tv1";
message Route {
  option (fold.v1.table) = {key: "route.{mode}.{x}" bucket: "b"};
  e.Mode mode = 1;
  string x = 2;
}
`})
		if err != nil {
			t.Fatal(err)
		}
		got, text := generate(req)
		if code := got["t/v1/tv1fold/t.fold.go"]; text != "" || !strings.Contains(code, "\t"+want+" \"example.com/e\"\n") || !strings.Contains(code, want+".Mode") {
			t.Errorf("package %s is not imported as %s: %s%.400s", name, want, text, code)
		}
	}
}

// TestIndexOfFieldNamedAsAParameter: whatever a field is called, an index of it compiles.
func TestIndexOfFieldNamedAsAParameter(t *testing.T) {
	req, err := compile(sources{"t/v1/t.proto": `syntax = "proto3";
package t.v1;
import "fold/v1/options.proto";
option go_package = "example.com/t/v1;tv1";
message Route {
  option (fold.v1.table) = {
    key: "route.{tenant}" bucket: "b"
    index: {name: "by_opts" fields: "opts"} index: {name: "by_words" fields: ["ctx", "t", "dst", "err", "opts", "opts2", "fold"]}
  };
  string tenant = 1; string ctx = 2; string t = 3; string dst = 4; string err = 5; string opts = 6; string opts2 = 7; string fold = 8;
}
`})
	if err != nil {
		t.Fatal(err)
	}
	got, text := generate(req)
	if text != "" {
		t.Fatal(text)
	}
	typeCheck(t, req, got)
}
