package foldgen

import (
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/keyenc"
	"github.com/typedfold/fold/runtime/schema"
)

// key writes the key struct, its parser, and how it is read from and written to a message.
func (e *emitter) key() {
	e.doc("%s is the key of a row: %q in bucket %q.", e.name("*Key"), e.Key(), e.Bucket)
	e.Type().Add(e.id("*Key")).StructFunc(func(g *jen.Group) {
		for i, v := range e.Vars {
			g.Id(v.GoName).Add(e.goType(i))
		}
	})
	e.appendKey()

	e.doc("String is the NATS key.")
	e.Func().Params(jen.Id("k").Add(e.id("*Key"))).Id("String").Params().String().Block(
		jen.Return(fold("KeyString").Call(jen.Id("k"))),
	)
	e.parseKey()
	if !e.KeyOnly() {
		e.keyOf()
	}
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

func (e *emitter) appendKey() {
	e.doc("AppendKey appends the NATS key to dst.")
	e.Func().Params(jen.Id("k").Add(e.id("*Key"))).Id("AppendKey").Params(jen.Id("dst").Index().Byte()).
		Params(jen.Index().Byte(), jen.Error()).BlockFunc(func(g *jen.Group) {
		fails := false
		for i := range e.Vars {
			fails = fails || canFail(&e.Vars[i])
		}
		if fails {
			g.Var().Err().Error()
		}
		g.Id("dst").Op("=").Add(appendText(jen.Id("dst"), e.Prefix()))
		for i, v := range e.Vars {
			e.appendVar(g, i, jen.Id("k").Dot(v.GoName), jen.Return(jen.Id("dst"), jen.Err()))
		}
		g.Return(jen.Id("dst"), jen.Nil())
	})
}

// appendText is the expression that appends text to dst.
func appendText(dst *jen.Statement, text string) *jen.Statement {
	switch len(text) {
	case 0:
		return dst
	case 1:
		return jen.Append(dst, jen.LitRune(rune(text[0])))
	}
	return jen.Append(dst, jen.Lit(text).Op("..."))
}

// canFail reports whether the variable's encoder returns an error.
func canFail(v *schema.Var) bool {
	return v.Enc == keyenc.EncVerbatim || v.Enc == keyenc.EncTime || v.Enc == keyenc.EncEnumName
}

// appendVar writes the statements that append variable i, taken from value, and the literals after it. failed is what
// to do when that fails.
func (e *emitter) appendVar(g *jen.Group, i int, value, failed *jen.Statement) {
	v := &e.Vars[i]
	text := e.LiteralsAfter(i)
	if !canFail(v) {
		g.Id("dst").Op("=").Add(appendText(fold(encoder(v)).Call(jen.Id("dst"), value), text))
		return
	}
	g.If(jen.List(jen.Id("dst"), jen.Err()).Op("=").Add(fold(encoder(v))).Call(jen.Id("dst"), jen.Lit(v.Name), value),
		jen.Err().Op("!=").Nil()).Block(failed)
	if text != "" {
		g.Id("dst").Op("=").Add(appendText(jen.Id("dst"), text))
	}
}

// encoder is the runtime's function that appends the variable.
func encoder(v *schema.Var) string {
	switch {
	case v.Tail:
		return "AppendTail"
	case v.Enc == keyenc.EncHex && !isText(v):
		return "AppendHexInt"
	case v.Kind == keyenc.KindDuration:
		return "AppendSpan"
	}
	return "Append" + encodingName[v.Enc]
}

// reader is the runtime's method or generic function that reads the variable: the encoder's counterpart.
func reader(v *schema.Var) string { return strings.TrimPrefix(encoder(v), "Append") }

var encodingName = map[keyenc.Encoding]string{
	keyenc.EncESC: "ESC", keyenc.EncVerbatim: "Verbatim", keyenc.EncInt: "Int", keyenc.EncDecimal: "Decimal", keyenc.EncHex: "Hex",
	keyenc.EncBool: "Bool", keyenc.EncUUID: "UUID", keyenc.EncTime: "Time", keyenc.EncEnumName: "EnumName",
}

func isText(v *schema.Var) bool { return v.Kind == keyenc.KindString || v.Kind == keyenc.KindBytes }

func (e *emitter) parseKey() {
	e.doc("%s reads a NATS key. Its error is a *fold.Rejection.", e.name("Parse*Key"))
	e.Func().Add(e.id("Parse*Key")).Params(jen.Id("key").String()).Params(e.id("*Key"), jen.Error()).BlockFunc(func(g *jen.Group) {
		g.Var().Id("k").Add(e.id("*Key"))
		g.Id("r").Op(":=").Add(fold("ReadKey")).Call(jen.Id("key"))
		for _, tok := range e.Pattern {
			if tok.Var < 0 {
				g.Id("r").Dot("Lit").Call(jen.Lit(tok.Literal))
				continue
			}
			g.Id("k").Dot(e.Vars[tok.Var].GoName).Op("=").Add(e.read(tok.Var))
		}
		g.If(jen.Err().Op(":=").Id("r").Dot("End").Call(), jen.Err().Op("!=").Nil()).Block(
			jen.Return(e.id("*Key").Values(), jen.Err()),
		)
		g.Return(jen.Id("k"), jen.Nil())
	})
}

// read is the expression that reads variable i from the key reader r.
func (e *emitter) read(i int) *jen.Statement {
	v := &e.Vars[i]
	switch name := reader(v); name {
	case "Int", "HexInt", "Decimal", "EnumName":
		return fold("Read"+name).Types(e.goType(i)).Call(jen.Op("&").Id("r"), jen.Lit(v.Name))
	default:
		return jen.Id("r").Dot(name).Call(jen.Lit(v.Name))
	}
}

func (e *emitter) keyOf() {
	e.doc("%s is the key that the message carries.", e.name("*KeyOf"))
	e.Func().Add(e.id("*KeyOf")).Params(jen.Id("m").Add(e.value())).Params(e.id("*Key"), jen.Error()).BlockFunc(func(g *jen.Group) {
		e.requireFields(g)
		values := e.id("*Key").ValuesFunc(func(g *jen.Group) {
			for i, v := range e.Vars {
				g.Line().Id(v.GoName).Op(":").Add(e.getter(i))
			}
			if !e.Singleton() {
				g.Line()
			}
		})
		if !e.checksFields() {
			g.Return(values, jen.Nil())
			return
		}
		g.Var().Id("f").Add(fold("KeyFields"))
		g.Id("k").Op(":=").Add(values)
		e.checkedKey(g)
	})
}

// bound is the function that puts the message's part of the key into a key.
func (e *emitter) bound() *jen.Statement {
	return jen.Func().Params(jen.Id("m").Add(e.value()), jen.Id("k").Add(e.id("*Key"))).Params(e.id("*Key"), jen.Error()).BlockFunc(func(g *jen.Group) {
		e.requireFields(g)
		if e.checksFields() {
			g.Var().Id("f").Add(fold("KeyFields"))
		}
		for i, v := range e.Vars {
			if !v.KeyOnly() {
				g.Id("k").Dot(v.GoName).Op("=").Add(e.getter(i))
			}
		}
		if e.checksFields() {
			e.checkedKey(g)
			return
		}
		g.Return(jen.Id("k"), jen.Nil())
	})
}

// checkedKey returns the key k, or what the fields f found wrong.
func (e *emitter) checkedKey(g *jen.Group) {
	g.If(jen.Err().Op(":=").Id("f").Dot("Err").Call(), jen.Err().Op("!=").Nil()).Block(
		jen.Return(e.id("*Key").Values(), jen.Err()),
	)
	g.Return(jen.Id("k"), jen.Nil())
}

// requireFields returns unless the fields that have presence are set.
func (e *emitter) requireFields(g *jen.Group) {
	var required []jen.Code
	for _, v := range e.Vars {
		if v.Presence {
			required = append(required, jen.Lit(v.Name))
		}
	}
	if len(required) > 0 {
		g.If(jen.Err().Op(":=").Add(fold("RequireKeyFields")).Call(append([]jen.Code{jen.Id("m")}, required...)...),
			jen.Err().Op("!=").Nil()).Block(jen.Return(e.id("*Key").Values(), jen.Err()))
	}
}

// checksFields reports whether some field can hold what is no value of its variable's type.
func (e *emitter) checksFields() bool {
	return slices.ContainsFunc(e.Vars, func(v schema.Var) bool { return !v.KeyOnly() && checkedBy(&v) != "" })
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
	return jen.Func().Params(jen.Id("m").Add(e.value()), jen.Id("k").Add(e.id("*Key"))).Error().BlockFunc(func(g *jen.Group) {
		bound := slices.DeleteFunc(slices.Clone(e.Vars), func(v schema.Var) bool { return v.KeyOnly() })
		for i, v := range bound {
			args := []jen.Code{jen.Id("m"), jen.Id("k").Dot(v.GoName)}
			for _, fd := range v.Path {
				args = append(args, jen.Lit(int(fd.Number())))
			}
			set := fold("SetKeyField").Call(args...)
			if i == len(bound)-1 {
				g.Return(set)
				continue
			}
			g.If(jen.Err().Op(":=").Add(set), jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Err()))
		}
	})
}

