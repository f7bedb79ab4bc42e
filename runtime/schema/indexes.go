package schema

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	"github.com/typedfold/fold/runtime/keyenc"
)

const (
	indexNameHint  = "it has lower-case words of letters and digits with single _ between them, such as by_node"
	indexTypesHint = "an index takes string, bytes, bool, integer, enum, Timestamp and Duration fields"
)

// indexes compiles index and retired_index.
func (c *compiler) indexes() {
	keyProblems := len(c.problems) // with one in the key, nothing is said of what repeats it
	for i, option := range c.option.GetIndex() {
		problems := len(c.problems)
		ix := Index{Name: option.GetName(), GoName: indexGoName(option.GetName()), Unique: option.GetUnique()}
		c.indexName(i)
		c.indexFields(i, &ix)
		if len(c.problems) > problems {
			continue
		}
		c.indexTwice(i, &ix)
		if keyProblems == 0 {
			c.indexOfKey(i, &ix)
		}
		c.table.Indexes = append(c.table.Indexes, ix)
	}
	c.retired()
}

// indexGoName is ByNode for both "by_node" and "node".
func indexGoName(name string) string {
	if strings.HasPrefix(name, "by_") {
		return fieldGoName(name)
	}
	return "By" + fieldGoName(name)
}

func isLowerSnake(s string) bool {
	for i := range len(s) {
		c, first := s[i], i == 0 || s[i-1] == '_'
		switch {
		case isLower(c), isDigit(c) && i > 0, c == '_' && !first:
		default:
			return false
		}
	}
	return s != "" && s[len(s)-1] != '_'
}

// indexName checks the name of index i against its form and against the indexes before it.
func (c *compiler) indexName(i int) {
	all := c.option.GetIndex()
	name, sub := all[i].GetName(), []int32{tableIndex, int32(i), indexName}
	switch {
	case name == "":
		c.add(sub[:2], `add name: "by_..."`, "index %d has no name", i+1)
		return
	case !isLowerSnake(name):
		hint := indexNameHint
		if snake := lowerSnake(name); snake != "" {
			hint = fmt.Sprintf("write %q", snake)
		}
		c.add(sub, hint, "index name %q is not in lower_snake_case", name)
		return
	}
	for j, other := range all[:i] {
		switch {
		case other.GetName() == name:
			c.add(sub, "rename one of them, or leave it out", "index %q is declared twice (as index %d and %d)", name, j+1, i+1)
			return
		case isLowerSnake(other.GetName()) && indexGoName(other.GetName()) == indexGoName(name):
			c.add(sub, "choose another name", "index %q and index %q both become %s", other.GetName(), name, indexGoName(name))
			return
		}
	}
}

// lowerSnake is the name that "byNode", "ByNode" or "by-node" was probably meant to be, or "".
func lowerSnake(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case isUpper(c):
			if i > 0 && !isUpper(s[i-1]) {
				b.WriteByte('_')
			}
			b.WriteByte(c - 'A' + 'a')
		case isLower(c) || isDigit(c):
			b.WriteByte(c)
		default:
			b.WriteByte('_')
		}
	}
	snake := strings.Join(strings.FieldsFunc(b.String(), func(r rune) bool { return r == '_' }), "_")
	if !isLowerSnake(snake) || snake == "by" || strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) {
		return ""
	}
	return snake
}

func (c *compiler) indexFields(i int, ix *Index) {
	names := c.option.GetIndex()[i].GetFields()
	switch {
	case len(names) == 0:
		c.add([]int32{tableIndex, int32(i)}, `add fields: "..."`, "%s has no fields", ix.what())
		return
	case len(names) > maxIndexFields:
		c.add([]int32{tableIndex, int32(i), indexFields, maxIndexFields}, "leave out what tells rows apart the least", "%s has %d fields; the limit is %d", ix.what(), len(names), maxIndexFields)
		return
	}
	repeated := ""
	for j, name := range names {
		sub := []int32{tableIndex, int32(i), indexFields, int32(j)}
		if slices.Contains(names[:j], name) {
			c.add(sub, "leave one out", "%s has field %q twice", ix.what(), name)
			continue
		}
		f, ok := c.indexField(ix, sub, name)
		if !ok {
			continue
		}
		if f.Repeated && repeated != "" {
			c.add(sub, "leave one out, or declare an index for each", "%s has two repeated fields, %q and %q", ix.what(), repeated, name)
			continue
		}
		if f.Repeated {
			repeated = name
		}
		ix.Fields = append(ix.Fields, f)
	}
}

