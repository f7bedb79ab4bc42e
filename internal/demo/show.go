package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/term"
)

// show tells what happens: what was reached on stdout (on stderr when stdout is for JSON), and what is under way on
// stderr, in place on a terminal, else as a line every two seconds.
type show struct {
	said, progress io.Writer
	width          int // of the terminal that progress is; 0 for none

	mu    sync.Mutex
	line  func() string
	stop  chan struct{}
	ended sync.WaitGroup
}

const (
	redrawEvery = 100 * time.Millisecond
	tellEvery   = 2 * time.Second
)

func newShow(stdout, stderr io.Writer, json bool) *show {
	s := &show{said: stdout, progress: stderr, stop: make(chan struct{})}
	if json {
		s.said = stderr
	}
	every := tellEvery
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.width, every = 80, redrawEvery
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			s.width = w
		}
	}
	s.ended.Go(func() { s.loop(every) })
	return s
}

func (s *show) loop(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.mu.Lock()
		if s.line != nil {
			s.draw(s.line())
		}
		s.mu.Unlock()
	}
}

func (s *show) draw(line string) {
	if s.width == 0 {
		fmt.Fprintln(s.progress, "  "+line)
		return
	}
	fmt.Fprint(s.progress, "\r\x1b[K  "+line[:min(len(line), max(s.width-3, 0))])
}

func (s *show) clear() {
	if s.width > 0 {
		fmt.Fprint(s.progress, "\r\x1b[K")
	}
}

// live sets what is under way.
func (s *show) live(line func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = line
}

func (s *show) stopLive() { s.live(nil) }

// say tells what was reached.
func (s *show) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	fmt.Fprintf(s.said, format+"\n", args...)
}

func (s *show) close() {
	close(s.stop)
	s.ended.Wait()
	s.clear()
}

// count is a number with commas between the thousands.
func count[T int | int64 | uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
