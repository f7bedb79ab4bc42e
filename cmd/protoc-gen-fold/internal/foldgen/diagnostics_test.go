package foldgen_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	fold "github.com/typedfold/fold/runtime"
)

// TestDiagnosticsTellTheWayOut: whatever is wrong in a schema, there is a place of it and a hint.
func TestDiagnosticsTellTheWayOut(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join(testdata, "diagnostics", "*.txtar"))
	if err != nil || len(cases) < 50 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	place := regexp.MustCompile(`^[a-z0-9_/]+\.proto:[1-9][0-9]*:[1-9][0-9]*: fold: .`)
	for _, path := range cases {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if f.Name != "diagnostics" {
				continue
			}
			lines := strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n")
			if strings.HasPrefix(filepath.Base(path), "28_") && len(lines) == 1 {
				continue // of a parameter, which has no place
			}
			for i, line := range lines {
				if hint := strings.HasPrefix(line, "    hint: "); hint != (i%2 == 1) || !hint && !place.MatchString(line) || len(lines)%2 == 1 {
					t.Errorf("%s: line %d of the diagnostics: %q", filepath.Base(path), i+1, line)
				}
			}
		}
	}
}

// TestDiagnosticsOfMapEntries: an option can't be written there, but a compiler's own plugin can put it there.
func TestDiagnosticsOfMapEntries(t *testing.T) {
	req, err := compile(sources{"t/v1/t.proto": `syntax = "proto3";
package t.v1;
import "fold/v1/options.proto";
option go_package = "example.com/t/v1;tv1";
message Route {
  option (fold.v1.table) = {key: "route.{tenant}" bucket: "b"};
  string tenant = 1;
  map<string, string> labels = 2;
}
`})
	if err != nil {
		t.Fatal(err)
	}
	entry := req.ProtoFile[len(req.ProtoFile)-1].MessageType[0].NestedType[0]
	proto.SetExtension(entry.Options, foldv1.E_Table, &foldv1.Table{Key: "labels.{key}", Bucket: "b"})
	want := "\nt/v1/t.proto:5:1: fold: map entry LabelsEntry cannot be a table\n    hint: declare a message, and use it as the type of the map's values"
	if _, text := generate(req); text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}

// TestPositionsInLists: what stands in a list of a nested option has its own place, in each way of writing it.
func TestPositionsInLists(t *testing.T) {
	for _, c := range []struct{ option, want string }{
		{`option (fold.v1.table) = {key: "route.{tenant}" index: {name: "x" fields: ["tenant", "nodeid"]}};`, "nodeid"},
		{`option (fold.v1.table) = {key: "route.{tenant}" index: {name: "x" fields: "tenant" fields: "nodeid"}};`, "nodeid"},
		{`option (fold.v1.table) = {key: "route.{tenant}" index: [{name: "y" fields: "node_id"}, {name: "x" fields: "nodeid"}]};`, "nodeid"},
		{`option (fold.v1.table).key = "route.{tenant}"; option (fold.v1.table).index = {name: "x" fields: ["tenant", "nodeid"]};`, "nodeid"},
		{`option (fold.v1.table) = {key: "route.{tenant}"}; option (fold.v1.table).index = {name: "x" fields: "nodeid"};`, "nodeid"},
		{`option (fold.v1.table) = {index: {name: "y" fields: "node_id"}}; option (fold.v1.table).key = "route.{nodeid}";`, "nodeid"},
		{`option (fold.v1.table).key = "route.{nodeid}";`, "nodeid"},
		{`option (fold.v1.table) = {key: "route.{tenant}" index: {name: "x" fields: 'nodeid'}};`, "nodeid"},
		{`option (fold.v1.table) = {key: "route.{tenant}" index: {name: "x" fields: "node\tid"}};`, `fields: "node\tid"`},
		{`option (fold.v1.table) = {key: "route.{tenant}" index: {name: "x" fields: "in.nodeid"}};`, "nodeid"},
		{`option (fold.v1.table) = {key: "route.{tenant}" also_read: [CODEC_PROTOJSON, CODEC_PROTO]};`, "CODEC_PROTO]"},
		{`option (fold.v1.table) = {key: "route.{tenant}" retired_index: ["a", "B"]};`, `"B"`},
	} {
		const head = `syntax = "proto3"; package t.v1; import "fold/v1/options.proto"; option go_package = "example.com/t/v1;tv1"; ` +
			`option (fold.v1.file) = {bucket: "b"}; message Route { string tenant = 1; string node_id = 2; message In { string id = 1; } In in = 3; `
		text := head + c.option + " }"
		req, err := compile(sources{"t/v1/t.proto": text})
		if err != nil {
			t.Fatal(err)
		}
		_, got := generate(req)
		m := regexp.MustCompile(`^\nt/v1/t\.proto:1:([0-9]+): `).FindStringSubmatch(got)
		if m == nil || strings.Count(got, ": fold: ") != 1 {
			t.Errorf("%s: not one diagnostic in line 1:%s", c.option, got)
			continue
		}
		column := 0
		for _, digit := range m[1] {
			column = column*10 + int(digit-'0')
		}
		if at := text[column-1:]; !strings.HasPrefix(at, c.want) {
			t.Errorf("%s: points to %.20q, want %q:%s", c.option, at, c.want, got)
		}
	}
}

