package schema

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/keyenc"
)

// Index is one secondary index of a table.
type Index struct {
	// Name is the option's name, such as "by_node".
	Name string
	// GoName is what its methods end in: "ByNode" in ListByNode.
	GoName string
	Unique bool
	// Fields make up the index tuple, in this order. There is at least one, and at most one is repeated.
	Fields []IndexField
}

// IndexField is one field of an index tuple.
type IndexField struct {
	// Name is as it stands in the option, a dotted path for a field of an inner message.
	Name string
	// Path leads from the table's message to the field, through singular messages; its last element is the field.
	Path []protoreflect.FieldDescriptor
	// Kind is the field's type, or that of its elements. It is never KindUUID: an index holds any value of a field.
	Kind keyenc.Kind
	// Enc is an encoding of the kind that can write every value of the field.
	Enc keyenc.Encoding
	// Repeated fields have an entry for each distinct element.
	Repeated bool
	// Presence: the field, or a message on the way to it, can be unset, and a row in which it is so has no entry.
	Presence bool
}

// GoName is what a parameter for the field is named after: NodeID for node_id, SpecHost for spec.host.
func (f *IndexField) GoName() string { return fieldGoName(f.Name) }

// Field is the descriptor of the field itself.
func (f *IndexField) Field() protoreflect.FieldDescriptor { return f.Path[len(f.Path)-1] }

// Definition is the canonical text of the index tuple: for each field its name, the numbers of the fields on its path
// (with a question mark behind each that can be unset), its type and its encoding, such as "spec.host(2?.1) string ESC".
// Indexes of one message that have equal definitions have the same entries; neither the index's name nor Unique is part
// of it. It is one line.
func (ix *Index) Definition() string {
	var b strings.Builder
	for i := range ix.Fields {
		f := &ix.Fields[i]
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(f.Name + "(")
		for j, fd := range f.Path {
			if j > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, fd.Number())
			if fd.HasPresence() && !f.Repeated { // an unset message has no elements, as a set one without any
				b.WriteByte('?')
			}
		}
		b.WriteString(") ")
		if f.Repeated {
			b.WriteString("repeated ")
		}
		b.WriteString(typeName(f.Field()) + " " + f.Enc.String())
	}
	return b.String()
}
