package keyenc

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// cell is one value of a tuple: its token, and its order against another cell of the same column.
type cell struct {
	token   string
	compare func(cell) int
	value   any
}

func ordered[T cmp.Ordered](v T, token string) cell {
	return cell{token, func(o cell) int { return cmp.Compare(v, o.value.(T)) }, v}
}

func intCell[T interface {
	FixedInteger
	cmp.Ordered
}](v T, hex bool) cell {
	if hex {
		return ordered(v, hexNum(v))
	}
	return ordered(v, num(v))
}

type instant struct {
	sec   int64
	nanos int32
}

// near favours small numbers, where neighbours meet, and falls back to the whole range.
func near[T cmp.Ordered](narrow, whole *rapid.Generator[T]) *rapid.Generator[T] {
	return rapid.OneOf(narrow, whole)
}

// columns are all ordered encodings, each as a generator of cells.
var columns = []func(*rapid.T) cell{
	func(t *rapid.T) cell { s := anyString().Draw(t, "esc"); return ordered(s, esc(s)) },
	func(t *rapid.T) cell { s := anyVerbatim().Draw(t, "verbatim"); return ordered(s, s) },
	func(t *rapid.T) cell { s := anyString().Draw(t, "hex"); return ordered(s, hexBytes(s)) },
	func(t *rapid.T) cell {
		return intCell(near(rapid.Int32Range(-120, 120), rapid.Int32()).Draw(t, "int32"), false)
	},
	func(t *rapid.T) cell {
		return intCell(near(rapid.Int32Range(-120, 120), rapid.Int32()).Draw(t, "hex32"), true)
	},
	func(t *rapid.T) cell {
		return intCell(near(rapid.Int64Range(-120, 120), rapid.Int64()).Draw(t, "int64"), false)
	},
	func(t *rapid.T) cell {
		return intCell(near(rapid.Int64Range(-120, 120), rapid.Int64()).Draw(t, "hex64"), true)
	},
	func(t *rapid.T) cell {
		return intCell(near(rapid.Uint64Range(0, 120), rapid.Uint64()).Draw(t, "uint64"), false)
	},
	func(t *rapid.T) cell {
		return intCell(near(rapid.Uint32Range(0, 120), rapid.Uint32()).Draw(t, "hexu32"), true)
	},
	func(t *rapid.T) cell { return intCell(rapid.Int8().Draw(t, "int8"), true) },
	func(t *rapid.T) cell {
		v := rapid.Uint8Range(0, 1).Draw(t, "bool")
		return ordered(v, string(AppendBool(nil, v == 1)))
	},
	func(t *rapid.T) cell {
		id := anyUUID().Draw(t, "uuid")
		return ordered(string(id[:]), string(AppendUUID(nil, id)))
	},
	func(t *rapid.T) cell {
		v := instant{near(rapid.Int64Range(-12, 12), rapid.Int64()).Draw(t, "sec"), rapid.Int32Range(0, maxNanos).Draw(t, "nanos")}
		return cell{clock(v.sec, v.nanos), func(o cell) int {
			w := o.value.(instant)
			return cmp.Or(cmp.Compare(v.sec, w.sec), cmp.Compare(v.nanos, w.nanos))
		}, v}
	},
}

func tailCell(t *rapid.T) cell {
	parts := rapid.SliceOfN(rapid.Map(anyString(), func(s string) string { return strings.ReplaceAll(s, "/", "") }), 1, 3).Draw(t, "tail")
	return cell{tail(strings.Join(parts, "/")), func(o cell) int { return slices.Compare(parts, o.value.([]string)) }, parts}
}

func TestKeyOrderIsTupleOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, len(columns)-1), 1, 4).Draw(t, "columns")
		withTail := rapid.Bool().Draw(t, "with tail")
		var keys [2][]string
		want := 0
		for i := 0; i <= len(kinds); i++ {
			draw := tailCell
			if i < len(kinds) {
				draw = columns[kinds[i]]
			} else if !withTail {
				break
			}
			a := draw(t)
			b := a
			if !rapid.Bool().Draw(t, "same") {
				b = draw(t)
			}
			want = cmp.Or(want, a.compare(b))
			keys[0], keys[1] = append(keys[0], a.token), append(keys[1], b.token)
		}
		raw := func(i int) []byte { return []byte(strings.ReplaceAll(strings.Join(keys[i], "."), ".", "\x00")) }
		if got := bytes.Compare(raw(0), raw(1)); got != want {
			t.Fatalf("keys %q and %q compare as %d, their tuples as %d", keys[0], keys[1], got, want)
		}
	})
}

// All strings of up to two bytes, in order, have their tokens in order; so have all small integers.
func TestOrderExhaustive(t *testing.T) {
	var all []string
	for a := range 256 {
		all = append(all, string([]byte{byte(a)}))
		for b := range 256 {
			all = append(all, string([]byte{byte(a), byte(b)}))
		}
	}
	all = append(all, "")
	slices.Sort(all)
	for name, enc := range map[string]func(string) string{"ESC": esc, "HEX": hexBytes} {
		for i := 1; i < len(all); i++ {
			if a, b := enc(all[i-1])+"\x00", enc(all[i])+"\x00"; a >= b {
				t.Fatalf("%s: %q before %q, but tokens %q and %q", name, all[i-1], all[i], a, b)
			}
		}
	}
	for v := int32(-1_100); v < 1_100; v++ {
		if a, b := num(v), num(v+1); a >= b {
			t.Fatalf("INT: %d: %q, then %q", v, a, b)
		}
		if a, b := hexNum(v), hexNum(v+1); a >= b {
			t.Fatalf("HEX: %d: %q, then %q", v, a, b)
		}
	}
}
