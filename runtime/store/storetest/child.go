package storetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/store"
)

// childEnv tells a re-executed test binary what to do in place of its tests.
const childEnv = "FOLD_STORETEST_CHILD"

type childTask struct {
	Op     string
	Dir    string
	Mode   Mode
	Script Script
}

const (
	// childOpen opens the directory, says what it saw, and closes.
	childOpen = "open"
	// childRead does so to read only.
	childRead = "read"
	// childWrite applies the script from the store's cursor on until it is killed, a line for each.
	childWrite = "write"

	childSawLocked = "locked"
	childSawOpen   = "opened"

	// childLimit ends a child that nobody kills.
	childLimit = 50_000
)

// runChild does the task and exits, when this process is a child; else it does nothing.
func runChild(h Harness) {
	env := os.Getenv(childEnv)
	if env == "" {
		return
	}
	var task childTask
	err := json.Unmarshal([]byte(env), &task)
	if err == nil {
		err = task.run(h)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (task childTask) run(h Harness) error {
	open := func() (store.Store, error) { return h.Open(task.Dir, task.Mode) }
	if task.Op == childRead {
		open = func() (store.Store, error) { return h.OpenReadOnly(task.Dir) }
	}
	s, err := open()
	if task.Op == childOpen || task.Op == childRead {
		switch {
		case errors.Is(err, store.ErrLocked):
			fmt.Println(childSawLocked)
			return nil
		case err == nil:
			fmt.Println(childSawOpen)
			return s.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := task.Script.CheckRecovered(s); err != nil {
		return fmt.Errorf("before the first write: %w", err)
	}
	for n := s.Cursor().Revision() + 1; n < childLimit; n++ {
		b, c := task.Script.Batch(n)
		if err := s.Apply(context.Background(), b, c); err != nil {
			return err
		}
		if _, err := fmt.Printf("ack %d %d\n", n, s.Durable().Revision()); err != nil {
			return err // the parent is gone
		}
	}
	return errors.New("nobody killed it")
}

// child is the test binary again, to run the task under the same top-level test.
func child(ctx context.Context, t *testing.T, task childTask) *exec.Cmd {
	t.Helper()
	env, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+rootTest(t)+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	return cmd
}

// childOpens runs a childOpen task and returns what it saw.
func childOpens(t *testing.T, task childTask) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	out, err := child(ctx, t, task).CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// acks reads a writing child's lines until there are no more, and calls seen after each.
func acks(r *bufio.Scanner, seen func(acked, durable uint64)) error {
	for r.Scan() {
		var acked, durable uint64
		if n, _ := fmt.Sscanf(r.Text(), "ack %d %d", &acked, &durable); n == 2 {
			seen(acked, durable)
		}
	}
	return r.Err()
}
