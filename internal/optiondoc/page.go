package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const optionsFile = "fold/v1/options.proto"

const intro = `<!-- Made of the comments in proto/fold/v1/options.proto by make generate; change it there. -->

# Options

This page has every option of a schema, with its default, what it does, and what it means for a store that it changes.
[schema.md](schema.md) has the rules and examples, [evolution.md](evolution.md) tells more of changes, and
[tutorial.md](tutorial.md) has a first table.
`

// syntaxPath is where a file's first statement is in its descriptor. The file's own comment stands before it.
var syntaxPath = protoreflect.SourcePath{12}

// page is the reference of the options in dir's options.proto. It fails when something there has no comment.
func page(ctx context.Context, dir string) (string, error) {
	return pageOf(ctx, &protocompile.SourceResolver{ImportPaths: []string{dir}})
}

func pageOf(ctx context.Context, source protocompile.Resolver) (string, error) {
	c := protocompile.Compiler{SourceInfoMode: protocompile.SourceInfoStandard, Resolver: protocompile.WithStandardImports(source)}
	files, err := c.Compile(ctx, optionsFile)
	if err != nil {
		return "", err
	}
	w := &writer{file: files[0], words: map[string]bool{}}
	w.collect()
	w.write()
	return w.out.String(), errors.Join(w.problems...)
}

type writer struct {
	file     protoreflect.FileDescriptor
	words    map[string]bool // names that are no English words, so that they stand as code in a text
	out      strings.Builder
	problems []error
}

func (w *writer) collect() {
	for i := range w.file.Messages().Len() {
		fields := w.file.Messages().Get(i).Fields()
		for j := range fields.Len() {
			if name := string(fields.Get(j).Name()); strings.Contains(name, "_") {
				w.words[name] = true
			}
		}
	}
	for i := range w.file.Enums().Len() {
		values := w.file.Enums().Get(i).Values()
		for j := range values.Len() {
			w.words[string(values.Get(j).Name())] = true
		}
	}
}

func (w *writer) write() {
	w.out.WriteString(intro)
	// The first paragraph is of the file itself.
	_, rules, ok := strings.Cut(linesOf(w.file.SourceLocations().ByPath(syntaxPath)), "\n\n")
	if !ok {
		w.problems = append(w.problems, errors.New("the file's comment has no second paragraph"))
	}
	w.out.WriteString("\n## When a schema changes\n")
	w.text(rules)
	w.out.WriteString("\n## Where options stand\n\n| Option | Of | What it says |\n|---|---|---|\n")
	for i := range w.file.Extensions().Len() {
		x := w.file.Extensions().Get(i)
		of := strings.ToLower(strings.TrimSuffix(string(x.ContainingMessage().Name()), "Options"))
		fmt.Fprintf(&w.out, "| `(%s)`, %s | a %s | %s |\n", x.FullName(), typeOf(x), of, w.cell(x))
	}
	for i := range w.file.Messages().Len() {
		w.message(w.file.Messages().Get(i))
	}
	for i := range w.file.Enums().Len() {
		w.enum(w.file.Enums().Get(i))
	}
}

func (w *writer) message(m protoreflect.MessageDescriptor) {
	fmt.Fprintf(&w.out, "\n## %s\n", m.Name())
	w.text(w.comment(m))
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		fmt.Fprintf(&w.out, "\n### %s.%s\n\n%s, field %d.\n", m.Name(), f.Name(), typeOf(f), f.Number())
		text := w.comment(f)
		for _, part := range []string{"\nDefault: ", "\nChanged: "} {
			if !strings.Contains(text, part) {
				w.problems = append(w.problems, fmt.Errorf("the comment of %s has no line that begins with %q", f.FullName(), strings.TrimSpace(part)))
			}
		}
		w.text(text)
	}
}

func (w *writer) enum(e protoreflect.EnumDescriptor) {
	fmt.Fprintf(&w.out, "\n## %s\n", e.Name())
	w.text(w.comment(e))
	w.out.WriteString("\n| Value | Number | Meaning |\n|---|---|---|\n")
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		fmt.Fprintf(&w.out, "| `%s` | %d | %s |\n", v.Name(), v.Number(), w.cell(v))
	}
}

// typeOf is a field's type, with a link when it is declared in this file too.
func typeOf(f protoreflect.FieldDescriptor) string {
	var name protoreflect.Name
	switch {
	case f.Message() != nil:
		name = f.Message().Name()
	case f.Enum() != nil:
		name = f.Enum().Name()
	}
	text := "`" + f.Kind().String() + "`"
	if name != "" {
		text = fmt.Sprintf("[%s](#%s)", name, strings.ToLower(string(name)))
	}
	if f.IsList() {
		return "repeated " + text
	}
	return text
}

func (w *writer) comment(d protoreflect.Descriptor) string {
	text := linesOf(w.file.SourceLocations().ByDescriptor(d))
	if text == "" {
		w.problems = append(w.problems, fmt.Errorf("%s has no comment", d.FullName()))
	}
	return text
}

// linesOf is the comment before a location, without the space that each line begins with.
func linesOf(at protoreflect.SourceLocation) string {
	var out strings.Builder
	for line := range strings.Lines(at.LeadingComments) {
		out.WriteString(strings.TrimRight(strings.TrimPrefix(line, " "), " \n") + "\n")
	}
	return strings.TrimSpace(out.String())
}

var lineStart = regexp.MustCompile(`^(Default|Changed): `)

// text writes a comment: its paragraphs and lists as they are, and Default and Changed as a list.
func (w *writer) text(comment string) {
	w.out.WriteByte('\n')
	indent := ""
	for line := range strings.Lines(comment) {
		line = w.code(strings.TrimSpace(line))
		switch {
		case lineStart.MatchString(line):
			line, indent = lineStart.ReplaceAllString(line, "- $1: "), "  "
		case strings.HasPrefix(line, "- "):
			indent = "  "
		case line == "":
			indent = ""
		default:
			line = indent + line
		}
		w.out.WriteString(line + "\n")
	}
}

// cell is a comment as a cell of a table.
func (w *writer) cell(d protoreflect.Descriptor) string {
	return strings.ReplaceAll(w.code(strings.Join(strings.Fields(w.comment(d)), " ")), "|", `\|`)
}

var codeWord = regexp.MustCompile(`\[[^\]\s]+\]\+|\{[^}\s]+\}|"[^"\s]+"|[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+|\[16\]byte|fold\.[A-Z]\w+`)

// code puts names and patterns of a text between backticks.
func (w *writer) code(text string) string {
	return codeWord.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word[:1], "[{\"") || strings.HasPrefix(word, "fold.") || w.words[word] {
			return "`" + strings.Trim(word, `"`) + "`"
		}
		return word
	})
}
