package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSeedCommands are the command lines of the concurrency guide, as they stand there.
func TestSeedCommands(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	if got := w.ok(t, "", "token", addr); got != "\n" {
		t.Errorf("the token of a new stream: %q", got)
	}
	old := w.run(t, "0\n", "append", addr)
	if old.code != exitOK {
		t.Fatal(old.err)
	}
	holds(t, w.ok(t, "", "fence", addr, "gen-42"), `"gen-42" from 1 on`)
	if got := w.ok(t, "", "token", addr); got != "gen-42\n" {
		t.Errorf("the token is %q", got)
	}
	w.ok(t, "x\n", "append", addr, "--fencing-token", "gen-42")
	for _, args := range [][]string{{}, {"--fencing-token", "gen-41"}, {"--match-seq-num", "2"}, {"--match-seq-num", "9", "--fencing-token", "gen-41"}} {
		f := w.fails(t, exitLost, "y\n", append([]string{"append", addr}, args...)...)
		if f.FencingToken == nil || *f.FencingToken != "gen-42" || f.Tail != nil || f.Outcome != outcomeNothing || f.Hint == "" {
			t.Errorf("append %v: %+v", args, f)
		}
	}
	holds(t, w.ok(t, "", "fence", addr), "no fencing token from 2 on")
	if f := w.fails(t, exitLost, "y\n", "append", addr, "--fencing-token", "gen-42"); f.FencingToken == nil || *f.FencingToken != "" || !strings.Contains(f.Hint, "nobody owns") {
		t.Errorf("a token where none is installed: %+v", f)
	}
	w.ok(t, "z\n", "append", addr)
	for token, line := range map[string]string{"a b": "a b", " a": `" a"`, "\x1b[31m": `"\x1b[31m"`, `a"`: `"a\""`, "größe": "größe"} {
		w.ok(t, "", "fence", addr, token)
		if got := w.ok(t, "", "token", addr); got != line+"\n" {
			t.Errorf("the token %q is printed as %q", token, got)
		}
	}
	if got := w.ok(t, "", "read", addr); got != "0\nx\nz\n" {
		t.Errorf("the stream holds %q", got)
	}
	if v := w.object(t, "", "fence", addr, "b"); v["fencing_token"] != "b" || fmt.Sprint(v["tail"]) == "" || v["tail"].(map[string]any)["seq_num"] != 3.0 {
		t.Errorf("fence as JSON: %v", v)
	}
	if v := w.object(t, "", "token", addr); v["fencing_token"] != "b" || v["addr"] != addr {
		t.Errorf("token as JSON: %v", v)
	}
	if f := w.fails(t, exitUsage, "", "fence", addr, strings.Repeat("é", 19)); f.Error == "" {
		t.Error("a token of 38 bytes")
	}
}

func TestStreams(t *testing.T) {
	w := serve(t)
	if v := w.object(t, "", "create", addr, "--max-age", "1h", "--max-records", "1000", "--memory"); v["created"] != true || v["addr"] != addr {
		t.Errorf("%v", v)
	}
	if f := w.fails(t, exitFailed, "", "create", addr); !strings.Contains(f.Hint, "--if-absent") {
		t.Errorf("a second creation: %+v", f)
	}
	if v := w.object(t, "", "create", addr, "--if-absent"); v["created"] != false {
		t.Errorf("%v", v)
	}
	holds(t, w.ok(t, "", "create", "nova://other/events"), "number 0")
	holds(t, w.ok(t, "", "ls"), "STREAM", addr, "nova://other/events", "memory", "file")
	if got := w.ok(t, "", "ls", "other"); strings.Contains(got, addr) || !strings.Contains(got, "nova://other/events") {
		t.Errorf("ls of a namespace: %s", got)
	}
	if all := w.object(t, "", "ls")["streams"].([]any); len(all) != 2 {
		t.Errorf("%v", all)
	}
	if all := w.object(t, "", "ls", "none")["streams"].([]any); len(all) != 0 {
		t.Errorf("%v", all)
	}
	w.ok(t, "a\nb\n", "append", addr)
	holds(t, w.ok(t, "", "describe", addr), "0 to 1, the last one of", "memory", "age 1h0m0s, 1000 records", "none")
	holds(t, w.ok(t, "", "describe", "nova://other/events"), "the next one gets number 0")
	v := w.object(t, "", "describe", addr)
	if v["max_age"] != "1h0m0s" || v["tail"].(map[string]any)["seq_num"] != 2.0 || v["first"].(map[string]any)["seq_num"] != 0.0 || v["leader"] == "" {
		t.Errorf("%v", v)
	}
	holds(t, w.ok(t, "", "rm", addr), "removed")
	for _, args := range [][]string{
		{"rm", addr}, {"describe", addr}, {"token", addr}, {"fence", addr, "a"}, {"read", addr}, {"tail", addr}, {"trim", addr, "1"}, {"append", addr},
		{"append", addr, "--match-seq-num", "0"}, {"bench", addr},
	} {
		if f := w.fails(t, exitFailed, "x\n", args...); !strings.Contains(f.Hint, "nova create") || strings.Count(f.Error, addr) != 1 {
			t.Errorf("%q: %+v", args, f)
		}
	}
	for _, args := range [][]string{{"create", "demo/events"}, {"append", "nova://demo"}, {"read", "nova://demo/a/b"}, {"create", addr, "--replicas", "9"}} {
		w.fails(t, exitUsage, "x\n", args...)
	}
}