// prefixes writes a function for each leading part of the key.
func (e *emitter) prefixes() {
	e.doc("%s is every row of the table.", e.name("*All"))
	e.Func().Add(e.id("*All")).Params().Add(e.id("*Prefix")).Block(
		jen.Return(e.keyed("NewPrefix").Call(jen.Index().Byte().Call(jen.Lit(e.Prefix())), jen.Nil())),
	)
	for n := 1; n < len(e.Vars); n++ {
		e.prefix(n)
	}
}

// prefix writes the function for the first n variables.
func (e *emitter) prefix(n int) {
	e.doc("%s is every row of one %s.", e.byName(n), fieldList(e.Vars[:n]))
	e.Func().Id(e.byName(n)).ParamsFunc(func(g *jen.Group) {
		for i := range e.Vars[:n] {
			g.Id(e.params[i]).Add(e.goType(i))
		}
	}).Add(e.id("*Prefix")).BlockFunc(func(g *jen.Group) {
		fails := false
		for i := range e.Vars[:n] {
			fails = fails || canFail(&e.Vars[i])
		}
		if fails {
			g.Var().Err().Error()
		}
		g.Id("dst").Op(":=").Index().Byte().Call(jen.Lit(e.Prefix()))
		for i := range e.Vars[:n] {
			e.appendVar(g, i, jen.Id(e.params[i]), jen.Return(e.keyed("NewPrefix").Call(jen.Nil(), jen.Err())))
		}
		g.Return(e.keyed("NewPrefix").Call(jen.Id("dst"), jen.Nil()))
	})
}

func fieldList(vars []schema.Var) string {
	text := vars[0].GoName
	for i, v := range vars[1:] {
		if i == len(vars)-2 {
			text += " and " + v.GoName
		} else {
			text += ", " + v.GoName
		}
	}
	return text
}
