package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/natskv"
)

// TestDocumentOfFences: the document shows what the verbs for fences print.
func TestDocumentOfFences(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	for _, args := range [][]string{{"fence", "test", "gen-42"}, {"token", "test"}} {
		for _, more := range [][]string{nil, {"--json"}} {
			if err := w.js.DeleteStream(bounded(t), "KV_test"); err != nil {
				t.Fatal(err)
			}
			w.create(t, natskv.BucketConfig{})
			w.put(t, "a", "b")
			if args[0] == "token" {
				w.ok(t, "fence", "test", "gen-42")
			}
			shows(t, string(text), w.ok(t, append(args, more...)...), `"test"`, `"edge"`)
		}
	}
}

// TestDocumentOfWriters does what docs/writers.md says of the shell, with the example's own program. A line ends with what
// it prints, where that is told, and with "refused" if it has to fail.
func TestDocumentOfWriters(t *testing.T) {
	text, err := os.ReadFile("../../docs/writers.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n```sh\n(.*?)```\n").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/writers.md has no commands")
	}
	routes := filepath.Join(t.TempDir(), "routes")
	if out, err := exec.CommandContext(bounded(t), "go", "build", "-o", routes, "../../examples/routes").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	if _, err := natskv.Open(bounded(t), w.js, "edge", natskv.BucketConfig{}); err != nil {
		t.Fatal(err)
	}
	refusals, ran := 0, map[string]int{}
	for line := range strings.Lines(string(block[1])) {
		command, remark, _ := strings.Cut(strings.TrimSpace(line), "#")
		remark = strings.TrimSpace(remark)
		words := strings.Fields(strings.ReplaceAll(command, "$NATS_URL", w.srv.URL()))
		switch {
		case len(words) > 2 && words[0] == "fold":
			if out := w.ok(t, words[1:]...); words[1] == "token" && out != remark+"\n" {
				t.Errorf("%s: prints %q", line, out)
			}
			ran["fold "+words[1]]++
		case strings.HasPrefix(command, "go run ./examples/routes "):
			out, err := exec.CommandContext(bounded(t), routes, words[3:]...).CombinedOutput()
			if refused := remark == "refused"; (err != nil) != refused || refused && !(strings.Contains(string(out), "fenced out") && strings.Contains(string(out), "hint: ")) {
				t.Errorf("%s: %v\n%s", line, err, out)
			} else if refused {
				refusals++
			}
			ran[words[3]]++
		default:
			t.Errorf("a command that this test does not know: %q", line)
		}
	}
	if ran["fold fence"] < 3 || ran["fold token"] < 1 || ran["put"] < 4 || refusals < 2 {
		t.Errorf("it ran %v, of which %d were refused", ran, refusals)
	}
}
