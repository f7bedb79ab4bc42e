package main

import (
	"fmt"
	"runtime"
	"time"
)

// lookLimit bounds the look at one disk.
const lookLimit = time.Minute

// within does something that may hang. When it takes longer than the limit, the error says where all goroutines are, and
// nothing that do sets may be read.
func within(limit time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	bound := time.NewTimer(limit)
	defer bound.Stop()
	select {
	case err := <-done:
		return err
	case <-bound.C:
		return fmt.Errorf("stuck for %v: %.20000s", limit, stacks())
	}
}

// stacks says where all goroutines are.
func stacks() []byte {
	b := make([]byte, 1<<20)
	return b[:runtime.Stack(b, true)]
}
