package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/keyenc"
)

// problemsOf compiles the only message of a file that is a table, and returns what is wrong with it, hints included.
func problemsOf(t *testing.T, text string) []string {
	t.Helper()
	mds := Tables(compileFile(t, text))
	if len(mds) != 1 {
		t.Fatalf("%d tables, want one", len(mds))
	}
	table, problems := Compile(mds[0])
	if (table == nil) != (len(problems) > 0) {
		t.Errorf("table %v with problems %v", table, problems)
	}
	var texts []string
	for _, p := range problems {
		if p.Hint == "" {
			t.Errorf("%q has no hint", p.Message)
		}
		texts = append(texts, p.Message+" | "+p.Hint)
	}
	return texts
}

// wantProblems checks that there are as many problems as wanted, and that each begins and goes on as wanted.
func wantProblems(t *testing.T, got, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("problems:\n  %s\nwant, in part:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const indexed = `
enum Color { option allow_alias = true; COLOR_UNSPECIFIED = 0; COLOR_RED = 3; COLOR_ROT = 3; }
message Route {
  option (fold.v1.table) = {
    key: "route.{tenant}.{id}.{region}.{path...}"
    part: {name: "id" type: KEY_TYPE_UUID}
    part: {name: "region" type: KEY_TYPE_STRING}
    index: {name: "by_node" fields: "node_id"}
    index: {name: "cert_sha256" fields: "cert" unique: true}
    index: {name: "by_1" fields: ["spec.host", "spec.ports", "spec.inner.at", "took"]}
    index: {name: "by_all" fields: ["text", "verbatim", "hex", "raw", "escaped", "raw_id", "raw_verbatim", "on"]}
    index: {name: "by_numbers" fields: ["i32", "s64", "u32", "f64", "color", "decimal_color", "named", "hex_color"]}
    index: {name: "by_key" fields: ["id", "tenant"]}
    index: {name: "by_path" fields: "path" unique: true}
    index: {name: "by_choice" fields: ["one", "two.at"]}
    index: {name: "by_times" fields: "times"}
    index: {name: "by_maybe" fields: "maybe"}
    index: {name: "one_tenant" fields: "tenant" unique: true}
    retired_index: "by_old"
    retired_index: "by_cert"
  };
  message Spec { string host = 1; repeated fixed32 ports = 2; Inner inner = 3; }
  message Inner { google.protobuf.Timestamp at = 1; }
  string tenant = 1; string id = 2; string path = 3;
  string node_id = 4; bytes cert = 5; Spec spec = 6; google.protobuf.Duration took = 7;
  string text = 8;
  string verbatim = 9 [(fold.v1.field).enc = ENCODING_VERBATIM];
  string hex = 10 [(fold.v1.field).enc = ENCODING_HEX];
  bytes raw = 11;
  bytes escaped = 12 [(fold.v1.field).enc = ENCODING_ESC];
  bytes raw_id = 13 [(fold.v1.field).enc = ENCODING_UUID];
  bytes raw_verbatim = 14 [(fold.v1.field).enc = ENCODING_VERBATIM];
  bool on = 15;
  sint32 i32 = 16 [(fold.v1.field).enc = ENCODING_DECIMAL];
  sfixed64 s64 = 17 [(fold.v1.field).enc = ENCODING_HEX];
  uint32 u32 = 18;
  fixed64 f64 = 19 [(fold.v1.field).enc = ENCODING_INT];
  Color color = 20;
  Color decimal_color = 21 [(fold.v1.field).enc = ENCODING_DECIMAL];
  Color named = 22 [(fold.v1.field).enc = ENCODING_ENUM_NAME];
  Color hex_color = 23 [(fold.v1.field).enc = ENCODING_HEX];
  oneof choice { string one = 24; Inner two = 25; }
  repeated google.protobuf.Timestamp times = 26;
  optional string maybe = 27;
}`

// TestIndexes: names, definitions, and what each field of an index is.
func TestIndexes(t *testing.T) {
	table := compileTables(t, indexed)["Route"]
	want := [][3]string{
		{"by_node", "ByNode", "node_id(4) string ESC"},
		{"cert_sha256", "ByCertSha256", "cert(5) bytes HEX"},
		{"by_1", "By1", "spec.host(6?.1) string ESC, spec.ports(6.2) repeated fixed32 INT, " +
			"spec.inner.at(6?.3?.1?) google.protobuf.Timestamp TIME, took(7?) google.protobuf.Duration TIME"},
		{"by_all", "ByAll", "text(8) string ESC, verbatim(9) string ESC, hex(10) string HEX, raw(11) bytes HEX, escaped(12) bytes ESC, " +
			"raw_id(13) bytes HEX, raw_verbatim(14) bytes HEX, on(15) bool BOOL"},
		{"by_numbers", "ByNumbers", "i32(16) sint32 DECIMAL, s64(17) sfixed64 HEX, u32(18) uint32 INT, f64(19) fixed64 INT, color(20) enum INT, " +
			"decimal_color(21) enum DECIMAL, named(22) enum INT, hex_color(23) enum HEX"},
		{"by_key", "ByKey", "id(2) string ESC, tenant(1) string ESC"},
		{"by_path", "ByPath", "path(3) string ESC"},
		{"by_choice", "ByChoice", "one(24?) string ESC, two.at(25?.1?) google.protobuf.Timestamp TIME"},
		{"by_times", "ByTimes", "times(26) repeated google.protobuf.Timestamp TIME"},
		{"by_maybe", "ByMaybe", "maybe(27?) string ESC"},
		{"one_tenant", "ByOneTenant", "tenant(1) string ESC"},
	}
	if len(table.Indexes) != len(want) {
		t.Fatalf("%d indexes, want %d", len(table.Indexes), len(want))
	}
	for i, w := range want {
		ix := &table.Indexes[i]
		if got := [3]string{ix.Name, ix.GoName, ix.Definition()}; got != w {
			t.Errorf("index %d:\n%q, want\n%q", i, got, w)
		}
		unique := w[0] == "cert_sha256" || w[0] == "by_path" || w[0] == "one_tenant"
		if ix.Unique != unique {
			t.Errorf("%s: unique %v, want %v", ix.Name, ix.Unique, unique)
		}
		for _, f := range ix.Fields {
			if f.Kind == keyenc.KindUUID || !f.Enc.Fits(f.Kind) || f.Repeated != f.Field().IsList() {
				t.Errorf("%s of %s: kind %s, encoding %s, repeated %v", f.Name, ix.Name, f.Kind, f.Enc, f.Repeated)
			}
			presence := f.Field().HasPresence() || strings.Contains(f.Name, ".")
			if f.Presence != presence {
				t.Errorf("%s of %s: presence %v, want %v", f.Name, ix.Name, f.Presence, presence)
			}
		}
	}
	if want := []string{"by_old", "by_cert"}; !slices.Equal(table.RetiredIndexes, want) {
		t.Errorf("retired %q, want %q", table.RetiredIndexes, want)
	}
}

// TestIndexDefinition: what the entries depend on is in the definition, and nothing else is.
func TestIndexDefinition(t *testing.T) {
	definition := func(index, fields string) string {
		t.Helper()
		return compileTables(t, `enum E { A = 0; } enum F { B = 0; }
			message M { option (fold.v1.table) = {key: "m.{k}" index: {`+index+`}}; string k = 1; `+fields+`}`)["M"].Indexes[0].Definition()
	}
	const index = `name: "by_a" fields: "a"`
	base := definition(index, "string a = 2;")
	for _, c := range []struct {
		index, fields string
		same          bool
	}{
		{`name: "by_other" fields: "a"`, "string a = 2;", true},
		{`name: "by_a" fields: "a" unique: true`, "string a = 2 [json_name = \"b\"];", true},
		{index, "string a = 2; string b = 3;", true},
		{index, "string a = 2 [(fold.v1.field).enc = ENCODING_VERBATIM];", true}, // not total, so not used
		{index, "string a = 2 [(fold.v1.field).enc = ENCODING_HEX];", false},
		{index, "string a = 3;", false},
		{index, "optional string a = 2;", false},
		{index, "oneof o { string a = 2; }", false},
		{index, "repeated string a = 2;", false},
		{index, "bytes a = 2;", false},
		{`name: "by_a" fields: ["a", "b"]`, "string a = 2; string b = 3;", false},
		{`name: "by_a" fields: "b"`, "string b = 2;", false},
	} {
		if got := definition(c.index, c.fields); (got == base) != c.same {
			t.Errorf("{%s} of %s: %q, same as %q: want %v", c.index, c.fields, got, base, c.same)
		}
	}
	for _, pair := range [][2]string{
		{"int32 a = 2;", "sint32 a = 2;"}, {"fixed64 a = 2;", "uint64 a = 2;"}, {"google.protobuf.Timestamp a = 2;", "google.protobuf.Duration a = 2;"},
	} {
		if a, b := definition(index, pair[0]), definition(index, pair[1]); a == b {
			t.Errorf("%s and %s are both %q", pair[0], pair[1], a)
		}
	}
	if a, b := definition(index, "E a = 2;"), definition(index, "F a = 2;"); a != b {
		t.Errorf("an enum's name is in the definition: %q, %q", a, b)
	}
	inner := func(presence string) string {
		return definition(`name: "by_a" fields: "in.a"`, "In in = 2; message In { "+presence+" string a = 1; }")
	}
	if inner("") == inner("optional") {
		t.Errorf("presence of an inner field is not in the definition %q", inner(""))
	}
}

// TestIndexRefused: each rule of indexes and retired names.
func TestIndexRefused(t *testing.T) {
	fields := make([]string, 9)
	for i := range fields {
		fields[i] = fmt.Sprintf("%q", string(rune('a'+i)))
	}
	for _, c := range []struct {
		name, options string
		want          []string
	}{
		{"eight fields", `index: {name: "x" fields: [` + strings.Join(fields[:8], ",") + `]}`, nil},
		{"nine fields", `index: {name: "x" fields: [` + strings.Join(fields, ",") + `]}`, []string{`index "x" has 9 fields; the limit is 8 |`}},
		{"no field", `index: {name: "x"}`, []string{`index "x" has no fields | add`}},
		{"no name", `index: {fields: "a"}`, []string{`index 1 has no name | add`}},
		{"camel", `index: {name: "byHostName" fields: "a"}`, []string{`"byHostName" is not in lower_snake_case | write "by_host_name"`}},
		{"initialism", `index: {name: "ByURLPath" fields: "a"}`, []string{`| write "by_urlpath"`}},
		{"digit", `index: {name: "1a" fields: "a"}`, []string{`"1a" is not in lower_snake_case | it has`}},
		{"end", `index: {name: "a_" fields: "a"}`, []string{`"a_" is not in lower_snake_case | write "a"`}},
		{"begin", `index: {name: "_a" fields: "a"}`, []string{`"_a" is not in lower_snake_case | write "a"`}},
		{"only by", `index: {name: "by_" fields: "a"}`, []string{`"by_" is not in lower_snake_case | it has`}},
		{"by", `index: {name: "by" fields: "a"}`, nil},
		{"digits", `index: {name: "a_1_2b" fields: "a"}`, nil},
		{"twice", `index: {name: "x" fields: "a"} index: {name: "x" fields: "b"}`, []string{`index "x" is declared twice (as index 1 and 2)`}},
		{"one Go name", `index: {name: "x" fields: "a"} index: {name: "by_x" fields: "b"}`, []string{`index "x" and index "by_x" both become ByX`}},
		{"one definition", `index: {name: "x" fields: "a"} index: {name: "y" fields: "a" unique: true}`, []string{`index "y" has the same fields as index "x"`}},
		{"another order", `index: {name: "x" fields: ["a", "b"]} index: {name: "y" fields: ["b", "a"]}`, nil},
		{"field twice", `index: {name: "x" fields: ["a", "b", "a"]}`, []string{`index "x" has field "a" twice`}},
		{"two repeated", `index: {name: "x" fields: ["many", "a", "ports"]}`, []string{`index "x" has two repeated fields, "many" and "ports"`}},
		{"unknown", `index: {name: "x" fields: ["node", "in.depp", "deep", "zzzzz", "choice"]}`, []string{
			`index "x": "node" is not a field of M | did you mean "node_id"?`, `"depp" is not a field of In | did you mean "deep"?`,
			`"deep" is not a field of M | did you mean "in.deep"?`, `"zzzzz" is not a field of M | the fields of M: k, a, b, c, d and `,
			`"choice" is not a field of M | it is a oneof; name a member, such as "one"`}},
		{"form", `index: {name: "x" fields: ["", "in.", ".a", "a b"]}`, slices.Repeat([]string{`is not a field name or a dotted path of them | write the name`}, 4)},
		{"slips", `index: {name: "x" fields: ["{a}", "a, in.deep", " b", ",a"]}`, []string{`"{a}" is not a field name or a dotted path of them | write "a"`,
			`| write fields: ["a", "in.deep"]`, `| write "b"`, `| write the name`}},
		{"message", `index: {name: "x" fields: "in"}`, []string{`field "in" is message t.v1.M.In and cannot be indexed | name a field in it, such as "in.deep"`}},
		{"messages", `index: {name: "x" fields: "ins"}`, []string{`field "ins" is message t.v1.M.In and cannot be indexed | an index takes`}},
		{"in messages", `index: {name: "x" fields: "ins.deep"}`, []string{`path "ins.deep" crosses repeated field "ins"`}},
		{"in a map", `index: {name: "x" fields: "labels.key"}`, []string{`path "labels.key" crosses map field "labels"`}},
		{"map", `index: {name: "x" fields: "labels"}`, []string{`field "labels" is a map and cannot be indexed`}},
		{"floats", `index: {name: "x" fields: ["w", "ws"]}`, []string{`field "w" is double; floating point cannot be indexed`, `field "ws" is float;`}},
		{"in a scalar", `index: {name: "x" fields: "a.b"}`, []string{`path "a.b" crosses field "a", which is string and not a message | end the path there: "a"`}},
		{"key only", `index: {name: "x" fields: "region"}`, []string{`{region} is in the key only`}},
		{"the key", `index: {name: "x" fields: ["k", "region"]}`, []string{`{region} is in the key only`}},
		{"prefix", `index: {name: "x" fields: "k"}`, []string{`index "x" repeats the beginning of key "m.{k}.{region}" | use List and Count with MByK(...)`}},
		{"unique prefix", `index: {name: "x" fields: "k" unique: true}`, nil},
		{"retired", `index: {name: "x" fields: "a"} retired_index: ["y", "x"]`, []string{`index "x" is listed in retired_index`}},
		{"retired Go name", `index: {name: "by_x" fields: "a"} retired_index: "x"`, []string{`index "by_x" becomes ByX, as did "x", which is listed in retired_index`}},
		{"retired twice", `retired_index: ["x", "y", "x"]`, []string{`retired_index "x" is there twice`}},
		{"retired form", `retired_index: ["X", ""]`, []string{`retired_index "X" is no name of an index`, `retired_index "" is no name`}},
		{"encoding", `index: {name: "x" fields: "bad"} index: {name: "y" fields: ["bad", "a"]}`, []string{
			`ENCODING_BOOL does not apply to string field "bad" | allowed: ENCODING_ESC, ENCODING_VERBATIM, ENCODING_HEX, ENCODING_UUID`}},
		{"unknown encoding", `index: {name: "x" fields: "newer"}`, []string{`Encoding has no value 256 |`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := `message M {
				option (fold.v1.table) = {key: "m.{k}.{region}" part: {name: "region" type: KEY_TYPE_STRING} ` + c.options + `};
				message In { string deep = 1; }
				string k = 1; string a = 2; string b = 3; string c = 4; string d = 5; string e = 6; string f = 7; string g = 8; string h = 9; string i = 10;
				repeated string many = 11; repeated uint32 ports = 12; string node_id = 13; In in = 14; repeated In ins = 15; map<string, string> labels = 16;
				double w = 17; repeated float ws = 18; oneof choice { string one = 19; }
				string bad = 20 [(fold.v1.field).enc = ENCODING_BOOL]; string newer = 21 [(fold.v1.field) = {enc: 256}];
			}`
			wantProblems(t, problemsOf(t, text), c.want)
		})
	}
	whole := problemsOf(t, `message M { option (fold.v1.table) = {key: "m.{k}.{l}" index: {name: "x" fields: ["k", "l"] unique: true} index: {name: "y" fields: ["l", "k"]}};
		string k = 1; string l = 2; }`)
	wantProblems(t, whole, []string{`index "x" has the fields of the key | use Get`})
	// What is wrong with the key is said once, and hides nothing of what is wrong with an index.
	both := problemsOf(t, `message M { option (fold.v1.table) = {key: "m.{key}" index: {name: "x" fields: "key"}}; string keys = 1; }`)
	wantProblems(t, both, []string{`{key}: "key" is not a field of M`, `index "x": "key" is not a field of M | did you mean "keys"?`})
	once := problemsOf(t, `message M { option (fold.v1.table) = {key: "m.{k}" index: {name: "x" fields: ["l", "k"]}};
		bool k = 1 [(fold.v1.field).enc = ENCODING_ESC]; string l = 2; }`)
	wantProblems(t, once, []string{`ENCODING_ESC does not apply to bool field "k"`})
	// The stored value has none of what the key fills, and the key nothing of what lies beside it.
	for key, field := range map[string]string{"at": "at.seconds", "at.seconds": "at"} {
		for bind, want := range map[string][]string{
			"BIND_FILL":  {fmt.Sprintf(`index "x": bind: BIND_FILL fills %q from the key, and not %q | write %q`, key, field, key)},
			"BIND_MATCH": nil,
		} {
			half := fmt.Sprintf(`message M { option (fold.v1.table) = {key: "m.{k}.{%s}" bind: %s index: {name: "x" fields: %q} index: {name: "y" fields: %q}};
				string k = 1; google.protobuf.Timestamp at = 2; }`, key, bind, field, key)
			wantProblems(t, problemsOf(t, half), want)
		}
	}
}

// TestIndexProblemPlace: a problem of an index field leads to the field in the option, and into its text.
func TestIndexProblemPlace(t *testing.T) {
	md := compileFile(t, `message M { option (fold.v1.table) = {key: "m.{k}" index: {name: "x" fields: "k"} index: {name: "by_y" fields: ["k", "in.depp"]}};
		message In { string deep = 1; } string k = 1; In in = 2; }`).Messages().Get(0)
	_, problems := Compile(md)
	if len(problems) == 0 {
		t.Fatal("no problem")
	}
	p := problems[0]
	for _, each := range problems {
		if strings.Contains(each.Message, "depp") {
			p = each
		}
	}
	if want := OptionPath(md, tableIndex, 1, indexFields, 1); !slices.Equal(p.Path, want) || p.Literal != "in.depp" || p.Offset != len("in.") {
		t.Errorf("path %v, literal %q, offset %d; want %v, in.depp, 3", p.Path, p.Literal, p.Offset, want)
	}
}

// TestRecordOfIndexes: what is new has lines of its own, in an order that the option's does not decide, and a record that
// uses nothing of it is as it was.
func TestRecordOfIndexes(t *testing.T) {
	const fields = "string k = 1; string a = 2; repeated string b = 3; }"
	record := func(options string) string {
		return compileTables(t, `message M { option (fold.v1.table) = {key: "m.{k}" `+options+`};`+fields)["M"].Record()
	}
	plain := `message: t.v1.M
bucket: edge
key: m.{k}
var k: string ESC
codec: PROTO
bind: MATCH
validate: false
max_value_bytes: 0
on_reject: KEEP_OLD
on_age_out: KEEP
`
	if got := record(""); got != plain {
		t.Errorf("record:\n%s\nwant:\n%s", got, plain)
	}
	want := strings.NewReplacer("codec: PROTO", "codec: PROTOJSON", "validate: false", "validate: true").Replace(plain) + `also_read: PROTO
index b_and_a: b(3) repeated string ESC, a(2) string ESC
index by_a: a(2) string ESC, unique
retired_index: by_c by_d
`
	if got := record(`value: CODEC_PROTOJSON also_read: CODEC_PROTO validate: true retired_index: ["by_d", "by_c"]
		index: {name: "by_a" fields: "a" unique: true} index: {name: "b_and_a" fields: ["b", "a"]}`); got != want {
		t.Errorf("record:\n%s\nwant:\n%s", got, want)
	}
	if got := record(`index: {name: "b_and_a" fields: ["b", "a"]} index: {name: "by_a" fields: "a" unique: true} retired_index: ["by_c", "by_d"]
		value: CODEC_PROTOJSON also_read: CODEC_PROTO validate: true`); got != want {
		t.Errorf("another order gives another record:\n%s", got)
	}
	diff := changesOf(want, record(`value: CODEC_PROTOJSON also_read: CODEC_PROTO validate: true retired_index: ["by_a", "by_c", "by_d"] index: {name: "b_and_a" fields: "b"}`))
	wantDiff := []Change{
		{"index b_and_a", "b(3) repeated string ESC, a(2) string ESC", "b(3) repeated string ESC"}, {"index by_a", "a(2) string ESC, unique", ""},
		{"retired_index", "by_c by_d", "by_a by_c by_d"},
	}
	if !slices.Equal(diff, wantDiff) {
		t.Errorf("diff %v, want %v", diff, wantDiff)
	}
}
