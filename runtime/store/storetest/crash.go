package storetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
)

// crashCycles is how often each mode's store is killed.
const crashCycles = 4

// Crash kills processes that write: in every mode, with and without Bulk batches, the store that is left must hold
// exactly the fold at its own cursor, and that cursor must not be behind what was said to be durable.
func Crash(t *testing.T, h Harness) {
	runChild(h)
	for _, mode := range h.modes() {
		for _, bulk := range []bool{false, true} {
			name := string(mode)
			if bulk {
				name += "/bulk"
			}
			t.Run(name, func(t *testing.T) { crash(t, h, mode, Script{Seed: 7, Bulk: bulk}) })
		}
	}
}

func crash(t *testing.T, h Harness, mode Mode, s Script) {
	dir, r := tempDir(t), rand.New(rand.NewPCG(8, 9))
	for cycle := range crashCycles {
		acked, durable := killOne(t, childTask{Op: childWrite, Dir: dir, Mode: mode, Script: s}, 1+r.IntN(150))
		seen := lookAfterKill(t, h, s, dir)
		o, err := h.Open(dir, mode)
		if err != nil {
			t.Fatalf("cycle %d: open after the kill: %v", cycle, err)
		}
		got := o.Cursor().Revision()
		if seen != nil && *seen != o.Cursor() {
			t.Errorf("cycle %d: recovered cursor %v; opened to be read only it was %v", cycle, o.Cursor(), *seen)
		}
		if mode == ModeSync {
			durable = acked
		}
		if got < durable || got > acked+1 {
			t.Errorf("cycle %d: recovered cursor %d; acknowledged %d, durable %d", cycle, got, acked, durable)
		}
		if o.Durable() != o.Cursor() {
			t.Errorf("cycle %d: recovered durable %v, cursor %v", cycle, o.Durable(), o.Cursor())
		}
		if err := s.CheckRecovered(o); err != nil {
			t.Errorf("cycle %d: %v", cycle, err)
		}
		copied := tempDir(t)
		if err := o.Export(t.Context(), copied); err != nil {
			t.Errorf("cycle %d: export: %v", cycle, err)
		}
		cursor := o.Cursor()
		if err := o.Close(); err != nil {
			t.Fatalf("cycle %d: close: %v", cycle, err)
		}
		checkCopy(t, h, mode, s, copied, cursor)
	}
}

func checkCopy(t *testing.T, h Harness, mode Mode, s Script, dir string, want kv.Cursor) {
	t.Helper()
	e, err := h.Open(dir, mode)
	if err != nil {
		t.Fatalf("open the export: %v", err)
	}
	if e.Cursor() != want {
		t.Errorf("the export opens at %v, want %v", e.Cursor(), want)
	}
	if err := errors.Join(s.CheckRecovered(e), e.Close()); err != nil {
		t.Errorf("export: %v", err)
	}
}

// killOne runs a writing child, kills it after some acknowledgements, and returns the last that it made.
func killOne(t *testing.T, task childTask, after int) (acked, durable uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	cmd := child(ctx, t, task)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 0
	err = acks(bufio.NewScanner(out), func(a, d uint64) {
		acked, durable = a, d
		if lines++; lines == after {
			_ = cmd.Process.Kill()
		}
	})
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read the child's output: %v", err)
	}
	_ = cmd.Wait() // it was killed
	if lines < after {
		t.Fatalf("the child ended after %d of %d acknowledgements: %s", lines, after, stderr.String())
	}
	return acked, durable
}
