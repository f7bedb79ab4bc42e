package main

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/examples/internal/exampletest"
)

// TestMain makes this binary the worker that the demonstration starts.
func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestDemo does what README.md says: the first owner is killed, and nothing is lost or twice.
func TestDemo(t *testing.T) {
	commands, err := exampletest.ReadmeCommands("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(commands) != 1 || strings.Join(commands[0], " ") != "go run ./examples/ingest" {
		t.Errorf("README.md tells to run %q", commands)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out exampletest.Output
	if err := run(ctx, []string{"-items", "600"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	text := out.String()
	owned := regexp.MustCompile(`(?m)^([ab]) owns (term-\d+)$`).FindAllStringSubmatch(text, -1)
	killed := regexp.MustCompile(`kill -9 ([ab]), the owner by term-\d+`).FindStringSubmatch(text)
	if len(owned) < 2 || killed == nil || owned[0][1] != killed[1] || owned[len(owned)-1][1] == killed[1] {
		t.Errorf("owners %q, killed %q:\n%s", owned, killed, text)
	}
	for _, want := range []string{"ok: 600 items, each exactly once and in order", "fenced out"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestOwnerThatComesBack: a worker that does not know that its term is over appends nothing any more.
func TestOwnerThatComesBack(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url, stop, err := serve(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{readings, owners} {
		if err := c.CreateStream(ctx, addr, client.StreamConfig{Memory: true}); err != nil {
			t.Fatal(err)
		}
	}
	workerOf := func(name string, items uint64) *worker {
		return &worker{
			c: c, addr: readings, items: items, say: io.Discard,
			elect: &election{c: c, addr: owners, name: name, ttl: 200 * time.Millisecond},
		}
	}
	first, err := workerOf("a", 0).elect.win(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fence(ctx, readings, first.token()); err != nil {
		t.Fatal(err)
	}
	p, err := c.OpenStream(ctx, readings, client.WithFencingToken(first.token()))
	if err != nil {
		t.Fatal(err)
	}
	if err := workerOf("a", 10).ingest(ctx, p, 0, 0); err != nil {
		t.Fatal(err)
	}
	// It is paused: it renews nothing, and another one takes over.
	if err := workerOf("b", 20).run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := workerOf("a", 30).ingest(ctx, p, 20, 20); !errors.Is(err, client.ErrFencedOut) {
		t.Errorf("the first owner comes back: %v", err)
	}
	if err := first.hold(ctx); !errors.Is(err, errLost) {
		t.Errorf("the first owner renews: %v", err)
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := check(ctx, c, 20, first.token(), io.Discard); err != nil {
		t.Error(err)
	}
}

// TestWorkersThatEnd: a demonstration whose workers have ended does not wait for them.
func TestWorkersThatEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url, stop, err := serve(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CreateStream(ctx, readings, client.StreamConfig{Memory: true}); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("it failed")
	all := []*process{{ended: make(chan struct{}), err: failed}, {ended: make(chan struct{})}}
	close(all[0].ended)
	if err := noneLeft(all); err != nil {
		t.Errorf("one worker runs: %v", err)
	}
	close(all[1].ended)
	if _, err := firstOwner(ctx, make(chan *process), all); !errors.Is(err, failed) {
		t.Errorf("the first owner: %v", err)
	}
	if _, err := reach(ctx, c, 1, all); !errors.Is(err, failed) {
		t.Errorf("to reach a record: %v", err)
	}
}