func TestAppendMatch(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	if v := w.object(t, "a\nb\n\nd", "append", addr, "--match-seq-num", "0"); v["records"] != 4.0 || v["start"].(map[string]any)["seq_num"] != 0.0 || v["end"].(map[string]any)["seq_num"] != 4.0 {
		t.Errorf("%v", v)
	}
	for _, n := range []string{"0", "3", "5", "18446744073709551615"} {
		f := w.fails(t, exitLost, "x\n", "append", addr, "--match-seq-num", n)
		if f.Tail == nil || f.Tail.SeqNum != 4 || f.Outcome != outcomeNothing || f.FencingToken != nil || !strings.Contains(f.Hint, "--match-seq-num 4") {
			t.Errorf("match %s: %+v", n, f)
		}
	}
	// More than one batch: each follows the one before it.
	var in strings.Builder
	for i := range 2500 {
		fmt.Fprintln(&in, "line", i)
	}
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, w.ok(t, "", "append", addr, "--match-seq-num", "4", "-i", file), "2500 records appended, 4 to 2503; the tail is 2504.")
	if got := w.ok(t, "", "read", addr); got != "a\nb\n\nd\n"+in.String() {
		t.Errorf("the stream holds %d bytes", len(got))
	}
	w.fails(t, exitUsage, "", "append", addr, "--match-seq-num", "2504")
	holds(t, w.ok(t, "", "append", addr), "Nothing was appended.")
	// Big records: as many in a batch as have room.
	big := strings.Repeat(strings.Repeat("x", 400_000)+"\n", 5)
	holds(t, w.ok(t, big, "append", addr, "--match-seq-num", "2504"), "5 records appended, 2504 to 2508")
	f := w.fails(t, exitUsage, "fine\n"+strings.Repeat("x", 1<<20)+"\n", "append", addr, "--match-seq-num", "2509")
	holds(t, f.Error, "line 2", "1048584 bytes")
	if f.Outcome != outcomeNothing || f.Appended != nil {
		t.Errorf("nothing was appended: %+v", f)
	}
	w.fails(t, exitUsage, strings.Repeat("x", 3<<20), "append", addr)
	// What goes wrong behind whole batches is no mistake of the command any more.
	r := w.run(t, strings.Repeat("y\n", 1001)+strings.Repeat("x", 1<<20)+"\n", "append", addr, "--match-seq-num", "2509")
	if r.code != exitFailed || strings.Contains(r.err, "nothing was") {
		t.Errorf("code %d: %s", r.code, r.err)
	}
	holds(t, r.err, "line 1002", "before that: 1000 records appended, 2509 to 3508")
}

