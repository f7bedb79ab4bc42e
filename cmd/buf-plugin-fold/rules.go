package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"buf.build/go/bufplugin/check"
	"buf.build/go/bufplugin/descriptor"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/schema"
)

// rule is one breaking rule. Of line and table it has one, or both.
type rule struct {
	id, purpose string
	optIn       bool
	// line says whether the rule refuses a line that changed.
	line func(schema.LineChange) bool
	// table has the rule look at a pair of tables as a whole.
	table func(*pair, check.ResponseWriter)
	// gone has the rule refuse tables that are gone, and uncompared those whose options are not valid.
	gone, uncompared bool
}

// ruleOf is the rule that refuses a breaking line.
func ruleOf(l schema.LineChange) string {
	switch {
	case l.Class != schema.Breaking:
		return ""
	case l.Name == "bucket":
		return "FOLD_BUCKET_SAME"
	case strings.HasPrefix(l.Name, "var "), strings.HasPrefix(l.Name, "name "):
		return "FOLD_PART_ENCODING_SAME"
	case strings.HasPrefix(l.Name, "index "):
		return "FOLD_RETIRED_INDEX"
	}
	return "FOLD_KEY_PATTERN_SAME"
}

func breaks(id string) func(schema.LineChange) bool {
	return func(l schema.LineChange) bool { return ruleOf(l) == id }
}

var rules = []rule{
	{
		id: "FOLD_TABLE_NO_DELETE", gone: true,
		purpose: "Checks that tables are not deleted.",
	},
	{
		id: "FOLD_BUCKET_SAME", line: breaks("FOLD_BUCKET_SAME"),
		purpose: "Checks that tables stay in their logical bucket.",
	},
	{
		id: "FOLD_KEY_PATTERN_SAME", line: breaks("FOLD_KEY_PATTERN_SAME"), uncompared: true,
		purpose: "Checks that the key patterns of tables stay the same.",
	},
	{
		id: "FOLD_PART_ENCODING_SAME", line: breaks("FOLD_PART_ENCODING_SAME"),
		purpose: "Checks that key variables keep their types and encodings.",
	},
	{
		id: "FOLD_RETIRED_INDEX", line: breaks("FOLD_RETIRED_INDEX"), table: unretired,
		purpose: "Checks that the names of removed indexes are retired, and not used again.",
	},
	{
		id: "FOLD_NO_REFOLD", optIn: true, line: func(l schema.LineChange) bool { return l.Class == schema.Refold },
		purpose: "Checks that no store has to judge its rows again.",
	},
}

// pair is one table as it was and as it is.
type pair struct {
	was, is       protoreflect.MessageDescriptor
	before, after *schema.Table
}

// note adds an annotation at a place in the table's option.
func (p *pair) note(w check.ResponseWriter, sub []int32, format string, args ...any) {
	file, path := place(p.is, sub)
	w.AddAnnotation(check.WithFileNameAndSourcePath(file, path), check.WithAgainstDescriptor(p.was),
		check.WithMessage(fmt.Sprintf("table %s: ", p.is.FullName())+fmt.Sprintf(format, args...)))
}

func (r *rule) run(w check.ResponseWriter, q check.Request) {
	now := messages(q.FileDescriptors())
	for _, was := range tablesOf(q.AgainstFileDescriptors()) {
		is := now[was.FullName()]
		if is == nil || !schema.IsTable(is) {
			if r.gone {
				gone(w, q, was, is)
			}
			continue
		}
		p := &pair{was: was, is: is}
		var problems []schema.Problem
		if p.before, problems = schema.Compile(was); len(problems) > 0 {
			continue // no store can have rows of it
		}
		if p.after, problems = schema.Compile(is); len(problems) > 0 {
			if r.uncompared {
				p.note(w, nil, "it can't be compared with what it was: %s", problems[0].Message)
			}
			continue
		}
		r.compare(w, p)
	}
}

