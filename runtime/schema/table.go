// Package schema compiles the (fold.v1.table) option of a message into a Table: which keys of a bucket are the
// table's rows and how they are encoded. The generator and the runtime call the same Compile, the runtime on the
// linked descriptor, so nothing that a schema says is generated twice.
package schema

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	"github.com/typedfold/fold/runtime/keyenc"
)

// Table is the compiled schema of one table. It is immutable, so it may be shared between goroutines.
type Table struct {
	Message protoreflect.FullName
	// GoName is what generated names begin with: "Route" in RouteKey.
	GoName string
	// Bucket is the logical bucket.
	Bucket string
	// Pattern is the key pattern, a whole NATS token each. The first is a literal.
	Pattern []Token
	// Vars are the pattern's variables, in the pattern's order. A table without one has a single row.
	Vars []Var

	Codec         foldv1.Codec
	Bind          foldv1.Bind
	OnReject      foldv1.OnReject
	OnAgeOut      foldv1.OnAgeOut
	MaxValueBytes uint32
	Validate      bool
	// AlsoRead are the codecs that are read beside Codec, in the option's order, which is that in which they are tried.
	AlsoRead []foldv1.Codec
	// Indexes are the secondary indexes, in the option's order. RetiredIndexes are names that none of them may have.
	Indexes        []Index
	RetiredIndexes []string
}

// Token is one segment of a key pattern: a literal, or the variable Vars[Var].
type Token struct {
	// Literal is "" for a variable.
	Literal string
	// Var is -1 for a literal.
	Var int
	// Offset is where the segment begins in the pattern's text, in bytes.
	Offset int
}

// Var is one variable of a key pattern.
type Var struct {
	// Name is as it stands in the pattern, a dotted path for a field of an inner message.
	Name string
	// GoName is the field of the generated key struct.
	GoName string
	// Path leads from the table's message to the field; its last element is the field itself. It is empty for a
	// variable that is in the key only.
	Path []protoreflect.FieldDescriptor
	// Kind is the variable's type: the field's, or KindUUID for a string or bytes field that is declared to hold one.
	// Key structs hold bytes in a string, and enums as their generated Go type. It is KindString for a tail too.
	Kind keyenc.Kind
	// Enc is the encoding in force.
	Enc keyenc.Encoding
	// Tail variables stand for one or more tokens, the parts of one string between slashes.
	Tail bool
	// Presence: the field, or a message on the way to it, can be unset.
	Presence bool
}

// KeyOnly reports whether no field of the message holds the variable.
func (v *Var) KeyOnly() bool { return len(v.Path) == 0 }

// Field is the descriptor of the field that the variable is bound to; nil for one that is in the key only.
func (v *Var) Field() protoreflect.FieldDescriptor {
	if v.KeyOnly() {
		return nil
	}
	return v.Path[len(v.Path)-1]
}

// Key is the key pattern as text.
func (t *Table) Key() string {
	var b strings.Builder
	for i, tok := range t.Pattern {
		if i > 0 {
			b.WriteByte('.')
		}
		if tok.Var < 0 {
			b.WriteString(tok.Literal)
			continue
		}
		v := &t.Vars[tok.Var]
		b.WriteString("{" + v.Name)
		if v.Tail {
			b.WriteString("...")
		}
		b.WriteByte('}')
	}
	return b.String()
}

// Singleton reports whether the table has exactly one key.
func (t *Table) Singleton() bool { return len(t.Vars) == 0 }

// HasTail reports whether the pattern's last segment stands for one or more tokens.
func (t *Table) HasTail() bool { return len(t.Vars) > 0 && t.Vars[len(t.Vars)-1].Tail }

// KeyOnly reports whether some variable is in the key only, so that a message does not say its key.
func (t *Table) KeyOnly() bool {
	return slices.ContainsFunc(t.Vars, func(v Var) bool { return v.KeyOnly() })
}

// Bound reports whether some variable is a field of the message.
func (t *Table) Bound() bool {
	return slices.ContainsFunc(t.Vars, func(v Var) bool { return !v.KeyOnly() })
}

// Ordered reports whether rows go by the values of their keys: every encoding keeps the order.
func (t *Table) Ordered() bool {
	return !slices.ContainsFunc(t.Vars, func(v Var) bool { return !v.Enc.Ordered() })
}

// Prefix is what every key of the table begins with: the literals before the first variable, each with its dot.
// For a table without variables it is the key itself.
func (t *Table) Prefix() string { return t.LiteralsAfter(-1) }

// LiteralsAfter is the text between a variable and the next one, dots included: what follows variable v in a key
// when a further variable comes. With v -1 it is the text before the first variable.
func (t *Table) LiteralsAfter(v int) string {
	i := 0
	if v >= 0 {
		for i < len(t.Pattern) && t.Pattern[i].Var != v {
			i++
		}
		i++
	}
	var b strings.Builder
	if v >= 0 && i < len(t.Pattern) {
		b.WriteByte('.')
	}
	for ; i < len(t.Pattern) && t.Pattern[i].Var < 0; i++ {
		b.WriteString(t.Pattern[i].Literal)
		if i+1 < len(t.Pattern) {
			b.WriteByte('.')
		}
	}
	return b.String()
}

// Matches reports whether the key has the pattern's shape: as many tokens (or at least as many, before a tail)
// and the same literals. It says nothing of the variables' encodings. It does not allocate.
func (t *Table) Matches(key string) bool {
	for i := range t.Pattern {
		last := i == len(t.Pattern)-1
		tok := key
		if dot := strings.IndexByte(key, '.'); dot >= 0 {
			if last && !(t.Pattern[i].Var >= 0 && t.Vars[t.Pattern[i].Var].Tail) {
				return false
			}
			tok, key = key[:dot], key[dot+1:]
		} else {
			if !last {
				return false
			}
			key = ""
		}
		if tok == "" || t.Pattern[i].Var < 0 && tok != t.Pattern[i].Literal {
			return false
		}
	}
	return true
}
