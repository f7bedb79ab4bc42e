package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/typedfold/fold/runtime/keyenc"
)

// Record is the table's schema as canonical text: a line "name: value" for each thing that decides how keys and
// values are read, and for each index. Equal schemas have equal records, whatever built the descriptor and in whatever
// order they declare indexes. A store keeps it beside its rows.
func (t *Table) Record() string {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%s: %s\n", name, value) }
	line("message", string(t.Message))
	line("bucket", t.Bucket)
	line("key", t.Key())
	for i := range t.Vars {
		v := &t.Vars[i]
		typ := v.Kind.String()
		if v.Kind == keyenc.KindEnum {
			typ += " " + string(v.Field().Enum().FullName())
		}
		if v.Tail {
			typ = "tail"
		}
		line("var "+v.Name, typ+" "+v.Enc.String())
		if v.Enc == keyenc.EncEnumName {
			recordNames(line, v)
		}
	}
	if names := t.keyOnlyNames(); len(names) > 0 {
		line("in the key only", strings.Join(names, " "))
	}
	line("codec", strings.TrimPrefix(t.Codec.String(), "CODEC_"))
	line("bind", strings.TrimPrefix(t.Bind.String(), "BIND_"))
	line("validate", fmt.Sprint(t.Validate))
	line("max_value_bytes", fmt.Sprint(t.MaxValueBytes))
	line("on_reject", strings.TrimPrefix(t.OnReject.String(), "ON_REJECT_"))
	line("on_age_out", strings.TrimPrefix(t.OnAgeOut.String(), "ON_AGE_OUT_"))
	t.recordNewer(line)
	return b.String()
}

// recordNewer has the lines of what a table need not use. A table without them has the record that it always had.
func (t *Table) recordNewer(line func(name, value string)) {
	if len(t.AlsoRead) > 0 { // in its order, in which they are tried on a value whose header names none
		var codecs []string
		for _, codec := range t.AlsoRead {
			codecs = append(codecs, strings.TrimPrefix(codec.String(), "CODEC_"))
		}
		line("also_read", strings.Join(codecs, " "))
	}
	indexes := slices.SortedFunc(slices.Values(t.Indexes), func(a, b Index) int { return strings.Compare(a.Name, b.Name) })
	for i := range indexes {
		definition := indexes[i].Definition()
		if indexes[i].Unique {
			definition += ", unique"
		}
		line("index "+indexes[i].Name, definition)
	}
	if len(t.RetiredIndexes) > 0 {
		line("retired_index", strings.Join(slices.Sorted(slices.Values(t.RetiredIndexes)), " "))
	}
}

// recordNames has a line for each value of an enum whose names stand in keys: a new name is a line more, and a renamed
// or removed value makes old keys unreadable.
func recordNames(line func(name, value string), v *Var) {
	values := v.Field().Enum().Values()
	for i := range values.Len() {
		line(fmt.Sprintf("name %s of %s", values.Get(i).Name(), v.Name), fmt.Sprint(values.Get(i).Number()))
	}
}

func (t *Table) keyOnlyNames() []string {
	var names []string
	for i := range t.Vars {
		if t.Vars[i].KeyOnly() {
			names = append(names, t.Vars[i].Name)
		}
	}
	return names
}

// Change is one line that differs between two records of a table.
type Change struct {
	Name string
	// Old and New are the line's values; "" where the record has no such line.
	Old, New string
}

func (c Change) String() string { return fmt.Sprintf("%s: was %q, is %q", c.Name, c.Old, c.New) }
