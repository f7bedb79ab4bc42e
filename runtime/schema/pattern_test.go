package schema

import (
	"strings"
	"testing"
)

// FuzzParsePattern: a pattern without a flaw is its segments, joined; each flaw has a place in the text.
func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"route.{tenant}.{domain}", "a.{b...}", "", ".", "..", "{", "}", "{}", "{...}", "a.{b.c}", "a.{{b}}", "v{n}", "{a}{b}", "a}b", "a.{b", "ü", "_kv.x", "a.{b..c}", "a.{.b}", "a{b}c{d}e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		segs, flaws := parsePattern(s)
		for _, flaw := range flaws {
			if flaw.offset < 0 || flaw.offset > len(s) || flaw.message == "" {
				t.Fatalf("%q: %+v", s, flaw)
			}
		}
		if len(flaws) > 0 {
			return
		}
		var texts []string
		for _, seg := range segs {
			text := seg.literal
			if seg.variable != "" {
				text = "{" + seg.variable
				if seg.tail {
					text += "..."
				}
				text += "}"
			}
			if !strings.HasPrefix(s[seg.offset:], text) {
				t.Errorf("%q: segment %q is not at offset %d", s, text, seg.offset)
			}
			texts = append(texts, text)
		}
		if joined := strings.Join(texts, "."); joined != s {
			t.Errorf("%q is read as %q", s, joined)
		}
	})
}
