package objectstest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// childEnv tells a re-executed test binary what to do in place of its tests.
const childEnv = "FOLD_OBJECTSTEST_CHILD"

type childTask struct {
	Op    string
	Place string
	Key   string
	Racer int
}

const (
	opUpload = "upload" // says sawSent when several parts are out, and waits to be killed
	opRace   = "race"   // says sawReady, waits for a line, runs the race and says sawDone with the outcome

	sawSent  = "child: sent"
	sawReady = "child: ready"
	sawDone  = "child: done "
)

// runChild does the task and exits, when this process is a child; else it does nothing.
func runChild(h Harness) {
	env := os.Getenv(childEnv)
	if env == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var task childTask
	err := json.Unmarshal([]byte(env), &task)
	if err == nil {
		err = task.run(ctx, h)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (task childTask) run(ctx context.Context, h Harness) error {
	s, err := h.Open(ctx, task.Place)
	if err != nil {
		return err
	}
	if task.Op == opUpload {
		return upload(ctx, s, task.Key)
	}
	if _, _, err := s.ReadPointer(ctx, prize); err != nil { // what is done once, before the race
		return err
	}
	fmt.Println(sawReady)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err // the parent is gone
	}
	out, err := run(ctx, s, task.Racer)
	if err != nil {
		return err
	}
	line, err := json.Marshal(out)
	fmt.Println(sawDone + string(line))
	return err
}

// child is another process that runs a task.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr strings.Builder
	once   sync.Once
}

func (s *suite) child(task childTask) *child {
	s.Helper()
	env, err := json.Marshal(task)
	s.must(err)
	self, err := os.Executable()
	s.must(err)
	root, _, _ := strings.Cut(s.Name(), "/")
	c := &child{cmd: exec.CommandContext(s.ctx, self, "-test.run=^"+root+"$", "-test.count=1")}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	c.cmd.Stderr = &c.stderr
	c.in, err = c.cmd.StdinPipe()
	s.must(err)
	out, err := c.cmd.StdoutPipe()
	s.must(err)
	c.out = bufio.NewScanner(out)
	s.must(c.cmd.Start())
	return c
}

// expect returns the child's next line that begins so.
func (c *child) expect(s *suite, begin string) string {
	s.Helper()
	for c.out.Scan() {
		if strings.HasPrefix(c.out.Text(), begin) {
			return c.out.Text()
		}
	}
	c.end()
	s.Fatalf("the child never said %q: %v, %s", begin, c.out.Err(), c.stderr.String())
	return ""
}

// end kills the child if it runs, and collects it.
func (c *child) end() {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		_ = c.in.Close()
		_ = c.cmd.Wait() // killed: its state says no more
	})
}
