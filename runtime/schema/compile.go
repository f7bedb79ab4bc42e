package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// Compile reads the (fold.v1.table) option of a message. It reports all problems at once, in a stable order; the
// table is nil if there is one.
func Compile(md protoreflect.MessageDescriptor) (*Table, []Problem) {
	c := &compiler{md: md, table: &Table{Message: md.FullName()}}
	c.run()
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return c.table, nil
}

const (
	numberHint = "is extension number 50737 used by another option? If so, that one needs another number"
	newerHint  = "options.proto is newer than this protoc-gen-fold; upgrade the plugin and the module github.com/typedfold/fold"
)

// compiler holds what Compile knows while it runs.
type compiler struct {
	md       protoreflect.MessageDescriptor
	option   *foldv1.Table
	file     *foldv1.File
	table    *Table
	problems []Problem
}

func (c *compiler) add(sub []int32, hint, format string, args ...any) {
	c.addAt(c.md, sub, hint, format, args...)
}

// elements is how many elements the repeated field of the table option has that sub leads into.
func (c *compiler) elements(sub []int32) int {
	if len(sub) < 2 {
		return 0
	}
	switch sub[0] {
	case tablePart:
		return len(c.option.GetPart())
	case tableIndex:
		return len(c.option.GetIndex())
	case tableRetiredIndex:
		return len(c.option.GetRetiredIndex())
	case tableAlsoRead:
		return len(c.option.GetAlsoRead())
	}
	return 0
}

// addAt reports a problem with d's fold option, or with what sub leads to in it.
func (c *compiler) addAt(d protoreflect.Descriptor, sub []int32, hint, format string, args ...any) {
	p := Problem{File: d.ParentFile(), Path: OptionPath(d, sub...), Message: fmt.Sprintf(format, args...), Hint: hint}
	if d == protoreflect.Descriptor(c.md) {
		p.Elements = c.elements(sub)
	}
	c.problems = append(c.problems, p)
}

// addOnce is addAt for what may have been said already: of a field that two variables or indexes have.
func (c *compiler) addOnce(d protoreflect.Descriptor, sub []int32, hint, format string, args ...any) {
	c.addAt(d, sub, hint, format, args...)
	last := len(c.problems) - 1
	if slices.ContainsFunc(c.problems[:last], func(p Problem) bool {
		return p.File == c.problems[last].File && p.Message == c.problems[last].Message && slices.Equal(p.Path, c.problems[last].Path)
	}) {
		c.problems = c.problems[:last]
	}
}

// inKey reports a problem at an offset of the key pattern.
func (c *compiler) inKey(offset int, hint, format string, args ...any) {
	c.add([]int32{tableKey}, hint, format, args...)
	p := &c.problems[len(c.problems)-1]
	p.Literal, p.Offset = c.option.GetKey(), offset
}

func (c *compiler) run() {
	option, ok, err := tableOption(c.md)
	if err != nil {
		c.add(nil, numberHint, "the table option of %s cannot be read: it is no fold.v1.Table", c.md.Name())
		return
	}
	if !ok {
		c.add(nil, `add option (fold.v1.table) = {key: "..."};`, "message %s has no (fold.v1.table) option", c.md.Name())
		return
	}
	c.option = option
	c.file, _, err = fileOption(c.md.ParentFile())
	if err != nil {
		c.addAt(c.md.ParentFile(), nil, numberHint, "the (fold.v1.file) option cannot be read: it is no fold.v1.File")
	}
	if path := unknownField(option.ProtoReflect()); path != nil {
		c.add(path, newerHint, "the table option of %s has unknown field %d", c.md.Name(), path[len(path)-1])
	}
	if path := unknownField(c.file.ProtoReflect()); path != nil {
		c.addAt(c.md.ParentFile(), path, newerHint, "the (fold.v1.file) option has unknown field %d", path[len(path)-1])
	}
	c.checkMessage()
	c.names()
	c.bucket()
	c.settings()
	c.key()
	c.codecs()
	c.indexes()
}

