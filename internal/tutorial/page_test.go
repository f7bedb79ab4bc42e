//go:build unix

package tutorial

import (
	"fmt"
	"go/format"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step is a file of the page, or a block of commands and what they print.
type step struct {
	line       int
	file, text string
	commands   string
	prints     []string
}

var (
	fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	// fileName begins the paragraph before a file: its path as code. The paragraph ends with a colon.
	fileName = regexp.MustCompile("(?:^|\n\n)`([^`\n]+)`[^`\n]*:\n\n$")
)

// parse reads the steps of a page in their order.
func parse(page string) (steps []step, err error) {
	last := 0
	for _, m := range fenced.FindAllStringSubmatchIndex(page, -1) {
		before, lang, text := page[last:m[0]], page[m[2]:m[3]], page[m[4]:m[5]]
		last = m[1]
		s := step{line: strings.Count(page[:m[0]], "\n") + 1}
		switch name := fileName.FindStringSubmatch(before); {
		case lang == "sh":
			s.commands = text
		case lang == "text":
			if len(steps) == 0 || steps[len(steps)-1].commands == "" || strings.TrimSpace(before) != "" {
				return nil, fmt.Errorf("line %d: the output stands below no command", s.line)
			}
			steps[len(steps)-1].prints = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			continue
		case name != nil && filepath.IsLocal(name[1]):
			s.file, s.text = name[1], text
		default:
			return nil, fmt.Errorf("line %d: the block has no file's name before it, and is no command", s.line)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// asksOnly reports whether the commands change nothing, so that they may be run until they print what the page says.
func (s step) asksOnly() bool {
	for line := range strings.Lines(s.commands) {
		if !strings.HasPrefix(line, "curl ") {
			return false
		}
	}
	return true
}

func (s step) compiles() bool { return strings.Contains("\n"+s.commands, "\ngo ") }

func (s step) startsServer() bool { return strings.Contains("\n"+s.commands, "\nnats-server ") }

// differ tells the first line in which what was printed is not what the page says, where "..." stands for any text.
func differ(want, have []string) error {
	for i := range max(len(want), len(have)) {
		var w, h string
		if i < len(want) {
			w = want[i]
		}
		if i < len(have) {
			h = have[i]
		}
		pattern := strings.ReplaceAll(regexp.QuoteMeta(w), `\.\.\.`, ".*")
		if !regexp.MustCompile("^"+pattern+"$").MatchString(h) || i >= len(want) || i >= len(have) {
			return fmt.Errorf("line %d is %q, the page says %q; all of it:\n%s", i+1, h, w, strings.Join(have, "\n"))
		}
	}
	return nil
}

func TestParse(t *testing.T) {
	steps, err := parse("# A\n\n`a/b.go` is a file:\n\n```go\npackage b\n```\n\nText.\n\n```sh\necho a\ncurl b\n```\n\n```text\na\n\nb\n```\n\n```sh\ncurl c\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "[{5 a/b.go package b\n  []} {11   echo a\ncurl b\n [a  b]} {22   curl c\n []}]"
	if got := fmt.Sprint(steps); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if steps[1].asksOnly() || !steps[2].asksOnly() {
		t.Error("a block of curl alone asks only")
	}
	for _, bad := range []string{
		"```go\npackage b\n```\n", "See `a.go`.\n\n```go\n```\n", "`../a.go`:\n\n```go\n```\n",
		"```text\na\n```\n", "```sh\na\n```\n\nIt prints:\n\n```text\na\n```\n", "`a`:\n\n```go\n```\n\n```text\na\n```\n",
	} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestDiffer(t *testing.T) {
	for _, c := range []struct {
		want, have string
		same       bool
	}{
		{"a\nb.c", "a\nb.c", true}, {"a\nb.c", "a\nbxc", false}, {"a 1...2 b", "a 1 x 2 b", true}, {"a ...", "b ", false},
		{"a", "a\nb", false}, {"a\nb", "a", false}, {"a\n", "a", false}, {"a ...", "a 1\nb", false},
	} {
		if err := differ(strings.Split(c.want, "\n"), strings.Split(c.have, "\n")); (err == nil) != c.same {
			t.Errorf("%q of %q: %v", c.have, c.want, err)
		}
	}
	if differ(nil, []string{"a"}) == nil || differ(nil, nil) != nil {
		t.Error("output that the page does not have passes")
	}
}

// TestGoFilesAreFormatted by gofmt, as every Go block of the other documents is.
func TestGoFilesAreFormatted(t *testing.T) {
	for _, s := range pageSteps(t) {
		if filepath.Ext(s.file) != ".go" {
			continue
		}
		if formatted, err := format.Source([]byte(s.text)); err != nil || string(formatted) != s.text {
			t.Errorf("line %d: %s is not formatted by gofmt: %v", s.line, s.file, err)
		}
	}
}
