package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// on runs a verb on the world's server.
func (w *world) on(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, map[string]string{"NATS_URL": w.srv.URL()}, args...)
}

// ok is what a verb on the world's server prints.
func (w *world) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := w.on(t, args...)
	if r.code != exitOK || r.err != "" {
		t.Errorf("%q: code %d, %s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// write writes a row as a writer that presents a token.
func (w *world) write(t *testing.T, token string) error {
	t.Helper()
	_, err := ft.NewRouteWriter(w.bucket, fold.WithFencingToken(token)).Put(bounded(t), &foldtestv1.Route{Tenant: "t", Domain: "a", NodeId: "n"})
	return err
}

func (w *world) last(t *testing.T) uint64 {
	t.Helper()
	info, err := w.bucket.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.Last
}

// TestFenceFromTheShell: what is installed decides who writes, and the token that is printed is the one that stands.
func TestFenceFromTheShell(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	r := w.on(t, "token", "test")
	if r.code != exitOK || r.out != "\n" || !strings.Contains(r.err, `"test" has no fence record`) {
		t.Errorf("never fenced: code %d, %q and %q", r.code, r.out, r.err)
	}
	if s := read[standing](t, w.on(t, "token", "test", "--json")); s != (standing{Bucket: "test"}) {
		t.Errorf("never fenced: %+v", s)
	}
	if err := w.write(t, "gen-1"); !errors.Is(err, fold.ErrNoFence) {
		t.Errorf("a token where there is no fence: %v", err)
	}

	for _, token := range []string{"gen-1", "gen-2", "gen-1"} {
		before := w.last(t)
		out := w.ok(t, "fence", "test", token)
		if want := `Bucket "test" has the fencing token "` + token + `" above revision `; !strings.HasPrefix(out, want) {
			t.Errorf("printed %q, want %q", out, want)
		}
		if got := w.ok(t, "token", "test"); got != token+"\n" {
			t.Errorf("%q is installed, %q printed", token, got)
		}
		rec, err := w.bucket.FenceRecord(bounded(t))
		if err != nil || rec.Token != token || rec.Revision <= before {
			t.Errorf("record %+v, %v, after revision %d", rec, err, before)
		}
		want := standing{Bucket: "test", Fenced: true, FencingToken: token, Revision: rec.Revision}
		if s := read[standing](t, w.on(t, "token", "test", "--json")); s != want {
			t.Errorf("standing %+v, want %+v", s, want)
		}
		for _, presented := range []string{"", "gen-1", "gen-2"} {
			if err := w.write(t, presented); (err == nil) != (presented == token) || err != nil && !errors.Is(err, fold.ErrFencedOut) {
				t.Errorf("%q installed, %q presented: %v", token, presented, err)
			}
		}
	}

	// The same token changes nothing, and the answer is the log's last revision.
	rec, err := w.bucket.FenceRecord(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	f := read[fenced](t, w.on(t, "fence", "test", "gen-1", "--json"))
	if want := (fenced{Bucket: "test", FencingToken: "gen-1", Tail: w.last(t)}); f != want {
		t.Errorf("fenced %+v, want %+v", f, want)
	}
	if now, err := w.bucket.FenceRecord(bounded(t)); err != nil || now != rec {
		t.Errorf("an equal fence changed %+v to %+v, %v", rec, now, err)
	}

	if out := w.ok(t, "fence", "test", "--clear"); !strings.HasPrefix(out, `Bucket "test" has no fencing token above revision `) {
		t.Errorf("printed %q", out)
	}
	if err := w.write(t, "gen-1"); !errors.Is(err, fold.ErrFencedOut) {
		t.Errorf("a token after a clear: %v", err)
	}
	if err := w.write(t, ""); err != nil {
		t.Errorf("no token after a clear: %v", err)
	}
	r = w.on(t, "token", "test")
	if r.code != exitOK || r.out != "\n" || !strings.Contains(r.err, "its writers are those that present none") {
		t.Errorf("cleared: code %d, %q and %q", r.code, r.out, r.err)
	}
	if s := read[standing](t, w.on(t, "token", "test", "--json")); !s.Fenced || s.FencingToken != "" || s.Revision == 0 {
		t.Errorf("cleared: %+v", s)
	}
	f = read[fenced](t, w.on(t, "fence", "test", "--clear", "--json"))
	if want := (fenced{Bucket: "test", Tail: w.last(t)}); f != want {
		t.Errorf("cleared %+v, want %+v", f, want)
	}
}

// TestClearOfABucketWithoutAFence: it installs that there is no token, so that writers ask from then on.
func TestClearOfABucketWithoutAFence(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.ok(t, "fence", "test", "--clear")
	if rec, err := w.bucket.FenceRecord(bounded(t)); err != nil || rec.Token != "" {
		t.Errorf("record %+v, %v", rec, err)
	}
	if err := w.write(t, ""); err != nil {
		t.Error(err)
	}
}

// TestTokenReadsOnly: it writes nothing, whatever it finds.
func TestTokenReadsOnly(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	for range 2 {
		before := w.last(t)
		w.on(t, "token", "test")
		if now := w.last(t); now != before {
			t.Errorf("the log was at %d, and is at %d", before, now)
		}
		w.ok(t, "fence", "test", "a")
	}
}

// TestTokensArePrintedSafely: what a terminal would take for something else is quoted, and no two tokens look the same.
func TestTokensArePrintedSafely(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	for token, want := range map[string]string{
		"gen-42": "gen-42", "é b": "é b", "\x1b[2J": `"\x1b[2J"`, `"a"`: `"\"a\""`, "a\nb": `"a\nb"`, " ": `" "`, `a\b`: `"a\\b"`, "<&>": "<&>",
	} {
		if out := w.ok(t, "fence", "test", token); strings.ContainsAny(out, "\x1b") || strings.Count(out, "\n") != 1 {
			t.Errorf("%q: fence printed %q", token, out)
		}
		if got := w.ok(t, "token", "test"); got != want+"\n" {
			t.Errorf("%q: printed %q, want %q", token, got, want)
		}
		if s := read[standing](t, w.on(t, "token", "test", "--json")); s.FencingToken != token {
			t.Errorf("%q: JSON says %q", token, s.FencingToken)
		}
	}
	w.ok(t, "fence", "test", "--", "--clear")
	if got := w.ok(t, "token", "test"); got != "--clear\n" {
		t.Errorf("a token that looks like a flag: %q", got)
	}
}

// TestFenceUsage: what can't be meant changes nothing, and needs no server.
func TestFenceUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
		hint string
	}{
		"nothing":         {[]string{"fence"}, "fold fence BUCKET TOKEN|--clear", "fold fence --help"},
		"too many":        {[]string{"fence", "test", "a", "b"}, "got 3 arguments", "fold fence --help"},
		"no token":        {[]string{"fence", "test"}, "the token is missing", "--clear"},
		"empty":           {[]string{"fence", "test", ""}, "the token is empty", "--clear"},
		"both":            {[]string{"fence", "test", "a", "--clear"}, "both given", "leave out"},
		"empty and clear": {[]string{"fence", "test", "", "--clear"}, "both given", "leave out"},
		"no bucket":       {[]string{"fence", "", "a"}, "name is empty", "nats kv ls"},
		"long":            {[]string{"fence", "test", strings.Repeat("é", 19)}, "38 bytes, at most 36", "UUID"},
		"not UTF-8":       {[]string{"fence", "test", "\xff"}, "not UTF-8", "UUID"},
		"timeout":         {[]string{"fence", "test", "a", "--timeout", "0s"}, "--timeout", "such as 1m"},
		"token: nothing":  {[]string{"token"}, "fold token BUCKET", "fold token --help"},
		"token: too many": {[]string{"token", "test", "a"}, "got 2 arguments", "fold token --help"},
		"token: empty":    {[]string{"token", ""}, "name is empty", "nats kv ls"},
		"token: timeout":  {[]string{"token", "test", "--timeout", "-1s"}, "--timeout", "such as 1m"},
	} {
		r := run(t, map[string]string{"NATS_URL": "nats://127.0.0.1:1"}, c.args...)
		if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "hint: ") || !strings.Contains(r.err, c.hint) {
			t.Errorf("%s: code %d, %q and %q", name, r.code, r.out, r.err)
		}
	}
}