func (c *compiler) checkMessage() {
	switch {
	case c.md.IsMapEntry():
		c.add(nil, "declare a message, and use it as the type of the map's values", "map entry %s cannot be a table", c.md.Name())
	case isGroup(c.md):
		c.add(nil, "declare a message outside, and use it as the field's type", "group %s cannot be a table", c.md.Name())
	case c.md.Fields().Len() == 0:
		c.add(nil, "add the fields of its key and value", "message %s has no fields and cannot be a table", c.md.Name())
	}
}

// isGroup reports whether the message is declared by a group field, in proto2's syntax.
func isGroup(md protoreflect.MessageDescriptor) bool {
	if md.ParentFile().Syntax() != protoreflect.Proto2 {
		return false
	}
	var siblings []protoreflect.FieldDescriptor
	collect := func(fields interface {
		Len() int
		Get(int) protoreflect.FieldDescriptor
	}) {
		for i := range fields.Len() {
			siblings = append(siblings, fields.Get(i))
		}
	}
	switch parent := md.Parent().(type) {
	case protoreflect.MessageDescriptor:
		collect(parent.Fields())
		for i := range parent.Extensions().Len() {
			siblings = append(siblings, parent.Extensions().Get(i))
		}
	case protoreflect.FileDescriptor:
		for i := range parent.Extensions().Len() {
			siblings = append(siblings, parent.Extensions().Get(i))
		}
	}
	return slices.ContainsFunc(siblings, func(fd protoreflect.FieldDescriptor) bool {
		return fd.Kind() == protoreflect.GroupKind && fd.Message().FullName() == md.FullName()
	})
}

func (c *compiler) names() {
	c.table.GoName = messageGoName(c.md)
	name := c.option.GetGoName()
	if name == "" {
		return
	}
	c.table.GoName = name
	if !isExportedName(name) {
		c.add([]int32{tableGoName}, "it begins with A-Z and goes on with letters, digits and _", "go_name %q is not an exported Go identifier", name)
	}
}

func (c *compiler) bucket() {
	d, sub, bucket := protoreflect.Descriptor(c.md), []int32{tableBucket}, c.option.GetBucket()
	if bucket == "" {
		d, sub, bucket = c.md.ParentFile(), []int32{fileBucket}, c.file.GetBucket()
	}
	c.table.Bucket = bucket
	if bucket == "" {
		c.add(nil, `write option (fold.v1.file) = {bucket: "..."}; in the file, or bucket: "..." in the table`,
			"table %s has no bucket, and its file sets none", c.md.Name())
		return
	}
	for _, r := range bucket {
		if r != '-' && r != '_' && (r > 'z' || !isLower(byte(r)) && !isUpper(byte(r)) && !isDigit(byte(r))) {
			c.addAt(d, sub, "allowed are A-Z a-z 0-9 _ -", "bucket %q has %q", bucket, r)
			return
		}
	}
}

// enumOption is the value of an enum option, or its default; a number that this build does not know is a problem.
func enumOption[E interface {
	~int32
	protoreflect.Enum
}](c *compiler, d protoreflect.Descriptor, sub []int32, e, byDefault E) E {
	if e == 0 {
		return byDefault
	}
	if e.Descriptor().Values().ByNumber(e.Number()) == nil {
		c.addAt(d, sub, newerHint,
			"%s has no value %d", e.Descriptor().Name(), e)
	}
	return e
}

func (c *compiler) settings() {
	t, o := c.table, c.option
	t.Codec = enumOption(c, c.md, []int32{tableValue}, o.GetValue(), foldv1.Codec_CODEC_PROTO)
	t.Bind = enumOption(c, c.md, []int32{tableBind}, o.GetBind(), foldv1.Bind_BIND_MATCH)
	t.OnAgeOut = enumOption(c, c.md, []int32{tableOnAgeOut}, o.GetOnAgeOut(), foldv1.OnAgeOut_ON_AGE_OUT_KEEP)
	t.OnReject = enumOption(c, c.md.ParentFile(), []int32{fileOnReject}, c.file.GetOnReject(), foldv1.OnReject_ON_REJECT_KEEP_OLD)
	t.OnReject = enumOption(c, c.md, []int32{tableOnReject}, o.GetOnReject(), t.OnReject)
	t.MaxValueBytes, t.Validate = o.GetMaxValueBytes(), o.GetValidate()
}

