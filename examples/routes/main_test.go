package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/examples/internal/exampletest"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/store"
)

var quiet = slog.New(slog.DiscardHandler)

// served is a router that runs as the command does.
type served struct {
	*exampletest.Command
	front, admin string
}

var addresses = regexp.MustCompile(`requests on http://(\S+), health on http://(\S+)\n`)

// startServe runs serve until the test's end, and waits until it has said where it listens.
func startServe(t *testing.T, args ...string) *served {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
	s := &served{Command: exampletest.Start(t, func(ctx context.Context, stdout, stderr io.Writer) error {
		return run(ctx, args, stdout, stderr)
	})}
	m := s.Printed(t, addresses)
	s.front, s.admin = m[1], m[2]
	return s
}

// end asks for an orderly end, and must get one.
func (s *served) end(t *testing.T) {
	t.Helper()
	if err := s.End(t); err != nil {
		t.Errorf("serve: %v\n%s", err, &s.Stderr)
	}
}

func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), args, &out, io.Discard)
	return out.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out
}

func TestReadme(t *testing.T) {
	commands, err := exampletest.ReadmeCommands("README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := startServe(t)
	nats := s.Printed(t, regexp.MustCompile(`nats://\S+:\d+`))[0]
	ran := map[string]int{}
	for _, words := range commands {
		line := strings.Join(words, " ")
		line = strings.NewReplacer("$NATS", nats, "127.0.0.1:8080", s.front, "127.0.0.1:8081", s.admin).Replace(line)
		switch {
		case strings.HasPrefix(line, "curl "):
			host, url := "", words[len(words)-1]
			for _, w := range words {
				if h, ok := strings.CutPrefix(w, "Host: "); ok {
					host = h
				}
			}
			url = strings.NewReplacer("127.0.0.1:8080", s.front, "127.0.0.1:8081", s.admin).Replace(url)
			want := map[string]string{
				"www.example.com": "200 origin red", "any.thing.example.com": "200 origin blue", "old.example.com": "503 ", "nobody.example": "404 ",
				"": "200 ",
			}[host]
			exampletest.Eventually(t, line+": "+want, func() bool {
				code, body := exampletest.Fetch(t, url, host)
				return strings.HasPrefix(fmt.Sprint(code, " ", body), want)
			})
		case line == "go run ./examples/routes", strings.HasPrefix(line, "go run ./examples/routes serve "):
			// The first is what runs here; the second's flags are those of TestServeOnAServerOfItsOwn.
		case strings.HasPrefix(line, "go run ./examples/routes "):
			must(t, strings.Fields(strings.TrimPrefix(line, "go run ./examples/routes "))...)
		default:
			t.Errorf("a command that this test does not know: %q", line)
		}
		ran[words[0]]++
	}
	if ran["curl"] < 6 || ran["go"] < 7 {
		t.Errorf("ran %v of the README's commands", ran)
	}
	s.end(t)
}

func TestControlCommands(t *testing.T) {
	srv := natstest.New(t)
	at := func(args ...string) []string { return append([]string{args[0], "--server", srv.URL()}, args[1:]...) }
	out := must(t, at("put", "acme", "www.example.com", "127.0.0.1:9000")...)
	if out != "acme www.example.com at revision 1\n" {
		t.Errorf("put: %q", out)
	}
	_, err := command(t, at("put", "--create", "acme", "www.example.com", "127.0.0.1:9000")...)
	var exists *fold.ExistsError
	if !errors.As(err, &exists) {
		t.Errorf("create of what exists: %v", err)
	}
	must(t, at("move", "acme", "www.example.com", "127.0.0.1:9001")...)
	var conflict *fold.ConflictError
	if _, err = command(t, at("put", "--rev", "1", "acme", "www.example.com", "127.0.0.1:9002")...); !errors.As(err, &conflict) {
		t.Errorf("put at an old revision: %v", err)
	}
	if _, err = command(t, at("delete", "--rev", "1", "acme", "www.example.com")...); !errors.As(err, &conflict) {
		t.Errorf("delete at an old revision: %v", err)
	}
	must(t, at("put", "--rev", "2", "--weight", "10", "--disabled", "acme", "www.example.com", "127.0.0.1:9002")...)
	must(t, at("move", "acme", "www.example.com", "127.0.0.1:9003")...)
	must(t, at("put", "zeta", "*", "127.0.0.1:9004")...)
	if out := must(t, at("list", "acme")...); !regexp.MustCompile(`(?m)^acme +www\.example\.com +127\.0\.0\.1:9003 +false +10 +4$`).MatchString(out) {
		t.Errorf("move changed more than the origin, or list is wrong:\n%s", out)
	}
	if out := must(t, at("list")...); !strings.Contains(out, "zeta") || strings.Contains(must(t, at("list", "acme")...), "zeta") {
		t.Errorf("list:\n%s", out)
	}
	must(t, at("delete", "--rev", "4", "acme", "www.example.com")...)
	must(t, at("delete", "zeta", "*")...)
	if out := must(t, at("list")...); strings.Count(out, "\n") != 1 {
		t.Errorf("list of nothing:\n%s", out)
	}
	for _, args := range [][]string{
		at("move", "acme", "www.example.com", "127.0.0.1:9001"), // gone
		at("put", "acme", "www.example.com"),
		at("put", "acme", "WWW.example.com", "127.0.0.1:1"),
		at("put", "acme", "www.example.com", "ftp://x"),
		at("put", "--weight", "101", "acme", "www.example.com", "127.0.0.1:1"),
		at("put", "--create", "--rev", "1", "acme", "www.example.com", "127.0.0.1:1"),
		at("delete", "acme"),
		{"put", "acme", "www.example.com", "127.0.0.1:1"}, // which server?
		{"list", "--server", "nats://127.0.0.1:1"},        // nobody there
		{"no-such-command"},
	} {
		if out, err := command(t, args...); err == nil {
			t.Errorf("%q: no error, printed %q", args, out)
		}
	}
	if out := must(t, "help"); !strings.Contains(out, "usage:") {
		t.Errorf("help: %q", out)
	}
}

func TestServeOnAServerOfItsOwn(t *testing.T) {
	srv := natstest.New(t)
	data := filepath.Join(t.TempDir(), "fold")
	first := startServe(t, "--server", srv.URL(), "--data", data)
	if strings.Contains(first.Stdout.String(), "embedded") {
		t.Errorf("explains an embedded server:\n%s", &first.Stdout)
	}
	if code, _ := exampletest.Fetch(t, "http://"+first.front+"/", "www.example.com"); code != http.StatusNotFound {
		t.Errorf("empty table: %d", code)
	}
	must(t, "put", "--server", srv.URL(), "--disabled", "acme", "www.example.com", "127.0.0.1:9000")
	exampletest.Eventually(t, "the route is there", func() bool {
		code, _ := exampletest.Fetch(t, "http://"+first.front+"/", "www.example.com")
		return code == http.StatusServiceUnavailable
	})
	first.end(t)

	srv.Stop()
	second := startServe(t, "--server", srv.URL(), "--data", data)
	if code, body := exampletest.Fetch(t, "http://"+second.front+"/", "www.example.com"); code != http.StatusServiceUnavailable {
		t.Errorf("from disk, while NATS is away: %d %q", code, body)
	}
	if code, body := exampletest.Fetch(t, "http://"+second.admin+"/readyz", ""); code != http.StatusOK {
		t.Errorf("readyz, while NATS is away: %d %q", code, body)
	}
	second.end(t)
}

// A shutdown lets the request that is under way end.
func TestShutdownLetsRequestsEnd(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	slow := &httpServer{}
	var err error
	if slow, err = listen("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "done")
	}), quiet); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.srv.Close() }()
	srv := natstest.New(t)
	s := startServe(t, "--server", srv.URL())
	must(t, "put", "--server", srv.URL(), "acme", "www.example.com", slow.addr)
	exampletest.Eventually(t, "the route is there", func() bool {
		_, body := exampletest.Fetch(t, "http://"+s.admin+"/statusz", "")
		return strings.Contains(body, `"applied": "1"`)
	})
	answer := make(chan string, 1)
	go func() {
		_, body := exampletest.Fetch(t, "http://"+s.front+"/", "www.example.com")
		answer <- body
	}()
	<-arrived
	s.Stop()
	close(release)
	select {
	case body := <-answer:
		if body != "done" {
			t.Errorf("answer %q", body)
		}
	case <-time.After(exampletest.Bound):
		t.Fatal("no answer")
	}
	s.end(t)
}

