package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/pebblestore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

var errInjected = errors.New("injected")

// failing fails the operation of a number, counted from 1, and with sticky all after it.
type failing struct {
	at     int64
	sticky bool
	n      atomic.Int64
}

func (f *failing) next() error {
	n := f.n.Add(1)
	if f.at != 0 && (n == f.at || f.sticky && n > f.at) {
		return errInjected
	}
	return nil
}

func (f *failing) String() string { return "failing" }

func (f *failing) MaybeError(op errorfs.Op) error {
	if err := f.next(); err != nil {
		return &os.PathError{Op: "operation", Path: op.Path, Err: err}
	}
	return nil
}

// faults is a sweep of failing operations over the lives of stores.
type faults struct {
	name  string
	line  string // the command that does it again
	seed  uint64
	mode  storetest.Mode
	tally *tally
	// step is how far apart the operations are that fail; only, where it is not 0, is the one that does.
	step, only int
	sticky     *bool // nil is both
	percents   []int
}

func (f *faults) replay(at int64, sticky bool) string {
	return fmt.Sprintf("%s -op %d -sticky=%t", f.line, at, sticky)
}

// each calls do for each operation that is to fail, of so many.
func (f *faults) each(ops int64, do func(at int64, sticky bool)) {
	for at := int64(1); at <= ops; at++ {
		if f.only != 0 && at != int64(f.only) || f.only == 0 && at%int64(f.step) != int64(f.seed)%int64(f.step) {
			continue
		}
		for _, sticky := range []bool{false, true} {
			if f.sticky == nil || *f.sticky == sticky {
				do(at, sticky)
			}
		}
	}
}

// logs fails each operation of a log's life in turn, and cuts the power at its end.
func (f *faults) logs(ctx context.Context) {
	t := newTruth(f.seed, true)
	clean := &failing{}
	_, p, err := f.oneLog(ctx, t, clean)
	if err = errors.Join(err, p.whole()); err != nil {
		f.tally.failed(f.name, err, f.line)
		return
	}
	f.each(clean.n.Load(), func(at int64, sticky bool) {
		var d disk
		var p progress
		err := within(childLimit, func() (err error) {
			d, p, err = f.oneLog(ctx, t, &failing{at: at, sticky: sticky})
			return err
		})
		if err != nil {
			f.tally.failed(f.name, err, f.replay(at, sticky))
			return
		}
		for _, percent := range f.percents {
			rng := rand.New(rand.NewPCG(f.seed, uint64(at)<<8|uint64(percent)))
			left := d.cut(percent, rng)
			low := p.durable
			if percent == 100 {
				low = p.acked // it is in the file
			}
			f.tally.clone(f.name, f.left(t, left, low, p), fmt.Sprintf("%s -percent %d", f.replay(at, sticky), percent))
		}
	})
}

func (f *faults) oneLog(ctx context.Context, t *truth, fail *failing) (disk, progress, error) {
	d := newLogDisk()
	tell := func(string, string) error { return fail.next() }
	v := &driven{truth: t, mode: f.mode, exportTo: "exports/one", open: func() (store.Store, error) { return d.open(storeDir, f.mode, tell) }}
	err := v.run(ctx)
	return d, v.progress, err
}

// left looks at a disk after a life with a failure, which does not fail any more.
func (f *faults) left(t *truth, d disk, low uint64, p progress) error {
	s, err := d.open(storeDir, f.mode, nil)
	if err != nil {
		return err
	}
	err = errors.Join(t.checkAt(s, low, p.begun), s.Close())
	if err == nil && p.exported != 0 {
		err = exportAt(t, p.exported, func() (store.Store, error) { return d.openCopy("exports/one") })
	}
	return err
}

func exportAt(t *truth, n uint64, open func() (store.Store, error)) error {
	s, err := open()
	if err != nil {
		return fmt.Errorf("the export at %d: %w", n, err)
	}
	if got := s.Cursor().Revision(); got != n {
		err = fmt.Errorf("the export at %d is at %d", n, got)
	}
	return errors.Join(err, t.scan(s), s.Close())
}

// childEnv tells a process what to do in place of all else.
const childEnv = "FOLD_CRASH_CHILD"

// task is what a child does.
type task struct {
	Op     string // taskFail, taskWrite or taskHang
	Store  string // "pebble" or "log"
	Dir    string
	Mode   storetest.Mode
	Seed   uint64
	At     int64
	Sticky bool
	// Limit is how long the child may be there; 0 is ownLimit.
	Limit time.Duration
}

const (
	taskFail  = "fail"
	taskWrite = "write"
	taskHang  = "hang"
)