// TestDiagnosticsOfLegalSchemas: what only looks wrong is generated. A validator may need no rules in the schema.
func TestDiagnosticsOfLegalSchemas(t *testing.T) {
	for _, option := range []string{
		`validate: true`, `value: CODEC_PROTOJSON`, `also_read: CODEC_PROTOJSON`, `retired_index: "by_node"`,
		`index: {name: "by_tenant" fields: "tenant" unique: true}`, `index: {name: "by_all" fields: ["node_id", "tenant", "tags"]}`,
	} {
		req, err := compile(sources{"t/v1/t.proto": `syntax = "proto3"; package t.v1; import "fold/v1/options.proto"; option go_package = "example.com/t/v1;tv1";
			message Route { option (fold.v1.table) = {key: "route.{tenant}.{node_id}" bucket: "b" ` + option + `}; string tenant = 1; string node_id = 2; repeated string tags = 3; }`})
		if err != nil {
			t.Fatal(err)
		}
		if files, text := generate(req); text != "" || len(files) != 1 {
			t.Errorf("%s: %d files, %s", option, len(files), text)
		}
	}
}

// TestIndexMethodsAreFree: the methods of an index, which begin ListBy, CountBy and GetBy, hide none of a table's own, so
// no name of an index has to be refused for it.
func TestIndexMethodsAreFree(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[*fold.Table[noKey, *descriptorpb.FileOptions]](), reflect.TypeFor[*fold.UnorderedTable[noKey, *descriptorpb.FileOptions]](),
	} {
		if typ.NumMethod() < 10 {
			t.Fatalf("%v has %d methods", typ, typ.NumMethod())
		}
		for i := range typ.NumMethod() {
			if name := typ.Method(i).Name; regexp.MustCompile(`^(List|Count|Get)By[A-Z0-9]`).MatchString(name) {
				t.Errorf("%v has method %s, which an index could have", typ, name)
			}
		}
	}
}

type noKey struct{}

func (noKey) AppendKey(b []byte) ([]byte, error) { return b, nil }

// TestDocs: what docs/schema.md shows of a schema is one. A block without a message is the option of a message that has
// the fields it names.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/schema.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(?:proto|text)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	schemas := 0
	for _, block := range blocks {
		schema := block[1]
		if !strings.Contains(schema, "(fold.v1.table)") {
			continue
		}
		schemas++
		if strings.HasPrefix(schema, "option ") {
			schema = "message Route { " + schema + `
				string tenant = 1; string domain = 2; string node_id = 3; Spec spec = 4; repeated string tags = 5; bytes cert_sha256 = 6;
				message Spec { string region = 1; } }`
		}
		if !strings.HasPrefix(schema, "syntax") {
			schema = `syntax = "proto3"; package t.v1; import "fold/v1/options.proto"; option go_package = "example.com/t/v1;tv1";
				option (fold.v1.file) = {bucket: "edge"}; ` + schema
		}
		req, err := compile(sources{"t/v1/t.proto": schema})
		if err != nil {
			t.Errorf("%s\n%v", block[1], err)
			continue
		}
		if files, text := generate(req); text != "" || len(files) != 1 {
			t.Errorf("%s\n%d files, %s", block[1], len(files), text)
		}
	}
	if schemas < 4 {
		t.Errorf("%d schemas, want at least 4", schemas)
	}
}
