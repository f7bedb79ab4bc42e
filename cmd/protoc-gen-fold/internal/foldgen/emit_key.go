package foldgen

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"
	"google.golang.org/protobuf/reflect/protoreflect"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	"github.com/typedfold/fold/runtime/keyenc"
	"github.com/typedfold/fold/runtime/schema"
)

// desc is the variable of the table's description.
func (e *emitter) desc() *jen.Statement {
	fills := e.Bind == foldv1.Bind_BIND_FILL && e.Bound()
	desc := e.id("*Desc").Op("=")
	switch {
	case !e.KeyOnly() && !fills:
		return desc.Add(fold("DescOf")).Call(e.id("Parse*Key"), e.id("*KeyOf"))
	case !e.KeyOnly():
		return desc.Add(fold("FillDescOf")).Call(e.id("Parse*Key"), e.id("*KeyOf"), e.fill())
	}
	return desc.Add(fold("NewDesc")).Call(e.keyedValue("DescConfig").ValuesFunc(func(g *jen.Group) {
		g.Line().Id("ParseKey").Op(":").Add(e.id("Parse*Key"))
		if e.Bound() {
			g.Line().Id("Bound").Op(":").Add(e.bound())
		}
		if fills {
			g.Line().Id("Fill").Op(":").Add(e.fill())
		}
		g.Line()
	}))
}

// key writes how a key is written, read, and taken from a message.
func (e *emitter) key() {
	c := newChain(fold("WriteKey").Call(jen.Id("dst"), jen.Lit(strings.Join(e.literals(-1), "."))))
	for i, v := range e.Vars {
		e.write(c, i, jen.Id("k").Dot(v.GoName))
		if literals := e.literals(i); len(literals) > 0 {
			c.call("Lit", jen.Lit(strings.Join(literals, ".")))
		}
	}
	c.call("End")
	e.Line()
	e.Func().Params(jen.Id("k").Add(e.id("*Key"))).Id("AppendKey").Params(jen.Id("dst").Index().Byte()).
		Params(jen.Index().Byte(), jen.Error()).Block(c.code)

	e.parseKey()
	if !e.KeyOnly() {
		e.Func().Add(e.id("*KeyOf")).Params(jen.Id("m").Add(e.value())).Params(e.id("*Key"), jen.Error()).BlockFunc(e.keyOf)
	}
}

// literals are the pattern's literals between variable i and the next one; with i -1, those before the first.
func (e *emitter) literals(i int) []string {
	var literals []string
	after := i < 0
	for _, tok := range e.Pattern {
		switch {
		case tok.Var < 0 && after:
			literals = append(literals, tok.Literal)
		case tok.Var >= 0:
			after = tok.Var == i
		}
	}
	return literals
}

// goType is the type of variable i in the key struct.
func (e *emitter) goType(i int) *jen.Statement {
	switch e.Vars[i].Kind {
	case keyenc.KindBool:
		return jen.Bool()
	case keyenc.KindInt32:
		return jen.Int32()
	case keyenc.KindInt64:
		return jen.Int64()
	case keyenc.KindUint32:
		return jen.Uint32()
	case keyenc.KindUint64:
		return jen.Uint64()
	case keyenc.KindEnum:
		return ident(e.fields[i][len(e.fields[i])-1].Enum.GoIdent)
	case keyenc.KindUUID:
		return jen.Index(jen.Lit(16)).Byte()
	case keyenc.KindTimestamp:
		return fold("Time")
	case keyenc.KindDuration:
		return fold("Span")
	}
	return jen.String()
}

// runs are the first n variables in runs of one Go type.
func (e *emitter) runs(n int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var run []int
		for i := range n {
			if len(run) > 0 && e.typeName(run[0]) != e.typeName(i) {
				if !yield(run) {
					return
				}
				run = nil
			}
			run = append(run, i)
		}
		if len(run) > 0 {
			yield(run)
		}
	}
}

// typeName is goType as text that tells types apart.
func (e *emitter) typeName(i int) string {
	if e.Vars[i].Kind == keyenc.KindEnum {
		return e.fields[i][len(e.fields[i])-1].Enum.GoIdent.String()
	}
	return fmt.Sprintf("%#v", e.goType(i))
}

// write adds the call that writes variable i, taken from value.
func (e *emitter) write(c *chain, i int, value *jen.Statement) {
	v := &e.Vars[i]
	switch method := encoding(v); method {
	case "Verbatim", "Time", "Span":
		c.call(method, jen.Lit(v.Name), value)
	case "EnumName":
		c.call(method, jen.Lit(v.Name), value.Clone().Dot("Descriptor").Call(), value.Clone().Dot("Number").Call())
	case "Int", "Decimal", "HexInt":
		c.call(integer(method, v.Kind, value))
	default:
		c.call(method, value)
	}
}

