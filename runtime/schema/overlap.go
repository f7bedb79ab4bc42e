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
	return a.shape().meet(b.shape())
}

// OverlapRecord is Overlap with a table of which there is a record only, whatever bucket that names: it is for the records
// of one store. A variable of a type or encoding that this version does not know may be any token.
func OverlapRecord(record string, t *Table) (witness string, overlap bool) {
	s, ok := recordShape(parseLines(record))
	if !ok {
		return "", false
	}
	return s.meet(t.shape())
}

// keyShape is which tokens can stand at each place of a key.
type keyShape struct {
	slots []slot
	tail  bool // the last slot is of every place from its own on
}

func (t *Table) shape() keyShape {
	s := keyShape{tail: t.HasTail()}
	for _, tok := range t.Pattern {
		if tok.Var < 0 {
			s.slots = append(s.slots, slot{literal: tok.Literal})
		} else {
			s.slots = append(s.slots, slot{image: t.Vars[tok.Var].image()})
		}
	}
	return s
}

// recordShape is false for a record whose key pattern can't be read.
func recordShape(r recordLines) (keyShape, bool) {
	segments, flaws := parsePattern(r.values[lineKey])
	if len(flaws) > 0 {
		return keyShape{}, false
	}
	s := keyShape{tail: segments[len(segments)-1].tail}
	for _, seg := range segments {
		if seg.variable == "" {
			s.slots = append(s.slots, slot{literal: seg.literal})
		} else {
			s.slots = append(s.slots, slot{image: r.image(seg.variable)})
		}
	}
	return s, true
}

// image is the set of tokens of a variable; every token when the record does not tell.
func (r recordLines) image(variable string) keyenc.Image {
	words := strings.Fields(r.values[lineVar+variable]) // a type, the name of an enum, and an encoding
	if len(words) > 1 {
		kind, known := keyenc.KindNamed(words[0])
		enc, fits := keyenc.EncodingNamed(words[len(words)-1])
		if known && fits && enc.Fits(kind) {
			return keyenc.Image{Enc: enc, Kind: kind, Names: r.enumNames(variable)}
		}
	}
	return keyenc.Image{Enc: keyenc.EncVerbatim, Kind: keyenc.KindString}
}

// enumNames are the names of an enum that stand in keys as the variable.
func (r recordLines) enumNames(variable string) (names []string) {
	for _, line := range r.names {
		name, isName := strings.CutPrefix(line, lineName)
		if name, of, _ := strings.Cut(name, " of "); isName && of == variable {
			names = append(names, name)
		}
	}
	return names
}

// at is what can stand at place i.
func (s keyShape) at(i int) (slot, bool) {
	if i < len(s.slots) {
		return s.slots[i], true
	}
	if !s.tail {
		return slot{}, false
	}
	return s.slots[len(s.slots)-1], true
}

// meet is a key of both shapes.
func (s keyShape) meet(o keyShape) (witness string, ok bool) {
	n := max(len(s.slots), len(o.slots))
	tokens := make([]string, 0, n)
	for i := range n {
		x, okX := s.at(i)
		y, okY := o.at(i)
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
