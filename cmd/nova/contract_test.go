package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the verbs print into testdata/contract.golden; look at the difference before you commit it")

// varies are the parts of JSON that differ from run to run, and what stands for them.
var varies = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`"timestamp": ?\d+`), `"timestamp": 0`},
	{regexp.MustCompile(`"created": "[^"]+"`), `"created": "<time>"`},
	{regexp.MustCompile(`"leader": "[^"]+"`), `"leader": "<node>"`},
	{regexp.MustCompile(`"bytes": \d+`), `"bytes": 0`},
	{regexp.MustCompile(`"(records_per_second|bytes_per_second|seconds|p50|p90|p99|p999|max|mean|megabytes_per_second)": [0-9.e+-]+`), `"$1": 0`},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), `127.0.0.1:<port>`},
	{regexp.MustCompile(`"stream": "nova://bench/[^"]+"`), `"stream": "<stream>"`},
}

// TestJSONContract: what every verb prints with --json, and its exit code, are as they were written down. Scripts read them:
// fields are added, and none is changed or left out.
func TestJSONContract(t *testing.T) {
	r := start(t, nil, nil, "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"), "--log-level", "warn", "--metrics", "127.0.0.1:0", "--json")
	server := r.printed(t, `"url":"([^"]+)"`)[1]
	r.printed(t, `\n`)
	w := &world{env: map[string]string{"NOVA_SERVER": server}}
	var got strings.Builder
	note := func(args []string, code int, out string) {
		fmt.Fprintf(&got, "$ nova %s\n%sexit %d\n\n", strings.Join(args, " "), out, code)
	}
	note([]string{"serve", "--metrics", "127.0.0.1:0", "--json"}, 0, r.out.String())
	for _, c := range []struct {
		in   string
		args string
	}{
		{"", "create nova://demo/events --max-age 72h --max-records 1000"},
		{"", "create nova://demo/events"},
		{"", "create nova://demo/events --if-absent"},
		{"", "create events"},
		{"a\nb\n", "append nova://demo/events"},
		{"", "append nova://demo/events"},
		{"{\n", "append nova://demo/events --format json"},
		{"c\n", "append nova://demo/events --match-seq-num 2"},
		{"d\n", "append nova://demo/events --match-seq-num 2"},
		{`{"body":"AAEK","headers":[{"name":"k","value":"dg=="}]}` + "\n", "append nova://demo/events --format json --match-seq-num 3"},
		{"", "token nova://demo/events"},
		{"", "fence nova://demo/events gen-42"},
		{"", "token nova://demo/events"},
		{"x\n", "append nova://demo/events"},
		{"x\n", "append nova://demo/events --fencing-token gen-41 --match-seq-num 9"},
		{"x\n", "append nova://demo/events --fencing-token gen-42"},
		{"", "read nova://demo/events"},
		{"", "tail nova://demo/events -n 1"},
		{"", "read nova://demo/events --seq-num 9"},
		{"", "describe nova://demo/events"},
		{"", "ls demo"},
		{"", "ls empty"},
		{"", "trim nova://demo/events 3"},
		{"", "read nova://demo/events --seq-num 0"},
		{"", "fence nova://demo/events"},
		{"", "bench nova://demo/events --batches 2 --per-batch 3 --size 10"},
		{"", "rm nova://demo/events"},
		{"", "rm nova://demo/events"},
		{"", "ls --timeout 0s"},
	} {
		args := append(strings.Fields(c.args), "--json")
		r := w.run(t, c.in, args...)
		if r.err != "" {
			t.Errorf("%q says %q on the standard error", args, r.err)
		}
		note(args, r.code, r.out)
	}
	away := &world{env: map[string]string{"NOVA_SERVER": "http://127.0.0.1:1"}}
	for _, args := range [][]string{{"append", addr, "--match-seq-num", "0", "--json"}, {"read", addr, "--json"}} {
		r := away.run(t, "x\n", args...)
		note(args, r.code, r.out)
	}
	text := got.String()
	for _, v := range varies {
		text = v.re.ReplaceAllString(text, v.to)
	}
	golden := filepath.Join("testdata", "contract.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("--json prints other things than %s has (-update writes it anew):\n%s", golden, firstDifference(string(want), text))
	}
}

// firstDifference is the command that prints something else, and both of what it prints.
func firstDifference(want, got string) string {
	ws, gs := strings.Split(want, "$ nova "), strings.Split(got, "$ nova ")
	for i := range max(len(ws), len(gs)) {
		switch {
		case i >= len(ws):
			return "more: " + gs[i]
		case i >= len(gs):
			return "missing: " + ws[i]
		case ws[i] != gs[i]:
			return "was: " + ws[i] + "is: " + gs[i]
		}
	}
	return ""
}