// integer is the writer's method for an integer, and the argument as the method takes it.
func integer(encoding string, kind keyenc.Kind, value *jen.Statement) (string, *jen.Statement) {
	own, sign := kind.String(), "Int"
	if kind == keyenc.KindEnum {
		own = "int32"
	}
	if kind == keyenc.KindUint32 || kind == keyenc.KindUint64 {
		sign = "Uint"
	}
	method, typ := strings.TrimSuffix(encoding, "Int")+sign, strings.ToLower(sign)+"64"
	if encoding == "HexInt" {
		typ = own
		method = "Hex" + sign + strings.TrimLeft(own, "uint")
	}
	if typ == own && kind != keyenc.KindEnum {
		return method, value
	}
	return method, jen.Id(typ).Call(value)
}

// encoding is the name of the variable's encoding in the methods of the runtime's writer and reader.
func encoding(v *schema.Var) string {
	switch {
	case v.Tail:
		return "Tail"
	case v.Enc == keyenc.EncHex && v.Kind != keyenc.KindString && v.Kind != keyenc.KindBytes:
		return "HexInt"
	case v.Kind == keyenc.KindDuration:
		return "Span"
	}
	return encodingName[v.Enc]
}

var encodingName = map[keyenc.Encoding]string{
	keyenc.EncESC: "ESC", keyenc.EncVerbatim: "Verbatim", keyenc.EncInt: "Int", keyenc.EncDecimal: "Decimal", keyenc.EncHex: "Hex",
	keyenc.EncBool: "Bool", keyenc.EncUUID: "UUID", keyenc.EncTime: "Time", keyenc.EncEnumName: "EnumName",
}

// parseKey writes the reader of keys.
func (e *emitter) parseKey() {
	args := []jen.Code{jen.Id("key")}
	for _, literal := range e.literals(-1) {
		args = append(args, jen.Lit(literal))
	}
	var pairs []pair
	for i, v := range e.Vars {
		pairs = append(pairs, pair{v.GoName, e.read(i)})
	}
	parsed := []jen.Code{jen.Op("&").Id("r"), composite(e.id("*Key"), len("return fold.ParsedKey(&r, )"), pairs)}
	if !e.Singleton() {
		for _, literal := range e.literals(len(e.Vars) - 1) {
			parsed = append(parsed, jen.Lit(literal))
		}
	}
	e.Func().Add(e.id("Parse*Key")).Params(jen.Id("key").String()).Params(e.id("*Key"), jen.Error()).Block(
		jen.Id("r").Op(":=").Add(fold("ReadKey")).Call(args...),
		jen.Return(fold("ParsedKey").Call(parsed...)),
	)
}

// read is the expression that reads variable i from the key reader r, and the literals before it.
func (e *emitter) read(i int) *jen.Statement {
	v := &e.Vars[i]
	r := jen.Id("r")
	if i > 0 {
		for _, literal := range e.literals(i - 1) {
			r.Dot("Lit").Call(jen.Lit(literal))
		}
	}
	switch name := encoding(v); name {
	case "Int", "HexInt", "Decimal", "EnumName":
		if len(*r) == 1 {
			r = jen.Op("&").Add(r) // Lit gives the pointer
		}
		return fold("Read"+name).Types(e.goType(i)).Call(r, jen.Lit(v.Name))
	default:
		return r.Dot(name).Call(jen.Lit(v.Name))
	}
}

// keyOf is the body of the function that takes the key from a message.
func (e *emitter) keyOf(g *jen.Group) {
	var pairs []pair
	for i, v := range e.Vars {
		pairs = append(pairs, pair{v.GoName, e.getter(i)})
	}
	key := composite(e.id("*Key"), len("return fold.FieldsKey(&f, )"), pairs)
	if e.fieldReader(g) {
		g.Return(fold("FieldsKey").Call(jen.Op("&").Id("f"), key))
		return
	}
	g.Return(key, jen.Nil())
}

// bound is the function that puts the message's part of the key into a key.
func (e *emitter) bound() *jen.Statement {
	return jen.Func().Params(jen.Id("m").Add(e.value()), jen.Id("k").Add(e.id("*Key"))).Params(e.id("*Key"), jen.Error()).BlockFunc(func(g *jen.Group) {
		checks := e.fieldReader(g)
		for i, v := range e.Vars {
			if !v.KeyOnly() {
				g.Id("k").Dot(v.GoName).Op("=").Add(e.getter(i))
			}
		}
		if checks {
			g.Return(fold("FieldsKey").Call(jen.Op("&").Id("f"), jen.Id("k")))
			return
		}
		g.Return(jen.Id("k"), jen.Nil())
	})
}

