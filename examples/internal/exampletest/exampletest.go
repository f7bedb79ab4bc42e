// Package exampletest is what the tests of the examples share.
package exampletest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bound is how long a test waits for anything.
const Bound = 30 * time.Second

// Output is what a running command has printed so far.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Command is an example's command that goes on until it is asked to end.
type Command struct {
	Stdout, Stderr Output

	stop  func()
	ended chan struct{}
	err   error
}

// Start runs a command until End, or the test's end.
func Start(tb testing.TB, run func(ctx context.Context, stdout, stderr io.Writer) error) *Command {
	ctx, cancel := context.WithCancel(tb.Context())
	c := &Command{stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.err = run(ctx, &c.Stdout, &c.Stderr)
	}()
	tb.Cleanup(cancel)
	return c
}

// Printed waits until stdout matches, and gives back what FindStringSubmatch does.
func (c *Command) Printed(tb testing.TB, re *regexp.Regexp) (match []string) {
	tb.Helper()
	Eventually(tb, "printed "+re.String(), func() bool {
		select {
		case <-c.ended:
			tb.Fatalf("the command ended: %v\n%s\n%s", c.err, &c.Stdout, &c.Stderr)
		default:
		}
		match = re.FindStringSubmatch(c.Stdout.String())
		return match != nil
	})
	return match
}

// Stop asks the command to end, as a signal does.
func (c *Command) Stop() { c.stop() }

// End is Stop, and gives back what the command ended with.
func (c *Command) End(tb testing.TB) error {
	tb.Helper()
	c.stop()
	t := time.NewTimer(Bound)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
		tb.Fatalf("the command still runs %v after it was asked to end\n%s", Bound, &c.Stderr)
	}
	return c.err
}

// Eventually asks again until ok, within Bound.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	late := time.NewTimer(Bound)
	defer late.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			tb.Fatalf("not within %v: %s", Bound, what)
		}
	}
}

// Fetch sends one GET, for a host of the test's choice if host is not "".
func Fetch(tb testing.TB, url, host string) (code int, body string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Bound)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}
