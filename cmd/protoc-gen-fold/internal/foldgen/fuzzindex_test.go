package foldgen_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

var diagnosticLine = regexp.MustCompile(`^[^\n]+:[1-9][0-9]*:[1-9][0-9]*: fold: .`)

// FuzzIndexes gives the plugin indexes, codecs and retired names of all sorts, and fields of a changed shape: it answers
// with code or with diagnostics that have a place, always the same, and never panics.
func FuzzIndexes(f *testing.F) {
	add := func(key, first, second, retired string, value, bind int32, alsoRead, raw, field, edits []byte) {
		f.Add(key, first, second, retired, value, bind, alsoRead, raw, field, edits)
	}
	for _, index := range []string{
		"by_s=s", "node=y", "by_many=many,s", "by_at=at,took", "by_inner=inner.s,inner.again.again.s", "by_map=map", "by_d=d", "by_one=one", "by_in=inner",
		"by_del=delimited.s", "by_many_s=inner.many.s", "=s", "by_none=", "by_twice=s,s", "By=s", "by_a_1=a_b", "by_ü=s", "by_e=,", "by_x=s.,.s,s..s,{s}",
		"by_8=s,y,b,i,u,k,at,took", "by_9=s,y,b,i,u,k,at,took,one", "string=string,type", "by_need=need,implicit,twice", "by_key=s,only",
	} {
		add("row.{s}", index, "by_a1=a_b", "by_old,"+index, 0, 0, nil, nil, nil, nil)
		add("row.{s}.{only}", "by_y=y", index, "", 1, 2, []byte{2}, nil, []byte{0x08, 0x02}, nil)
	}
	for value := range int32(5) {
		add("row.{s}", "", "", "", value, value%3, []byte{1, 2, 3, 0, 3, 200}, nil, nil, nil)
	}
	add("row", "by_s=s", "", "", 3, 2, nil, protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 3), []byte{0x08, 0xff, 0x01}, []byte{0, 0, 12, 1, 1, 3, 7, 2, 2})
	for element := range byte(4) {
		add("row.{s}", "by_x=nothing", "by_y=none", "A,B,C", 0, 0, []byte{1, 9, 8}, nil, nil, []byte{0, 6, 5, element, 7, 6, element, 7, 11, element, 7, 12})
	}
	add("row.{s}", "by_s=s,y", "", "", 0, 0, nil, []byte{0x32, 0x05, 0x0a, 0x03, 'b', 'y', '_'}, []byte{0x10}, []byte{3, 3, 0, 4, 0, 1})
	base, err := compile(sources{"z/v1/z.proto": fuzzProto})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key, first, second, retired string, value, bind int32, alsoRead, rawTable, rawField, edits []byte) {
		table := &foldv1.Table{Key: valid(key), Bucket: "edge", Value: foldv1.Codec(value), Bind: foldv1.Bind(bind),
			Part: []*foldv1.Part{{Name: "only", Type: foldv1.KeyType_KEY_TYPE_STRING}}, Validate: len(edits)%2 == 1}
		for i, text := range []string{first, second} {
			if name, fields, ok := strings.Cut(valid(text), "="); ok {
				table.Index = append(table.Index, &foldv1.Index{Name: name, Fields: strings.Split(fields, ","), Unique: i == 1})
			}
		}
		if retired != "" {
			table.RetiredIndex = strings.Split(valid(retired), ",")
		}
		for _, codec := range alsoRead {
			table.AlsoRead = append(table.AlsoRead, foldv1.Codec(codec))
		}
		wire, err := proto.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		req := with(base, "")
		file := req.ProtoFile[slices.IndexFunc(req.ProtoFile, func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == "z/v1/z.proto" })]
		row := file.MessageType[0]
		setRaw(row.Options, 50737, append(wire, rawTable...))
		for _, field := range row.Field[:6] {
			field.Options = new(descriptorpb.FieldOptions)
			setRaw(field.Options, 50737, rawField)
		}
		edit(file, edits)
		got, text := generate(throughWire(t, req))
		if strings.Contains(text, "internal error") {
			t.Fatal(text)
		}
		if len(edits) == 0 && text != "" { // else the file may be none that a compiler makes
			checkDiagnostics(t, text)
		}
		again, textAgain := generate(throughWire(t, req))
		if text != textAgain || !maps.Equal(got, again) {
			t.Fatalf("two runs differ: %s %s", text, textAgain)
		}
	})
}

// checkDiagnostics checks that each diagnostic has a place and a hint.
func checkDiagnostics(t *testing.T, text string) {
	t.Helper()
	rest, ok := strings.CutPrefix(text, "\n")
	lines := strings.Split(rest, "\n")
	if !ok || len(lines)%2 == 1 {
		t.Fatalf("not diagnostics with hints: %q", text)
	}
	for i := 0; i < len(lines); i += 2 {
		if !diagnosticLine.MatchString(lines[i]) || !strings.HasPrefix(lines[i+1], "    hint: ") {
			t.Fatalf("not a diagnostic with a hint: %q %q", lines[i], lines[i+1])
		}
	}
}

// edit changes fields of the file's first message, and the places of options, three bytes each: which, what of it, and
// how.
func edit(file *descriptorpb.FileDescriptorProto, edits []byte) {
	m := file.MessageType[0]
	for ; len(edits) >= 3; edits = edits[3:] {
		f, how := m.Field[int(edits[0])%len(m.Field)], edits[2]
		switch edits[1] % 8 {
		case 0:
			f.Type = descriptorpb.FieldDescriptorProto_Type(how % 20).Enum()
		case 1:
			f.Label = descriptorpb.FieldDescriptorProto_Label(how % 5).Enum()
		case 2:
			f.TypeName = proto.String([]string{".z.v1.Row", ".z.v1.Row.Inner", ".google.protobuf.Timestamp", ".google.protobuf.Any", "", "x"}[how%6])
		case 3:
			f.Name = proto.String([]string{"s", "S", "", "only", "a_b", "by", "é", "0"}[how%8])
		case 4:
			f.OneofIndex = proto.Int32(int32(how%3) - 1)
		case 5:
			f.Number = proto.Int32(int32(how))
		case 6: // some places are not there, as with other compilers
			file.SourceCodeInfo.Location = slices.DeleteFunc(file.SourceCodeInfo.Location, func(l *descriptorpb.SourceCodeInfo_Location) bool {
				return len(l.Path) > int(how%10)
			})
		case 7: // places in the table option, which are numbered otherwise, and are odd
			file.SourceCodeInfo.Location = append(file.SourceCodeInfo.Location, &descriptorpb.SourceCodeInfo_Location{
				Path: []int32{4, 0, 7, 50737, int32(how % 14), int32(edits[0] % 4)}, Span: []int32{int32(how), int32(edits[0]), int32(how) / 2},
			})
		}
	}
}