func TestFormats(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	w.ok(t, `{"body":"AAEK","headers":[{"name":"k","value":"dg=="}]}`+"\n", "append", addr, "--format", "json")
	w.ok(t, "AAEK\n", "append", addr, "--format", "base64")
	w.ok(t, "text\r\n", "append", addr)
	if got := w.ok(t, "", "read", addr, "--format", "base64"); got != "AAEK\nAAEK\ndGV4dA0=\n" {
		t.Errorf("base64: %q", got)
	}
	got := w.ok(t, "", "read", addr, "--format", "json")
	if again := w.ok(t, "", "read", addr, "--json"); again != got {
		t.Errorf("--json prints %q, and --format json %q", again, got)
	}
	d := json.NewDecoder(strings.NewReader(got))
	for i := range uint64(3) {
		var r recordFacts
		if err := d.Decode(&r); err != nil || *r.SeqNum != i || *r.Timestamp == 0 || (len(r.Headers) == 1) != (i == 0) {
			t.Errorf("record %d: %v: %+v", i, err, r)
		}
	}
	// What is read can be appended.
	const copied = "nova://demo/copy"
	w.ok(t, "", "create", copied)
	w.ok(t, got, "append", copied, "--format", "json", "--match-seq-num", "0")
	if a, b := w.ok(t, "", "read", copied, "--format", "base64"), w.ok(t, "", "read", addr, "--format", "base64"); a != b {
		t.Errorf("the copy is %q, not %q", a, b)
	}
	for format, in := range map[string]string{formatJSON: `{"body":"AA==","bdy":1}`, formatBase64: "?"} {
		f := w.fails(t, exitUsage, in+"\n", "append", addr, "--format", format)
		holds(t, f.Error, "line 1")
		if f.Outcome != outcomeNothing {
			t.Errorf("%+v", f)
		}
		holds(t, w.run(t, in+"\n", "append", addr, "--format", format).err, "nothing was appended\n")
	}
	f := w.fails(t, exitFailed, "{\"body\":\"AA==\"}\nnonsense\n", "append", copied, "--format", "json")
	if f.Appended == nil || f.Appended.Records != 1 {
		t.Errorf("the part before the error: %+v", f.Appended)
	}
}

func TestRead(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	for i := range 10 {
		w.ok(t, fmt.Sprintf("%d\n", i), "append", addr, "--match-seq-num", fmt.Sprint(i))
	}
	before := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for want, args := range map[string][]string{
		"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n": {"read", addr, "--since", before},
		"7\n8\n9\n":                      {"read", addr, "--seq-num", "7"},
		"8\n9\n":                         {"read", addr, "--tail-offset", "2"},
		"0\n1\n":                         {"read", addr, "-n", "2", "--since", "1h"},
		"":                               {"read", addr, "--seq-num", "10"},
		"3\n4\n":                         {"read", addr, "--seq-num", "3", "--limit", "2", "--follow"},
		"9\n":                            {"tail", addr, "-n", "1"},
	} {
		if got := w.ok(t, "", args...); got != want {
			t.Errorf("%q: %q, not %q", args, got, want)
		}
	}
	if f := w.fails(t, exitFailed, "", "read", addr, "--seq-num", "11"); f.Tail == nil || f.Tail.SeqNum != 10 || f.First == nil || !strings.Contains(f.Hint, "--clamp begins at the tail, 10") {
		t.Errorf("beyond the tail: %+v", f)
	}
	holds(t, w.ok(t, "", "trim", addr, "4"), "from 4 on")
	if v := w.object(t, "", "trim", addr, "5"); v["first"].(map[string]any)["seq_num"] != 5.0 {
		t.Errorf("%v", v)
	}
	for _, args := range [][]string{{"read", addr}, {"read", addr, "--seq-num", "4"}, {"read", addr, "-f"}} {
		if f := w.fails(t, exitFailed, "", args...); !strings.Contains(f.Hint, "--clamp begins at 5,") {
			t.Errorf("%q: %+v", args, f)
		}
	}
	if f := w.fails(t, exitFailed, "", "trim", addr, "11"); !strings.Contains(f.Hint, "the tail, 10,") {
		t.Errorf("a trim beyond the tail: %+v", f)
	}
	if got := w.ok(t, "", "read", addr, "--clamp", "--limit", "1"); got != "5\n" {
		t.Errorf("clamped: %q", got)
	}
	if got := w.ok(t, "", "read", addr, "--tail-offset", "9"); got != "5\n6\n7\n8\n9\n" {
		t.Errorf("more than there are before the tail: %q", got)
	}
	if got := w.ok(t, "", "tail", addr); got != "5\n6\n7\n8\n9\n" {
		t.Errorf("tail of a trimmed stream: %q", got)
	}
	follow := start(t, w.env, nil, "tail", addr, "-f", "-n", "1")
	follow.printed(t, `^9\n$`)
	w.ok(t, "new\n", "append", addr)
	follow.printed(t, `^9\nnew\n$`)
	if code := follow.end(t); code != exitOK || follow.err.String() != "" {
		t.Errorf("a tail -f that was ended: code %d, %s", code, &follow.err)
	}
}

