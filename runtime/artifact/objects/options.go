package objects

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of Options.
const (
	DefaultTimeout    = 30 * time.Second
	DefaultStall      = 5 * time.Minute
	DefaultAttempts   = 4
	DefaultBackoff    = 200 * time.Millisecond
	DefaultMaxBackoff = 5 * time.Second
	DefaultMaxPointer = 64 << 20
)

// Options bound what a Guarded waits for. The zero value is good.
type Options struct {
	// Timeout bounds one attempt of an operation that moves no payload, and of the opening of an object; 0 is
	// DefaultTimeout.
	Timeout time.Duration
	// Stall bounds how long a payload may make no progress, at either end, and one attempt at CleanUploads as a whole;
	// 0 is DefaultStall. A part of 8 MiB is no progress until it is taken whole.
	Stall time.Duration
	// Attempts is how often an operation is tried at most; 0 is DefaultAttempts.
	Attempts int
	// Backoff is the wait after the first attempt. It doubles up to MaxBackoff, and each wait is shortened by up to a
	// half, at random. 0 is DefaultBackoff and DefaultMaxBackoff.
	Backoff, MaxBackoff time.Duration
	// MaxPointer is the largest pointer in bytes; 0 is DefaultMaxPointer.
	MaxPointer int64
}

// Validate reports settings that mean nothing.
func (o Options) Validate() error {
	if o.Timeout < 0 || o.Stall < 0 || o.Backoff < 0 || o.MaxBackoff < 0 {
		return fmt.Errorf("objects: timeout %v, stall %v, backoff %v and max backoff %v must not be negative",
			o.Timeout, o.Stall, o.Backoff, o.MaxBackoff)
	}
	if o.Attempts < 0 || o.MaxPointer < 0 {
		return fmt.Errorf("objects: attempts %d and max pointer %d must not be negative", o.Attempts, o.MaxPointer)
	}
	if d := o.withDefaults(); d.Backoff > d.MaxBackoff {
		return fmt.Errorf("objects: backoff %v is over max backoff %v", d.Backoff, d.MaxBackoff)
	}
	return nil
}

func (o Options) withDefaults() Options {
	orDefault(&o.Timeout, DefaultTimeout)
	orDefault(&o.Stall, DefaultStall)
	orDefault(&o.Attempts, DefaultAttempts)
	orDefault(&o.Backoff, DefaultBackoff)
	orDefault(&o.MaxBackoff, max(DefaultMaxBackoff, o.Backoff))
	orDefault(&o.MaxPointer, DefaultMaxPointer)
	return o
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// wait is the pause before the attempt n, counted from 0; it ends early with ctx.
func (o *Options) wait(ctx context.Context, n int) error {
	d := o.Backoff
	for range n - 1 {
		d = min(2*d, o.MaxBackoff)
	}
	d -= rand.N(d/2 + 1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
