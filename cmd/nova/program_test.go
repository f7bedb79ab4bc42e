package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const addr = "nova://demo/events"

// bound is how long a test waits for anything.
const bound = time.Minute

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// result is one run of the command.
type result struct {
	code     int
	out, err string
}

// output is what a running command has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is a command that goes on until it is asked to end.
type running struct {
	out, err output
	stop     func()
	ended    chan struct{}
	code     int
}

func start(t *testing.T, env map[string]string, in io.Reader, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	r := &running{stop: cancel, ended: make(chan struct{})}
	p := &program{env: func(name string) string { return env[name] }, in: in, out: &r.out, err: &r.err, progressAfter: bound}
	go func() {
		defer close(r.ended)
		r.code = p.run(ctx, args)
	}()
	t.Cleanup(func() { r.end(t) })
	return r
}

// end asks it to end, and waits.
func (r *running) end(t *testing.T) int {
	t.Helper()
	r.stop()
	return r.wait(t)
}

func (r *running) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(bound):
		t.Fatalf("it goes on: %s%s", &r.out, &r.err)
	}
	return r.code
}

// printed waits until the output matches.
func (r *running) printed(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(t, "printed "+pattern, func() bool {
		select {
		case <-r.ended:
			if !re.MatchString(r.out.String()) {
				t.Fatalf("it ended with %d: %s%s", r.code, &r.out, &r.err)
			}
		default:
		}
		return re.MatchString(r.out.String())
	})
	return re.FindStringSubmatch(r.out.String())
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late, tick := time.NewTimer(bound), time.NewTicker(5*time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// world is a nova serve, and what its clients have in their environment.
type world struct {
	env    map[string]string
	served *running
	dir    string
}

// serve runs nova serve with a log of its own.
func serve(t *testing.T, args ...string) *world {
	t.Helper()
	w := &world{dir: filepath.Join(t.TempDir(), "data"), env: map[string]string{}}
	w.begin(t, args...)
	return w
}

func (w *world) begin(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--data", w.dir, "--log-level", "warn"}, args...)
	w.served = start(t, nil, nil, args...)
	w.env["NOVA_SERVER"] = w.served.printed(t, `nova serves on (\S+)\n`)[1]
}

// run runs the command with an input.
func (w *world) run(t *testing.T, in string, args ...string) result {
	t.Helper()
	r := start(t, w.env, strings.NewReader(in), args...)
	r.wait(t)
	return result{r.code, r.out.String(), r.err.String()}
}

// ok runs what must succeed, and says nothing on the standard error.
func (w *world) ok(t *testing.T, in string, args ...string) string {
	t.Helper()
	r := w.run(t, in, args...)
	if r.code != exitOK || r.err != "" {
		t.Fatalf("%q: code %d: %s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// fails runs what must end with a code, with and without --json, and gives back the failure.
func (w *world) fails(t *testing.T, code int, in string, args ...string) failure {
	t.Helper()
	r := w.run(t, in, args...)
	if r.code != code || r.out != "" || !strings.HasPrefix(r.err, "nova: ") {
		t.Errorf("%q: code %d, not %d: %q and %q", args, r.code, code, r.out, r.err)
	}
	r = w.run(t, in, append(args, "--json")...)
	var f failure
	d := json.NewDecoder(strings.NewReader(r.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil || d.More() || r.code != code || f.Code != code || f.Error == "" || r.err != "" {
		t.Errorf("%q as JSON: code %d, not %d, %v: %q and %q", args, r.code, code, err, r.out, r.err)
	}
	return f
}

// object runs what must succeed with --json, and decodes what it prints.
func (w *world) object(t *testing.T, in string, args ...string) map[string]any {
	t.Helper()
	out := w.ok(t, in, append(args, "--json")...)
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(out))
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%q prints no single object: %v: %s", args, err, out)
	}
	return v
}

func holds(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}

// TestUsage: what is wrong with the command itself is code 2, and with --json one object.
func TestUsage(t *testing.T) {
	w := &world{env: map[string]string{"NOVA_SERVER": "http://127.0.0.1:1"}}
	for _, args := range [][]string{
		{"create"}, {"create", addr, "more"}, {"rm"}, {"fence"}, {"fence", addr, ""}, {"fence", addr, "a", "b"}, {"token"}, {"read"}, {"tail", addr, "5"}, {"trim", addr},
		{"trim", addr, "many"}, {"append"}, {"append", addr, "--format", "xml"}, {"append", addr, "--match-seq-num", "-1"}, {"append", addr, "-i", "no/such"},
		{"append", addr, "--linger", "-1s"}, {"read", addr, "--seq-num", "1", "--tail-offset", "1"}, {"read", addr, "--since", "soon"},
		{"read", addr, "--format", "xml"}, {"ls", "a", "b"}, {"ls", "--bogus"}, {"ls", "--timeout", "0s"}, {"ls", "--ca", "no/such"}, {"ls", "--token-file", "no/such"},
		{"bench", "--per-batch", "1001"}, {"bench", "--in-flight", "0"}, {"mend"},
		{"serve", "x"}, {"serve", "--tls-cert", "a"}, {"serve", "--nats", "nats://h", "--data", "d"}, {"serve", "--creds", "c"}, {"serve", "--log-format", "xml"},
		{"serve", "--log-level", "loud"}, {"serve", "--drain", "0s"}, {"serve", "--sync", "never"}, {"serve", "--nats-listen", "0.0.0.0:4222"},
		{"serve", "--listen", "0.0.0.0:0"}, {"serve", "--auth", "no/such"}, {"serve", "--tls-cert", "no/such", "--tls-key", "no/such"},
	} {
		if f := w.fails(t, exitUsage, "", args...); strings.Contains(f.Error, "strconv") {
			t.Errorf("%q: %s", args, f.Error)
		}
	}
	for want, args := range map[string][]string{
		"from 0 on": {"append", addr, "--match-seq-num", "-1"},
		"too large": {"create", addr, "--replicas", "99999999999"},
		"a whole":   {"bench", "--size", "x"},
		"--format":  {"read", addr, "--json", "--format", "text"},
		"base64":    {"tail", addr, "--json", "--format", "base64"},
		"true or":   {"ls", "--json=maybe"},
	} {
		if r := w.run(t, "", args...); r.code != exitUsage || strings.Contains(r.out+r.err, "strconv") || !strings.Contains(r.out+r.err, want) {
			t.Errorf("%q: code %d, %s%s", args, r.code, r.out, r.err)
		}
	}
	if r := w.run(t, "", "ls", "--", "x", "--json"); r.code != exitUsage || r.out != "" {
		t.Errorf("two arguments, one of them --json: code %d, %q", r.code, r.out)
	}
}

// TestSecretsAreNotShown: neither the bearer token nor a password of a URL is in any output.
func TestSecretsAreNotShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(table, []byte(`{"grants":[{"name":"a","token":"geheim","verbs":1}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitUsage, []string{"ls", "--server", "http://me:geheim@127.0.0.1:1"}},
		{exitUsage, []string{"ls", "--server", "ftp://me:geheim@127.0.0.1:1"}},
		{exitUsage, []string{"ls", "--server", "http://me:geheim@127.0.0.1:port"}},
		{exitUsage, []string{"serve", "--nats", "nats://me:geheim@127.0.0.1:port"}},
		{exitUnreachable, []string{"serve", "--listen", "127.0.0.1:0", "--nats", "nats://me:geheim@127.0.0.1:1"}},
		{exitUsage, []string{"serve", "--listen", "127.0.0.1:0", "--auth", table}},
		{exitUnreachable, []string{"ls", "--server", "http://127.0.0.1:1", "--token-file", file}},
	} {
		for _, args := range [][]string{c.args, append(c.args, "--json")} {
			w := &world{env: map[string]string{"NOVA_TOKEN": "geheim"}}
			if r := w.run(t, "", args...); r.code != c.code || strings.Contains(r.out+r.err, "geheim") {
				t.Errorf("%q: code %d: %s%s", args, r.code, r.out, r.err)
			}
		}
	}
}

// TestUnreachable: a server that is not there is code 3, and nothing was written.
func TestUnreachable(t *testing.T) {
	w := &world{env: map[string]string{"NOVA_SERVER": "http://127.0.0.1:1"}}
	for _, args := range [][]string{
		{"create", addr}, {"ls"}, {"describe", addr}, {"rm", addr}, {"append", addr}, {"append", addr, "--match-seq-num", "0"}, {"fence", addr, "a"},
		{"token", addr}, {"read", addr}, {"read", addr, "--follow"}, {"tail", addr}, {"trim", addr, "1"}, {"bench"}, {"bench", addr},
	} {
		f := w.fails(t, exitUnreachable, "x\n", args...)
		if r := w.run(t, "x\n", args...); !strings.Contains(r.err, "nothing was ") && args[0] == "append" {
			t.Errorf("%q: %s", args, r.err)
		}
		if f.Outcome != outcomeNothing || !strings.Contains(f.Hint, "NOVA_SERVER") {
			t.Errorf("%q: %+v", args, f)
		}
	}
}

// sink is an output that takes so many bytes.
type sink struct{ left int }

var errGone = errors.New("the reader is gone")

func (s *sink) Write(b []byte) (int, error) {
	if s.left -= len(b); s.left < 0 {
		return 0, errGone
	}
	return len(b), nil
}

// TestBrokenPipe: a reader that goes away ends the command, also one that follows, and that is said.
func TestBrokenPipe(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	w.ok(t, strings.Repeat("a line of text\n", 10_000), "append", addr)
	for _, args := range [][]string{{"read", addr}, {"read", addr, "--follow"}, {"tail", addr, "-f"}, {"ls"}, {"token", addr}, {"read", addr, "--json"}} {
		var errs bytes.Buffer
		p := &program{env: func(name string) string { return w.env[name] }, out: &sink{}, err: &errs, progressAfter: bound}
		if code := p.run(bounded(t), args); code != exitFailed {
			t.Errorf("%q: code %d: %s", args, code, &errs)
		}
		holds(t, errs.String(), "print: the reader is gone")
	}
}

func copyOf(env map[string]string, name, value string) map[string]string {
	env = maps.Clone(env)
	env[name] = value
	return env
}