// fieldReader declares f, which reads fields that may hold no value of the key; false when there are none.
func (e *emitter) fieldReader(g *jen.Group) bool {
	required := []jen.Code{jen.Id("m")}
	checked := false
	for _, v := range e.Vars {
		if v.Presence {
			required = append(required, jen.Lit(v.Name))
		}
		checked = checked || !v.KeyOnly() && checkedBy(&v) != ""
	}
	switch {
	case len(required) > 1:
		g.Id("f").Op(":=").Add(fold("RequiredFields")).Call(required...)
	case checked:
		g.Var().Id("f").Add(fold("KeyFields"))
	default:
		return false
	}
	return true
}

// checkedBy is the method of fold.KeyFields that reads the variable's field; "" when any content will do.
func checkedBy(v *schema.Var) string {
	switch {
	case v.Kind == keyenc.KindUUID && v.Field().Kind() == protoreflect.BytesKind:
		return "UUIDBytes"
	case v.Kind == keyenc.KindUUID:
		return "UUID"
	case v.Kind == keyenc.KindTimestamp:
		return "Time"
	case v.Kind == keyenc.KindDuration:
		return "Span"
	}
	return ""
}

// getter is the expression that reads variable i from the message m. Getters exist in every API level.
func (e *emitter) getter(i int) *jen.Statement {
	get := jen.Id("m")
	for _, f := range e.fields[i] {
		name, _ := f.MethodName("Get")
		get = get.Dot(name).Call()
	}
	v := &e.Vars[i]
	if method := checkedBy(v); method != "" {
		return jen.Id("f").Dot(method).Call(jen.Lit(v.Name), get)
	}
	if v.Kind == keyenc.KindBytes {
		return jen.String().Call(get)
	}
	return get
}

// fill is the function that sets the key fields of a message that has none on the wire.
func (e *emitter) fill() *jen.Statement {
	c := newChain(fold("FillKey").Call(jen.Id("m")))
	for _, v := range e.Vars {
		if v.KeyOnly() {
			continue
		}
		args := []jen.Code{jen.Id("k").Dot(v.GoName)}
		for _, fd := range v.Path {
			args = append(args, jen.Lit(int(fd.Number())))
		}
		c.call("Set", args...)
	}
	c.call("End")
	return jen.Func().Params(jen.Id("m").Add(e.value()), jen.Id("k").Add(e.id("*Key"))).Error().Block(c.code)
}

// prefixes writes a function for each leading part of the key, on a line each while that is possible.
func (e *emitter) prefixes() {
	e.Line()
	doc := e.name("*All") + " is every row of the table"
	if len(e.Vars) > 1 {
		doc += "; " + e.byName(1) + " and the like are the rows whose key begins so"
	}
	comment(e.Group, doc+".")
	e.prefix(e.name("*All"), 0)
	for n := 1; n < len(e.Vars); n++ {
		e.prefix(e.byName(n), n)
	}
}

// prefix writes the function for the first n variables.
func (e *emitter) prefix(name string, n int) {
	var params []jen.Code
	used := len("func ") + len(name) + len(e.name("() *Prefix {"))
	for run := range e.runs(n) {
		var names []jen.Code
		for _, i := range run {
			names = append(names, jen.Id(e.params[i]))
			used += len(e.params[i]) + len(", ")
		}
		params = append(params, jen.List(names...).Add(e.goType(run[0])))
		used += width(e.goType(run[0]))
	}
	if used > lineWidth+20 { // a function's name is not worth a line of its own before that
		params[0] = jen.Line().Add(params[0])
		params = append(params, jen.Line())
	}
	var pairs []pair
	for i, v := range e.Vars[:n] {
		pairs = append(pairs, pair{v.GoName, jen.Id(e.params[i])})
	}
	tokens := len(e.Pattern) // of the only key, which has no variable
	if !e.Singleton() {
		tokens = slices.IndexFunc(e.Pattern, func(tok schema.Token) bool { return tok.Var == n })
	}
	key := composite(e.id("*Key"), len("return fold.PrefixOf(, 10)"), pairs)
	e.Func().Id(name).Params(params...).Add(e.id("*Prefix")).Add(oneLine(
		jen.Return(fold("PrefixOf").Call(key, jen.Lit(tokens)))))
}
