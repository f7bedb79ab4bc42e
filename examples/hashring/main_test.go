package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/examples/hashring/ring"
	"github.com/typedfold/fold/examples/internal/exampletest"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"

	ringv1 "github.com/typedfold/fold/examples/hashring/gen/ring/v1"
	"github.com/typedfold/fold/examples/hashring/gen/ring/v1/ringv1fold"
)

var quiet = slog.New(slog.DiscardHandler)

func startServe(t *testing.T, args ...string) (c *exampletest.Command, addr string) {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)
	c = exampletest.Start(t, func(ctx context.Context, stdout, stderr io.Writer) error { return run(ctx, args, stdout, stderr) })
	return c, c.Printed(t, regexp.MustCompile(`rings on http://(\S+)\n`))[1]
}

func membersAt(t *testing.T, addr string) map[string]ring.Member {
	t.Helper()
	code, body := exampletest.Fetch(t, "http://"+addr+"/cdn", "")
	var ms []ring.Member
	if err := json.Unmarshal([]byte(body), &ms); err != nil || code != 200 {
		t.Fatalf("%d %v %s", code, err, body)
	}
	byID := map[string]ring.Member{}
	for _, m := range ms {
		byID[m.ID] = m
	}
	return byID
}

func TestReadme(t *testing.T) {
	commands, err := exampletest.ReadmeCommands("README.md")
	if err != nil {
		t.Fatal(err)
	}
	c, addr := startServe(t)
	nats := c.Printed(t, regexp.MustCompile(`nats://\S+:\d+`))[0]
	exampletest.Eventually(t, "four members", func() bool { return len(membersAt(t, addr)) == 4 })
	ran := map[string]int{}
	for _, words := range commands {
		line := strings.NewReplacer("$NATS", nats, "127.0.0.1:8090", addr).Replace(strings.Join(words, " "))
		args, ours := strings.CutPrefix(line, "go run ./examples/hashring")
		switch {
		case words[0] == "curl":
			if code, body := exampletest.Fetch(t, strings.Fields(line)[1], ""); code != 200 || !strings.Contains(body, "10.0.0.") {
				t.Errorf("%s: %d %s", line, code, body)
			}
		case ours && (args == "" || strings.HasPrefix(args, " serve ")):
			// The first is what runs here; the second's flags are those of TestServeOnAServerOfItsOwn.
		case ours:
			if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		default:
			t.Errorf("a command that this test does not know: %q", line)
		}
		ran[words[0]]++
	}
	if ran["curl"] < 2 || ran["go"] < 4 {
		t.Errorf("ran %v of the README's commands", ran)
	}
	exampletest.Eventually(t, "o2 left and o5 joined", func() bool {
		ms := membersAt(t, addr)
		_, o2 := ms["o2"]
		return !o2 && ms["o5"] == ring.Member{ID: "o5", Address: "10.0.0.5:80", Weight: 2}
	})
	if err := c.End(t); err != nil {
		t.Errorf("serve: %v\n%s", err, &c.Stderr)
	}
}

