package foldgen

import (
	"fmt"
	"go/token"
	"slices"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/schema"
)

// Field numbers in descriptor.proto and fold.v1.Table of the places that diagnostics point to.
const (
	fileDependency = 3
	fileOptions    = 8
	goPackage      = 11
	tableKey       = 1
	tableGoName    = 9
	optionsNumber  = 50737
)

// check finds what is wrong between tables that are each right.
func (m *model) check(d *diagnostics) {
	m.checkOptions(d)
	m.checkOverlaps(d)
	m.checkNames(d)
	m.checkPackages(d)
}

// checkPackages finds packages that Go can't compile or import.
func (m *model) checkPackages(d *diagnostics) {
	for _, f := range m.files {
		add := func(hint, format string, args ...any) {
			d.add(schema.Problem{
				File: f.proto.Desc, Path: protoreflect.SourcePath{fileOptions, goPackage}, Message: fmt.Sprintf(format, args...), Hint: hint,
			})
		}
		switch {
		case f.samePackage:
		case f.proto.GoPackageName == "main":
			add("give the file a go_package of its own, or set an empty package_suffix", "Go package main can't be imported by the package of its tables")
		case token.IsKeyword(string(f.packageName)) || f.packageName == "main":
			add("choose another package_suffix", "the package of the tables would be named %q, which is not a name for it", f.packageName)
		}
	}
}

// checkOptions finds an options.proto whose Go code is not the one that this plugin and the runtime read.
func (m *model) checkOptions(d *diagnostics) {
	for _, f := range m.plugin.Files {
		for _, ext := range f.Extensions {
			if ext.Desc.FullName() != "fold.v1.table" {
				continue
			}
			at, hint, message := "", "", ""
			switch {
			case f.Desc.Path() != optionsFile:
				message = fmt.Sprintf("fold.v1.table is declared in %s, and this plugin knows it from %s", f.Desc.Path(), optionsFile)
				at, hint = f.Desc.Path(), fmt.Sprintf("import %q, with the module's proto folder as an import path", optionsFile)
			case f.GoImportPath != optionsImport:
				message = fmt.Sprintf("%s resolves to Go package %s, and the runtime reads %s", optionsFile, f.GoImportPath, optionsImport)
				at, hint = optionsFile, "in managed mode add to buf.gen.yaml: managed: {disable: [{file_option: go_package, path: fold/v1}]}; with protoc, drop the M option for it"
			default:
				continue
			}
			for _, user := range m.plugin.Files {
				if user.Generate && dependency(user.Desc, at) >= 0 {
					d.add(schema.Problem{
						File: user.Desc, Path: protoreflect.SourcePath{fileDependency, int32(dependency(user.Desc, at))},
						Message: message, Hint: hint,
					})
				}
			}
		}
	}
}

// dependency is the index of the import of path in the file, or -1.
func dependency(fd protoreflect.FileDescriptor, path string) int {
	for i := range fd.Imports().Len() {
		if fd.Imports().Get(i).Path() == path {
			return i
		}
	}
	return -1
}

// checkOverlaps compares the keys of every two tables of a bucket, if one of them is to be generated.
func (m *model) checkOverlaps(d *diagnostics) {
	tables := slices.SortedFunc(slices.Values(m.tables), byPlace)
	for i, b := range tables {
		for _, a := range tables[:i] {
			if !a.file.proto.Generate && !b.file.proto.Generate {
				continue
			}
			witness, overlap := schema.Overlap(a.Table, b.Table)
			if !overlap {
				continue
			}
			at, other := b, a
			if !b.file.proto.Generate {
				at, other = a, b
			}
			d.add(overlapProblem(at, other, witness))
		}
	}
}

// byPlace orders tables by file and by their order in it.
func byPlace(a, b *table) int {
	if a.file != b.file {
		if a.file.proto.Desc.Path() < b.file.proto.Desc.Path() {
			return -1
		}
		return 1
	}
	return slices.Index(a.file.tables, a) - slices.Index(a.file.tables, b)
}