// what names the index in a message.
func (ix *Index) what() string {
	if ix.Name == "" {
		return "the index"
	}
	return fmt.Sprintf("index %q", ix.Name)
}

// indexField compiles the field of an index that sub leads to. It has added a problem if it is not ok.
func (c *compiler) indexField(ix *Index, sub []int32, name string) (f IndexField, ok bool) {
	report := func(offset int, hint, format string, args ...any) {
		c.add(sub, hint, "%s: %s", ix.what(), fmt.Sprintf(format, args...))
		p := &c.problems[len(c.problems)-1]
		p.Literal, p.Offset = name, offset
	}
	for part := range strings.SplitSeq(name, ".") {
		if !isFieldName(part) {
			report(0, fieldFormHint(name), "%q is not a field name or a dotted path of them", name)
			return f, false
		}
	}
	path, missing, flaw := followPath(c.md, name)
	switch {
	case missing && c.isKeyOnly(name):
		report(0, "an index takes fields of the message; add one for it", "{%s} is in the key only", name)
		return f, false
	case flaw != nil:
		report(flaw.offset, flaw.hint, "%s", flaw.message)
		return f, false
	}
	f = IndexField{Name: name, Path: path}
	fd := f.Field()
	f.Kind, f.Repeated = kindOf(fd), fd.IsList()
	for _, fd := range path {
		f.Presence = f.Presence || fd.HasPresence()
	}
	at := strings.LastIndexByte(name, '.') + 1
	switch {
	case fd.IsMap():
		report(at, indexTypesHint, "field %q is a map and cannot be indexed", fd.Name())
		return f, false
	case isFloat(fd):
		report(at, "use an integer or a string", "field %q is %s; floating point cannot be indexed (NaN, -0)", fd.Name(), fd.Kind())
		return f, false
	case fd.Kind() == protoreflect.GroupKind:
		report(at, insideHint(name, fd), "field %q is a group and cannot be indexed", fd.Name())
		return f, false
	case f.Kind == 0:
		report(at, insideHint(name, fd), "field %q is message %s and cannot be indexed", fd.Name(), fd.Message().FullName())
		return f, false
	}
	if flaw := c.halfFilled(name, path); flaw != nil {
		report(flaw.offset, flaw.hint, "%s", flaw.message)
		return f, false
	}
	f.Enc, ok = c.indexEncoding(&f)
	return f, ok
}

// halfFilled refuses a field that the key fills in part, or with more beside it: neither key nor value has all of it.
func (c *compiler) halfFilled(name string, path []protoreflect.FieldDescriptor) *flaw {
	if c.table.Bind != foldv1.Bind_BIND_FILL {
		return nil
	}
	for i := range c.table.Vars {
		v := &c.table.Vars[i]
		n := min(len(v.Path), len(path))
		if v.KeyOnly() || len(v.Path) == len(path) || !slices.Equal(v.Path[:n], path[:n]) {
			continue
		}
		return &flaw{message: fmt.Sprintf("bind: BIND_FILL fills %q from the key, and not %q", v.Name, name), hint: fmt.Sprintf("write %q", v.Name)}
	}
	return nil
}

// fieldFormHint says how to write what is no name of an index field: "{a}" and "a, b" are a slip.
func fieldFormHint(text string) string {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(name), "{"), "}")
		for part := range strings.SplitSeq(name, ".") {
			if !isFieldName(part) {
				return `write the name of a field, "name", or of one in an inner message, "spec.name"`
			}
		}
		names = append(names, fmt.Sprintf("%q", name))
	}
	if len(names) == 1 {
		return "write " + names[0]
	}
	return "write fields: [" + strings.Join(names, ", ") + "]"
}

func (c *compiler) isKeyOnly(name string) bool {
	return slices.ContainsFunc(c.table.Vars, func(v Var) bool { return v.Name == name && v.KeyOnly() && v.Kind != 0 })
}

