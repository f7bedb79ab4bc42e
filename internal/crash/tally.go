package main

import (
	"fmt"
	"io"
	"sync"
)

// tally counts what was looked at, and writes what is wrong as it comes and again at the end. It is safe for concurrent
// use.
type tally struct {
	mu     sync.Mutex
	out    io.Writer
	counts map[string]int
	names  []string
	clones int
	wrong  int
	// lines are what is wrong, each with how to see it again.
	lines []string
	// told hears of each state of a disk; nil hears nothing.
	told func(name, replay string)
}

func newTally(out io.Writer) *tally { return &tally{out: out, counts: map[string]int{}} }

// clone counts one state of a disk, of the named kind; a non-nil err is what is wrong with it, and replay is how to see
// it again.
func (t *tally) clone(name string, err error, replay string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(name)
	t.clones++
	if t.told != nil {
		t.told(name, replay)
	}
	t.judge(name, err, replay)
}

// note counts something that is no state of a disk.
func (t *tally) note(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(name)
}

// failed notes what is wrong without a state of a disk to count.
func (t *tally) failed(name string, err error, replay string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge(name, err, replay)
}

func (t *tally) judge(name string, err error, replay string) {
	if err == nil {
		return
	}
	t.wrong++
	line := fmt.Sprintf("inconsistent: %s: %v\n  replay: %s\n", name, err, replay)
	t.lines = append(t.lines, line)
	if t.wrong <= maxShown {
		_, _ = io.WriteString(t.out, line)
	}
}

// maxShown bounds what is printed as it comes: one cause has many effects.
const maxShown = 20

func (t *tally) add(name string) {
	if t.counts[name] == 0 {
		t.names = append(t.names, name)
	}
	t.counts[name]++
}

// count is how often the name was counted.
func (t *tally) count(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

// report prints all counts, then everything that is wrong, and the sum as the last line.
func (t *tally) report() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range t.names {
		fmt.Fprintf(t.out, "%-44s %8d\n", name, t.counts[name])
	}
	for _, line := range t.lines {
		_, _ = io.WriteString(t.out, line)
	}
	fmt.Fprintf(t.out, "clones %d inconsistent %d\n", t.clones, t.wrong)
}