func overlapProblem(at, other *table, witness string) schema.Problem {
	otherPlace := place(other.message.Desc, schema.OptionPath(other.message.Desc, tableKey))
	message := fmt.Sprintf("key %q and key %q of table %s (%s) both match %q in bucket %q",
		at.Key(), other.Key(), other.Message, otherPlace, witness, at.Bucket)
	hint := "make a literal differ, or choose encodings that have no token in common"
	if at.Key() == other.Key() {
		message = fmt.Sprintf("key %q is also that of table %s (%s) in bucket %q; both match %q",
			at.Key(), other.Message, otherPlace, at.Bucket, witness)
		hint = "make a literal differ"
	}
	return schema.Problem{File: at.message.Desc.ParentFile(), Path: schema.OptionPath(at.message.Desc, tableKey), Message: message, Hint: hint}
}

// checkNames finds Go names that a package would declare twice.
func (m *model) checkNames(d *diagnostics) {
	taken := map[protogen.GoIdent]string{}
	for _, f := range m.plugin.Files {
		declared(f, func(ident protogen.GoIdent, what protoreflect.Descriptor) {
			taken[ident] = fmt.Sprintf("%s (%s)", what.FullName(), place(what, sourcePath(what)))
		})
	}
	for _, t := range slices.SortedFunc(slices.Values(m.tables), byPlace) {
		for _, name := range t.names() {
			ident := protogen.GoIdent{GoName: name, GoImportPath: t.file.importPath}
			other, clash := taken[ident]
			if !clash {
				taken[ident] = fmt.Sprintf("that of table %s (%s)", t.Message, place(t.message.Desc, schema.PathOf(t.message.Desc)))
				continue
			}
			if !t.file.proto.Generate {
				continue
			}
			hint := "set go_name in the table option"
			if t.file.samePackage {
				hint += ", or a package_suffix"
			}
			d.add(schema.Problem{
				File: t.message.Desc.ParentFile(), Path: schema.OptionPath(t.message.Desc, tableGoName),
				Message: fmt.Sprintf("generated name %s clashes with %s", name, other), Hint: hint,
			})
			break
		}
	}
}

// declared calls f for each name that protoc-gen-go declares in the file's package and that could meet one of ours.
func declared(pf *protogen.File, f func(protogen.GoIdent, protoreflect.Descriptor)) {
	enums := func(enums []*protogen.Enum) {
		for _, e := range enums {
			f(e.GoIdent, e.Desc)
			for _, v := range e.Values {
				f(v.GoIdent, v.Desc)
			}
		}
	}
	enums(pf.Enums)
	for m := range allMessages(pf.Messages) {
		if m.Desc.IsMapEntry() {
			continue
		}
		f(m.GoIdent, m.Desc)
		enums(m.Enums)
		for _, field := range m.Fields {
			if field.Oneof != nil && !field.Oneof.Desc.IsSynthetic() {
				f(field.GoIdent, field.Desc)
			}
		}
	}
}

// sourcePath is the path of a descriptor in its file; for enums and their values that of what they stand in.
func sourcePath(d protoreflect.Descriptor) protoreflect.SourcePath {
	switch d.(type) {
	case protoreflect.MessageDescriptor, protoreflect.FieldDescriptor:
		return schema.PathOf(d)
	}
	return enumPath(d)
}

// Numbers of the fields that hold enums in descriptor.proto.
const (
	fileEnum    = 5
	messageEnum = 4
	enumValue   = 2
)

func enumPath(d protoreflect.Descriptor) protoreflect.SourcePath {
	switch parent := d.Parent().(type) {
	case protoreflect.FileDescriptor:
		return protoreflect.SourcePath{fileEnum, int32(d.Index())}
	case protoreflect.MessageDescriptor:
		return append(schema.PathOf(parent), messageEnum, int32(d.Index()))
	case protoreflect.EnumDescriptor:
		return append(enumPath(parent), enumValue, int32(d.Index()))
	}
	return nil
}
