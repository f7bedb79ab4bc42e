//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPipeIsNoStore: a pipe without a writer would hold the program up for good.
func TestPipeIsNoStore(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"inspect", pipe}, {"inspect", pipe, "--store", "log"}, {"inspect", pipe, "--store", "pebble"}, {"diff", pipe, pipe}, {"verify", pipe},
		{"export", pipe, "--to", pipe + "2", "--store", "log"}, {"import", pipe, "--to", pipe + "2"}, {"repair", "--explain", "--dir", pipe, "--store", "log"},
	} {
		if r := run(t, nil, args...); r.code != exitFailed {
			t.Errorf("%q: code %d, %s", args, r.code, r.err)
		}
	}
}

const asProgram = "FOLD_TEST_AS_PROGRAM"

// TestAsProgram is the program, in a process of TestSecondSignal.
func TestAsProgram(t *testing.T) {
	if os.Getenv(asProgram) == "" {
		return
	}
	os.Args = []string{"fold", "--help"}
	main()
}

// TestSecondSignal: what does not end by one signal, here a print that nobody reads, ends by the next.
func TestSecondSignal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(bounded(t), os.Args[0], "-test.run=^TestAsProgram$")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again, limit := time.NewTicker(50*time.Millisecond), time.NewTimer(30*time.Second)
	defer again.Stop()
	defer limit.Stop()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
				t.Errorf("it ended with %v", err)
			}
			return
		case <-again.C:
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		case <-limit.C:
			t.Error("it goes on")
			_ = cmd.Process.Kill()
			<-ended
			return
		}
	}
}
