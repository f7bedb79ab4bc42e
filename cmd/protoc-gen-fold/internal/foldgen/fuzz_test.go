package foldgen_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/foldgen"
	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

const fuzzProto = `edition = "2023";
package z.v1;
import "fold/v1/options.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
option go_package = "example.com/z/v1;zv1";
message Row {
  option (fold.v1.table).key = "row.{s}";
  enum Kind { KIND_A = 0; KIND_B = 1; }
  message Inner { string s = 1; Inner again = 2; repeated Inner many = 3; }
  string s = 1; bytes y = 2; bool b = 3; sint32 i = 4; fixed64 u = 5; Kind k = 6; Inner inner = 7;
  repeated string many = 8; map<string, Inner> map = 9; double d = 10; google.protobuf.Timestamp at = 11;
  oneof choice { string one = 12; }
  string implicit = 13 [features.field_presence = IMPLICIT];
  string need = 14 [features.field_presence = LEGACY_REQUIRED];
  Inner delimited = 15 [features.message_encoding = DELIMITED];
  string string = 16; string type = 17; string a_b = 18; google.protobuf.Duration took = 19; Twice twice = 20;
  enum Twice { option allow_alias = true; TWICE_A = 0; TWICE_B = 0; }
}
message Other { option (fold.v1.table) = {key: "other.{s}" bucket: "edge"}; string s = 1; }
`

// FuzzOptions gives the plugin options of all sorts: it answers with code or with diagnostics, always the same, and
// never panics, which Run would answer as an internal error.
func FuzzOptions(f *testing.F) {
	for _, key := range []string{
		"row", "row.{s}", "row.{s}.{y}.{b}.{i}.{u}.{k}", "row.{inner.s}", "row.{inner.again.again.s}", "row.{inner.many.s}", "row.{s...}",
		"row.{map.key}", "row.{d}.{at}.{one}", "{s}", "row..{", "row.}", "row.v{s}", "row.{delimited.s}.{string}.{type}.{a_b}", "other.{s}", "row.{need}",
		"_kv.{s}", "row.\xFF", "row.{s}.{s}", "row.{...}", "row.{s.}", "row.{.s}", "",
	} {
		f.Add(key, "edge", "", "s", "", int32(0), int32(0), int32(0), "fold", []byte(nil), []byte(nil))
	}
	f.Add("row.{s}", "ed ge", "route-x", "s", "x y", int32(2), int32(1), int32(2), "", []byte{0x08, 0x01}, []byte{0x08, 0x05})
	f.Add("row.{u}", "edge", "Row", "u", "U", int32(5), int32(7), int32(1), "a-b", protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 3), []byte{0x08, 0x63})
	for typ := range int32(12) {
		for _, variable := range []string{"s", "y", "k", "at", "took", "twice", "only", "inner.s", "on.ly", "only..."} {
			f.Add("row.{"+variable+"}", "edge", "", strings.TrimSuffix(variable, "..."), "", typ%10, typ, typ%3, "fold", []byte(nil), []byte{0x08, 0x07})
		}
	}
	base, err := compile(sources{"z/v1/z.proto": fuzzProto})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key, bucket, goName, part, partGoName string, enc, typ, bind int32, suffix string, rawTable, rawField []byte) {
		table := &foldv1.Table{
			Key: valid(key), Bucket: valid(bucket), GoName: valid(goName), Bind: foldv1.Bind(bind),
			Part: []*foldv1.Part{{Name: valid(part), Enc: foldv1.Encoding(enc), Type: foldv1.KeyType(typ), GoName: valid(partGoName)}},
		}
		wire, err := proto.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		req := with(base, "package_suffix="+strings.NewReplacer(",", "", "=", "").Replace(valid(suffix)))
		file := req.ProtoFile[slices.IndexFunc(req.ProtoFile, func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == "z/v1/z.proto" })]
		row := file.MessageType[0]
		setRaw(row.Options, 50737, append(wire, rawTable...))
		for _, field := range row.Field[:4] {
			field.Options = new(descriptorpb.FieldOptions)
			setRaw(field.Options, 50737, rawField)
		}
		got, text := generate(throughWire(t, req))
		if strings.Contains(text, "internal error") {
			t.Fatal(text)
		}
		again, textAgain := generate(throughWire(t, req))
		if text != textAgain || !maps.Equal(got, again) {
			t.Fatalf("two runs differ: %s %s", text, textAgain)
		}
	})
}

func valid(s string) string { return strings.ToValidUTF8(s, "?") }

// setRaw puts the extension into the options as unknown bytes, whatever they are.
func setRaw(options proto.Message, number protowire.Number, wire []byte) {
	proto.Reset(options)
	raw := protowire.AppendTag(nil, number, protowire.BytesType)
	options.ProtoReflect().SetUnknown(protowire.AppendBytes(raw, wire))
}

// throughWire is the request as a plugin reads it.
func throughWire(t *testing.T, req *pluginpb.CodeGeneratorRequest) *pluginpb.CodeGeneratorRequest {
	t.Helper()
	wire, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	out, err := foldgen.ReadRequest(wire)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
