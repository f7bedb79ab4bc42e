package schema

import (
	"strings"

	"github.com/typedfold/fold/runtime/keyenc"
)

// Overlap reports whether two tables of one bucket can both match some key, with a shortest-effort example of one.
// It is exact: a literal meets a variable only if the variable's encoding writes it, two variables only if their
// encodings have a token in common. Tables of different buckets never overlap.
func Overlap(a, b *Table) (witness string, overlap bool) {
	if a.Bucket != b.Bucket {
		return "", false
	}
	n := max(len(a.Pattern), len(b.Pattern))
	tokens := make([]string, 0, n)
	for i := range n {
		x, okX := a.slot(i)
		y, okY := b.slot(i)
		if !okX || !okY {
			return "", false
		}
		token, ok := x.meet(y)
		if !ok {
			return "", false
		}
		tokens = append(tokens, token)
	}
	return strings.Join(tokens, "."), true
}

// slot is the set of tokens that can stand at one place of a key: a literal, or an image.
type slot struct {
	literal string
	image   keyenc.Image
}

// slot is what may stand at token i of the table's keys. A tail stands at every place from its own on.
func (t *Table) slot(i int) (slot, bool) {
	if i >= len(t.Pattern) {
		if !t.HasTail() {
			return slot{}, false
		}
		i = len(t.Pattern) - 1
	}
	if tok := t.Pattern[i]; tok.Var < 0 {
		return slot{literal: tok.Literal}, true
	}
	return slot{image: t.Vars[t.Pattern[i].Var].image()}, true
}

func (s slot) meet(o slot) (string, bool) {
	switch {
	case s.literal != "" && o.literal != "":
		return s.literal, s.literal == o.literal
	case s.literal != "":
		return s.literal, o.image.Contains(s.literal)
	case o.literal != "":
		return o.literal, s.image.Contains(o.literal)
	}
	return keyenc.Common(s.image, o.image)
}

// image is the set of tokens of a variable; for a tail, of each of its tokens.
func (v *Var) image() keyenc.Image {
	kind := v.Kind
	if v.Tail {
		kind = keyenc.KindTail
	}
	m := keyenc.Image{Enc: v.Enc, Kind: kind}
	if v.Enc == keyenc.EncEnumName {
		values := v.Field().Enum().Values()
		for i := range values.Len() {
			m.Names = append(m.Names, string(values.Get(i).Name()))
		}
	}
	return m
}