// A request that does not end is cut off when the grace period is over.
func TestShutdownHasADeadline(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	stuck, err := listen("127.0.0.1:0", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { close(release); _ = stuck.srv.Close() }()
	srv := natstest.New(t)
	s := startServe(t, "--server", srv.URL(), "--grace", "50ms")
	must(t, "put", "--server", srv.URL(), "acme", "www.example.com", stuck.addr)
	exampletest.Eventually(t, "the route is there", func() bool {
		_, body := exampletest.Fetch(t, "http://"+s.admin+"/statusz", "")
		return strings.Contains(body, `"applied": "1"`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.front+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "www.example.com"
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-arrived
	if err := s.End(t); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("error %v", err)
	}
}

func TestServeRefusesAnAddressInUse(t *testing.T) {
	srv := natstest.New(t)
	dir := t.TempDir()
	err := run(t.Context(), []string{"serve", "--server", srv.URL(), "--listen", srv.Addr(), "--data", dir}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		t.Errorf("the fold's folder: %d entries, %v", len(entries), err)
	}
}

// Two processes never share a fold.
func TestServeRefusesAFolderInUse(t *testing.T) {
	srv := natstest.New(t)
	dir := t.TempDir()
	s := startServe(t, "--server", srv.URL(), "--data", dir)
	err := run(t.Context(), []string{"serve", "--server", srv.URL(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", dir}, io.Discard, io.Discard)
	if err == nil || !errors.Is(err, store.ErrLocked) {
		t.Errorf("error %v", err)
	}
	s.end(t)
}

// What is in a URL stays out of logs and errors.
func TestNoSecretIsShown(t *testing.T) {
	srv := natstest.New(t, natstest.Options{User: "edge", Password: "hunter2"})
	with := func(password, addr string) string { return "nats://edge:" + password + "@" + addr }
	right := startServe(t, "--server", with("hunter2", srv.Addr()))
	must(t, "put", "--server", with("hunter2", srv.Addr()), "--disabled", "acme", "www.example.com", "127.0.0.1:1")
	exampletest.Eventually(t, "the route is there", func() bool {
		code, _ := exampletest.Fetch(t, "http://"+right.front+"/", "www.example.com")
		return code == http.StatusServiceUnavailable
	})
	srv.Stop()
	exampletest.Eventually(t, "the outage is logged", func() bool { return strings.Contains(right.Stderr.String(), "watch lost") })
	right.end(t)
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	var out exampletest.Output
	for _, url := range []string{with("hunter3", srv.Addr()), with("hunter3", "127.0.0.1:1")} {
		if err := run(t.Context(), []string{"list", "--server", url}, &out, &out); err == nil {
			t.Errorf("%s: no error", url)
		} else {
			_, _ = io.WriteString(&out, err.Error())
		}
	}
	if all := right.Stdout.String() + right.Stderr.String() + out.String(); strings.Contains(all, "hunter") {
		t.Errorf("shown:\n%s", all)
	}
}

func TestKeyOnTheWire(t *testing.T) {
	k := routesv1fold.RouteKey{Tenant: "acme", Domain: "*.example.com"}
	if got := k.String(); got != "route.acme./2A/2Eexample/2Ecom" {
		t.Errorf("key %q", got)
	}
}
