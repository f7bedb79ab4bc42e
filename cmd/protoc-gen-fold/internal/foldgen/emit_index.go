package foldgen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"
	"google.golang.org/protobuf/compiler/protogen"

	"github.com/typedfold/fold/runtime/keyenc"
	"github.com/typedfold/fold/runtime/schema"
)

// indexEnums are the enums that index methods take.
func (t *table) indexEnums() (enums []*protogen.Enum) {
	for i := range t.Indexes {
		for j := range t.Indexes[i].Fields {
			if e := t.indexEnum(&t.Indexes[i].Fields[j]); e != nil {
				enums = append(enums, e)
			}
		}
	}
	return enums
}

// indexEnum is the type of an index field that is an enum, else nil.
func (t *table) indexEnum(f *schema.IndexField) *protogen.Enum {
	fields := fieldsOn(t.message, f.Path)
	return fields[len(fields)-1].Enum
}

// indexes writes the methods that read the table by its indexes.
func (e *emitter) indexes() {
	for i := range e.Indexes {
		ix := &e.Indexes[i]
		params := indexParams(ix)
		what := indexFieldList(ix)
		if ix.Unique {
			e.indexMethod(ix, params, "GetIndex", fmt.Sprintf("Get%s is the row with this %s; a *fold.NotUniqueError names the rows when there are more.", ix.GoName, what))
			continue
		}
		e.indexMethod(ix, params, "ListIndex", fmt.Sprintf("List%s yields the rows with this %s, in key order.", ix.GoName, what))
		e.indexMethod(ix, params, "CountIndex", fmt.Sprintf("Count%s is how many they are.", ix.GoName))
	}
}

// indexMethod writes the method that passes a tuple on to a function of the runtime.
func (e *emitter) indexMethod(ix *schema.Index, params []string, function, doc string) {
	e.Line()
	comment(e.Group, doc)
	args := []jen.Code{jen.Id("ctx"), jen.Id("t").Dot(e.tableType()), jen.Lit(ix.Name)}
	m := e.Func().Params(jen.Id("t").Add(e.id("*Table"))).Id(strings.TrimSuffix(function, "Index") + ix.GoName).ParamsFunc(func(g *jen.Group) {
		g.Id("ctx").Qual("context", "Context")
		for i := range ix.Fields {
			g.Id(params[i]).Add(e.indexType(&ix.Fields[i]))
		}
		if function == "ListIndex" {
			g.Id(indexOptions).Op("...").Add(fold("ReadOption"))
		}
	})
	switch function {
	case "ListIndex":
		m.Qual("iter", "Seq2").Types(e.id("*Row"), jen.Error())
	case "CountIndex":
		m.Params(jen.Uint64(), jen.Error())
	default:
		m.Params(e.id("*Row"), jen.Bool(), jen.Error())
	}
	m.BlockFunc(func(g *jen.Group) {
		args = append(args, fold("NewIndexKey").Call(indexTokens(g, ix, params)...))
		if function == "ListIndex" {
			args = append(args, jen.Id(indexOptions).Op("..."))
		}
		g.Return(e.keyedValue(function).Call(args...))
	})
}

// maxTokenLines is how many lines the encoding of a tuple may take, for an index's code to be 25 lines at most.
const maxTokenLines = 7

// indexTokens is the tuple's tokens and the error of encoding them. Where there are several they are statements in g, or,
// where those would be too many lines, as few as can be.
func indexTokens(g *jen.Group, ix *schema.Index, params []string) []jen.Code {
	spread := len(ix.Fields) > 1 && len(ix.Fields) <= maxTokenLines
	dst, declared, failing := jen.Nil(), false, false
	for i := range ix.Fields {
		f := &ix.Fields[i]
		after := dst
		if i > 0 {
			after = jen.Append(dst, jen.LitRune('.'))
		}
		switch {
		case f.Enc == keyenc.EncTime && failing:
			g.List(jen.Id("dst"), jen.Err()).Op("=").Add(fold(strings.Replace(indexEncoder(f), "Append", "Then", 1)).
				Call(dst, jen.Err(), jen.Lit(f.Name), jen.Id(params[i])))
		case f.Enc == keyenc.EncTime:
			g.List(jen.Id("dst"), jen.Err()).Op(":=").Add(indexToken(f, after, params[i]))
			failing, declared = true, true
		case spread && declared:
			g.Id("dst").Op("=").Add(indexToken(f, after, params[i]))
		case spread:
			g.Id("dst").Op(":=").Add(indexToken(f, after, params[i]))
			declared = true
		default:
			dst = indexToken(f, after, params[i])
			continue
		}
		dst = jen.Id("dst")
	}
	if !failing {
		return []jen.Code{dst, jen.Nil()}
	}
	return []jen.Code{dst, jen.Err()}
}

// indexToken is the call that appends the field's token to dst.
func indexToken(f *schema.IndexField, dst *jen.Statement, param string) *jen.Statement {
	args := []jen.Code{dst}
	if f.Enc == keyenc.EncTime {
		args = append(args, jen.Lit(f.Name))
	}
	return fold(indexEncoder(f)).Call(append(args, indexArgument(f, param))...)
}

// indexArgument is the parameter as its encoder takes it.
func indexArgument(f *schema.IndexField, param string) *jen.Statement {
	if f.Kind == keyenc.KindBytes {
		return jen.String().Call(jen.Id(param))
	}
	return jen.Id(param)
}

// indexEncoder is the runtime's function that appends the field's token.
func indexEncoder(f *schema.IndexField) string {
	switch {
	case f.Enc == keyenc.EncHex && f.Kind != keyenc.KindBytes && f.Kind != keyenc.KindString:
		return "AppendHexInt"
	case f.Kind == keyenc.KindDuration:
		return "AppendSpan"
	}
	return map[keyenc.Encoding]string{
		keyenc.EncESC: "AppendESC", keyenc.EncInt: "AppendInt", keyenc.EncDecimal: "AppendDecimal", keyenc.EncHex: "AppendHex",
		keyenc.EncBool: "AppendBool", keyenc.EncTime: "AppendTime",
	}[f.Enc]
}

// indexType is the type of a field's parameter.
func (e *emitter) indexType(f *schema.IndexField) *jen.Statement {
	switch f.Kind {
	case keyenc.KindBytes:
		return jen.Index().Byte()
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
		return ident(e.indexEnum(f).GoIdent)
	case keyenc.KindTimestamp:
		return fold("Time")
	case keyenc.KindDuration:
		return fold("Span")
	}
	return jen.String()
}

// indexOptions is the parameter of ReadOptions.
const indexOptions = "opts_"

// indexParams are the parameter names of an index: lower-case first, '_' last, no two alike, nor one that is taken.
func indexParams(ix *schema.Index) (params []string) {
	for i := range ix.Fields {
		name := lowerFirst(ix.Fields[i].GoName())
		unique := name + "_"
		for n := 2; unique == indexOptions || slices.Contains(params, unique); n++ {
			unique = fmt.Sprintf("%s%d_", name, n)
		}
		params = append(params, unique)
	}
	return params
}

// indexFieldList names an index's fields in a sentence.
func indexFieldList(ix *schema.Index) string {
	names := make([]string, len(ix.Fields))
	for i := range ix.Fields {
		if names[i] = ix.Fields[i].Name; ix.Fields[i].Repeated {
			names[i] = "element of " + names[i]
		}
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