// failed is an error as scripts read it.
type failed struct {
	Error, Hint, Outcome string
	Code                 int
}

func (r result) failed(t *testing.T) (f failed) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &f); err != nil || f.Error == "" || f.Code != r.code || r.err != "" {
		t.Errorf("%v: code %d, %q and %q", err, r.code, r.out, r.err)
	}
	return f
}

// TestFenceRefusals: a bucket that is not there, one that can't be fenced, a record that can't be read, a server that is away.
func TestFenceRefusals(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{AtomicPublish: natskv.Off}, natstest.Options{})
	for _, args := range [][]string{{"fence", "KV_test", "a"}, {"token", "KV_test"}} {
		if f := w.on(t, append(args, "--json")...).failed(t); f.Code != exitFailed || !strings.Contains(f.Error, "not found") || !strings.Contains(f.Hint, "without KV_") {
			t.Errorf("%q: %+v", args, f)
		}
	}
	f := w.on(t, "fence", "test", "a", "--json").failed(t)
	if f.Code != exitFailed || !strings.Contains(f.Hint, "nats stream edit KV_test --allow-batch") || f.Outcome != "" || w.last(t) != 0 {
		t.Errorf("no batches: %+v", f)
	}

	if err := w.js.DeleteStream(bounded(t), "KV_test"); err != nil {
		t.Fatal(err)
	}
	w.create(t, natskv.BucketConfig{})
	w.ok(t, "fence", "test", "a")
	if _, err := w.js.Publish(bounded(t), "$KV.test."+kv.FenceKey(0), []byte("x")); err != nil {
		t.Fatal(err)
	}
	r := w.on(t, "token", "test")
	if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, "unreadable fence record") || !strings.Contains(r.err, "hint: something other") || !strings.Contains(r.err, "fold fence") {
		t.Errorf("a record that is none: code %d, %q and %q", r.code, r.out, r.err)
	}
	w.ok(t, "fence", "test", "a")
	if got := w.ok(t, "token", "test"); got != "a\n" {
		t.Errorf("written anew: %q", got)
	}

	w.srv.Stop()
	for _, args := range [][]string{{"fence", "test", "b"}, {"token", "test"}} {
		if f := w.on(t, append(args, "--timeout", "2s", "--json")...).failed(t); f.Code != exitUnreachable || f.Hint == "" || f.Outcome != "" {
			t.Errorf("%q with the server away: %+v", args, f)
		}
	}
}

