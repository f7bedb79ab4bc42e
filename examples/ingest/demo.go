package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

const (
	readings = "nova://ingest/readings"
	owners   = "nova://ingest/owners"
)

// asWorker is set for the processes that demo starts.
const asWorker = "INGEST_WORKER"

// demo runs a server and two workers, kills the first owner with SIGKILL in the middle, and checks what the stream holds.
func demo(ctx context.Context, items uint64, out io.Writer) (err error) {
	url, stop, err := serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c, err := client.New(url)
	if err != nil {
		return err
	}
	for _, addr := range []string{readings, owners} {
		if err := c.CreateStream(ctx, addr, client.StreamConfig{}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what still runs
	owned := make(chan *process, 16)
	var all []*process
	for _, name := range []string{"a", "b"} {
		w, err := startWorker(ctx, url, name, items, out, owned)
		if err != nil {
			return err
		}
		all = append(all, w)
	}
	defer func() {
		cancel()
		for _, w := range all {
			<-w.ended
		}
	}()
	first, err := firstOwner(ctx, owned, all)
	if err != nil {
		return err
	}
	tail, err := reach(ctx, c, items/3, all)
	if err != nil {
		return err
	}
	token, err := c.FencingToken(ctx, readings)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "kill -9 %s, the owner by %s, at %d of %d\n", first.name, token, tail, items)
	if err := first.cmd.Process.Kill(); err != nil {
		return err
	}
	for _, w := range all {
		select {
		case <-w.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		if w != first && w.err != nil {
			return fmt.Errorf("worker %s: %w", w.name, w.err)
		}
	}
	return check(ctx, c, items, token, out)
}

// check reads everything, and tries what a first owner that comes back would try.
func check(ctx context.Context, c *client.Client, items uint64, old string, out io.Writer) error {
	_, err := c.Presenting(old).AppendMatch(ctx, readings, items, client.Bodies([]byte("late"))...)
	if !errors.Is(err, client.ErrFencedOut) {
		return fmt.Errorf("the first owner's token was to be refused, and it is: %v", err)
	}
	fmt.Fprintf(out, "an append by the first owner's token: %v\n", err)
	next := uint64(0)
	for rec, err := range c.Read(ctx, readings, client.ReadOptions{}) {
		if err != nil {
			return err
		}
		item, err := itemOf(rec)
		if err != nil {
			return err
		}
		if item != next || rec.SeqNum != next {
			return fmt.Errorf("record %d is item %d, not item %d", rec.SeqNum, item, next)
		}
		next++
	}
	if next != items {
		return fmt.Errorf("the stream has %d items of %d", next, items)
	}
	fmt.Fprintf(out, "ok: %d items, each exactly once and in order\n", next)
	return nil
}

// firstOwner waits for the first worker that owns the stream.
func firstOwner(ctx context.Context, owned <-chan *process, all []*process) (*process, error) {
	gone := make(chan error, 1)
	go func() {
		for _, w := range all {
			<-w.ended
		}
		gone <- noneLeft(all)
	}()
	select {
	case first := <-owned:
		return first, nil
	case err := <-gone:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// noneLeft is why no worker runs any more; nil while one does.
func noneLeft(all []*process) error {
	why := []error{errors.New("every worker has ended")}
	for _, w := range all {
		select {
		case <-w.ended:
			why = append(why, w.err)
		default:
			return nil
		}
	}
	return errors.Join(why...)
}

// reach waits until the stream has so many records, as long as a worker may append them.
func reach(ctx context.Context, c *client.Client, n uint64, all []*process) (uint64, error) {
	for {
		gone := noneLeft(all)
		tail, err := c.Tail(ctx, readings)
		if err != nil || tail.SeqNum >= n {
			return tail.SeqNum, err
		}
		if gone != nil {
			return tail.SeqNum, gone
		}
		if !pause(ctx, 5*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}

// process is a worker in a process of its own.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

// startWorker starts this program again, as a worker; it goes to owned each time that it becomes the owner.
func startWorker(ctx context.Context, url, name string, items uint64, out io.Writer, owned chan<- *process) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &process{name: name, ended: make(chan struct{})}
	w.cmd = exec.CommandContext(ctx, self, "-server", url, "-worker", name, "-items", fmt.Sprint(items))
	w.cmd.Env = append(os.Environ(), asWorker+"=1")
	w.cmd.Stderr = os.Stderr
	text, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.ended)
		for lines := bufio.NewScanner(text); lines.Scan(); {
			fmt.Fprintln(out, lines.Text())
			if strings.HasPrefix(lines.Text(), name+" owns ") {
				select {
				case owned <- w:
				default:
				}
			}
		}
		w.err = w.cmd.Wait()
	}()
	return w, nil
}

// serve runs a server inside this process, with a log of its own.
func serve(ctx context.Context) (url string, stop func() error, err error) {
	log, err := natstest.Start(natstest.Options{MaxPayload: 8 << 20})
	if err != nil {
		return "", nil, err
	}
	s, err := server.Open(ctx, server.Config{URL: log.URL()}, server.Options{})
	if err != nil {
		return "", nil, errors.Join(err, log.Shutdown())
	}
	end := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(s.Shutdown(ctx), log.Shutdown())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return "http://" + l.Addr().String(), func() error {
		err := end()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// lines is an output that several goroutines print to.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
