package exampletest

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// NATS is the nats command line tool, with a configuration of its own and bound to one server: a client of a bucket
// that is not ours.
type NATS struct {
	tb     testing.TB
	path   string
	server string
	env    []string
}

// NewNATS builds the tool as tools/go.mod pins it, which is quick when Go's build cache has it.
func NewNATS(tb testing.TB, server string) *NATS {
	tb.Helper()
	gomod, err := exec.CommandContext(tb.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		tb.Fatalf("go env GOMOD: %v", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(gomod)))
	c := &NATS{tb: tb, path: filepath.Join(tb.TempDir(), "nats"), server: server}
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", c.path, "-modfile="+filepath.Join(root, "tools", "go.mod"), "github.com/nats-io/natscli/nats")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build nats: %v\n%s", err, out)
	}
	home := tb.TempDir() // no context, no settings of whoever runs the test
	c.env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home, "PATH=" + os.Getenv("PATH"), "NO_COLOR=1"}
	return c
}

func (c *NATS) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.path, append([]string{"--server", c.server, "--no-context"}, args...)...)
	cmd.Env = c.env
	return cmd
}

// Try runs a command with bytes on its stdin, within Bound, and gives back its stdout and whether it succeeded.
func (c *NATS) Try(stdin []byte, args ...string) (stdout []byte, err error) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), Bound)
	defer cancel()
	cmd := c.command(ctx, args)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		c.tb.Logf("nats %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return out, err
}

// Run is Try for a command that must succeed.
func (c *NATS) Run(stdin []byte, args ...string) []byte {
	c.tb.Helper()
	out, err := c.Try(stdin, args...)
	if err != nil {
		c.tb.Fatalf("nats %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// Lines starts a command that goes on by itself, and gives its output line by line. It is ended with the test.
func (c *NATS) Lines(args ...string) <-chan string {
	c.tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.tb.Context()))
	cmd := c.command(ctx, args)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		c.tb.Fatalf("nats %s: %v", strings.Join(args, " "), err)
	}
	lines, done := make(chan string, 1024), make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		_ = cmd.Wait() // it was killed
	}()
	c.tb.Cleanup(func() {
		cancel()
		for range lines {
		}
		<-done
	})
	return lines
}

// Await reads lines until one contains a text.
func (c *NATS) Await(lines <-chan string, text string) string {
	c.tb.Helper()
	t := time.NewTimer(Bound)
	defer t.Stop()
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok:
				c.tb.Fatalf("output ended without %q", text)
			case strings.Contains(line, text):
				return line
			}
		case <-t.C:
			c.tb.Fatalf("no line with %q within %v", text, Bound)
		}
	}
}