func TestServeOnAServerOfItsOwn(t *testing.T) {
	srv := natstest.New(t)
	data := filepath.Join(t.TempDir(), "fold")
	join := []string{"join", "--server", srv.URL(), "cdn", "o1", "10.0.0.1:80"}
	if err := run(t.Context(), join, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, away := range []bool{false, true} { // the second one from its disk alone
		if away {
			srv.Stop()
		}
		c, addr := startServe(t, "--server", srv.URL(), "--data", data)
		exampletest.Eventually(t, "the member is there", func() bool { return len(membersAt(t, addr)) == 1 })
		if strings.Contains(c.Stdout.String(), "embedded") {
			t.Errorf("explains an embedded server:\n%s", &c.Stdout)
		}
		if err := c.End(t); err != nil {
			t.Errorf("serve: %v\n%s", err, &c.Stderr)
		}
	}
}

// What one command joins is there with one batch, and what one leaves is gone with one.
func TestSeveralAtOnce(t *testing.T) {
	srv := natstest.New(t)
	var out strings.Builder
	for _, args := range []string{"join --server NATS cdn o1 a:80 o2 b:80 o3 c:80", "leave --server NATS cdn o1 o3"} {
		if err := run(t.Context(), strings.Fields(strings.Replace(args, "NATS", srv.URL(), 1)), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), "ring cdn: join of 3, at revision 3\nring cdn: leave of 2, at revision 5\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	c, addr := startServe(t, "--server", srv.URL(), "--data", t.TempDir())
	exampletest.Eventually(t, "o2 alone", func() bool {
		ms := membersAt(t, addr)
		return len(ms) == 1 && ms["o2"].Address == "b:80"
	})
	if err := c.End(t); err != nil {
		t.Errorf("serve: %v\n%s", err, &c.Stderr)
	}
}

func TestWrongCommands(t *testing.T) {
	for _, args := range [][]string{
		{"join", "cdn", "o1", "10.0.0.1:80"}, // which server?
		{"join", "--server", "nats://127.0.0.1:1", "cdn", "o1"},
		{"join", "--server", "nats://127.0.0.1:1", "cdn", "o1", "10.0.0.1:80", "o2"},
		{"leave", "--server", "nats://127.0.0.1:1", "cdn"},
		{"leave", "--weight", "1", "cdn", "o1"},
		{"join", "--server", "nats://127.0.0.1:1", "cdn", "o1", "10.0.0.1:80"}, // nobody there
		{"no-such-command"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// The bucket is an ordinary KV bucket: the nats tool moves requests by writing to it, and reads what the writer wrote.
func TestTheNATSToolOnTheSameBucket(t *testing.T) {
	srv := natstest.New(t)
	nats := exampletest.NewNATS(t, srv.URL()) // before the clock runs: it may have to be compiled
	ctx, cancel := context.WithTimeout(t.Context(), 4*exampletest.Bound)
	defer cancel()
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := natskv.Open(ctx, js, ring.Bucket, natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := startNode(ctx, bucket, t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	f, rings, origins := node.fold, node.rings, node.origins
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	applied := func() {
		t.Helper()
		info, err := bucket.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.WaitApplied(ctx, fold.Seq(info.Last)); err != nil {
			t.Fatal(err)
		}
	}
	const n = 2000
	owners := func() (out [n]string) {
		for i := range out {
			if m, ok := rings.Get("cdn").Pick(string(rune('a'+i%26)) + "/" + strings.Repeat("x", i)); ok {
				out[i] = m.ID
			}
		}
		return out
	}
	// moved is how many requests went from any origin to any other.
	moved := func(before, after [n]string, from, to string) (count int) {
		t.Helper()
		for i := range before {
			if before[i] == after[i] {
				continue
			}
			if count++; before[i] != from && after[i] != to {
				t.Fatalf("a request moved from %q to %q", before[i], after[i])
			}
		}
		return count
	}

	watch := nats.Lines("kv", "watch", ring.Bucket)
	w := ringv1fold.NewOriginWriter(bucket)
	for _, id := range []string{"o1", "o2", "o3"} {
		o := &ringv1.Origin{Ring: "cdn", OriginId: id, Address: id + ":80", Weight: 1}
		if _, err := w.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		want, err := proto.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := nats.Run(nil, "kv", "get", ring.Bucket, "origin.cdn."+id, "--raw"); string(got) != string(want) {
			t.Errorf("kv get: %q, want %q", got, want)
		}
		nats.Await(watch, "PUT ring > origin.cdn."+id)
	}
	applied()
	three := owners()

	o4, err := proto.Marshal(&ringv1.Origin{Ring: "cdn", OriginId: "o4", Address: "o4:80", Weight: 1})
	if err != nil {
		t.Fatal(err)
	}
	nats.Run(o4, "kv", "put", ring.Bucket, "origin.cdn.o4")
	applied()
	four := owners()
	if m := moved(three, four, "", "o4"); m < n/8 || m > n/2 {
		t.Errorf("%d of %d requests moved to the fourth origin", m, n)
	}
	if got := len(strings.Fields(string(nats.Run(nil, "kv", "ls", ring.Bucket)))); got != 4 {
		t.Errorf("kv ls: %d keys", got)
	}

	nats.Run([]byte("\x0a\xffgarbage"), "kv", "put", ring.Bucket, "origin.cdn.o2")
	nats.Run([]byte("x"), "kv", "put", ring.Bucket, "note.for.later")
	applied()
	if moved(four, owners(), "", "") != 0 {
		t.Error("a value that is no origin moved requests")
	}
	s := f.Status()
	if s.RejectedKeys != 1 || s.Unmatched["note"] != 1 || s.State != fold.StateLive {
		t.Errorf("status %+v", s)
	}
	for rej, err := range origins.Rejected(ctx) {
		if err != nil || rej.Key != "origin.cdn.o2" || rej.Code != fold.ValueDecode {
			t.Errorf("rejection %v, %v", rej, err)
		}
	}

	nats.Run(nil, "kv", "del", ring.Bucket, "origin.cdn.o4", "-f")
	applied()
	if owners() != three {
		t.Error("after kv del the requests are not where they were")
	}
	nats.Await(watch, "DELETE ring > origin.cdn.o4")
}
