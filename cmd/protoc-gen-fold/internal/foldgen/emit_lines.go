package foldgen

import (
	"fmt"

	"github.com/dave/jennifer/jen"
)

// lineWidth is where lines are broken, without the indentation; gofmt breaks none.
const lineWidth = 116

// width is about how long an expression is on a line. The names of packages are not known yet.
func width(code ...jen.Code) int {
	n := 0
	for _, c := range code {
		n += len(fmt.Sprintf("%#v", jen.Add(c)))
	}
	return n
}

// oneLine is the body of a function that gofmt leaves on the line of its name, where the two are no longer than 100.
func oneLine(statement jen.Code) *jen.Statement { return jen.Values(statement) }

// pair is one element of a composite literal.
type pair struct {
	name  string
	value *jen.Statement
}

// composite is a literal of a struct, on one line if used, which is what else stands there, leaves room for that.
func composite(typ *jen.Statement, used int, pairs []pair) *jen.Statement {
	used += width(typ)
	for _, p := range pairs {
		used += p.width()
	}
	broken := used > lineWidth
	return typ.ValuesFunc(func(g *jen.Group) {
		at := lineWidth
		for _, p := range pairs {
			code := jen.Id(p.name).Op(":").Add(p.value)
			if at += p.width(); broken && at > lineWidth {
				at = p.width()
				code = jen.Line().Add(code)
			}
			g.Add(code)
		}
		if broken {
			g.Line()
		}
	})
}

func (p pair) width() int { return len(p.name) + len(": ") + width(p.value) + len(", ") }

// chain is a sequence of method calls on what head gives, broken after a dot where lines would be too long.
type chain struct {
	code *jen.Statement
	used int
}

func newChain(head *jen.Statement) *chain { return &chain{code: jen.Return(head), used: width(head)} }

func (c *chain) call(method string, args ...jen.Code) {
	n := len(method) + len(".()") + width(args...) + 2*len(args)
	if c.used += n; c.used > lineWidth {
		c.used = n
		c.code.Op(".").Line().Id(method).Call(args...)
		return
	}
	c.code.Dot(method).Call(args...)
}
