package schema

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	"github.com/typedfold/fold/runtime/keyenc"
)

// compileFile compiles one proto file, whose text follows a common head.
func compileFile(t *testing.T, text string) protoreflect.FileDescriptor {
	t.Helper()
	options, err := os.ReadFile("../../proto/fold/v1/options.proto")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{
			"fold/v1/options.proto": string(options),
			"t.proto": "syntax = \"proto3\";\npackage t.v1;\nimport \"fold/v1/options.proto\";\n" +
				"import \"google/protobuf/duration.proto\";\nimport \"google/protobuf/timestamp.proto\";\n" +
				"option (fold.v1.file) = {bucket: \"edge\"};\n" + text,
		}),
	})}
	files, err := c.Compile(ctx, "t.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

// compileTables compiles the tables of a file, by Go name.
func compileTables(t *testing.T, text string) map[string]*Table {
	t.Helper()
	tables := map[string]*Table{}
	for _, md := range Tables(compileFile(t, text)) {
		table, problems := Compile(md)
		for _, p := range problems {
			t.Fatal(p)
		}
		tables[table.GoName] = table
	}
	return tables
}

const shapes = `
message Fixed { option (fold.v1.table) = {key: "a.{x}.lit.{y}"}; string x = 1; string y = 2; }
message Tail { option (fold.v1.table) = {key: "tail.{x}.in.{path...}"}; string x = 1; string path = 2; }
message Single { option (fold.v1.table) = {key: "one.only"}; string x = 1; }
message First { option (fold.v1.table) = {key: "f.{x}.end"}; string x = 1; }
`

func TestMatches(t *testing.T) {
	tables := compileTables(t, shapes)
	for _, c := range []struct {
		table, key string
		want       bool
	}{
		{"Fixed", "a.1.lit.2", true},
		{"Fixed", "a.1.lit.2.3", false},
		{"Fixed", "a.1.lit", false},
		{"Fixed", "a.1.lit.", false},
		{"Fixed", "a..lit.2", false},
		{"Fixed", "b.1.lit.2", false},
		{"Fixed", "a.1.other.2", false},
		{"Fixed", "", false},
		{"Tail", "tail.x.in.1", true},
		{"Tail", "tail.x.in.1.2.3", true},
		{"Tail", "tail.x.in", false},
		{"Tail", "tail.x.in.", false},
		{"Single", "one.only", true},
		{"Single", "one.only.x", false},
		{"Single", "one", false},
		{"First", "f.x.end", true},
		{"First", "f.x.ending", false},
	} {
		if got := tables[c.table].Matches(c.key); got != c.want {
			t.Errorf("%s matches %q: %v, want %v", c.table, c.key, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { tables["Tail"].Matches("tail.x.in.1.2.3") }); n != 0 {
		t.Errorf("Matches allocates %v times", n)
	}
}

func TestPrefix(t *testing.T) {
	tables := compileTables(t, shapes)
	for name, want := range map[string][]string{
		"Fixed":  {"a.", ".lit.", ""},
		"Tail":   {"tail.", ".in.", ""},
		"Single": {"one.only"},
		"First":  {"f.", ".end"},
	} {
		table := tables[name]
		if got := table.Prefix(); got != want[0] {
			t.Errorf("%s: prefix %q, want %q", name, got, want[0])
		}
		for v := range table.Vars {
			if got := table.LiteralsAfter(v); got != want[v+1] {
				t.Errorf("%s: after variable %d: %q, want %q", name, v, got, want[v+1])
			}
		}
	}
}

func TestOverlap(t *testing.T) {
	const fields = `string s = 1; int32 i = 2; uint64 u = 3; bytes b = 4; bool on = 5; string p = 6; string v = 7 [(fold.v1.field).enc = ENCODING_VERBATIM];
		uint32 h = 8 [(fold.v1.field).enc = ENCODING_HEX]; fixed64 w = 9 [(fold.v1.field).enc = ENCODING_HEX];
		google.protobuf.Timestamp at = 10; google.protobuf.Duration took = 11; string id = 12 [(fold.v1.field).enc = ENCODING_UUID];
		uint32 d = 13 [(fold.v1.field).enc = ENCODING_DECIMAL]; enum E { ON = 0; off = 1; pa7 = 2; } E e = 14 [(fold.v1.field).enc = ENCODING_ENUM_NAME];`
	for _, c := range []struct {
		a, b    string
		overlap bool
	}{
		{"k.{s}", "k.{v}", true},
		{"k.{s}", "k.lit", true},
		{"k.{s}", "k.li_t", false},         // ESC writes '_' as "__"
		{"k.{s}", "k.li__t", true},         //
		{"k.{v}", "k.li_t", true},          //
		{"k.{i}", "k.meta", false},         // not an INT
		{"k.{i}", "k.pa7", true},           //
		{"k.{i}", "k.pj9999999999", false}, // more than an int32
		{"k.{i}", "k.{u}", false},          // signed and unsigned have no token in common
		{"k.{u}", "k.{s}", true},           //
		{"k.{on}", "k.{b}", false},         // HEX has an even number of digits
		{"k.{h}", "k.{w}", false},          // of another width
		{"k.{h}", "k.{b}", true},           //
		{"k.{s}.x", "k.{s}", false},        //
		{"k.{p...}", "k.{s}.x", true},      //
		{"k.{p...}", "k", false},           // a tail has at least one token
		{"k.{p...}", "k.x.{p...}", true},
		{"k.{p...}", "k.a_b", false}, //
		{"k.x.{p...}", "k.y.{p...}", false},
		{"k.{p...}", "k.a/2Fb", false}, // a tail never writes '/'
		{"k.{s}", "j.{s}", false},
		{"k.{at}", "k.{took}", true},
		{"k.{at}", "k.{s}", true},
		{"k.{at}", "k.{i}", false}, // an int32 has ten digits at most
		{"k.{id}", "k.{s}", false}, // ESC writes no such dash
		{"k.{id}", "k.{v}", true},
		{"k.{d}", "k.{on}", true},
		{"k.{d}", "k.42", true},
		{"k.{d}", "k.042", false},
		{"k.{e}", "k.off", true},
		{"k.{e}", "k.OFF", false},
		{"k.{e}", "k.{i}", true}, // pa7
		{"k.{e}", "k.{u}", false},
		{"k.{e}", "k.{d}", false},
	} {
		tables := compileTables(t, `message A { option (fold.v1.table) = {key: "`+c.a+`"};`+fields+`}
			message B { option (fold.v1.table) = {key: "`+c.b+`"};`+fields+`}
			message Other { option (fold.v1.table) = {key: "`+c.a+`" bucket: "other"};`+fields+`}`)
		a, b := tables["A"], tables["B"]
		witness, overlap := Overlap(a, b)
		if overlap != c.overlap {
			t.Errorf("%s and %s overlap: %v (%q), want %v", c.a, c.b, overlap, witness, c.overlap)
		}
		if overlap && (!a.Matches(witness) || !b.Matches(witness)) {
			t.Errorf("%s and %s: %q is no witness", c.a, c.b, witness)
		}
		if back, again := Overlap(b, a); again != overlap || back != witness {
			t.Errorf("%s and %s: %q %v one way, %q %v the other", c.a, c.b, witness, overlap, back, again)
		}
		if witness, overlap := Overlap(a, tables["Other"]); overlap {
			t.Errorf("tables of two buckets overlap at %q", witness)
		}
	}
}

func TestRecord(t *testing.T) {
	tables := compileTables(t, `
message Route {
  option (fold.v1.table) = {
    key: "route.{tenant}.{spec.kind}.{hash}.{path...}"
    part: {name: "hash" enc: ENCODING_HEX}
    bind: BIND_FILL
    max_value_bytes: 9
    on_reject: ON_REJECT_HALT
    on_age_out: ON_AGE_OUT_DROP
  };
  enum Kind { KIND_UNSPECIFIED = 0; }
  message Spec { Kind kind = 1; }
  string tenant = 1; Spec spec = 2; uint64 hash = 3; string path = 4;
}
message Moved { option (fold.v1.table) = {key: "moved.{tenant}"}; string tenant = 1; }`)
	record := tables["Route"].Record()
	want := `message: t.v1.Route
bucket: edge
key: route.{tenant}.{spec.kind}.{hash}.{path...}
var tenant: string ESC
var spec.kind: enum t.v1.Route.Kind INT
var hash: uint64 HEX
var path: tail ESC
codec: PROTO
bind: FILL
validate: false
max_value_bytes: 9
on_reject: HALT
on_age_out: DROP
`
	if record != want {
		t.Errorf("record:\n%s\nwant:\n%s", record, want)
	}
	if diff := changesOf(record, record); len(diff) > 0 {
		t.Errorf("a record differs from itself: %v", diff)
	}
	changed := strings.NewReplacer("uint64 HEX", "uint64 INT", "var path: tail ESC\n", "", "FILL\n", "FILL\nnew: line\n").Replace(record)
	diff := changesOf(record, changed)
	wantDiff := []Change{{"var hash", "uint64 HEX", "uint64 INT"}, {"var path", "tail ESC", ""}, {"new", "", "line"}}
	if !slices.Equal(diff, wantDiff) {
		t.Errorf("diff %v, want %v", diff, wantDiff)
	}
}

// changesOf are the lines that differ between two records.
func changesOf(oldRecord, newRecord string) []Change {
	var all []Change
	for _, c := range Classify(oldRecord, newRecord).Changes {
		all = append(all, c.Change)
	}
	return all
}

const keyTypes = `
enum Color { COLOR_UNSPECIFIED = 0; COLOR_RED = 3; COLOR_DARK = -3; }
message Types {
  option (fold.v1.table) = {
    key: "types.{id}.{raw}.{at}.{inner.took}.{color}.{n}.{region}.{path...}"
    part: {name: "id" type: KEY_TYPE_UUID}
    part: {name: "color" enc: ENCODING_ENUM_NAME}
    part: {name: "region" type: KEY_TYPE_BYTES go_name: "Where"}
    part: {name: "path" type: KEY_TYPE_STRING}
  };
  message Inner { google.protobuf.Duration took = 1; }
  string id = 1;
  bytes raw = 2 [(fold.v1.field).enc = ENCODING_UUID];
  google.protobuf.Timestamp at = 3;
  Inner inner = 4;
  Color color = 5;
  sint64 n = 6 [(fold.v1.field).enc = ENCODING_DECIMAL];
}
message Ordered {
  option (fold.v1.table) = {key: "ordered.{at}.{id}" part: {name: "id" type: KEY_TYPE_UUID enc: ENCODING_UUID}};
  google.protobuf.Timestamp at = 1;
}
message Alone { option (fold.v1.table) = {key: "alone.{n}" part: {name: "n" type: KEY_TYPE_INT32}}; string s = 1; }
`

func TestKeyTypes(t *testing.T) {
	tables := compileTables(t, keyTypes)
	types := tables["Types"]
	want := `message: t.v1.Types
bucket: edge
key: types.{id}.{raw}.{at}.{inner.took}.{color}.{n}.{region}.{path...}
var id: uuid UUID
var raw: uuid UUID
var at: timestamp TIME
var inner.took: duration TIME
var color: enum t.v1.Color ENUM_NAME
name COLOR_UNSPECIFIED of color: 0
name COLOR_RED of color: 3
name COLOR_DARK of color: -3
var n: int64 DECIMAL
var region: bytes HEX
var path: tail ESC
in the key only: region path
codec: PROTO
bind: MATCH
validate: false
max_value_bytes: 0
on_reject: KEEP_OLD
on_age_out: KEEP
`
	if got := types.Record(); got != want {
		t.Errorf("record:\n%s\nwant:\n%s", got, want)
	}
	presence := map[string]bool{"at": true, "inner.took": true}
	for i := range types.Vars {
		v := &types.Vars[i]
		if only := v.Name == "region" || v.Name == "path"; v.KeyOnly() != only || (v.Field() == nil) != only || v.Presence != presence[v.Name] {
			t.Errorf("%s: key only %v, field %v, presence %v", v.Name, v.KeyOnly(), v.Field(), v.Presence)
		}
	}
	if types.Vars[6].GoName != "Where" {
		t.Errorf("go name %s", types.Vars[6].GoName)
	}
	for name, want := range map[string][3]bool{"Types": {true, true, false}, "Ordered": {true, true, true}, "Alone": {true, false, true}} {
		table := tables[name]
		if got := [3]bool{table.KeyOnly(), table.Bound(), table.Ordered()}; got != want {
			t.Errorf("%s: key only, bound, ordered are %v, want %v", name, got, want)
		}
	}
	// A name that is given to another value is another schema.
	renamed := compileTables(t, strings.ReplaceAll(keyTypes, "COLOR_RED", "COLOR_BLUE"))["Types"].Record()
	if diff := changesOf(types.Record(), renamed); len(diff) != 2 || diff[0].Name != "name COLOR_RED of color" || diff[1].New != "3" {
		t.Errorf("a renamed value: %v", diff)
	}
}

// TestCompile: defaults, and messages that are no tables.
func TestCompile(t *testing.T) {
	md := compileFile(t, shapes).Messages().ByName("Fixed")
	table, problems := Compile(md)
	if len(problems) > 0 || table.Bucket != "edge" || table.OnReject != foldv1.OnReject_ON_REJECT_KEEP_OLD || len(table.Vars) != 2 ||
		table.Vars[1].Name != "y" || table.Vars[1].Enc != keyenc.EncESC {
		t.Fatalf("%+v %v", table, problems)
	}
	plain := (&descriptorpb.FileDescriptorProto{}).ProtoReflect().Descriptor()
	if IsTable(plain) {
		t.Error("FileDescriptorProto is a table")
	}
	if table, problems := Compile(plain); table != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), "no (fold.v1.table) option") {
		t.Errorf("a message without the option: %v %v", table, problems)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"tenant": "Tenant", "node_id": "NodeID", "url": "URL", "spec.host": "SpecHost", "a_1": "A1", "a_1_2": "A1_2", "a_12": "A12",
		"_x": "X", "_1": "X1", "aB": "AB", "identity": "Identity", "Upper": "Upper", "__": "X", "type": "Type",
	} {
		if got := fieldGoName(name); got != want || !isExportedName(got) {
			t.Errorf("field %s becomes %s, want %s", name, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	fields := []string{"tenant", "node_id", "d", "host_name", "zone_of_host", "url"}
	for word, want := range map[string]string{
		"tenat": "tenant", "Tenant": "tenant", "nodeId": "node_id", "node": "node_id", "tenant_name": "tenant", "nod": "", "dd": "d", "zone_name": "host_name", "zone": "zone_of_host",
		"host": "", "of": "zone_of_host", "": "", "tenant": "", "_": "", "urls": "url", "x": "", "\xff\xfe": "",
	} {
		if got := nearest(word, fields); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
	if got := nearest("node", []string{"one", "node_id"}); got != "node_id" {
		t.Errorf("nearest to node is %q", got)
	}
	if got := nearest("", []string{""}); got != "" {
		t.Errorf("nearest to nothing is %q", got)
	}
}
