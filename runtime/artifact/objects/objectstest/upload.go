package objectstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

// zeros is a reader of n zero bytes that then does what end says.
type zeros struct {
	n   int
	end func() error
}

func (z *zeros) Read(p []byte) (int, error) {
	if z.n == 0 {
		return 0, z.end()
	}
	p = p[:min(len(p), z.n)]
	clear(p)
	z.n -= len(p)
	return len(p), nil
}

var errReader = errors.New("the reader failed")

// sizes are within the first buffer, the first part, several parts, and past where an upload becomes one of parts.
var sizes = []int{0, 1, 100_000, 9 << 20, 20 << 20, 33 << 20}

func (s *suite) failingReader() {
	for _, n := range sizes {
		err := s.s.Put(s.ctx, fmt.Sprintf("new-%d", n), &zeros{n, func() error { return errReader }})
		s.want("put", err, errReader)
	}
	s.wantKeys("")
	s.put("old", []byte("whole"))
	for _, n := range sizes {
		s.want("put over an object", s.s.Put(s.ctx, "old", &zeros{n, func() error { return errReader }}), errReader)
		s.want("put", s.s.Put(s.ctx, "old", &zeros{n, func() error { return io.ErrUnexpectedEOF }}), io.ErrUnexpectedEOF)
	}
	if got := string(s.get("old")); got != "whole" {
		s.Fatalf("a failed put left %d bytes", len(got))
	}
	s.wantKeys("", "old")
}

// cancelledUpload ends the context while the reader blocks.
func (s *suite) cancelledUpload() {
	s.put("old", []byte("whole"))
	for _, key := range []string{"new", "old"} {
		for _, n := range sizes {
			s.cancelAt(key, n)
		}
	}
	if got := string(s.get("old")); got != "whole" {
		s.Fatalf("a cancelled put left %d bytes", len(got))
	}
	s.wantKeys("", "old")
}

func (s *suite) cancelAt(key string, n int) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	release := make(chan struct{})
	blocked := func() error {
		cancel()
		<-release
		return io.EOF
	}
	defer close(release)
	done := make(chan error, 1)
	go func() { done <- s.s.Put(ctx, key, &zeros{n, blocked}) }()
	select {
	case err := <-done:
		s.want("cancelled put", err, context.Canceled)
	case <-s.ctx.Done():
		s.Fatalf("a put of %d bytes goes on though its context ended", n)
	}
}

func (s *suite) endedContext() {
	s.put("a", []byte("whole"))
	r, _, err := s.s.Get(s.ctx, "a")
	s.must(err)
	s.must(r.Close())
	ctx, cancel := context.WithCancel(s.ctx)
	r, _, err = s.s.Get(ctx, "a")
	s.must(err)
	cancel()
	_, err = io.ReadAll(r)
	s.want("read", err, context.Canceled)
	s.must(r.Close())
	s.want("put", s.s.Put(ctx, "b", strings.NewReader("x")), context.Canceled)
	_, _, err = s.s.Get(ctx, "a")
	s.want("get", err, context.Canceled)
	s.want("delete", s.s.Delete(ctx, "a"), context.Canceled)
	s.want("swap", s.s.SwapPointer(ctx, "b", []byte("x"), ""), context.Canceled)
	_, _, err = s.s.ReadPointer(ctx, "a")
	s.want("read pointer", err, context.Canceled)
	s.want("clean", s.s.CleanUploads(ctx, "", time.Hour), context.Canceled)
	for _, err := range s.s.List(ctx, "") {
		s.want("list", err, context.Canceled)
	}
	s.wantKeys("", "a")
}

// killedUpload kills a process in the middle of an upload.
func (s *suite) killedUpload() {
	if !s.h.Processes {
		s.killedNothing()
		return
	}
	s.put("k/old", []byte("whole"))
	for _, key := range []string{"k/new", "k/old"} {
		s.killUpload(key)
	}
	if got := string(s.get("k/old")); got != "whole" {
		s.Fatalf("a killed put left %d bytes", len(got))
	}
	s.wantKeys("", "k/old")
	s.leftovers("after the kills", true)
	s.must(s.s.CleanUploads(s.ctx, "k/", time.Hour))
	s.leftovers("after a cleaning of what is older", true)
	s.must(s.s.CleanUploads(s.ctx, "other/", 0))
	s.leftovers("after a cleaning elsewhere", true)
	s.must(s.s.CleanUploads(s.ctx, "k/", 0))
	s.leftovers("after a cleaning", false)
	s.wantKeys("", "k/old")
	s.put("k/new", []byte("later"))
	s.wantKeys("", "k/new", "k/old")
}

// killedNothing: cleaning where nothing can be left touches no object.
func (s *suite) killedNothing() {
	s.put("k/old", []byte("whole"))
	s.must(s.s.CleanUploads(s.ctx, "", 0))
	s.wantKeys("", "k/old")
}

func (s *suite) leftovers(when string, want bool) {
	s.Helper()
	if s.h.Leftovers == nil {
		return
	}
	n, err := s.h.Leftovers(s.ctx, s.place)
	s.must(err)
	if n > 0 != want {
		s.Fatalf("%s there are %d leftovers", when, n)
	}
}

// killUpload has a child upload under the key, and kills it when it has handed out several parts.
func (s *suite) killUpload(key string) {
	s.Helper()
	c := s.child(childTask{Op: opUpload, Place: s.place, Key: key})
	defer c.end()
	c.expect(s, sawSent)
	s.must(c.cmd.Process.Kill())
	c.end()
}

// upload is the child's part of killUpload.
func upload(ctx context.Context, s objects.Store, key string) error {
	return s.Put(ctx, key, &zeros{40 << 20, func() error {
		fmt.Println(sawSent)
		<-ctx.Done()
		return ctx.Err()
	}})
}
