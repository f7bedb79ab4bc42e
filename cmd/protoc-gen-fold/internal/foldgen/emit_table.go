package foldgen

import (
	"fmt"
	"go/doc"
	"strings"

	"github.com/dave/jennifer/jen"
)

// types writes the table's types. Their comments also say what the functions are for that make or take them.
func (e *emitter) types(g *jen.Group) {
	key, hooks := e.name("*Key"), e.name("*Hooks")
	comment(g, fmt.Sprintf("%s is the key %q in bucket %q.", key, e.Key(), e.Bucket))
	g.Id(key).Add(e.keyStruct())

	comment(g, fmt.Sprintf("%s reads the rows of a fold; %s adds it to a builder, before its Start.", e.name("*Table"), e.name("Register*")))
	if text := e.synopsis(); text != "" {
		comment(g, text)
	}
	g.Add(e.id("*Table")).Struct(jen.Op("*").Add(e.keyedValue(e.tableType())))
	comment(g, e.name("*Writer")+" writes rows to a bucket; it needs no fold, and is safe for concurrent use.")
	g.Add(e.id("*Writer")).Struct(jen.Op("*").Add(e.keyedValue(e.writerType())))

	g.Add(e.id("*Row")).Op("=").Add(e.keyedValue("Row"))
	g.Add(e.id("*Rows")).Op("=").Add(e.keyedValue("Rows"))
	g.Add(e.id("*Event")).Op("=").Add(e.keyedValue("Event"))
	g.Add(e.id("*Rev")).Op("=").Add(e.keyed("Rev"))
	g.Add(e.id("*Prefix")).Op("=").Add(e.keyed("Prefix"))
	g.Add(e.id("*Option")).Op("=").Add(fold("TableOption"))

	comment(g, fmt.Sprintf("%s follow the fold. Embed %s, or use %s, whose funcs may be nil.",
		hooks, e.name("Unimplemented*Hooks"), e.name("*HookFuncs")))
	ctx := jen.Qual("context", "Context")
	g.Id(hooks).Interface(
		e.id("Load*").Params(ctx, e.id("*Rows")).Error().Comment("// once, before the first apply: the rows as they were on disk"),
		e.id("Apply*").Params(ctx, jen.Index().Add(e.id("*Event"))).Error().Comment("// each batch, by revision, before it is durable"),
		e.id("mustEmbedUnimplemented*Hooks").Params(),
	)
	g.Add(e.id("*HookFuncs")).Add(e.keyedValue("Hooks"))
	g.Add(e.id("Unimplemented*Hooks")).Struct()
}

// synopsis is the first sentence of the message's comment, if it is no longer than a line.
func (e *emitter) synopsis() string {
	text := strings.ReplaceAll("\n"+string(e.message.Comments.Leading), "\n ", "\n") // an indented line would be code
	text = new(doc.Package).Synopsis(text)
	if len(text) > lineWidth {
		return ""
	}
	return text
}

// keyStruct is the type of the key; variables of one type that stand side by side share a line.
func (e *emitter) keyStruct() *jen.Statement {
	var lines []jen.Code
	for run := range e.runs(len(e.Vars)) {
		var names []jen.Code
		for _, i := range run {
			names = append(names, jen.Id(e.Vars[i].GoName))
		}
		lines = append(lines, jen.List(names...).Add(e.goType(run[0])))
	}
	if len(lines) == 1 {
		return jen.Op("struct").Values(lines[0])
	}
	return jen.Struct(lines...)
}

// tableType and writerType are the runtime's types behind the table's.
func (e *emitter) tableType() string {
	if !e.Ordered() {
		return "UnorderedTable"
	}
	return "Table"
}

func (e *emitter) writerType() string {
	if e.KeyOnly() {
		return "KeyedWriter"
	}
	return "Writer"
}

