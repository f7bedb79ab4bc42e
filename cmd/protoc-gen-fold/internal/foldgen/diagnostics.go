package foldgen

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/schema"
)

// diagnostics collects what is wrong with the schemas of a request.
type diagnostics struct{ list []diagnostic }

type diagnostic struct {
	file          string
	line, column  int // from 1
	message, hint string
}

func (d diagnostic) String() string {
	s := fmt.Sprintf("%s:%d:%d: fold: %s", d.file, d.line, d.column, d.message)
	if d.hint != "" {
		s += "\n    hint: " + d.hint
	}
	return s
}

func (d *diagnostics) add(p schema.Problem) {
	line, column := position(p)
	d.list = append(d.list, diagnostic{p.File.Path(), line, column, p.Message, p.Hint})
}

// err is all diagnostics, sorted by place, or nil. Its text begins with a newline: callers put words of their own
// before it, and the first line should still be clickable.
func (d *diagnostics) err() error {
	if len(d.list) == 0 {
		return nil
	}
	slices.SortFunc(d.list, func(a, b diagnostic) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column),
			cmp.Compare(a.message, b.message), cmp.Compare(a.hint, b.hint))
	})
	var b strings.Builder
	for _, one := range slices.Compact(d.list) {
		b.WriteString("\n" + one.String())
	}
	return errors.New(b.String())
}

// position is the place of a problem, as far as the request tells: compilers differ in how deep into an option they
// note places. Lines and columns count from 1.
func position(p schema.Problem) (line, column int) {
	locations := p.File.SourceLocations()
	for path := listed(p); len(path) > 0; path = path[:len(path)-1] {
		loc := locations.ByPath(path)
		if len(loc.Path) == 0 {
			continue
		}
		line, column = loc.StartLine+1, loc.StartColumn+1
		if len(path) == len(p.Path) {
			column += literalOffset(p, loc)
		}
		return line, column
	}
	return 1, 1
}

// listed is the problem's path as far as the request's places can be trusted. In a list, [a, b], buf has a place for the
// whole, and numbers it and what follows as one element each. Then an element is found only if no other place can be its.
func listed(p schema.Problem) protoreflect.SourcePath {
	option := slices.Index(p.Path, optionsNumber)
	if p.Elements == 0 || option < 0 || len(p.Path) < option+3 {
		return p.Path
	}
	field := slices.Clone(p.Path[:option+2])
	places := 0
	for places < p.Elements && len(p.File.SourceLocations().ByPath(append(field, int32(places))).Path) > 0 {
		places++
	}
	if places == 0 || places == p.Elements {
		return p.Path
	}
	element := int(p.Path[option+2])
	first, last := max(0, element-(p.Elements-places)), min(element, places-1)
	if first != last {
		return p.Path[:option+1]
	}
	return append(field, int32(first))
}

// literalOffset is how far the problem is behind the start of its option's span, when it is inside a literal. Spans end
// with the literal inside an aggregate, {key: "..."}, and with a semicolon in a statement of its own. A literal that is
// split or holds escapes can't be told apart, so it is looked for only where a plain one fits; else the option's start
// is all that is known.
func literalOffset(p schema.Problem, loc protoreflect.SourceLocation) int {
	if p.Literal == "" || loc.StartLine != loc.EndLine || strconv.Quote(p.Literal) != `"`+p.Literal+`"` {
		return 0
	}
	start := loc.EndColumn - loc.StartColumn - len(p.Literal) - len(`"`)
	if !inAggregate(p, loc) {
		start -= len(";")
	}
	if start < 0 {
		return 0
	}
	return start + p.Offset
}

// inAggregate reports whether the problem's option, at loc, stands inside an aggregate, which has a place of its own.
func inAggregate(p schema.Problem, loc protoreflect.SourceLocation) bool {
	option := slices.Index(p.Path, optionsNumber)
	for n := len(p.Path) - 1; n > option; n-- {
		if outer := p.File.SourceLocations().ByPath(p.Path[:n]); len(outer.Path) > 0 && encloses(outer, loc) {
			return true
		}
	}
	return false
}

func encloses(outer, inner protoreflect.SourceLocation) bool {
	before := cmp.Or(cmp.Compare(outer.StartLine, inner.StartLine), cmp.Compare(outer.StartColumn, inner.StartColumn)) <= 0
	after := cmp.Or(cmp.Compare(outer.EndLine, inner.EndLine), cmp.Compare(outer.EndColumn, inner.EndColumn)) >= 0
	return before && after
}

// place is where a descriptor stands, as file:line:column.
func place(d protoreflect.Descriptor, path protoreflect.SourcePath) string {
	line, column := position(schema.Problem{File: d.ParentFile(), Path: path})
	return fmt.Sprintf("%s:%d:%d", d.ParentFile().Path(), line, column)
}
