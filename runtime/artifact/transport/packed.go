package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/typedfold/fold/runtime/artifact"
)

// packed reads an artifact's folder as its packed stream. It can go back to the beginning and nowhere else, which is what
// a store needs to try an upload again.
type packed struct {
	ctx   context.Context
	dir   string
	m     artifact.Manifest
	moved func(done int64) // nil hears nothing

	mu   sync.Mutex
	run  *packing // nil before the first Read
	done int64
	over bool
}

// packing is one run of Pack.
type packing struct {
	out   *io.PipeReader
	stop  context.CancelFunc
	ended chan struct{}
}

var errPackedClosed = errors.New("the packed artifact was closed")

func (p *packed) start() (*packing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, errPackedClosed
	}
	if p.run != nil {
		return p.run, nil
	}
	ctx, stop := context.WithCancel(p.ctx)
	out, in := io.Pipe()
	run := &packing{out: out, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(run.ended)
		in.CloseWithError(artifact.Pack(ctx, p.dir, p.m, in))
	}()
	p.run, p.done = run, 0
	return run, nil
}

func (p *packed) Read(b []byte) (int, error) {
	run, err := p.start()
	if err != nil {
		return 0, err
	}
	n, err := run.out.Read(b)
	p.mu.Lock()
	p.done += int64(n)
	done := p.done
	p.mu.Unlock()
	if n > 0 && p.moved != nil {
		p.moved(done)
	}
	return n, err
}

// Size is that of the whole stream.
func (p *packed) Size() int64 { return p.m.PackedSize() }

// Seek goes to the beginning, or tells where the stream is.
func (p *packed) Seek(offset int64, whence int) (int64, error) {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	switch {
	case whence == io.SeekCurrent && offset == 0:
		return done, nil
	case whence == io.SeekStart && offset == 0:
		p.end(false)
		return 0, nil
	}
	return done, fmt.Errorf("seek to %d from %d: a packed artifact only goes back to its beginning", offset, whence)
}

// Close ends a Pack that is under way, and waits for it.
func (p *packed) Close() error {
	p.end(true)
	return nil
}

func (p *packed) end(over bool) {
	p.mu.Lock()
	run := p.run
	p.run, p.done, p.over = nil, 0, p.over || over
	p.mu.Unlock()
	if run != nil {
		run.stop()
		run.out.CloseWithError(errPackedClosed)
		<-run.ended
	}
}
