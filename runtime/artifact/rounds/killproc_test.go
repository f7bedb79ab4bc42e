package rounds_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is the parent's side of a node's process.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer // read once done is closed
	done   chan struct{}
	tell   func(step string, took time.Duration) // of each step that has ended

	mu      sync.Mutex
	step    string
	since   time.Time
	steps   []string
	state   *nodeState
	changed chan struct{} // closed and replaced at each line
	lastErr error
}

func startProcess(ctx context.Context, task nodeTask, tell func(step string, took time.Duration)) (*process, error) {
	env, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	p := &process{done: make(chan struct{}), changed: make(chan struct{}), step: stepStart, since: time.Now(), tell: tell}
	p.cmd = exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledAtAnyMoment$", "-test.count=1")
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+string(env))
	p.cmd.Stderr = &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	return p, nil
}

func (p *process) read(out io.Reader) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.take(lines.Text())
	}
	err := errors.Join(lines.Err(), p.cmd.Wait())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
}

func (p *process) take(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if step, ok := strings.CutPrefix(line, sawStep); ok {
		now := time.Now()
		p.tell(p.step, now.Sub(p.since))
		p.step, p.since, p.steps = step, now, append(p.steps, step)
	}
	if text, ok := strings.CutPrefix(line, sawState); ok {
		var s nodeState
		if json.Unmarshal([]byte(text), &s) == nil {
			p.state = &s
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits until ok, under the lock, says so.
func (p *process) until(ctx context.Context, what string, ok func() bool) error {
	for {
		p.mu.Lock()
		is, changed := ok(), p.changed
		p.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-p.done:
			return fmt.Errorf("wait for %s: %w", what, p.ended())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; the node is in step %s", what, context.Cause(ctx), p.kill())
		}
	}
}

// reach waits until the node has come to a step, be it past it by now.
func (p *process) reach(ctx context.Context, step string) error {
	return p.until(ctx, "step "+step, func() bool {
		for _, s := range p.steps {
			if s == step {
				return true
			}
		}
		return false
	})
}

// order sends a command; the steps that come after it count anew.
func (p *process) order(command string) error {
	p.mu.Lock()
	p.steps, p.state = nil, nil
	p.mu.Unlock()
	_, err := io.WriteString(p.in, command+"\n")
	return err
}

// check asks what the node holds at a revision.
func (p *process) check(ctx context.Context, rev uint64) (s nodeState, err error) {
	if err := p.order(fmt.Sprintf("%s %d", commandCheck, rev)); err != nil {
		return s, err
	}
	err = p.until(ctx, "the answer to a check", func() bool {
		if p.state != nil {
			s = *p.state
		}
		return p.state != nil
	})
	return s, err
}

// endsWithin reports whether the node ended by itself within d.
func (p *process) endsWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// kill kills the node, and returns the step that it was in.
func (p *process) kill() (step string) {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step
}

// wasKilled reports whether a kill has ended the node, and nothing before it. It is called after kill.
func (p *process) wasKilled() bool {
	state, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && state.Signal() == syscall.SIGKILL
}

// ended is how the node ended by itself.
func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("the node ended in step %s: %w\n%s", p.step, p.lastErr, p.stderr.String())
}
