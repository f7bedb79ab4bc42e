package foldgen

import (
	"cmp"
	"path"
	"slices"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/schema"
)

// Where generated code finds the runtime, and the options their definition.
const (
	foldImport    = protogen.GoImportPath("github.com/typedfold/fold/runtime")
	optionsImport = protogen.GoImportPath("github.com/typedfold/fold/gen/go/fold/v1")
	optionsFile   = "fold/v1/options.proto"
)

// model is what a request declares.
type model struct {
	plugin *protogen.Plugin
	// files are those to generate that have tables, by path.
	files []*file
	// tables are all tables that compile, those of imported files included.
	tables []*table
}

// file is a proto file with tables, and the Go file that it becomes.
type file struct {
	proto       *protogen.File
	name        string // of the generated file
	importPath  protogen.GoImportPath
	packageName protogen.GoPackageName
	samePackage bool
	tables      []*table
	// packageNames are the names of all Go packages of the request.
	packageNames map[protogen.GoImportPath]protogen.GoPackageName
}

// table is one table of a file.
type table struct {
	*schema.Table
	file    *file
	message *protogen.Message
	// fields are the protogen fields on the way to each variable's field.
	fields [][]*protogen.Field
}

func newModel(plugin *protogen.Plugin, suffix string, d *diagnostics) *model {
	m := &model{plugin: plugin}
	packageNames := map[protogen.GoImportPath]protogen.GoPackageName{}
	for _, pf := range plugin.Files {
		packageNames[pf.GoImportPath] = pf.GoPackageName
	}
	for _, pf := range plugin.Files {
		f := newFile(pf, suffix)
		f.packageNames = packageNames
		for message := range allMessages(pf.Messages) {
			if !schema.IsTable(message.Desc) {
				continue
			}
			compiled, problems := schema.Compile(message.Desc)
			if pf.Generate {
				for _, p := range problems {
					d.add(p)
				}
			}
			if len(problems) == 0 {
				t := &table{Table: compiled, file: f, message: message}
				for i := range t.Vars {
					t.fields = append(t.fields, fieldsOn(message, t.Vars[i].Path))
				}
				f.tables = append(f.tables, t)
			}
		}
		m.tables = append(m.tables, f.tables...)
		if pf.Generate && len(f.tables) > 0 {
			m.files = append(m.files, f)
		}
	}
	slices.SortFunc(m.files, func(a, b *file) int { return cmp.Compare(a.proto.Desc.Path(), b.proto.Desc.Path()) })
	return m
}

func newFile(pf *protogen.File, suffix string) *file {
	f := &file{
		proto:       pf,
		name:        pf.GeneratedFilenamePrefix + ".fold.go",
		importPath:  pf.GoImportPath,
		packageName: pf.GoPackageName,
		samePackage: suffix == "",
	}
	if !f.samePackage {
		f.packageName += protogen.GoPackageName(suffix)
		f.importPath = protogen.GoImportPath(path.Join(string(pf.GoImportPath), string(f.packageName)))
		dir, base := path.Split(pf.GeneratedFilenamePrefix)
		f.name = path.Join(dir, string(f.packageName), base+".fold.go")
	}
	return f
}

// allMessages walks messages and those inside them, in the file's order.
func allMessages(messages []*protogen.Message) func(yield func(*protogen.Message) bool) {
	return func(yield func(*protogen.Message) bool) { walkMessages(messages, yield) }
}

func walkMessages(messages []*protogen.Message, yield func(*protogen.Message) bool) bool {
	for _, m := range messages {
		if !yield(m) || !walkMessages(m.Messages, yield) {
			return false
		}
	}
	return true
}

// fieldsOn finds the protogen fields of a path that begins in message.
func fieldsOn(message *protogen.Message, path []protoreflect.FieldDescriptor) []*protogen.Field {
	var fields []*protogen.Field
	for _, fd := range path {
		for _, f := range message.Fields {
			if f.Desc.Number() == fd.Number() {
				fields = append(fields, f)
				message = f.Message
				break
			}
		}
	}
	return fields
}
