package main

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	"github.com/typedfold/fold/runtime/schema"
)

// Numbers of fold.v1.Table's fields.
const (
	tableKey          = 1
	tablePart         = 2
	tableIndex        = 6
	tableRetiredIndex = 11
)

// tableFields are the fields of the option whose name is not that of the record's line.
var tableFields = map[string]int32{"codec": 4, "in the key only": tableKey}

// optionOf is where in the table's option a line of its record comes from.
func optionOf(md protoreflect.MessageDescriptor, line string) []int32 {
	if name, ok := strings.CutPrefix(line, "var "); ok {
		return partOf(md, name)
	}
	if rest, ok := strings.CutPrefix(line, "name "); ok {
		_, name, _ := strings.Cut(rest, " of ")
		return partOf(md, name)
	}
	if name, ok := strings.CutPrefix(line, "index "); ok {
		if i := slices.IndexFunc(optionsOf(md).GetIndex(), func(ix *foldv1.Index) bool { return ix.GetName() == name }); i >= 0 {
			return []int32{tableIndex, int32(i)}
		}
		return []int32{tableIndex}
	}
	if number, ok := tableFields[line]; ok {
		return []int32{number}
	}
	if fd := (&foldv1.Table{}).ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(line)); fd != nil {
		if fd.IsList() {
			return []int32{int32(fd.Number()), 0}
		}
		return []int32{int32(fd.Number())}
	}
	return []int32{tableKey}
}

// partOf is where a key variable is declared: its part, or else the key.
func partOf(md protoreflect.MessageDescriptor, name string) []int32 {
	if i := slices.IndexFunc(optionsOf(md).GetPart(), func(p *foldv1.Part) bool { return p.GetName() == name }); i >= 0 {
		return []int32{tablePart, int32(i)}
	}
	return []int32{tableKey}
}

// optionsOf is the table's option, whatever built its descriptor.
func optionsOf(md protoreflect.MessageDescriptor) *foldv1.Table {
	wire, err := proto.Marshal(md.Options())
	options := &descriptorpb.MessageOptions{}
	if err != nil || proto.Unmarshal(wire, options) != nil {
		return nil
	}
	table, _ := proto.GetExtension(options, foldv1.E_Table).(*foldv1.Table)
	return table
}

// place is the source path of a part of the table's option, or of the smallest thing around it that has a position.
func place(md protoreflect.MessageDescriptor, sub []int32) (file string, path protoreflect.SourcePath) {
	return md.ParentFile().Path(), longest(md.ParentFile(), schema.OptionPath(md, sub...))
}

func longest(file protoreflect.FileDescriptor, path protoreflect.SourcePath) protoreflect.SourcePath {
	for len(path) > 0 && file.SourceLocations().ByPath(path).Path == nil {
		path = path[:len(path)-1]
	}
	return path
}