// handles writes the functions that make a table's handles.
func (e *emitter) handles() {
	register := "RegisterAs"
	if !e.Ordered() {
		register = "RegisterUnorderedAs"
	}
	e.Line()
	e.Func().Add(e.id("Register*")).Params(jen.Id("b").Op("*").Add(fold("Builder")), jen.Id("opts_").Op("...").Add(e.id("*Option"))).
		Params(e.id("*Table"), jen.Error()).Block(
		jen.Return(fold(register).Types(e.id("*Table")).Call(jen.Id("b"), e.id("*Desc"), jen.Id("opts_").Op("..."))),
	)
	e.Func().Add(e.id("New*Writer")).Params(jen.Id("b").Add(fold("Bucket")), jen.Id("opts_").Op("...").Add(fold("WriterOption"))).
		Add(e.id("*Writer")).Block(
		jen.Return(e.id("*Writer").Values(fold("New"+e.writerType()).Call(jen.Id("b"), e.id("*Desc"), jen.Id("opts_").Op("...")))),
	)
}

// hooks writes the option that registers hooks.
func (e *emitter) hooks() {
	e.Func().Add(e.id("With*Hooks")).Params(jen.Id("h").Add(e.id("*Hooks"))).Add(e.id("*Option")).Block(
		jen.Return(fold("HooksOf").Types(e.id("*HookFuncs")).Call(
			jen.Id("h"), e.id("*Hooks").Dot(e.name("Load*")), e.id("*Hooks").Dot(e.name("Apply*")))),
	)
}

// hookFunc writes the method that calls one function of the hook functions.
func (e *emitter) hookFunc(field, arg string, argType *jen.Statement) {
	e.Func().Params(jen.Id("h").Add(e.id("*HookFuncs"))).Add(e.id(field+"*")).
		Params(jen.Id("ctx").Qual("context", "Context"), jen.Id(arg).Add(argType)).Error().Block(
		jen.Return(fold("CallHook").Call(jen.Id("ctx"), jen.Id("h").Dot(field), jen.Id(arg))),
	)
}

// methods writes the short ones, most of which fit on a line.
func (e *emitter) methods() {
	e.Line()
	comment(e.Group, e.name("Parse*")+" reads one entry of the bucket; it needs no fold and keeps nothing.")
	e.Func().Add(e.id("Parse*")).Params(jen.Id("r").Add(fold("RawEntry"))).Params(e.id("*Event"), jen.Op("*").Add(fold("Rejection"))).
		Add(oneLine(jen.Return(e.id("*Desc").Dot("Parse").Call(jen.Id("r")))))
	e.Func().Params(jen.Id("k").Add(e.id("*Key"))).Id("String").Params().String().Add(oneLine(jen.Return(fold("KeyString").Call(jen.Id("k")))))
	e.Func().Params(jen.Id("t").Add(e.id("*Table"))).Id("At").Params(jen.Id("s").Op("*").Add(fold("Snapshot"))).Add(e.id("*Table")).
		Add(oneLine(jen.Return(e.id("*Table").Values(jen.Id("t").Dot(e.tableType()).Dot("At").Call(jen.Id("s"))))))

	ctx := jen.Qual("context", "Context")
	none, funcs := e.id("Unimplemented*Hooks"), e.id("*HookFuncs")
	e.Func().Params(none).Add(e.id("Load*")).Params(ctx, e.id("*Rows")).Error().Add(oneLine(jen.Return(jen.Nil())))
	e.Func().Params(none).Add(e.id("Apply*")).Params(ctx, jen.Index().Add(e.id("*Event"))).Error().Add(oneLine(jen.Return(jen.Nil())))
	e.Func().Params(none).Add(e.id("mustEmbedUnimplemented*Hooks")).Params().Block()
	e.Func().Params(funcs).Add(e.id("mustEmbedUnimplemented*Hooks")).Params().Block()
	e.hookFunc("Load", "rows", e.id("*Rows"))
	e.hookFunc("Apply", "events", jen.Index().Add(e.id("*Event")))
}
