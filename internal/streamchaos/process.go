package streamchaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// process is a child that is killed and started again under one name. It is safe for concurrent use.
type process struct {
	name string
	log  string               // the file of what it writes to stderr
	role func() (role, error) // asked anew at each start
	// at is told where the child answers.
	at func(addr string)
	// ended is told of a child that ended by itself after it was ready.
	ended func(error)

	mu  sync.Mutex
	run *running // nil while there is none
}

// running is one life of a process.
type running struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	gone   chan struct{} // closed when it has been waited for
	killed bool          // by its process; under mu
}

// start starts the child if there is none, and waits until it is ready. What ends before it is ready is started again, as
// a supervisor would: a node does not start while no nats-server answers.
func (p *process) start(ctx context.Context) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := p.tryStart(ctx)
		if err == nil || errors.Is(err, errNoStart) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", p.name, ctx.Err(), err)
		}
	}
}

// errNoStart is a start that no other attempt makes better.
var errNoStart = errors.New("can't be started")

func (p *process) tryStart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		return nil
	}
	cmd, stdin, out, err := p.command()
	if err != nil {
		return fmt.Errorf("%s: %w: %w", p.name, errNoStart, err)
	}
	r := &running{cmd: cmd, stdin: stdin, gone: make(chan struct{})}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if at, ok := strings.CutPrefix(lines.Text(), readyWord+" "); ok {
				ready <- at
			}
		}
		close(ready)
		err := cmd.Wait()
		close(r.gone)
		p.over(r, err)
	}()
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case at, ok := <-ready:
		if !ok {
			<-r.gone
			return fmt.Errorf("%s: it ended: %s", p.name, tailOf(p.log))
		}
		p.run = r
		p.at(at)
		return nil
	case <-limited.Done():
		_ = cmd.Process.Kill()
		<-r.gone
		return fmt.Errorf("%s: not ready: %w", p.name, limited.Err())
	}
}

// command is this program again, begun as a child.
func (p *process) command() (cmd *exec.Cmd, stdin io.Closer, out io.Reader, err error) {
	r, err := p.role()
	if err != nil {
		return nil, nil, nil, err
	}
	env, err := json.Marshal(r)
	if err != nil {
		return nil, nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// over notes the end of a life.
func (p *process) over(r *running, err error) {
	p.mu.Lock()
	own := p.run == r && !r.killed
	if p.run == r {
		p.run = nil
	}
	p.mu.Unlock()
	_ = r.stdin.Close()
	if own {
		p.ended(fmt.Errorf("%s ended by itself: %w: %s", p.name, err, tailOf(p.log)))
	}
}

// kill ends the child as kill -9 does, and waits until it is gone. Without one it does nothing.
func (p *process) kill() {
	p.mu.Lock()
	r := p.run
	if r != nil {
		r.killed = true
		_ = r.cmd.Process.Kill() // it may be gone already
	}
	p.mu.Unlock()
	if r != nil {
		<-r.gone
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == r {
		p.run = nil
	}
}

// signal does something to the child, if there is one.
func (p *process) signal(f func(*os.Process) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		_ = f(p.run.cmd.Process) // it may be gone
	}
}

// tailOf is the end of a file, for an error's text.
func tailOf(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	const most = 4000
	return filepath.Base(file) + ": " + strings.TrimSpace(string(b[max(0, len(b)-most):]))
}
