package main

import (
	"runtime"
	"sync"
)

// parallel does things that are handed to add, some at once, and wait waits for the last of them.
type parallel[T any] struct {
	todo chan T
	wg   sync.WaitGroup
}

func newParallel[T any](do func(T)) *parallel[T] {
	p := &parallel[T]{todo: make(chan T, 2)}
	for range runtime.GOMAXPROCS(0) {
		p.wg.Go(func() {
			for one := range p.todo {
				do(one)
			}
		})
	}
	return p
}

func (p *parallel[T]) add(one T) { p.todo <- one }

func (p *parallel[T]) wait() {
	close(p.todo)
	p.wg.Wait()
}