func TestFenceWithCredentials(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{User: "ops", Password: "geheim"})
	for name, c := range map[string]struct {
		env  map[string]string
		code int
	}{
		"right": {map[string]string{"NATS_USER": "ops", "NATS_PASSWORD": "geheim"}, exitOK},
		"wrong": {map[string]string{"NATS_USER": "ops", "NATS_PASSWORD": "verkehrt"}, exitUnreachable},
		"none":  {nil, exitUnreachable},
	} {
		env := map[string]string{"NATS_URL": w.srv.URL()}
		maps.Copy(env, c.env)
		for _, args := range [][]string{{"fence", "test", "a"}, {"token", "test"}} {
			r := run(t, env, args...)
			if r.code != c.code || strings.Contains(r.out+r.err, "geheim") || strings.Contains(r.out+r.err, "verkehrt") {
				t.Errorf("%s, %q: code %d, %q and %q", name, args, r.code, r.out, r.err)
			}
		}
	}
}

// mute is a way to a server on which nothing comes back once a client has committed a batch.
type mute struct {
	server string
	gone   atomic.Bool
	wg     sync.WaitGroup
}

func (m *mute) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		server, err := net.Dial("tcp", m.server)
		if err != nil {
			client.Close()
			continue
		}
		m.wg.Go(func() { m.copy(server, client, m.watch()) })
		m.wg.Go(func() { m.copy(client, server, func([]byte) bool { return !m.gone.Load() }) })
	}
}

// copy passes on what pass lets, until either end is closed, and closes the other.
func (m *mute) copy(to, from net.Conn, pass func([]byte) bool) {
	defer to.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if n > 0 && pass(buf[:n]) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// watch passes everything on, and looks for the commit, which may come in two pieces.
func (m *mute) watch() func([]byte) bool {
	commit := []byte("Nats-Batch-Commit")
	var seen []byte
	return func(b []byte) bool {
		if seen = append(seen, b...); bytes.Contains(seen, commit) {
			m.gone.Store(true)
		}
		seen = append([]byte(nil), seen[max(0, len(seen)-len(commit)+1):]...)
		return true
	}
}

// TestFenceWithoutAnAnswer: the error says that the token may be installed, and that the same may be done again.
func TestFenceWithoutAnAnswer(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mute{server: w.srv.Addr()}
	m.wg.Go(func() { m.serve(l) })
	t.Cleanup(func() { l.Close(); m.wg.Wait() })
	f := run(t, nil, "fence", "test", "a", "--server", "nats://"+l.Addr().String(), "--timeout", "3s", "--json").failed(t)
	if f.Code != exitUnreachable || f.Outcome != "unknown" || !strings.Contains(f.Hint, "do the same again") {
		t.Errorf("%+v", f)
	}
	rec, err := w.bucket.FenceRecord(bounded(t))
	if err != nil || rec.Token != "a" {
		t.Errorf("record %+v, %v", rec, err)
	}
	w.ok(t, "fence", "test", "a")
	if now, err := w.bucket.FenceRecord(bounded(t)); err != nil || now != rec {
		t.Errorf("the same again: %+v after %+v, %v", now, rec, err)
	}
}
