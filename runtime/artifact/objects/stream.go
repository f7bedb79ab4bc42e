package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// errStalled is the cause of a context that a watchdog ended. The source of a stalled Put may still be blocked in a Read,
// so it is not read again.
var errStalled = errors.New("no progress")

// watchdog ends a context when it is not touched in time.
type watchdog struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	ctx    context.Context
}

// watch returns a context that ends with ctx, or after limit without a touch.
func watch(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	within, cancel := context.WithCancelCause(ctx)
	d := &watchdog{limit: limit, cancel: cancel, ctx: within}
	d.timer = time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("%w: %w in %v", ErrUnavailable, errStalled, limit))
	})
	return within, d
}

func (d *watchdog) touch() { d.timer.Reset(d.limit) }

// rest stops the watch until the next touch.
func (d *watchdog) rest() { d.timer.Stop() }

func (d *watchdog) end() {
	d.timer.Stop()
	d.cancel(nil)
}

// cause is what err comes from: the end of ctx, the lack of progress, or itself.
func (d *watchdog) cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c := context.Cause(d.ctx); errors.Is(c, ErrUnavailable) && !settled(err) {
		return c
	}
	return err
}

// body is an object that is being read.
type body struct {
	g     *Guarded
	ctx   context.Context
	key   string
	info  Info
	inner io.ReadCloser // nil between two streams
	dog   *watchdog
	left  int64
	// broke is what the last stream broke off with; nil while it flows. failures counts those since the last byte.
	broke    error
	failures int
	failed   error // for good
}

func (b *body) Read(p []byte) (int, error) {
	for {
		if b.failed == nil && b.ctx.Err() != nil {
			b.failed = b.g.fail("get", b.key, context.Cause(b.ctx))
		}
		if b.failed == nil && b.broke != nil {
			b.failed = b.g.fail("get", b.key, b.resume())
		}
		if b.failed != nil {
			return 0, b.failed
		}
		n, err := b.read(p)
		if n > 0 {
			b.failures = 0
		}
		switch {
		case err == nil || err == io.EOF:
			return n, err
		case !b.resumable(err):
			b.failed = b.g.fail("get", b.key, err)
			return n, b.failed
		}
		b.broke = err
		if n > 0 {
			return n, nil
		}
	}
}

// read reads once from the stream that is there.
func (b *body) read(p []byte) (int, error) {
	b.dog.touch()
	n, err := b.inner.Read(p)
	b.dog.rest()
	b.left -= int64(n)
	switch {
	case err == nil || err == io.EOF && b.left == 0:
		return n, err
	case err == io.EOF:
		err = fmt.Errorf("%w: the object ended %d bytes early or late: %w", ErrUnavailable, b.left, io.ErrUnexpectedEOF)
	}
	return n, b.dog.cause(b.ctx, err)
}

// resumable reports whether a stream that broke off may be read on. One that fails behind its last byte is not: it may
// be the store's own check of them all.
func (b *body) resumable(err error) bool {
	_, ranged := b.g.inner.(Ranged)
	return ranged && b.left > 0 && errors.Is(err, ErrUnavailable)
}

// resume opens the object at the next byte.
func (b *body) resume() error {
	_ = b.drop() // it is broken
	for at := b.info.Size - b.left; ; {
		if b.failures++; b.failures >= b.g.o.Attempts {
			return fmt.Errorf("after %d attempts at byte %d of %d: %w", b.failures, at, b.info.Size, b.broke)
		}
		if waited := b.g.o.wait(b.ctx, b.failures); waited != nil {
			return errors.Join(waited, b.broke)
		}
		next, err := b.g.open(b.ctx, b.key, at)
		switch {
		case err == nil && !next.info.same(b.info):
			return errors.Join(fmt.Errorf("%w: it broke off at byte %d of %d, and then had %d", ErrChanged, at, b.info.Size, next.info.Size), next.drop())
		case err == nil:
			b.inner, b.dog, b.broke = next.inner, next.dog, nil
			return nil
		case errors.Is(err, ErrNoRanges):
			return b.broke
		case !errors.Is(err, ErrUnavailable):
			return err
		}
		b.broke = err
	}
}

// drop ends the stream that is there.
func (b *body) drop() error {
	if b.inner == nil {
		return nil
	}
	inner := b.inner
	b.dog.end()
	b.inner = nil
	return inner.Close()
}

func (b *body) Close() error {
	if b.failed == nil {
		b.failed = b.g.fail("get", b.key, fs.ErrClosed)
	}
	return b.drop()
}

// Put implements Store. It tries once, unless r is an io.Seeker: then it goes back to where r began.
func (g *Guarded) Put(ctx context.Context, key string, r io.Reader) error {
	err := g.check(key)
	if err != nil {
		return g.fail("put", key, err)
	}
	seeker, again := r.(io.Seeker)
	var start int64
	if again {
		if start, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			again = false // a pipe is a file that can't seek
		}
	}
	for n := 1; ; n++ {
		err := g.put(ctx, key, r)
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, errStalled) || !again || n == g.o.Attempts {
			return g.fail("put", key, err)
		}
		if waited := g.o.wait(ctx, n); waited != nil {
			return g.fail("put", key, errors.Join(waited, err))
		}
		if _, err := seeker.Seek(start, io.SeekStart); err != nil {
			return g.fail("put", key, err)
		}
	}
}

func (g *Guarded) put(ctx context.Context, key string, r io.Reader) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	within, dog := watch(ctx, g.o.Stall)
	defer dog.end()
	p := newPump(within, dog, r)
	source := io.Reader(p.out)
	if s, ok := r.(Sized); ok {
		source = sizedPipe{p.out, s.Size()}
	}
	err := g.inner.Put(within, key, source)
	failed := p.stop(within)
	switch {
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case failed != nil:
		return failed
	case err != nil:
		return dog.cause(ctx, err)
	}
	return nil
}

// sizedPipe is the pump's end of a source that is Sized.
type sizedPipe struct {
	io.Reader
	size int64
}

func (s sizedPipe) Size() int64 { return s.size }

// pump reads a source on a goroutine of its own, so that one that blocks holds nobody up when the context ends. What the
// source fails with ends the context before the other side sees it.
type pump struct {
	out    *io.PipeReader
	unhook func() bool
	done   chan struct{}
	failed error // of the source; read it after done
}

const pumpBuffer = 256 << 10

func newPump(ctx context.Context, dog *watchdog, r io.Reader) *pump {
	out, in := io.Pipe()
	p := &pump{out: out, done: make(chan struct{})}
	p.unhook = context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer close(p.done)
		buf := make([]byte, pumpBuffer)
		for {
			n, err := r.Read(buf)
			dog.touch()
			if n > 0 {
				if _, closed := in.Write(buf[:n]); closed != nil {
					return
				}
				dog.touch()
			}
			if err == io.EOF {
				in.Close()
				return
			}
			if err != nil {
				p.failed = err
				dog.cancel(err)
				in.CloseWithError(err)
				return
			}
		}
	}()
	return p
}

// stop lets go of the source, and returns what it failed with. It waits for a Read that is under way, but not beyond the
// end of ctx.
func (p *pump) stop(ctx context.Context) error {
	p.unhook()
	p.out.Close()
	select {
	case <-p.done:
		return p.failed
	default:
	}
	select {
	case <-p.done:
		return p.failed
	case <-ctx.Done():
		return nil
	}
}
