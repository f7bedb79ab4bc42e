package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"
)

// Guarded is a Store that bounds what another one does: it checks keys, ends every attempt in time, retries what failed
// with ErrUnavailable, and settles a pointer's swap whose answer was lost by reading the pointer. Its errors are *Error.
type Guarded struct {
	inner  Store
	name   string
	o      Options
	closed atomic.Bool
}

// Guard makes a driver a Store. The driver's part:
//   - It returns when ctx ends, reads included. Readers that Put gets fail only after its ctx ended, so an upload that
//     is cancelled with its ctx publishes nothing.
//   - It marks an error with ErrUnavailable, by wrapping, where the operation may have happened or may work next time;
//     any other error but the end of ctx is final.
//
// The name is the store's in errors, and must hold no credentials; RedactURL makes one of a URL. Close closes the driver.
func Guard(driver Store, name string, o Options) (*Guarded, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Guarded{inner: driver, name: name, o: o.withDefaults()}, nil
}

// Name is the store's name, without credentials.
func (g *Guarded) Name() string { return g.name }

func (g *Guarded) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Store: g.name, Key: key, Err: err}
}

func (g *Guarded) check(key string) error {
	if g.closed.Load() {
		return ErrClosed
	}
	return CheckKey(key)
}

// attempt runs f under a timeout. The end of the attempt's own time is ErrUnavailable; the end of ctx is ctx's cause.
func attempt(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(within)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case within.Err() != nil && !settled(err):
		return fmt.Errorf("%w: no answer in %v: %w", ErrUnavailable, limit, err)
	}
	return err
}

// settled reports whether a store's answer, not the lack of one, is the error.
func settled(err error) bool {
	for _, final := range []error{ErrNotFound, ErrConflict, ErrUnsupported, ErrNoBucket, ErrDenied, ErrTooLarge, ErrChanged, ErrNoRanges, ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// retry runs f until it returns no ErrUnavailable, at most Attempts times.
func (g *Guarded) retry(ctx context.Context, f func(context.Context) error) error {
	for n := 1; ; n++ {
		err := attempt(ctx, g.o.Timeout, f)
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		if n == g.o.Attempts {
			return fmt.Errorf("after %d attempts: %w", n, err)
		}
		if waited := g.o.wait(ctx, n); waited != nil {
			return errors.Join(waited, err)
		}
	}
}

// Delete implements Store.
func (g *Guarded) Delete(ctx context.Context, key string) error {
	err := g.check(key)
	if err == nil {
		err = g.retry(ctx, func(ctx context.Context) error { return g.inner.Delete(ctx, key) })
	}
	return g.fail("delete", key, err)
}

// ReadPointer implements Store.
func (g *Guarded) ReadPointer(ctx context.Context, key string) ([]byte, Token, error) {
	err := g.check(key)
	var value []byte
	var token Token
	if err == nil {
		err = g.retry(ctx, func(ctx context.Context) (err error) {
			value, token, err = g.inner.ReadPointer(ctx, key)
			return err
		})
	}
	if err == nil && int64(len(value)) > g.o.MaxPointer {
		err = tooLarge(len(value), g.o.MaxPointer)
	}
	if err != nil {
		return nil, "", g.fail("read pointer", key, err)
	}
	return value, token, nil
}

func tooLarge(size int, limit int64) error {
	return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, size, limit)
}

// SwapPointer implements Store.
func (g *Guarded) SwapPointer(ctx context.Context, key string, value []byte, old Token) error {
	err := g.check(key)
	if err == nil && int64(len(value)) > g.o.MaxPointer {
		err = tooLarge(len(value), g.o.MaxPointer)
	}
	if err == nil {
		err = g.swap(ctx, key, value, old)
	}
	return g.fail("swap pointer", key, err)
}

func (g *Guarded) swap(ctx context.Context, key string, value []byte, old Token) error {
	for n := 1; ; n++ {
		err := attempt(ctx, g.o.Timeout, func(ctx context.Context) error { return g.inner.SwapPointer(ctx, key, value, old) })
		if err == nil || !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnavailable) {
			return err
		}
		done, settledErr := g.settle(ctx, key, value, old, err)
		if done {
			return settledErr
		}
		if n == g.o.Attempts {
			return fmt.Errorf("after %d attempts: %w", n, err)
		}
		if waited := g.o.wait(ctx, n); waited != nil {
			return errors.Join(waited, ErrUnavailable, err)
		}
	}
}

