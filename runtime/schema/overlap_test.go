package schema

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/keyenc"
)

// TestOverlapAgainstKeys: for random pairs of patterns, Overlap finds every key of a small world that both accept, and
// both accept every witness.
func TestOverlapAgainstKeys(t *testing.T) {
	world := []string{"a", "b", "pa1", "a1", "00", "1", "-", "z-", "_", "/2F", "0000000A", "42", "pa0000000000", "01234567-89ab-cdef-0123-456789abcdef"}
	keys := [][]string{}
	for _, x := range world {
		keys = append(keys, []string{"k", x})
		for _, y := range world {
			keys = append(keys, []string{"k", x, y}, []string{"k", x, y, "a"}, []string{"k", x, y, "00"})
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	overlaps := 0
	for range 2000 {
		a, b := randomTable(random, world), randomTable(random, world)
		witness, overlap := Overlap(a, b)
		if w, ok := OverlapRecord(a.Record(), b); ok != overlap || w != witness {
			t.Errorf("%s and %s: %q, %t, and by the record %q, %t", a.Key(), b.Key(), witness, overlap, w, ok)
		}
		if overlap {
			overlaps++
			if tokens := strings.Split(witness, "."); !accepts(a, tokens) || !accepts(b, tokens) {
				t.Errorf("%s and %s: %q is no witness", a.Key(), b.Key(), witness)
			}
			continue
		}
		if i := slices.IndexFunc(keys, func(key []string) bool { return accepts(a, key) && accepts(b, key) }); i >= 0 {
			t.Errorf("%s and %s do not overlap, but both accept %q", a.Key(), b.Key(), keys[i])
		}
	}
	if overlaps < 100 || overlaps > 1900 {
		t.Errorf("%d of 2000 pairs overlap: the test says too little", overlaps)
	}
}

func randomTable(random *rand.Rand, literals []string) *Table {
	t := &Table{Pattern: []Token{{Literal: "k", Var: -1}}}
	n := 1 + random.IntN(3)
	for i := range n {
		if random.IntN(3) == 0 {
			t.Pattern = append(t.Pattern, Token{Literal: literals[random.IntN(len(literals))], Var: -1})
			continue
		}
		v := Var{Name: fmt.Sprintf("v%d", i), Kind: keyenc.KindString, Enc: keyenc.EncESC, Tail: i == n-1 && random.IntN(3) == 0}
		if !v.Tail {
			v.Kind = keyenc.KindString + keyenc.Kind(random.IntN(10))
			v.Enc = v.Kind.Default()
			if other := keyenc.EncESC + keyenc.Encoding(random.IntN(8)); other.Fits(v.Kind) {
				v.Enc = other
			}
		}
		t.Pattern = append(t.Pattern, Token{Var: len(t.Vars)})
		t.Vars = append(t.Vars, v)
	}
	return t
}

// accepts decides by the decoders whether the tokens are a key of the table.
func accepts(t *Table, tokens []string) bool {
	for i, tok := range t.Pattern {
		if i >= len(tokens) {
			return false
		}
		switch {
		case tok.Var < 0:
			if tok.Literal != tokens[i] {
				return false
			}
		case t.Vars[tok.Var].Tail:
			_, err := keyenc.ParseTail(strings.Join(tokens[i:], "."))
			return err == nil
		default:
			if !keyenc.InImage(t.Vars[tok.Var].Enc, t.Vars[tok.Var].Kind, tokens[i]) {
				return false
			}
		}
	}
	return len(tokens) == len(t.Pattern)
}

// TestOverlapRecord: names of an enum, what a later version may have written, and what is no table's record.
func TestOverlapRecord(t *testing.T) {
	table := &Table{Pattern: []Token{{Literal: "k", Var: -1}, {Literal: "KIND_ON", Var: -1}}}
	for record, want := range map[string]bool{
		"bucket: other\nkey: k.{a}\nvar a: string ESC\n":                    false, // KIND_ON has a '_' that ESC writes twice
		"bucket: other\nkey: k.{a}\nvar a: string VERBATIM\n":               true,
		"key: k.{a}\nvar a: enum x.Kind ENUM_NAME\nname KIND_OFF of a: 0\n": false,
		"key: k.{a}\nvar a: enum x.Kind ENUM_NAME\nname KIND_ON of b: 1\n":  false,
		"key: k.{a}\nvar a: enum x.Kind ENUM_NAME\nname KIND_ON of a: 1\n":  true,
		"key: k.{a}\nvar a: string LATER\n":                                 true,
		"key: k.{a}\nvar a: later ESC\n":                                    true,
		"key: k.{a}\nvar a: bool ESC\n":                                     true,
		"key: k.{a}\n":                                                      true,
		"key: k.{a...}\nvar a: tail ESC\n":                                  false,
		"key: x.{a}\nvar a: later ESC\n":                                    false,
		"key: k\n":                                                          false,
		"key: k.KIND_ON\n":                                                  true,
		"key: k.KIND_ON.{a...}\nvar a: tail ESC\n":                          false,
		"key: k.{{\n": false,
		"judge again: folded without the table\n": false,
		"": false,
	} {
		if w, got := OverlapRecord(record, table); got != want || got && w != "k.KIND_ON" {
			t.Errorf("%q: %q, %t, want %t", record, w, got, want)
		}
	}
}