// key compiles pattern, parts and variables.
func (c *compiler) key() {
	parts := c.parts()
	if c.option.GetKey() == "" {
		c.add(nil, fmt.Sprintf("add key: %q", strings.ToLower(string(c.md.Name()))+".{...}"), "the table option of %s has no key", c.md.Name())
		return
	}
	segs, flaws := parsePattern(c.option.GetKey())
	slices.SortStableFunc(flaws, func(a, b flaw) int { return cmp.Compare(a.offset, b.offset) })
	for _, f := range flaws {
		c.inKey(f.offset, f.hint, "%s", f.message)
	}
	if segs == nil {
		return
	}
	for _, seg := range segs {
		token := Token{Literal: seg.literal, Var: -1, Offset: seg.offset}
		if seg.variable != "" {
			token.Var = len(c.table.Vars)
			c.table.Vars = append(c.table.Vars, c.variable(seg, parts[seg.variable]))
		}
		c.table.Pattern = append(c.table.Pattern, token)
	}
	for i, p := range c.option.GetPart() {
		if !slices.ContainsFunc(segs, func(s segment) bool { return s.variable == p.GetName() }) && p.GetName() != "" {
			hint := cmp.Or(didYouMean(p.GetName(), segmentNames(segs)), "remove it, or add the variable to the key")
			c.add([]int32{tablePart, int32(i)}, hint, "part %q is not used in key %q", p.GetName(), c.option.GetKey())
		}
	}
	c.varNames(segs)
	if t := c.table; t.Bind == foldv1.Bind_BIND_FILL && len(c.problems) == 0 && t.KeyOnly() && !t.Bound() {
		c.add([]int32{tableBind}, "leave bind out", "bind: BIND_FILL has no field to fill: every variable of key %q is in the key only", c.option.GetKey())
	}
}

func segmentNames(segs []segment) []string {
	var names []string
	for _, s := range segs {
		if s.variable != "" {
			names = append(names, s.variable)
		}
	}
	return names
}

// part is a declared part and its index in the option.
type part struct {
	*foldv1.Part
	index int
}

func (p part) path(sub ...int32) []int32 { return append([]int32{tablePart, int32(p.index)}, sub...) }

func (c *compiler) parts() map[string]part {
	parts := map[string]part{}
	for i, p := range c.option.GetPart() {
		if p.GetName() == "" {
			c.add([]int32{tablePart, int32(i)}, `add name: "...", a variable of the key`, "part %d has no name", i+1)
			continue
		}
		if _, twice := parts[p.GetName()]; twice {
			c.add([]int32{tablePart, int32(i)}, "put all that it says into one part", "part %q is declared twice", p.GetName())
			continue
		}
		parts[p.GetName()] = part{p, i}
		if name := p.GetGoName(); name != "" && !isExportedName(name) {
			c.add([]int32{tablePart, int32(i), partGoName}, "it begins with A-Z and goes on with letters, digits and _",
				"go_name %q is not an exported Go identifier", name)
		}
	}
	return parts
}

// varNames checks that each variable has a field name of its own in the key struct.
func (c *compiler) varNames(segs []segment) {
	segs = slices.DeleteFunc(slices.Clone(segs), func(s segment) bool { return s.variable == "" })
	for i, v := range c.table.Vars {
		if v.GoName == "AppendKey" || v.GoName == "String" {
			c.inKey(segs[i].offset, fmt.Sprintf("set go_name in a part: {name: %q go_name: %q}", v.Name, v.GoName+"Value"),
				"{%s} becomes field %s, which is a method of the key struct", v.Name, v.GoName)
		}
		for _, w := range c.table.Vars[:i] {
			if v.GoName == w.GoName && v.Name != w.Name {
				c.inKey(segs[i].offset, fmt.Sprintf("set go_name in a part: {name: %q go_name: %q}", v.Name, v.GoName+"2"),
					"{%s} and {%s} both become field %s", w.Name, v.Name, v.GoName)
			}
		}
	}
}

// meant begins the hints of didYouMean.
const meant = "did you mean "

func didYouMean(word string, candidates []string) string {
	if near := nearest(word, candidates); near != "" {
		return fmt.Sprintf(meant+"%q?", near)
	}
	return ""
}
