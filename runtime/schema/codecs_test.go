package schema

import (
	"slices"
	"strings"
	"testing"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// TestCodecs: which values and which other codecs a table can have.
func TestCodecs(t *testing.T) {
	const (
		proto = foldv1.Codec_CODEC_PROTO
		json  = foldv1.Codec_CODEC_PROTOJSON
		raw   = foldv1.Codec_CODEC_RAW
	)
	for _, c := range []struct {
		name, options, fields string
		codec                 foldv1.Codec
		alsoRead              []foldv1.Codec
		want                  []string
	}{
		{"default", `key: "m.{k}"`, "string k = 1;", proto, nil, nil},
		{"unspecified", `key: "m.{k}" value: CODEC_UNSPECIFIED`, "string k = 1;", proto, nil, nil},
		{"json", `key: "m.{k}" value: CODEC_PROTOJSON validate: true`, "string k = 1;", json, nil, nil},
		{"json and proto", `key: "m.{k}" value: CODEC_PROTOJSON also_read: CODEC_PROTO`, "string k = 1;", json, []foldv1.Codec{proto}, nil},
		{"all", `key: "m.{k}" bind: BIND_FILL also_read: [CODEC_RAW, CODEC_PROTOJSON]`, "string k = 1; string v = 2;", proto, []foldv1.Codec{raw, json}, nil},
		{"raw bytes", `key: "m.{k}" bind: BIND_FILL value: CODEC_RAW`, "string k = 1; bytes v = 2;", raw, nil, nil},
		{"raw, a tail", `key: "m.{n}.{k...}" bind: BIND_FILL value: CODEC_RAW also_read: CODEC_PROTO`, "int64 n = 3; string k = 1; bytes v = 2;", raw, []foldv1.Codec{proto}, nil},
		{"raw string", `key: "m" value: CODEC_RAW`, "string v = 1;", raw, nil, nil},
		{"raw with presence", `key: "m" value: CODEC_RAW`, "optional string v = 1;", raw, nil, nil},
		{"raw, all in the key only", `key: "m.{k}" part: {name: "k" type: KEY_TYPE_STRING} value: CODEC_RAW`, "bytes v = 1;", raw, nil, nil},
		{"raw, some in the key only", `key: "m.{k}.{l}" part: {name: "k" type: KEY_TYPE_STRING} value: CODEC_RAW bind: BIND_FILL`, "bytes v = 1; string l = 2;", raw, nil, nil},
		{"raw, indexed", `key: "m.{k}.{l}" bind: BIND_FILL value: CODEC_RAW index: {name: "x" fields: ["v", "l"]}`, "string k = 1; bytes v = 2; string l = 3;", raw, nil, nil},

		{"raw and match", `key: "m.{k}" value: CODEC_RAW`, "string k = 1; bytes v = 2;", 0, nil,
			[]string{"value: CODEC_RAW needs bind: BIND_FILL, since the value has no room for the key fields of M | add"}},
		{"raw, nothing left", `key: "m.{k}" value: CODEC_RAW bind: BIND_FILL`, "string k = 1;", 0, nil, []string{"every field of M is in the key | add a bytes field"}},
		{"raw, too much", `key: "m.{k}" value: CODEC_RAW bind: BIND_FILL`, "string k = 1; bytes v = 2; bytes w = 3;", 0, nil,
			[]string{"needs exactly one field that is not in the key; M has 2: v, w |"}},
		{"raw, part of a message in the key", `key: "m.{in.k}" value: CODEC_RAW bind: BIND_FILL`, "message In { string k = 1; } In in = 1; bytes v = 2;", 0, nil,
			[]string{"M has 2: in, v |"}},
		{"raw number", `key: "m" value: CODEC_RAW`, "uint32 v = 1;", 0, nil, []string{`value: CODEC_RAW: field "v" is uint32 |`}},
		{"raw message", `key: "m" value: CODEC_RAW`, "google.protobuf.Timestamp v = 1;", 0, nil, []string{`field "v" is google.protobuf.Timestamp |`}},
		{"raw repeated", `key: "m" value: CODEC_RAW`, "repeated bytes v = 1;", 0, nil, []string{`field "v" is repeated |`}},
		{"raw map", `key: "m" value: CODEC_RAW`, "map<string, bytes> v = 1;", 0, nil, []string{`field "v" is a map |`}},
		{"raw oneof", `key: "m" value: CODEC_RAW`, "oneof o { bytes v = 1; }", 0, nil, []string{`field "v" is a member of oneof "o" |`}},
		{"also raw", `key: "m" also_read: CODEC_RAW`, "uint32 v = 1;", 0, nil, []string{`also_read: CODEC_RAW: field "v" is uint32 |`}},
		{"unspecified also", `key: "m.{k}" also_read: CODEC_UNSPECIFIED`, "string k = 1;", 0, nil, []string{"also_read: CODEC_UNSPECIFIED is no codec |"}},
		{"twice", `key: "m.{k}" also_read: [CODEC_PROTOJSON, CODEC_PROTOJSON]`, "string k = 1;", 0, nil, []string{"also_read: CODEC_PROTOJSON is there twice |"}},
		{"same by default", `key: "m.{k}" also_read: CODEC_PROTO`, "string k = 1;", 0, nil, []string{"also_read: CODEC_PROTO is how the table writes its values |"}},
		{"same", `key: "m.{k}" value: CODEC_PROTOJSON also_read: CODEC_PROTOJSON`, "string k = 1;", 0, nil, []string{"is how the table writes its values |"}},
		{"newer", `key: "m.{k}" value: 77 also_read: 78`, "string k = 1;", 0, nil, []string{"Codec has no value 77 |", "Codec has no value 78 |"}},
		{"raw, a field unknown", `key: "m.{kk}" value: CODEC_RAW bind: BIND_FILL`, "string k = 1;", 0, nil, []string{`"kk" is not a field of M |`}},
		{"raw without a key", `value: CODEC_RAW`, "string k = 1; string v = 2;", 0, nil, []string{"the table option of M has no key |"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "message M { option (fold.v1.table) = {" + c.options + "};" + c.fields + "}"
			wantProblems(t, problemsOf(t, text), c.want)
			if c.want != nil || t.Failed() {
				return
			}
			if table := compileTables(t, text)["M"]; table.Codec != c.codec || !slices.Equal(table.AlsoRead, c.alsoRead) {
				t.Errorf("codec %v, also read %v; want %v, %v", table.Codec, table.AlsoRead, c.codec, c.alsoRead)
			}
		})
	}
}

// TestRecordOfAlsoRead: codecs are tried in the option's order, so another order is another schema.
func TestRecordOfAlsoRead(t *testing.T) {
	record := func(codecs string) string {
		return compileTables(t, `message M { option (fold.v1.table) = {key: "m.{k}" bind: BIND_FILL also_read: [`+codecs+`]}; string k = 1; bytes v = 2; }`)["M"].Record()
	}
	a, b := record("CODEC_RAW, CODEC_PROTOJSON"), record("CODEC_PROTOJSON, CODEC_RAW")
	if !strings.HasSuffix(a, "\nalso_read: RAW PROTOJSON\n") || !strings.HasSuffix(b, "\nalso_read: PROTOJSON RAW\n") {
		t.Errorf("records:\n%s\n%s", a, b)
	}
}