func (r *rule) compare(w check.ResponseWriter, p *pair) {
	if r.line != nil {
		for _, l := range schema.Classify(p.before.Record(), p.after.Record()).Changes {
			if r.line(l) {
				p.note(w, optionOf(p.is, l.Name), "%s", text(l))
			}
		}
	}
	if r.table != nil {
		r.table(p, w)
	}
}

// text is a changed line as one line.
func text(l schema.LineChange) string {
	switch {
	case !l.InNew:
		return fmt.Sprintf("%s was %q and is gone: %v, %s", l.Name, l.Old, l.Class, l.Reason)
	case !l.InOld:
		return fmt.Sprintf("%s is %q and was not there: %v, %s", l.Name, l.New, l.Class, l.Reason)
	}
	return fmt.Sprintf("%s was %q and is %q: %v, %s", l.Name, l.Old, l.New, l.Class, l.Reason)
}

func gone(w check.ResponseWriter, q check.Request, was, is protoreflect.MessageDescriptor) {
	if is != nil {
		w.AddAnnotation(check.WithDescriptor(is), check.WithAgainstDescriptor(was), check.WithMessagef("message %s is no table any more", was.FullName()))
		return
	}
	at := []check.AddAnnotationOption{check.WithAgainstDescriptor(was), check.WithMessagef("table %s was deleted", was.FullName())}
	file := was.ParentFile().Path()
	if slices.ContainsFunc(q.FileDescriptors(), func(f descriptor.FileDescriptor) bool { return f.ProtoreflectFileDescriptor().Path() == file }) {
		at = append(at, check.WithFileName(file))
	}
	w.AddAnnotation(at...)
}

// unretired reports the names of indexes that are gone, or were retired, and are not retired now.
func unretired(p *pair, w check.ResponseWriter) {
	used := func(name string) bool {
		return slices.ContainsFunc(p.after.Indexes, func(ix schema.Index) bool { return ix.Name == name })
	}
	for _, ix := range p.before.Indexes {
		if !used(ix.Name) && !slices.Contains(p.after.RetiredIndexes, ix.Name) {
			p.note(w, []int32{tableIndex}, "index %s is gone: add retired_index: %q", ix.Name, ix.Name)
		}
	}
	for _, name := range p.before.RetiredIndexes {
		if !used(name) && !slices.Contains(p.after.RetiredIndexes, name) {
			p.note(w, []int32{tableRetiredIndex}, "the name %s is not retired any more: add retired_index: %q", name, name)
		}
	}
}

// lint reports what is wrong with the options of the tables.
func lint(_ context.Context, w check.ResponseWriter, q check.Request) error {
	for _, f := range q.FileDescriptors() {
		if f.IsImport() {
			continue
		}
		for _, md := range schema.Tables(f.ProtoreflectFileDescriptor()) {
			_, problems := schema.Compile(md)
			for _, p := range problems {
				message := p.Message
				if p.Hint != "" {
					message += "; " + p.Hint
				}
				file := p.File
				if file == nil {
					file = md.ParentFile()
				}
				w.AddAnnotation(check.WithFileNameAndSourcePath(file.Path(), longest(file, p.Path)), check.WithMessage(message))
			}
		}
	}
	return nil
}

func tablesOf(files []descriptor.FileDescriptor) (all []protoreflect.MessageDescriptor) {
	for _, f := range files {
		if !f.IsImport() {
			all = append(all, schema.Tables(f.ProtoreflectFileDescriptor())...)
		}
	}
	return all
}

// messages are all messages of the files, nested ones included, by full name.
func messages(files []descriptor.FileDescriptor) map[protoreflect.FullName]protoreflect.MessageDescriptor {
	all := map[protoreflect.FullName]protoreflect.MessageDescriptor{}
	var walk func(protoreflect.MessageDescriptors)
	walk = func(mds protoreflect.MessageDescriptors) {
		for i := range mds.Len() {
			all[mds.Get(i).FullName()] = mds.Get(i)
			walk(mds.Get(i).Messages())
		}
	}
	for _, f := range files {
		walk(f.ProtoreflectFileDescriptor().Messages())
	}
	return all
}
