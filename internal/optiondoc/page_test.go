package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
)

// TestPageIsCurrent compares docs/options.md with the comments of options.proto as they are now.
func TestPageIsCurrent(t *testing.T) {
	have, err := os.ReadFile("../../docs/options.md")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "options.md")
	if err := run("../../proto", out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(have)); d != "" {
		t.Errorf("docs/options.md is not what options.proto says; run make generate. -want +have:\n%s", d)
	}
}

// TestPageOf: everything has its place and its number, names stand as code, and what has no comment is an error.
func TestPageOf(t *testing.T) {
	const head = "// About the file.\n//\n// Rules:\n//\n//   - ONE: a rule\n//     of two lines.\nsyntax = \"proto3\"; package fold.v1; import \"google/protobuf/descriptor.proto\";\n"
	const rest = `
extend google.protobuf.MessageOptions {
  // Makes a
  // table.
  Table table = 50737;
}
// Table is a table.
message Table {
  // The kinds, [a-z_]+ as by_kind | {x...}.
  //
  // Default: KIND_ONE, of
  // one_thing.
  // Changed: "ONE".
  repeated Kind one_thing = 7;
}
// Kind is a kind.
enum Kind {
  // None | all.
  KIND_UNSPECIFIED = 0;
  // One, a fold.Time.
  KIND_ONE = 1;
}`
	got, err := pageText(head + rest)
	if err != nil {
		t.Fatal(err)
	}
	const want = `
## When a schema changes

Rules:

- ONE: a rule
  of two lines.

## Where options stand

| Option | Of | What it says |
|---|---|---|
| ` + "`(fold.v1.table)`" + `, [Table](#table) | a message | Makes a table. |

## Table

Table is a table.

### Table.one_thing

repeated [Kind](#kind), field 7.

The kinds, ` + "`[a-z_]+` as by_kind | `{x...}`" + `.

- Default: ` + "`KIND_ONE`" + `, of
  ` + "`one_thing`" + `.
- Changed: ` + "`ONE`" + `.

## Kind

Kind is a kind.

| Value | Number | Meaning |
|---|---|---|
| ` + "`KIND_UNSPECIFIED`" + ` | 0 | None \| all. |
| ` + "`KIND_ONE`" + ` | 1 | One, a ` + "`fold.Time`" + `. |
`
	if d := cmp.Diff(intro+want, got); d != "" {
		t.Errorf("-want +have:\n%s", d)
	}
	for name, text := range map[string]string{
		"fold.v1.Table.one_thing has no comment": strings.Replace(head+rest, "  // The kinds, [a-z_]+ as by_kind | {x...}.\n  //\n  // Default: KIND_ONE, of\n  // one_thing.\n  // Changed: \"ONE\".\n", "", 1),
		"fold.v1.KIND_ONE has no comment":        strings.Replace(head+rest, "  // One, a fold.Time.\n", "", 1),
		`begins with "Changed:"`:                 strings.Replace(head+rest, "Changed:", "Changes:", 1),
		"no second paragraph":                    strings.ReplaceAll(head, "//\n", "") + rest,
	} {
		if _, err := pageText(text); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that says %q", err, name)
		}
	}
}

func pageText(proto string) (string, error) {
	return pageOf(context.Background(), &protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{optionsFile: proto}),
	})
}
