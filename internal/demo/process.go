package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is the parent's side of one router process.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser

	mu      sync.Mutex
	latest  message            // the last one that tells of progress
	byType  map[string]message // the last one of each type
	changed chan struct{}      // closed and replaced at each message
	ended   bool
	waitErr error
}

// startProcess runs this same program as a router on a fold's folder, and waits until it serves.
func startProcess(ctx context.Context, name, server, dir string, verbose bool, stderr io.Writer) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{childCommand, "--server", server, "--dir", dir}
	if verbose {
		args = append(args, "--verbose")
	}
	p := &process{name: name, byType: map[string]message{}, changed: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, self, args...)
	p.cmd.Stderr = stderr
	p.cmd.WaitDelay = 5 * time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("router %s: %w", name, err)
	}
	go p.read(out)
	if _, err := p.wait(ctx, "ready"); err != nil {
		return nil, errors.Join(err, p.kill(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func (p *process) read(out io.Reader) {
	dec := json.NewDecoder(out)
	for {
		var m message
		if dec.Decode(&m) != nil {
			break // the process has ended, in the middle of a line perhaps
		}
		p.mu.Lock()
		p.byType[m.Type] = m
		if m.Type == "progress" || m.Type == "hydrated" || m.Type == "held" {
			p.latest = m
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.waitErr = true, err
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits for a condition on the messages so far.
func (p *process) until(ctx context.Context, what string, ok func() bool) error {
	for {
		p.mu.Lock()
		done, ended, changed, err := ok(), p.ended, p.changed, p.waitErr
		p.mu.Unlock()
		switch {
		case done:
			return nil
		case ended:
			return fmt.Errorf("router %s ended while the demo waited for %s: %w", p.name, what, orElse(err, io.ErrUnexpectedEOF))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("router %s: wait for %s: %w", p.name, what, context.Cause(ctx))
		}
	}
}

func orElse(err, otherwise error) error {
	if err == nil {
		return otherwise
	}
	return err
}

// wait waits for a message of a type.
func (p *process) wait(ctx context.Context, kind string) (m message, err error) {
	err = p.until(ctx, kind, func() (ok bool) {
		m, ok = p.byType[kind]
		return ok
	})
	return m, err
}

// waitApplied waits until the fold has applied a revision.
func (p *process) waitApplied(ctx context.Context, rev uint64) error {
	return p.until(ctx, fmt.Sprintf("revision %d", rev), func() bool { return p.latest.Applied >= rev })
}

// last is the latest message of progress.
func (p *process) last() message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

func (p *process) ready() message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byType["ready"]
}

func (p *process) command(line string) error {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return fmt.Errorf("router %s: command %s: %w", p.name, line, err)
	}
	return nil
}

// kill ends the process as kill -9 does, and waits for its end.
func (p *process) kill(ctx context.Context) error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill router %s: %w", p.name, err)
	}
	return p.waitEnd(ctx)
}

// killed reports whether a signal ended the process.
func (p *process) killed() bool {
	return p.hasEnded() && p.cmd.ProcessState.ExitCode() == -1
}

// shutdown asks for an orderly end, and gives back what the process ended with.
func (p *process) shutdown(ctx context.Context) error {
	err := p.in.Close()
	if err := p.waitEnd(ctx); err != nil {
		return errors.Join(err, p.cmd.Process.Kill())
	}
	if p.waitErr != nil {
		return fmt.Errorf("router %s: %w", p.name, p.waitErr)
	}
	return err
}

func (p *process) waitEnd(ctx context.Context) error {
	return p.until(ctx, "its end", func() bool { return p.ended })
}

func (p *process) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}
