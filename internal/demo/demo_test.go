package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain has the test binary be a router process when the demo starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// buffer takes what several processes write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// small is a demo of a few seconds.
func small(extra ...string) []string {
	return append([]string{"--routes", "600", "--rate", "1000", "--before", "150", "--down", "250", "--after", "100"}, extra...)
}

// leavesNothing fails the test if there is anything in the folder of temporary files at its end.
func leavesNothing(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	})
}

func TestDemoWithoutATerminal(t *testing.T) {
	leavesNothing(t)
	var stdout, stderr buffer
	if err := run(t.Context(), small(), strings.NewReader(""), &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &stdout, &stderr)
	}
	for _, want := range []string{"killed with SIGKILL in the middle of the batch", "updates arrived, in place of", "equal digests"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("stdout lacks %q:\n%s", want, &stdout)
		}
	}
	if strings.ContainsRune(stdout.String()+stderr.String(), '\x1b') {
		t.Errorf("terminal sequences without a terminal:\n%q\n%q", &stdout, &stderr)
	}
}

func TestDemoAsJSON(t *testing.T) {
	var stdout, stderr buffer
	if err := run(t.Context(), small("--json"), strings.NewReader(""), &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &stdout, &stderr)
	}
	var r results
	dec := json.NewDecoder(strings.NewReader(stdout.String()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if dec.More() {
		t.Error("more than one document on stdout")
	}
	// What the demo says of itself, once more and by hand.
	switch {
	case !r.OK || len(r.Checks) == 0:
		t.Errorf("not ok: %+v", r.Checks)
	case r.Delta.Updates == 0 || r.Delta.Updates >= r.Full.Updates || r.Full.Updates != r.Messages:
		t.Errorf("delta %d, full replay %d, messages in the bucket %d", r.Delta.Updates, r.Full.Updates, r.Messages)
	case r.A.Digest != r.B.Digest || r.A.Digest != r.C.Digest || len(r.A.Digest) != 64:
		t.Errorf("digests %q %q %q", r.A.Digest, r.B.Digest, r.C.Digest)
	case r.Kill.Resumed >= r.Kill.HeldFirst:
		t.Errorf("resumed at %d past the batch that was not committed, %d", r.Kill.Resumed, r.Kill.HeldFirst)
	}
}

// Wherever the time runs out, the demo says so, ends its processes and removes its files.
func TestDemoThatTakesTooLongFails(t *testing.T) {
	for _, timeout := range []time.Duration{time.Microsecond, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
		t.Run(timeout.String(), func(t *testing.T) {
			leavesNothing(t)
			var stdout, stderr buffer
			// At ten updates a second it can't be done by then.
			err := run(t.Context(), small("--rate", "10", "--timeout", timeout.String()), strings.NewReader(""), &stdout, &stderr)
			if err == nil || !strings.Contains(err.Error(), "longer than "+timeout.String()) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestDemoRefusesSizesThatShowNothing(t *testing.T) {
	for _, args := range [][]string{{"--routes", "199"}, {"--routes", "600", "--down", "500"}, {"--rate", "0"}, {"--down", "0"}, {"--timeout", "0s"}, {"--no-such-flag"}} {
		var out buffer
		if err := run(t.Context(), args, strings.NewReader(""), &out, &out); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// good is a run in which everything held.
func good() results {
	node := nodeResult{Cursor: 900, Rows: 500, Digest: strings.Repeat("ab", 32), Served: 7}
	return results{
		Head: 900, Rows: 500,
		Kill:  killResult{Killed: true, HeldFirst: 701, HeldLast: 705, Applied: 700, Durable: 690, Resumed: 695},
		Delta: deltaResult{Updates: 180}, Full: fullResult{Updates: 520},
		A: node, B: node, C: node,
	}
}

func TestEachPromiseCanFail(t *testing.T) {
	r := good()
	if r.judge(); !r.OK {
		t.Fatalf("the good run: %v", r.err())
	}
	for want, breakIt := range map[string]func(*results){
		"killed in mid-batch":                    func(r *results) { r.Kill.Killed = false },
		"cursor never claims":                    func(r *results) { r.Kill.Resumed = 703 },
		"resumed at 0":                           func(r *results) { r.Kill.Resumed = 0 },
		"cursor did not go back":                 func(r *results) { r.Kill.Resumed = 689 },
		"cursor did not go back: does not":       func(r *results) { r.Back = 1 },
		"only the delta arrived":                 func(r *results) { r.Delta.Updates = 520 },
		"only the delta arrived: does not":       func(r *results) { r.Delta.Replayed = 1 },
		"only the delta arrived: does not hold:": func(r *results) { r.Delta.Updates = 0 },
		"all at the head":                        func(r *results) { r.B.Cursor-- },
		"equal digests":                          func(r *results) { r.B.Digest = strings.Repeat("cd", 32) },
		"equal digests: does not":                func(r *results) { r.A.Digest, r.B.Digest, r.C.Digest = "", "", "" },
		"nothing lost":                           func(r *results) { r.B.Rows++ },
		"every request served":                   func(r *results) { r.A.Failed = 1 },
		"every request served: does not":         func(r *results) { r.B.Served = 0 },
	} {
		r := good()
		breakIt(&r)
		r.judge()
		if r.OK || r.err() == nil || !strings.Contains(r.err().Error(), want) {
			t.Errorf("%s: ok %t, error %v", want, r.OK, r.err())
		}
	}
}

func TestProgressInPlace(t *testing.T) {
	var said, progress bytes.Buffer
	s := &show{said: &said, progress: &progress, width: 20}
	s.draw("a line that is longer than the terminal")
	if got, want := progress.String(), "\r\x1b[K  a line that is lo"; got != want {
		t.Errorf("drawn %q, want %q", got, want)
	}
	progress.Reset()
	s.say("%d updates", 7)
	if progress.String() != "\r\x1b[K" || said.String() != "7 updates\n" {
		t.Errorf("a line in place is not cleared before one that stays: %q, %q", &progress, &said)
	}
	s = &show{said: &said, progress: &progress, width: 2}
	s.draw("nowhere to draw")
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q", n, got)
		}
	}
}