// insideHint names a field inside of a message field that can be indexed.
func insideHint(name string, fd protoreflect.FieldDescriptor) string {
	if fd.IsList() {
		return indexTypesHint
	}
	fields := fd.Message().Fields()
	for i := range fields.Len() {
		if inner := fields.Get(i); kindOf(inner) != 0 {
			return fmt.Sprintf("name a field in it, such as %q", name+"."+string(inner.Name()))
		}
	}
	return indexTypesHint
}

// indexEncoding is the field's own encoding where that can write every value, else its kind's default.
func (c *compiler) indexEncoding(f *IndexField) (keyenc.Encoding, bool) {
	fd := f.Field()
	chosen, ok := c.fieldEncoding(fd)
	if !ok {
		return 0, false
	}
	if chosen.Descriptor().Values().ByNumber(chosen.Number()) == nil {
		c.addOnce(fd, []int32{fieldEnc}, newerHint, "%s has no value %d", chosen.Descriptor().Name(), chosen)
		return 0, false
	}
	enc := keyenc.Encoding(chosen) // the numbers are the same
	maybeUUID := f.Kind == keyenc.KindString || f.Kind == keyenc.KindBytes
	switch {
	case enc == 0:
		return f.Kind.Default(), true
	case !enc.Fits(f.Kind) && !(enc == keyenc.EncUUID && maybeUUID):
		v := Var{Name: f.Name, Path: f.Path, Kind: f.Kind}
		c.addOnce(fd, []int32{fieldEnc}, "allowed: "+encodingsOf(f.Kind, maybeUUID), "%s does not apply to %s", chosen, v.what())
		return 0, false
	case enc == keyenc.EncVerbatim || enc == keyenc.EncUUID || enc == keyenc.EncEnumName:
		return f.Kind.Default(), true
	}
	return enc, true
}

// indexTwice refuses a second index of the same fields.
func (c *compiler) indexTwice(i int, ix *Index) {
	for j := range c.table.Indexes {
		if other := &c.table.Indexes[j]; other.Definition() == ix.Definition() {
			c.add([]int32{tableIndex, int32(i)}, "one of them is enough; unique adds to what an index can do",
				"index %q has the same fields as index %q", ix.Name, other.Name)
			return
		}
	}
}

// indexOfKey refuses an index that finds nothing that the key does not. A unique one of the first variables of a key
// does: whether there is a second row.
func (c *compiler) indexOfKey(i int, ix *Index) {
	vars := c.table.Vars
	n := len(ix.Fields)
	if n > len(vars) || ix.Unique && n < len(vars) {
		return
	}
	for j := range ix.Fields {
		if ix.Fields[j].Name != vars[j].Name {
			return
		}
	}
	sub := []int32{tableIndex, int32(i)}
	if n == len(vars) {
		c.add(sub, "use Get", "index %q has the fields of the key", ix.Name)
		return
	}
	prefix := c.table.GoName + "By"
	for _, v := range vars[:n] {
		prefix += v.GoName
	}
	c.add(sub, fmt.Sprintf("use List and Count with %s(...)", prefix), "index %q repeats the beginning of key %q", ix.Name, c.option.GetKey())
}

// retired compiles retired_index.
func (c *compiler) retired() {
	names := c.option.GetRetiredIndex()
	for i, name := range names {
		sub := []int32{tableRetiredIndex, int32(i)}
		live := slices.IndexFunc(c.option.GetIndex(), func(ix *foldv1.Index) bool {
			return isLowerSnake(ix.GetName()) && indexGoName(ix.GetName()) == indexGoName(name)
		})
		switch {
		case !isLowerSnake(name):
			c.add(sub, indexNameHint, "retired_index %q is no name of an index", name)
		case slices.Contains(names[:i], name):
			c.add(sub, "leave one out", "retired_index %q is there twice", name)
		case live >= 0:
			used := c.option.GetIndex()[live].GetName()
			at := []int32{tableIndex, int32(live), indexName}
			if used == name {
				c.add(at, "choose another name", "index %q is listed in retired_index", used)
			} else {
				c.add(at, "choose another name", "index %q becomes %s, as did %q, which is listed in retired_index", used, indexGoName(used), name)
			}
		}
	}
	c.table.RetiredIndexes = slices.Clone(names)
}
