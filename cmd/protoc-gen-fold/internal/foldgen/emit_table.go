package foldgen

import (
	"strings"

	"github.com/dave/jennifer/jen"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// rows writes the types that name the runtime's generic ones, the description, and the parser of entries.
func (e *emitter) rows() {
	e.doc("The types of the runtime for this table.")
	e.Type().Defs(
		e.id("*Row").Op("=").Add(e.keyedValue("Row")),
		e.id("*Event").Op("=").Add(e.keyedValue("Event")),
		e.id("*Rev").Op("=").Add(e.keyed("Rev")),
		e.id("*Prefix").Op("=").Add(e.keyed("Prefix")),
		e.id("*Option").Op("=").Add(fold("TableOption")),
	)

	e.doc("%s describes the table to the runtime, which reads the options of its schema from the message's descriptor.", e.name("*Desc"))
	e.Var().Add(e.id("*Desc")).Op("=").Add(fold("NewDesc")).Call(e.keyedValue("DescConfig").ValuesFunc(func(g *jen.Group) {
		g.Line().Id("ParseKey").Op(":").Add(e.id("Parse*Key"))
		switch {
		case !e.KeyOnly():
			g.Line().Id("KeyOf").Op(":").Add(e.id("*KeyOf"))
		case e.Bound():
			g.Line().Id("Bound").Op(":").Add(e.bound())
		}
		if e.Bind == foldv1.Bind_BIND_FILL && e.Bound() {
			g.Line().Id("Fill").Op(":").Add(e.fill())
		}
		g.Line()
	}))

	e.doc("%s reads one entry of the bucket. It needs no fold and keeps nothing.", e.name("Parse*"))
	e.Func().Add(e.id("Parse*")).Params(jen.Id("r").Add(fold("RawEntry"))).
		Params(e.id("*Event"), jen.Op("*").Add(fold("Rejection"))).Block(
		jen.Return(fold("ParseEvent").Call(e.id("*Desc"), jen.Id("r"))),
	)
}

// handle writes the table's handle and its registration.
func (e *emitter) handle() {
	e.doc("%s reads the rows of a fold, %q in bucket %q. It is safe for concurrent use.", e.name("*Table"), e.Key(), e.Bucket)
	if text := strings.TrimSpace(string(e.message.Comments.Leading)); text != "" {
		comment(e.Group, "")
		for line := range strings.SplitSeq(text, "\n") {
			comment(e.Group, strings.TrimSpace(line))
		}
	}
	table, register := "Table", "Register"
	if !e.Ordered() {
		table, register = "UnorderedTable", "RegisterUnordered"
	}
	e.Type().Add(e.id("*Table")).Struct(jen.Op("*").Add(e.keyedValue(table)))

	e.doc("%s adds the table to a builder, before its Start.", e.name("Register*"))
	e.Func().Add(e.id("Register*")).Params(jen.Id("b").Op("*").Add(fold("Builder")), jen.Id("opts_").Op("...").Add(e.id("*Option"))).
		Params(e.id("*Table"), jen.Error()).Block(
		jen.List(jen.Id("t"), jen.Err()).Op(":=").Add(fold(register)).Call(jen.Id("b"), e.id("*Desc"), jen.Id("opts_").Op("...")),
		jen.Return(e.id("*Table").Values(jen.Id("t")), jen.Err()),
	)

	e.doc("At is the table as it was when the snapshot was taken.")
	e.Func().Params(jen.Id("t").Add(e.id("*Table"))).Id("At").Params(jen.Id("s").Op("*").Add(fold("Snapshot"))).Add(e.id("*Table")).Block(
		jen.Return(e.id("*Table").Values(jen.Id("t").Dot(table).Dot("At").Call(jen.Id("s")))),
	)
}

// hooks writes the interface of hooks, and the two ways to implement it.
func (e *emitter) hooks() {
	ctx := func() *jen.Statement { return jen.Id("ctx").Qual("context", "Context") }
	rows := func() *jen.Statement { return jen.Id("rows").Qual("iter", "Seq2").Types(e.id("*Row"), jen.Error()) }
	events := func() *jen.Statement { return jen.Id("events").Index().Add(e.id("*Event")) }
	load, apply, must := e.name("Load*"), e.name("Apply*"), e.name("mustEmbedUnimplemented*Hooks")

	e.doc("%s follow the table inside the fold. Implementations embed %s.", e.name("*Hooks"), e.name("Unimplemented*Hooks"))
	e.Type().Add(e.id("*Hooks")).InterfaceFunc(func(g *jen.Group) {
		comment(g, load+" runs once, before the first "+apply+", with the rows as the fold was on disk.")
		g.Id(load).Params(ctx(), rows()).Error()
		comment(g, apply+" runs for each batch, in the order of revisions, before the batch is durable. After a crash it may",
			"see a batch again.")
		g.Id(apply).Params(ctx(), events()).Error()
		g.Id(must).Params()
	})

	e.doc("%s is to be embedded: it has the hooks that its owner leaves out, those of later versions too.", e.name("Unimplemented*Hooks"))
	e.Type().Add(e.id("Unimplemented*Hooks")).Struct()
	embedded := func() *jen.Statement { return jen.Func().Params(e.id("Unimplemented*Hooks")) }
	e.Line()
	e.Add(embedded()).Id(load).Params(jen.Qual("context", "Context"), jen.Qual("iter", "Seq2").Types(e.id("*Row"), jen.Error())).Error().
		Block(jen.Return(jen.Nil()))
	e.Line()
	e.Add(embedded()).Id(apply).Params(jen.Qual("context", "Context"), jen.Index().Add(e.id("*Event"))).Error().Block(jen.Return(jen.Nil()))
	e.Line()
	e.Add(embedded()).Id(must).Params().Block()

	e.doc("%s are %s made of functions. Each may be nil.", e.name("*HookFuncs"), e.name("*Hooks"))
	e.Type().Add(e.id("*HookFuncs")).Struct(
		jen.Id("Load").Func().Params(ctx(), rows()).Error(),
		jen.Id("Apply").Func().Params(ctx(), events()).Error(),
	)
	e.hookFunc("Load", load, rows(), "rows")
	e.hookFunc("Apply", apply, events(), "events")
	e.Line()
	e.Func().Params(e.id("*HookFuncs")).Id(must).Params().Block()
	e.withHooks(load, apply)
}

// hookFunc writes the method that calls one function of the hook functions.
func (e *emitter) hookFunc(field, method string, param *jen.Statement, arg string) {
	e.doc("%s calls %s.", method, field)
	e.Func().Params(jen.Id("h").Add(e.id("*HookFuncs"))).Id(method).Params(jen.Id("ctx").Qual("context", "Context"), param).Error().Block(
		jen.If(jen.Id("h").Dot(field).Op("==").Nil()).Block(jen.Return(jen.Nil())),
		jen.Return(jen.Id("h").Dot(field).Call(jen.Id("ctx"), jen.Id(arg))),
	)
}

func (e *emitter) withHooks(load, apply string) {
	hooks := func(values ...jen.Code) *jen.Statement {
		return fold("WithHooks").Call(e.keyedValue("Hooks").Values(values...))
	}
	e.doc("%s registers the table with hooks; nil is none.", e.name("With*Hooks"))
	e.Func().Add(e.id("With*Hooks")).Params(jen.Id("h").Add(e.id("*Hooks"))).Add(e.id("*Option")).Block(
		jen.Switch(jen.Id("f").Op(":=").Id("h").Assert(jen.Type())).Block(
			jen.Case(jen.Nil()).Block(jen.Return(hooks())),
			jen.Case(e.id("*HookFuncs")).Block(jen.Return(hooks(
				jen.Id("Load").Op(":").Id("f").Dot("Load"), jen.Id("Apply").Op(":").Id("f").Dot("Apply")))),
		),
		jen.Return(hooks(jen.Id("Load").Op(":").Id("h").Dot(load), jen.Id("Apply").Op(":").Id("h").Dot(apply))),
	)
}

func (e *emitter) writer() {
	e.doc("%s writes rows to a bucket. It is safe for concurrent use.", e.name("*Writer"))
	writer := "Writer"
	if e.KeyOnly() {
		writer = "KeyedWriter"
	}
	e.Type().Add(e.id("*Writer")).Struct(jen.Op("*").Add(e.keyedValue(writer)))

	e.doc("%s is a writer for a bucket; it needs no fold.", e.name("New*Writer"))
	e.Func().Add(e.id("New*Writer")).Params(jen.Id("b").Add(fold("Bucket")), jen.Id("opts_").Op("...").Add(fold("WriterOption"))).Add(e.id("*Writer")).Block(
		jen.Return(e.id("*Writer").Values(fold("New"+writer).Call(jen.Id("b"), e.id("*Desc"), jen.Id("opts_").Op("...")))),
	)
}
