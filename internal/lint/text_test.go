package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unwanted are texts that no file holds. They are put together here so that this file does not hold them either.
var unwanted = []struct{ pattern, why, sample string }{
	{`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`, "what is undone is an issue, not a comment", "// TO" + "DO: later"},
	{`\b[tbf]\.Ski` + `p(Now|f)?\(`, "a skipped test says nothing; start what it needs", "t.Ski" + "p(1)"},
	{`(^|[\s"'=(:` + "`" + `])/(home|root|Users|wor` + `k)/\w`, "a path of one machine", " /ho" + "me/me"},
	{`\b[A-Z]:\\Us` + `ers\\`, "a path of one machine", `C:\Us` + `ers\me`},
	{`^(<{7}|>{7}) `, "a merge conflict", "<<<<<" + "<< HEAD"},
}

func unwantedPatterns() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, u := range unwanted {
		all = append(all, regexp.MustCompile(u.pattern))
	}
	return all
}

func TestNoUnwantedText(t *testing.T) {
	patterns := unwantedPatterns()
	for _, file := range repoFiles(t) {
		if strings.Contains(file, "/testdata/fuzz/") || filepath.Base(file) == "go.sum" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
			continue
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue // not text
		}
		for i, line := range strings.Split(string(text), "\n") {
			for n, p := range patterns {
				if p.MatchString(line) {
					t.Errorf("%s:%d: %s: %s", file, i+1, unwanted[n].why, strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestUnwantedTextIsFound(t *testing.T) {
	const harmless = "context.Background() t.Fatal(1) https://example.com/home/x <div>"
	for i, p := range unwantedPatterns() {
		if sample := unwanted[i].sample; !p.MatchString(sample) || p.MatchString(harmless) {
			t.Errorf("%s: matches %q %t, %q %t", p, sample, p.MatchString(sample), harmless, p.MatchString(harmless))
		}
	}
}