// runChild does the task of this process, if it is a child.
func runChild(ctx context.Context, out io.Writer) (child bool, err error) {
	env := os.Getenv(childEnv)
	if env == "" {
		return false, nil
	}
	var t task
	if err := json.Unmarshal([]byte(env), &t); err != nil {
		return true, err
	}
	limit := t.Limit
	if limit == 0 {
		limit = ownLimit
	}
	bound := time.AfterFunc(limit, func() {
		fmt.Fprintf(os.Stderr, "still there after %v: %s\n", limit, stacks())
		os.Exit(exitStuck)
	})
	defer bound.Stop()
	switch t.Op {
	case taskFail:
		return true, t.fail(ctx, out)
	case taskHang:
		<-ctx.Done()
		return true, ctx.Err()
	}
	return true, t.write(ctx, out)
}

// command is this program again, as a child.
func (t *task) command(ctx context.Context) (*exec.Cmd, error) {
	env, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	return cmd, nil
}

// fail lives a life on a disk that fails, and says how it goes.
func (t *task) fail(ctx context.Context, out io.Writer) error {
	f := &failing{at: t.At, sticky: t.Sticky}
	o := pebbleOptions(t.Mode)
	o.FS = errorfs.Wrap(vfs.Default, f)
	d := &driven{
		truth: newTruth(t.Seed, true), mode: t.Mode, exportTo: filepath.Join(t.Dir, "copy"),
		open: func() (store.Store, error) { return opened(pebblestore.Open(filepath.Join(t.Dir, "store"), o)) },
		said: func(p progress) { fmt.Fprintln(out, "at", p.acked, p.begun, p.durable, p.exported) },
	}
	err := d.run(ctx)
	fmt.Fprintln(out, "operations", f.n.Load())
	return err
}

// childLimit is how long one child may take before it counts as stuck. After ownLimit it ends by itself, whatever became of
// the process that began it.
const (
	childLimit = time.Minute
	ownLimit   = 90 * time.Second
)

// exitWrong is a child's exit code when it saw something wrong, and exitStuck when it was there for too long; Pebble's end
// of a process is another.
const (
	exitWrong = 3
	exitStuck = 4
)

// pebble fails operations of Pebble's life, each in a process of its own, which Pebble may end.
func (f *faults) pebble(ctx context.Context) {
	p, ops, err := f.onePebble(ctx, newTruth(f.seed, true), 0, false)
	if err = errors.Join(err, p.whole()); err != nil {
		f.tally.failed(f.name, err, f.line)
		return
	}
	type one struct {
		at     int64
		sticky bool
	}
	t := newTruth(f.seed, true)
	sweep := newParallel(func(o one) {
		_, _, err := f.onePebble(ctx, t, o.at, o.sticky)
		if err != nil {
			err = fmt.Errorf("operation %d fails: %w", o.at, err)
		}
		f.tally.clone(f.name, err, f.replay(o.at, o.sticky))
	})
	f.each(ops, func(at int64, sticky bool) { sweep.add(one{at, sticky}) })
	sweep.wait()
}

func (f *faults) onePebble(ctx context.Context, t *truth, at int64, sticky bool) (p progress, ops int64, err error) {
	dir, err := os.MkdirTemp("", "fold-crash-")
	if err != nil {
		return p, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, ops, err = f.failInChild(ctx, &task{Op: taskFail, Store: "pebble", Dir: dir, Mode: f.mode, Seed: f.seed, At: at, Sticky: sticky})
	if err != nil {
		return p, ops, err
	}
	return p, ops, within(lookLimit, func() error { return f.leftIn(dir, t, p) })
}

// leftIn looks at a directory after a life with a failure, on a disk that does not fail any more.
func (f *faults) leftIn(dir string, t *truth, p progress) error {
	s, err := pebblestore.Open(filepath.Join(dir, "store"), pebbleOptions(f.mode))
	if err != nil {
		return err
	}
	err = errors.Join(t.checkAt(s, p.durable, p.begun), s.Close())
	if err == nil && p.exported != 0 {
		err = exportAt(t, p.exported, func() (store.Store, error) { return pebblestore.Kind().Open(filepath.Join(dir, "copy")) })
	}
	return err
}

// failInChild runs the task and reads what it says. A child that says that something is wrong is an error, and one that
// is stuck, or that anything but Pebble ended.
func (f *faults) failInChild(ctx context.Context, t *task) (p progress, ops int64, err error) {
	limited, cancel := context.WithTimeout(ctx, childLimit)
	defer cancel()
	cmd, err := t.command(limited)
	if err != nil {
		return p, 0, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // which has it say where it is
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "at %d %d %d %d", &p.acked, &p.begun, &p.durable, &p.exported)
		_, _ = fmt.Sscanf(lines.Text(), "operations %d", &ops)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return p, ops, ctx.Err()
	case limited.Err() != nil:
		return p, ops, fmt.Errorf("stuck after %+v: %.8000s", p, stderr.String())
	case errors.As(err, &exit) && (exit.ExitCode() == exitWrong || exit.ExitCode() == exitStuck):
		return p, ops, fmt.Errorf("the process says: %.8000s", stderr.String())
	case errors.As(err, &exit):
		if err = endedByPebble(exit.ExitCode(), stderr.String()); err == nil {
			f.tally.note(f.name + ", the process ended")
		}
		return p, ops, err
	}
	return p, ops, err
}
