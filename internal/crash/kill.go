package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// backend is a kind of store in a directory of a real disk.
type backend struct {
	kind store.Kind
	open func(dir string, m storetest.Mode) (store.Store, error)
	// keepsAcked: what was acknowledged outlives the process, whatever the durability.
	keepsAcked bool
}

var backends = map[string]backend{
	"pebble": {kind: pebblestore.Kind(), open: func(dir string, m storetest.Mode) (store.Store, error) {
		return opened(pebblestore.Open(dir, pebbleOptions(m)))
	}},
	"log": {kind: logstore.Kind(), keepsAcked: true, open: func(dir string, m storetest.Mode) (store.Store, error) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		return opened(logstore.Open(dir, logOptions(m)))
	}},
}

// Names in a writing child's directory.
const (
	liveName     = "live"
	artifactName = "artifact-"
	importName   = "import-"
)

// Every so many batches a writing child exports an artifact and imports it again, and settles.
const (
	exportEvery = 13
	settleEvery = 41
)

// write applies batches from the store's cursor on until it is killed, and says each.
func (t *task) write(ctx context.Context, out io.Writer) error {
	k := backends[t.Store]
	s, err := k.open(filepath.Join(t.Dir, liveName), t.Mode)
	if err != nil {
		return err
	}
	truth := newTruth(t.Seed, true)
	for n := s.Cursor().Revision() + 1; ctx.Err() == nil; n++ {
		b, c := truth.batch(n)
		if err := s.Apply(ctx, b, c); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, "ack", n, s.Durable().Revision()); err != nil {
			return err // nobody listens any more
		}
		if n%settleEvery == 0 {
			err = s.Settle(ctx)
		}
		if n%exportEvery == 0 && err == nil {
			err = t.copy(ctx, k, s, n)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (t *task) copy(ctx context.Context, k backend, s store.Store, n uint64) error {
	from := filepath.Join(t.Dir, fmt.Sprint(artifactName, n))
	if _, err := artifact.Export(ctx, s, from, artifact.ExportOptions{}); err != nil {
		return err
	}
	_, err := artifact.Import(ctx, from, filepath.Join(t.Dir, fmt.Sprint(importName, n)), k.imports())
	return err
}

func (k *backend) imports() artifact.Options {
	return artifact.Options{Kinds: []store.Kind{k.kind}, MinFreeBytes: -1}
}

// kills is a loop of kills of a writing process.
type kills struct {
	name   string
	line   string // the command that does it again
	store  string
	seed   uint64
	mode   storetest.Mode
	cycles int
	tally  *tally
}

func (l *kills) run(ctx context.Context) {
	dir, err := os.MkdirTemp("", "fold-crash-")
	if err != nil {
		l.tally.failed(l.name, err, l.line)
		return
	}
	t, rng := newTruth(l.seed, true), rand.New(rand.NewPCG(l.seed, 2))
	for cycle := 1; cycle <= l.cycles && ctx.Err() == nil; cycle++ {
		replay := fmt.Sprintf("%s -kills %d", l.line, cycle)
		acked, durable, err := l.kill(ctx, dir, 1+rng.IntN(40), time.Duration(rng.IntN(6000))*time.Microsecond)
		if err == nil {
			err = within(lookLimit, func() error { return l.look(ctx, dir, t, acked, durable) })
		}
		l.tally.clone(l.name, err, replay)
		if err != nil {
			break // the next cycle would begin with what is wrong
		}
	}
	l.tally.failed(l.name, os.RemoveAll(dir), l.line)
}

// kill runs a child and kills it, some time after some acknowledgements.
func (l *kills) kill(ctx context.Context, dir string, after int, pause time.Duration) (acked, durable uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, childLimit)
	defer cancel()
	t := task{Op: taskWrite, Store: l.store, Dir: dir, Mode: l.mode, Seed: l.seed}
	cmd, err := t.command(ctx)
	if err != nil {
		return 0, 0, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	var timer *time.Timer
	acks := 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a, d uint64
		if n, _ := fmt.Sscanf(lines.Text(), "ack %d %d", &a, &d); n != 2 {
			continue
		}
		acked, durable = a, d
		if acks++; acks == after {
			timer = time.AfterFunc(pause, func() { _ = cmd.Process.Kill() })
		}
	}
	if timer != nil {
		defer timer.Stop()
	}
	_ = cmd.Wait() // it was killed
	if acks < after || cmd.ProcessState.Exited() {
		return acked, durable, fmt.Errorf("the process ended by itself after %d acknowledgements: %.2000s", acks, stderr.String())
	}
	return acked, durable, nil
}

// look opens what a killed process left: its store, and each artifact and import that has its name.
func (l *kills) look(ctx context.Context, dir string, t *truth, acked, durable uint64) error {
	k := backends[l.store]
	if k.keepsAcked || l.mode == storetest.ModeSync {
		durable = acked
	}
	s, err := k.open(filepath.Join(dir, liveName), l.mode)
	if err != nil {
		return err
	}
	if s.Cursor().Revision() < acked {
		l.tally.note(l.name + ", lost a tail")
	}
	if err := errors.Join(t.checkAt(s, durable, acked+1), s.Close()); err != nil {
		return err
	}
	if err := artifact.CleanStages(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == liveName {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if err := errors.Join(l.lookAtCopy(ctx, k, t, path), os.RemoveAll(path)); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

func (l *kills) lookAtCopy(ctx context.Context, k backend, t *truth, path string) error {
	name := filepath.Base(path)
	data, number := path, strings.TrimPrefix(name, importName)
	if rest, ok := strings.CutPrefix(name, artifactName); ok {
		if _, err := artifact.Verify(ctx, path, k.imports()); err != nil {
			return err
		}
		data, number = filepath.Join(path, artifact.DataName), rest
	}
	var n uint64
	if _, err := fmt.Sscan(number, &n); err != nil {
		return fmt.Errorf("it should not be there: %w", err)
	}
	l.tally.note(l.name + ", artifacts and imports")
	return exportAt(t, n, func() (store.Store, error) { return k.kind.Open(data) })
}
