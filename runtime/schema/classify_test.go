package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// base is a record with a line of every kind.
const base = `message: t.v1.Route
bucket: edge
key: route.{tenant}.{mode}
var tenant: string ESC
var mode: enum t.v1.Mode ENUM_NAME
name MODE_OFF of mode: 0
name MODE_ON of mode: 1
in the key only: tenant
codec: PROTO
bind: MATCH
validate: false
max_value_bytes: 0
on_reject: KEEP_OLD
on_age_out: KEEP
also_read: PROTOJSON
index by_node: node(4) string ESC
retired_index: by_host by_zone
`

// edit is the record with a line set, or without it when the value is "".
func edit(record, name, value string) string {
	var b strings.Builder
	found := false
	for line := range strings.Lines(record) {
		if have, _, _ := strings.Cut(line, ": "); have != name {
			b.WriteString(line)
			continue
		}
		if found = true; value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	if !found && value != "" {
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	return b.String()
}

// spec is what each change of one line means, for every kind of line, from and to being there and not.
var spec = []struct {
	name, from, to string
	class          Class
	unknown        bool
	agedOut        bool
}{
	{"message", "t.v1.Route", "t.v1.Other", Breaking, false, false},
	{"message", "t.v1.Route", "", Breaking, false, false},
	{"message", "", "t.v1.Route", Breaking, false, false},
	{"bucket", "edge", "core", Breaking, false, false},
	{"bucket", "edge", "", Breaking, false, false},
	{"bucket", "", "edge", Breaking, false, false},
	{"key", "route.{tenant}", "route.{mode}", Breaking, false, false},
	{"key", "route.{tenant}", "", Breaking, false, false},
	{"key", "", "route.{tenant}", Breaking, false, false},
	{"var tenant", "string ESC", "string VERBATIM", Breaking, false, false},
	{"var tenant", "string ESC", "bytes ESC", Breaking, false, false},
	{"var tenant", "string ESC", "tail ESC", Breaking, false, false},
	{"var mode", "enum t.v1.Mode ENUM_NAME", "enum t.v1.Way ENUM_NAME", Breaking, false, false},
	{"var tenant", "string ESC", "", Breaking, false, false},
	{"var tenant", "", "string ESC", Breaking, false, false},
	{"in the key only", "tenant", "tenant mode", Breaking, false, false},
	{"in the key only", "tenant", "", Breaking, false, false},
	{"in the key only", "", "tenant", Breaking, false, false},
	{"name MODE_ON of mode", "1", "2", Breaking, false, false},
	{"name MODE_ON of mode", "1", "", Breaking, false, false},
	{"name MODE_ON of mode", "", "1", Refold, false, false},
	{"codec", "PROTO", "PROTOJSON", Refold, false, false},
	{"codec", "RAW", "PROTO", Refold, false, false},
	{"codec", "PROTO", "", Refold, false, false},
	{"codec", "", "PROTO", Refold, false, false},
	{"also_read", "PROTOJSON", "PROTOJSON RAW", Refold, false, false},
	{"also_read", "PROTOJSON", "", Refold, false, false},
	{"also_read", "", "PROTOJSON", Refold, false, false},
	{"bind", "MATCH", "FILL", Refold, false, false},
	{"bind", "FILL", "MATCH", Refold, false, false},
	{"bind", "MATCH", "", Refold, false, false},
	{"bind", "", "MATCH", Refold, false, false},
	{"validate", "false", "true", Refold, false, false},
	{"validate", "true", "false", Refold, false, false},
	{"validate", "false", "", Refold, false, false},
	{"validate", "", "false", Refold, false, false},
	{"max_value_bytes", "0", "9", Refold, false, false},
	{"max_value_bytes", "9", "10", Refold, false, false},
	{"max_value_bytes", "9", "", Refold, false, false},
	{"max_value_bytes", "", "9", Refold, false, false},
	{"on_reject", "KEEP_OLD", "DROP_ROW", Refold, false, false},
	{"on_reject", "HALT", "KEEP_OLD", Refold, false, false},
	{"on_reject", "HALT", "", Refold, false, false},
	{"on_reject", "", "HALT", Refold, false, false},
	{"on_age_out", "KEEP", "DROP", Refold, false, true},
	{"on_age_out", "", "DROP", Refold, false, true},
	{"on_age_out", "DROP", "KEEP", Safe, false, false},
	{"on_age_out", "", "KEEP", Safe, false, false},
	{"on_age_out", "DROP", "", Breaking, true, false},
	{"on_age_out", "DROP", "LATER", Breaking, true, false},
	{"on_age_out", "LATER", "KEEP", Safe, false, false},
	{"on_age_out", "LATER", "DROP", Refold, false, true},
	{"index by_node", "node(4) string ESC", "node(5) string ESC", Reindex, false, false},
	{"index by_node", "node(4) string ESC", "node(5) string ESC, unique", Reindex, false, false},
	{"index by_node", "node(4) string ESC", "node(4) string ESC, unique", Safe, false, false},
	{"index by_node", "node(4) string ESC, unique", "node(4) string ESC", Safe, false, false},
	{"index by_node", "node(4) string ESC", "", Reindex, false, false},
	{"index by_node", "", "node(4) string ESC", Reindex, false, false},
	{"index by_node", "", "node(4) string ESC, unique", Reindex, false, false},
	{"index by_host", "", "host(5) string ESC", Breaking, false, false},
	{"index by_zone", "", "zone(6) string ESC, unique", Breaking, false, false},
	{"index by_zone", "zone(6) string ESC", "", Reindex, false, false},
	{"retired_index", "by_host by_zone", "by_host", Safe, false, false},
	{"retired_index", "by_host", "by_host by_zone", Safe, false, false},
	{"retired_index", "by_host", "", Safe, false, false},
	{"retired_index", "", "by_host", Safe, false, false},
	{"judge again", AgainRefold, "", Refold, false, false},
	{"judge again", AgainUnregistered, "", Refold, false, false},
	{"judge again", "for a reason of a later version", "", Refold, false, false},
	{"shards", "4", "", Breaking, true, false},
	{"shards", "", "4", Breaking, true, false},
	{"shards", "4", "5", Breaking, true, false},
	{"variant", "4", "", Breaking, true, false},
	{"indexes", "4", "", Breaking, true, false},
	{"names", "4", "", Breaking, true, false},
}

// checkSpec compares Classify with the specification.
func checkSpec() (err error) {
	for _, s := range spec {
		before, after := edit(base, s.name, s.from), edit(base, s.name, s.to)
		v := Classify(before, after)
		if v.Class != s.class || v.AgedOut != s.agedOut || len(v.Changes) != 1 {
			err = errors.Join(err, fmt.Errorf("%s: %q to %q: %v, aged out %v, want %v, %v:\n%v", s.name, s.from, s.to, v.Class, v.AgedOut, s.class, s.agedOut, v))
			continue
		}
		l := v.Changes[0]
		if l.Class != s.class || l.Unknown != s.unknown || l.Name != s.name || l.Old != s.from || l.New != s.to || l.InOld != (s.from != "") || l.InNew != (s.to != "") || l.Reason == "" {
			err = errors.Join(err, fmt.Errorf("%s: %q to %q: line %+v", s.name, s.from, s.to, l))
		}
		if (v.Hint() != "") != (s.class == Breaking) {
			err = errors.Join(err, fmt.Errorf("%s: %q to %q: hint %q", s.name, s.from, s.to, v.Hint()))
		}
		if s.unknown && !strings.Contains(v.Hint(), "newer") {
			err = errors.Join(err, fmt.Errorf("%s: hint %q of a line that a newer version wrote", s.name, v.Hint()))
		}
	}
	return err
}

func TestClassify(t *testing.T) {
	if err := checkSpec(); err != nil {
		t.Error(err)
	}
	kinds := map[string]bool{}
	for _, s := range spec {
		kinds[s.name] = true
	}
	for name := range fixedLines {
		if !kinds[name] {
			t.Errorf("the specification says nothing of line %q", name)
		}
	}
	for name := range maps.Keys(parseLines(base).values) {
		if !kinds[name] && name != "name MODE_OFF of mode" {
			t.Errorf("the specification says nothing of line %q", name)
		}
	}
}

// TestClassifyMutants: no line's class can be another one without the specification saying so.
func TestClassifyMutants(t *testing.T) {
	for name, have := range fixedLines {
		for class := range classNames {
			if Class(class) == have.class {
				continue
			}
			mutant := have
			mutant.class = Class(class)
			fixedLines[name] = mutant
			if checkSpec() == nil {
				t.Errorf("line %q may be %v", name, Class(class))
			}
		}
		fixedLines[name] = have
	}
}

// TestClassifyWholeRecords: what does not follow from single lines.
func TestClassifyWholeRecords(t *testing.T) {
	dropping := edit(base, "on_age_out", "DROP")
	for _, c := range []struct {
		name          string
		before, after string
		class         Class
		agedOut       bool
		lines         []string
	}{
		{"new to the store", "", base, Refold, false, []string{"message"}},
		{"new to the store, dropping", "", dropping, Refold, true, []string{"message"}},
		{"new to the store, cut short", Again("", AgainRefold), base, Refold, false, []string{"message"}},
		{"new to the store, cut short, dropping", Again("", AgainRefold), dropping, Refold, true, []string{"message"}},
		{"gone", base, "", Breaking, false, parseLines(base).names},
		{"neither", "", "", Safe, false, nil},
		{"unregistered, dropping", Again(dropping, AgainUnregistered), dropping, Refold, true, []string{"judge again"}},
		{"unregistered for another reason, dropping", Again(dropping, "some other"), dropping, Refold, true, []string{"judge again"}},
		{"refold cut short, dropping", Again(dropping, AgainRefold), dropping, Refold, false, []string{"judge again"}},
		{"refold to dropping cut short", Again(base, AgainRefold), dropping, Refold, true, []string{"on_age_out", "judge again"}},
		{"refold from dropping cut short", Again(dropping, AgainRefold), base, Refold, false, []string{"on_age_out", "judge again"}},
		{"marked and the same", Again(base, AgainRefold), Again(base, AgainRefold), Safe, false, nil},
		{"other order", "a: 1\nb: 2\n", "b: 2\na: 1\n", Safe, false, nil},
		{"twice, both", base + "codec: RAW\n", base + "codec: RAW\n", Breaking, false, []string{"codec"}},
		{"one line", "message: t.v1.Route\n", "message: t.v1.Route\nbucket: edge\n", Breaking, false, []string{"bucket"}},
		{"twice, new", base, base + "codec: PROTO\n", Breaking, false, []string{"codec"}},
		{"twice", base + "codec: RAW\n", base, Breaking, false, []string{"codec"}},
		{"no value", base + "shards\n", base, Breaking, false, []string{"shards"}},
		{"worst wins", edit(edit(edit(base, "codec", "RAW"), "index by_node", ""), "key", "x.{tenant}.{mode}"), base, Breaking, false,
			[]string{"key", "codec", "index by_node"}},
		{"refold and reindex", edit(edit(base, "codec", "RAW"), "index by_node", ""), base, Refold, false, []string{"codec", "index by_node"}},
		{"reindex and safe", edit(edit(base, "retired_index", ""), "index by_node", ""), base, Reindex, false, []string{"index by_node", "retired_index"}},
		{"retired and used", base, edit(edit(base, "retired_index", "by_zone"), "index by_host", "host(5) string ESC"), Breaking, false,
			[]string{"retired_index", "index by_host"}},
		{"renamed enum value", base, edit(edit(base, "name MODE_ON of mode", ""), "name MODE_LIVE of mode", "1"), Breaking, false,
			[]string{"name MODE_ON of mode", "name MODE_LIVE of mode"}},
	} {
		v := Classify(c.before, c.after)
		var lines []string
		worst := Safe
		for _, l := range v.Changes {
			lines = append(lines, l.Name)
			worst = max(worst, l.Class)
		}
		slices.Sort(lines)
		slices.Sort(c.lines)
		if v.Class != c.class || v.AgedOut != c.agedOut || !slices.Equal(lines, c.lines) || worst != v.Class {
			t.Errorf("%s: %v, aged out %v, lines %v; want %v, %v, %v", c.name, v.Class, v.AgedOut, lines, c.class, c.agedOut, c.lines)
		}
	}
	if again := Again(Again(base, AgainUnregistered), AgainRefold); again != Again(base, AgainUnregistered) {
		t.Errorf("a mark took another's place:\n%s", again)
	}
}

func TestVerdictLineByLine(t *testing.T) {
	v := Classify(base, edit(edit(edit(base, "key", "route.{mode}.{tenant}"), "also_read", ""), "index by_zone", "zone(6) string ESC"))
	want := `- key: route.{tenant}.{mode}
+ key: route.{mode}.{tenant}
  BREAKING: the keys in the bucket would not be read as they were written
- also_read: PROTOJSON
  REFOLD: other stored values can be decoded
+ index by_zone: zone(6) string ESC
  BREAKING: the name is retired, and must not be used again
`
	if v.String() != want {
		t.Errorf("got\n%s\nwant\n%s", v, want)
	}
	if h := v.Hint(); !strings.Contains(h, "empty store") {
		t.Errorf("hint %q", h)
	}
	if h := Classify(base, edit(base, "index by_zone", "zone(6) string ESC")).Hint(); !strings.Contains(h, "retired_index") {
		t.Errorf("hint %q", h)
	}
	if got := fmt.Sprint(Safe, Reindex, Refold, Breaking, Class(9)); got != "SAFE REINDEX REFOLD BREAKING CLASS(9)" {
		t.Error(got)
	}
}

// recordGen draws records of many shapes: any lines, of values that change.
func recordGen() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		record := base
		for range rapid.IntRange(0, 6).Draw(t, "edits") {
			s := spec[rapid.IntRange(0, len(spec)-1).Draw(t, "line")]
			if s.name == lineAgain {
				continue
			}
			record = edit(record, s.name, rapid.SampledFrom([]string{s.from, s.to}).Draw(t, "value"))
		}
		return record
	})
}

func TestClassifyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := recordGen().Draw(t, "a"), recordGen().Draw(t, "b")
		if v := Classify(a, a); v.Class != Safe || len(v.Changes) != 0 || v.AgedOut {
			t.Fatalf("a record to itself: %v", v)
		}
		there, back := Classify(a, b), Classify(b, a)
		worst := Safe
		for _, l := range there.Changes {
			worst = max(worst, l.Class)
			i := slices.IndexFunc(back.Changes, func(c LineChange) bool { return c.Name == l.Name })
			if i < 0 {
				t.Fatalf("line %q differs only one way", l.Name)
			}
			r := back.Changes[i]
			if r.Old != l.New || r.New != l.Old || r.InOld != l.InNew || r.InNew != l.InOld {
				t.Fatalf("%+v one way, %+v the other", l, r)
			}
			// The ways are alike but for what can be added and not taken away.
			oneWay := l.Name == lineAgeOut || strings.HasPrefix(l.Name, lineName) || strings.HasPrefix(l.Name, lineIndex)
			if r.Class != l.Class && !oneWay {
				t.Fatalf("%+v one way, %+v the other", l, r)
			}
		}
		if worst != there.Class || len(there.Changes) != len(back.Changes) {
			t.Fatalf("%v of %v", there.Class, there)
		}
		if marked := Classify(Again(a, AgainRefold), b); marked.Class != max(there.Class, Refold) {
			t.Fatalf("%v, marked %v", there.Class, marked.Class)
		}
	})
}

// TestRecordLinesAreKnown: Classify knows each line that a table of any kind writes.
func TestRecordLinesAreKnown(t *testing.T) {
	for name, table := range compileTables(t, keyTypes) {
		for _, l := range Classify(table.Record(), table.Record()+"made up: 1\n").Changes {
			if l.Name != "made up" || !l.Unknown {
				t.Errorf("%s: %+v", name, l)
			}
		}
		for _, l := range Classify(table.Record(), "message: x\n").Changes {
			if l.Unknown && l.Name != lineAgeOut {
				t.Errorf("%s: line %q is not known", name, l.Name)
			}
		}
	}
}
