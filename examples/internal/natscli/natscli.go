// Package natscli runs the nats command line tool, as a client of a bucket that is not ours.
package natscli

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

// timeout bounds one command. The build of the tool is bounded by the test's own deadline.
const timeout = 30 * time.Second

// CLI is the tool with a configuration of its own, bound to one server.
type CLI struct {
	tb     testing.TB
	path   string
	server string
	env    []string
}

// New builds the tool as tools/go.mod pins it, which is quick when Go's build cache has it.
func New(tb testing.TB, server string) *CLI {
	tb.Helper()
	gomod, err := exec.CommandContext(tb.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		tb.Fatalf("go env GOMOD: %v", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(gomod)))
	c := &CLI{tb: tb, path: filepath.Join(tb.TempDir(), "nats"), server: server}
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", c.path, "-modfile="+filepath.Join(root, "tools", "go.mod"), "github.com/nats-io/natscli/nats")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build nats: %v\n%s", err, out)
	}
	home := tb.TempDir() // no context, no settings of whoever runs the test
	c.env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home, "PATH=" + os.Getenv("PATH"), "NO_COLOR=1"}
	return c
}

func (c *CLI) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.path, append([]string{"--server", c.server, "--no-context"}, args...)...)
	cmd.Env = c.env
	return cmd
}

// Try runs a command with bytes on its stdin, and gives back its stdout and whether it succeeded.
func (c *CLI) Try(stdin []byte, args ...string) (stdout []byte, err error) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), timeout)
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
func (c *CLI) Run(stdin []byte, args ...string) []byte {
	c.tb.Helper()
	out, err := c.Try(stdin, args...)
	if err != nil {
		c.tb.Fatalf("nats %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// Lines starts a command that goes on by itself, and gives its output line by line. It is ended with the test.
func (c *CLI) Lines(args ...string) <-chan string {
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
func (c *CLI) Await(lines <-chan string, text string) string {
	c.tb.Helper()
	t := time.NewTimer(timeout)
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
			c.tb.Fatalf("no line with %q within %v", text, timeout)
		}
	}
}
