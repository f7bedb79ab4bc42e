//go:build unix

package tutorial

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	page = "../../docs/tutorial.md"
	// folder is the one that the page's first command makes and goes to.
	folder = "edge"
	// shownAddr is where the router of the page listens.
	shownAddr = "127.0.0.1:8080"
	// compiling and running bound one block.
	compiling, running = 10 * time.Minute, 2 * time.Minute
)

func pageSteps(t *testing.T) []step {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if len(steps) < 20 {
		t.Fatalf("%s has %d steps", page, len(steps))
	}
	return steps
}

// TestTutorial does what the page says.
func TestTutorial(t *testing.T) {
	steps := pageSteps(t)
	dir := t.TempDir()
	sh := startShell(t, dir)
	for _, s := range steps {
		began := time.Now()
		bound := running
		if s.compiles() {
			bound = compiling
		}
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		err := sh.do(ctx, dir, s)
		cancel()
		if err != nil {
			t.Fatalf("%s:%d: %v\nstandard error:\n%s", page, s.line, err, sh.errors())
		}
		t.Logf("line %d: %v", s.line, time.Since(began).Round(time.Millisecond))
	}
}

// shell is a shell that is given one block after another.
type shell struct {
	stdin  io.Writer
	lines  chan string // of the standard output; closed at its end
	stderr string      // a file
	nats   string      // the file of the server's address
	router string      // the file of the router's address
	blocks int
}

func startShell(t *testing.T, dir string) *shell {
	t.Helper()
	sh := &shell{
		lines: make(chan string, 1000), stderr: filepath.Join(dir, "stderr"),
		nats: filepath.Join(dir, "nats.addr"), router: filepath.Join(dir, "router.addr"),
	}
	realGo, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.Create(sh.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-e") // the first command that fails ends it
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(),
		"PATH="+standIns(t)+string(os.PathListSeparator)+os.Getenv("PATH"), "GOFLAGS=", "GOWORK=off",
		"NATS_URL=nats://"+startProxy(t, sh.nats), "LISTEN=127.0.0.1:0",
		envGo+"="+realGo, envRepository+"="+repository, envNATS+"="+sh.nats, envRouter+"="+sh.router)
	if sh.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		sh.read(t.Context(), r)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it started in the background, too
		_ = cmd.Wait()
		<-read
		_ = r.Close()
	})
	return sh
}

// standIns is a folder in which the test binary has the names of commands.
func standIns(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"go", "nats-server", "curl"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read notes where the router listens, and passes its line on as the page has it. It reads to the end, whether there is
// still somebody to pass lines on to or not.
func (sh *shell) read(ctx context.Context, r io.Reader) {
	defer close(sh.lines)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		if addr, ok := strings.CutPrefix(line, "serving on http://"); ok {
			if err := writeWhole(sh.router, addr); err != nil {
				line = err.Error()
			} else {
				line = strings.Replace(line, addr, shownAddr, 1)
			}
		}
		select {
		case sh.lines <- line:
		case <-ctx.Done():
		}
	}
}

func (sh *shell) do(ctx context.Context, dir string, s step) error {
	if s.file != "" {
		file := filepath.Join(dir, folder, filepath.FromSlash(s.file))
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			return fmt.Errorf("no command has made the folder of %s: %w", s.file, err)
		}
		return os.WriteFile(file, []byte(s.text), 0o600)
	}
	for {
		have, err := sh.run(ctx, s)
		if err != nil {
			return err
		}
		if err = differ(s.prints, have); err != nil && s.asksOnly() && pause(ctx) {
			continue // what it asks for becomes so a moment later
		}
		if err == nil && s.startsServer() {
			return sh.waitForServer(ctx)
		}
		return err
	}
}

// run gives the shell one block, and waits until it is done and has printed as many lines as the page has. Those of a
// program in the background may come later.
func (sh *shell) run(ctx context.Context, s step) (have []string, err error) {
	sh.blocks++
	done := fmt.Sprintf("block %d is done", sh.blocks)
	if _, err := fmt.Fprintf(sh.stdin, "%s\necho '%s'\n", s.commands, done); err != nil {
		return nil, err
	}
	for ended := false; !ended || len(have) < len(s.prints) && !s.asksOnly(); {
		select {
		case line, ok := <-sh.lines:
			switch {
			case !ok:
				return nil, fmt.Errorf("a command fails; until then it prints\n%s", strings.Join(have, "\n"))
			case line == done:
				ended = true
			default:
				have = append(have, line)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; until then it prints\n%s", ctx.Err(), strings.Join(have, "\n"))
		}
	}
	return have, nil
}

func (sh *shell) waitForServer(ctx context.Context) error {
	for {
		if _, err := os.Stat(sh.nats); err == nil {
			return nil
		}
		if !pause(ctx) {
			return fmt.Errorf("the server does not start: %w", ctx.Err())
		}
	}
}

// pause is the time between two looks; false says that the last one was the last.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

// errors is the end of what was printed on the standard error.
func (sh *shell) errors() string {
	text, err := os.ReadFile(sh.stderr)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8000):])
}

// startProxy leads to the server whose address is in a file, and to none while there is no file.
func startProxy(t *testing.T, file string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { forward(client, file) })
		}
	})
	return l.Addr().String()
}

// forward carries bytes both ways until one side has ended.
func forward(client net.Conn, file string) {
	defer client.Close()
	addr, err := os.ReadFile(file)
	if err != nil {
		return
	}
	server, err := net.DialTimeout("tcp", string(addr), time.Minute)
	if err != nil {
		return
	}
	defer server.Close()
	ended := make(chan struct{}, 2)
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go carry(server, client)
	go carry(client, server)
	<-ended
}