// TestAppendOfAnOpenInput: records of an input that goes on are appended as they come, and a fence ends it, without another
// record or the input's end.
func TestAppendOfAnOpenInput(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	r, in := io.Pipe()
	defer in.Close()
	a := start(t, w.env, r, "append", addr)
	for i := range 3 {
		if _, err := fmt.Fprintln(in, i); err != nil {
			t.Fatal(err)
		}
		want := strings.Join([]string{"0\n", "1\n", "2\n"}[:i+1], "")
		eventually(t, "appended", func() bool { return w.ok(t, "", "read", addr) == want })
	}
	w.ok(t, "", "fence", addr, "new")
	if code := a.wait(t); code != exitLost { // though its input goes on, and has nothing more yet
		t.Errorf("code %d: %s", code, &a.err)
	}
	holds(t, a.err.String(), `"new"`, "before that: 3 records appended, 0 to 2")
	// A signal ends another one, which says what it has done.
	r, in2 := io.Pipe()
	defer in2.Close()
	a = start(t, w.env, r, "append", addr, "--fencing-token", "new")
	if _, err := fmt.Fprintln(in2, "late\nlater"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "appended", func() bool { return w.ok(t, "", "read", addr) == "0\n1\n2\nlate\nlater\n" })
	if code := a.end(t); code != exitFailed {
		t.Errorf("code %d: %s%s", code, &a.out, &a.err)
	}
	holds(t, a.err.String(), "interrupted", "before that: 2 records appended, 3 to 4")
}

// TestMatchOfAnOpenInput: a batch that is not full waits for the input's end, or with --linger so long; and a signal ends it
// while the input has nothing.
func TestMatchOfAnOpenInput(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	r, in := io.Pipe()
	defer in.Close()
	a := start(t, w.env, r, "append", addr, "--match-seq-num", "0", "--linger", "1ms")
	for i := range 3 {
		if _, err := fmt.Fprintln(in, i); err != nil {
			t.Fatal(err)
		}
		want := strings.Join([]string{"0\n", "1\n", "2\n"}[:i+1], "")
		eventually(t, "appended", func() bool { return w.ok(t, "", "read", addr) == want })
	}
	if code := a.end(t); code != exitFailed {
		t.Errorf("code %d: %s%s", code, &a.out, &a.err)
	}
	holds(t, a.err.String(), "interrupted", "before that: 3 records appended, 0 to 2")
	r, in2 := io.Pipe()
	defer in2.Close()
	a = start(t, w.env, r, "append", addr, "--match-seq-num", "3")
	if _, err := fmt.Fprintln(in2, "kept back"); err != nil {
		t.Fatal(err)
	}
	if code := a.end(t); code != exitFailed || strings.Contains(a.err.String(), "before that") {
		t.Errorf("code %d: %s%s", code, &a.out, &a.err)
	}
}

func TestBench(t *testing.T) {
	w := serve(t)
	for _, args := range [][]string{{"bench"}, {"bench", "--match"}, {"bench", "--memory", "--match", "--in-flight", "1"}} {
		args = append(args, "--batches", "50", "--per-batch", "3", "--size", "10")
		holds(t, w.ok(t, "", args...), "150 records of 10 bytes in 50 batches", "records a second", "p99")
		v := w.object(t, "", args...)
		l := v["latency_micros"].(map[string]any)
		if v["records"] != 150.0 || v["records_per_second"].(float64) <= 0 || l["p50"].(float64) > l["max"].(float64) || l["max"].(float64) <= 0 {
			t.Errorf("%v", v)
		}
	}
	if all := w.object(t, "", "ls")["streams"].([]any); len(all) != 0 {
		t.Errorf("left behind: %v", all)
	}
	w.ok(t, "", "create", addr)
	w.ok(t, "", "bench", addr, "--batches", "2", "--per-batch", "1")
	if got := w.object(t, "", "describe", addr)["tail"].(map[string]any)["seq_num"]; got != 2.0 {
		t.Errorf("the tail is %v", got)
	}
	w.ok(t, "", "fence", addr, "a")
	if f := w.fails(t, exitLost, "", "bench", addr); f.FencingToken == nil {
		t.Errorf("%+v", f)
	}
}