// settle reads the pointer after a swap that met a conflict or has no known outcome. A refusal may be the store's answer
// to the second sending of a request whose first was carried out, so our own value is a success. The pointer as it was
// says that the swap may be tried again: it is conditional, so an earlier one that is still under way can't do harm.
func (g *Guarded) settle(ctx context.Context, key string, value []byte, old Token, cause error) (done bool, err error) {
	now, token, err := g.ReadPointer(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		token = ""
	case err != nil:
		return true, fmt.Errorf("%w: the swap failed (%w), and the pointer can't be read: %w", ErrUnavailable, cause, err)
	case bytes.Equal(now, value):
		return true, nil
	}
	if token == old {
		return false, nil
	}
	if errors.Is(cause, ErrConflict) {
		return true, cause
	}
	return true, fmt.Errorf("%w, read after: %v", ErrConflict, cause) // not wrapped: the outcome is known now
}

// CleanUploads implements Store.
func (g *Guarded) CleanUploads(ctx context.Context, prefix string, olderThan time.Duration) error {
	if g.closed.Load() {
		return g.fail("clean uploads", prefix, ErrClosed)
	}
	err := attempt(ctx, g.o.Stall, func(ctx context.Context) error { return g.inner.CleanUploads(ctx, prefix, olderThan) })
	return g.fail("clean uploads", prefix, err)
}

// List implements Store. After a failure it asks again, and goes on behind the last key.
func (g *Guarded) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		last, failures := "", 0
		for {
			seen := last
			stopped, err := g.listOnce(ctx, prefix, &last, yield)
			if stopped || err == nil {
				return
			}
			if last > seen {
				failures = 0
			}
			failures++
			if errors.Is(err, ErrUnavailable) && failures < g.o.Attempts {
				if waited := g.o.wait(ctx, failures); waited == nil {
					continue
				}
			}
			yield(Object{}, g.fail("list", prefix, err))
			return
		}
	}
}

// listOnce yields what comes behind last, and moves it.
func (g *Guarded) listOnce(ctx context.Context, prefix string, last *string, yield func(Object, error) bool) (stopped bool, err error) {
	if g.closed.Load() {
		return false, ErrClosed
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	within, dog := watch(ctx, g.o.Timeout)
	defer dog.end()
	resume := *last
	for object, err := range g.inner.List(within, prefix) {
		if err != nil {
			return false, dog.cause(ctx, err)
		}
		if object.Key <= resume || CheckKey(object.Key) != nil {
			continue // seen before, or none of ours
		}
		if object.Key <= *last {
			return false, fmt.Errorf("%w: %q comes after %q", ErrOrder, object.Key, *last)
		}
		*last = object.Key
		dog.rest()
		if !yield(object, nil) {
			return true, nil
		}
		dog.touch()
	}
	if within.Err() != nil {
		return false, dog.cause(ctx, within.Err())
	}
	return false, nil
}

// Close implements Store. The second call does nothing.
func (g *Guarded) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	return g.fail("close", "", g.inner.Close())
}

// Stat implements Store.
func (g *Guarded) Stat(ctx context.Context, key string) (info Info, err error) {
	if err = g.check(key); err == nil {
		err = g.retry(ctx, func(ctx context.Context) (err error) {
			info, err = g.inner.Stat(ctx, key)
			return err
		})
	}
	if err != nil {
		return Info{}, g.fail("stat", key, err)
	}
	return info, nil
}

// Get implements Store. Where the driver is a Ranged, a stream that breaks off is read on from its next byte, as often as
// it takes: only Attempts in a row without a byte end it. An object that was replaced meanwhile is ErrChanged.
func (g *Guarded) Get(ctx context.Context, key string) (io.ReadCloser, Info, error) {
	return g.GetFrom(ctx, key, 0)
}

// GetFrom implements Ranged, where the driver does.
func (g *Guarded) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, Info, error) {
	if err := g.check(key); err != nil {
		return nil, Info{}, g.fail("get", key, err)
	}
	for n := 1; ; n++ {
		body, err := g.open(ctx, key, offset)
		if err == nil {
			return body, body.info, nil
		}
		if errors.Is(err, ErrUnavailable) && n < g.o.Attempts && g.o.wait(ctx, n) == nil {
			continue
		}
		return nil, Info{}, g.fail("get", key, err)
	}
}

// open opens an object at a byte of it, in one attempt.
func (g *Guarded) open(ctx context.Context, key string, offset int64) (_ *body, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	b := &body{g: g, ctx: ctx, key: key}
	within, dog := watch(ctx, g.o.Timeout)
	if offset == 0 {
		b.inner, b.info, err = g.inner.Get(within, key)
	} else {
		b.inner, b.info, err = getFrom(within, g.inner, key, offset)
	}
	if err != nil {
		err = dog.cause(ctx, err)
		dog.end()
		return nil, err
	}
	dog.rest()
	dog.limit = g.o.Stall
	b.dog, b.left = dog, b.info.Size-offset
	return b, nil
}
