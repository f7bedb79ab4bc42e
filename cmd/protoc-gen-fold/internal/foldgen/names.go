package foldgen

import (
	"cmp"
	"fmt"
	"go/token"
	"go/types"
	"slices"

	"github.com/dave/jennifer/jen"
	"google.golang.org/protobuf/compiler/protogen"
)

// locals are the names that generated functions give to receivers, parameters and variables. Import aliases and
// parameters that are named after fields never equal one: the latter end in '_'.
var locals = []string{"b", "ctx", "dst", "err", "events", "f", "h", "k", "key", "m", "ok", "r", "rows", "s", "t"}

// names are all package-level names of a table's generated code.
func (t *table) names() []string {
	g := t.GoName
	names := []string{
		g + "Key", "Parse" + g + "Key", g + "Desc", g + "Row", g + "Rows", g + "Event", g + "Rev", g + "Prefix", g + "Option",
		g + "All", "Parse" + g, g + "Table", "Register" + g, g + "Hooks", "Unimplemented" + g + "Hooks", g + "HookFuncs",
		"With" + g + "Hooks", g + "Writer", "New" + g + "Writer",
	}
	if !t.KeyOnly() {
		names = append(names, g+"KeyOf")
	}
	for n := 1; n < len(t.Vars); n++ {
		names = append(names, t.byName(n))
	}
	return names
}

// byName is the function for the prefix of the first n variables.
func (t *table) byName(n int) string {
	name := t.GoName + "By"
	for _, v := range t.Vars[:n] {
		name += v.GoName
	}
	return name
}

// params are the parameter names of the variables: lower-case first, '_' last, no two alike.
func (t *table) params() []string {
	var params []string
	for _, v := range t.Vars {
		name := lowerFirst(v.GoName)
		unique := name + "_"
		for i := 2; slices.Contains(params, unique); i++ {
			unique = fmt.Sprintf("%s%d_", name, i)
		}
		params = append(params, unique)
	}
	return params
}

// lowerFirst puts the first word of an exported name in lower case: NodeID → nodeID, URLPath → urlPath, ID → id.
func lowerFirst(name string) string {
	b := []byte(name)
	isUpper := func(i int) bool { return i < len(b) && b[i] >= 'A' && b[i] <= 'Z' }
	isLower := func(i int) bool { return i < len(b) && b[i] >= 'a' && b[i] <= 'z' }
	for i := 0; isUpper(i) && (i == 0 || !isLower(i+1)); i++ {
		b[i] += 'a' - 'A'
	}
	return string(b)
}

// setImports gives every import of the file its name. Ours and the standard library's come first, so that they are the
// same in all files; the user's follow by path.
func setImports(out *jen.File, f *file) {
	taken := map[string]bool{}
	for _, name := range slices.Concat(types.Universe.Names(), locals, []string{"init"}) { // Go refuses an import named init
		taken[name] = true
	}
	for _, t := range f.tables {
		for _, name := range t.names() {
			taken[name] = true
		}
	}
	for _, std := range []string{"context", "iter"} {
		out.ImportName(std, std)
		taken[std] = true
	}
	out.ImportAlias(string(foldImport), "fold")
	taken["fold"] = true

	type imported struct {
		path protogen.GoImportPath
		name protogen.GoPackageName
	}
	var imports []imported
	add := func(path protogen.GoImportPath, name protogen.GoPackageName) {
		if path != f.importPath && path != foldImport {
			imports = append(imports, imported{path, name})
		}
	}
	add(f.proto.GoImportPath, f.proto.GoPackageName)
	for _, t := range f.tables {
		for _, fields := range t.fields {
			if len(fields) == 0 {
				continue // in the key only
			}
			if e := fields[len(fields)-1].Enum; e != nil {
				add(e.GoIdent.GoImportPath, f.packageNames[e.GoIdent.GoImportPath])
			}
		}
		for _, e := range t.indexEnums() {
			add(e.GoIdent.GoImportPath, f.packageNames[e.GoIdent.GoImportPath])
		}
	}
	slices.SortFunc(imports, func(a, b imported) int { return cmp.Compare(a.path, b.path) })
	for _, im := range slices.Compact(imports) {
		name := string(im.name)
		for i := 2; taken[name] || token.IsKeyword(name) || jen.IsReservedWord(name); i++ {
			if i == 2 {
				name += "pb"
				continue
			}
			name = fmt.Sprintf("%spb%d", im.name, i-1)
		}
		taken[name] = true
		out.ImportAlias(string(im.path), name)
	}
}
