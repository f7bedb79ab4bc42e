package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// SelfTest proves that the store's conditional write holds, on a pointer of its own under prefix, which it removes. A
// store that takes a write it must refuse, or refuses one it must take, is ErrUnsupported; any other error says that the
// test could not be made. It costs a dozen small requests.
func SelfTest(ctx context.Context, s Store, prefix string) (err error) {
	t := trial{ctx: ctx, s: s, key: prefix + "self-test-" + rand.Text()}
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := s.Delete(within, t.key); t.err == nil {
			t.err = err
		}
		err = t.err
	}()
	t.take("creation", "v1", "")
	t.refuse("a second creation", "v2", "")
	first := t.read("v1")
	t.take("replacement", "v3", first)
	t.refuse("a stale replacement", "v4", first)
	second := t.read("v3")
	t.delete()
	t.refuse("a replacement of what was deleted", "v5", second)
	t.take("creation after a deletion", "v6", "")
	t.read("v6")
	return nil
}

// trial is one run of SelfTest; after its first error it does nothing.
type trial struct {
	ctx context.Context
	s   Store
	key string
	err error
}

func broken(format string, args ...any) error {
	return fmt.Errorf("objects: self-test: %w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

func (t *trial) value(v string) []byte { return []byte(v + " of " + t.key) }

func (t *trial) take(what, v string, old Token) {
	if t.err != nil {
		return
	}
	switch err := t.s.SwapPointer(t.ctx, t.key, t.value(v), old); {
	case errors.Is(err, ErrConflict):
		t.err = broken("the store refuses %s", what)
	case err != nil:
		t.err = fmt.Errorf("objects: self-test: %s: %w", what, err)
	}
}

func (t *trial) refuse(what, v string, old Token) {
	if t.err != nil {
		return
	}
	switch err := t.s.SwapPointer(t.ctx, t.key, t.value(v), old); {
	case err == nil:
		t.err = broken("the store takes %s", what)
	case !errors.Is(err, ErrConflict):
		t.err = fmt.Errorf("objects: self-test: %s: %w", what, err)
	}
}

func (t *trial) read(v string) Token {
	if t.err != nil {
		return ""
	}
	value, token, err := t.s.ReadPointer(t.ctx, t.key)
	switch {
	case errors.Is(err, ErrNotFound):
		t.err = broken("a pointer that was stored is not there")
	case err != nil:
		t.err = fmt.Errorf("objects: self-test: read back: %w", err)
	case !bytes.Equal(value, t.value(v)):
		t.err = broken("the pointer holds %.40q, not %q", value, t.value(v))
	case token == "":
		t.err = broken("the store gives no token")
	}
	return token
}

func (t *trial) delete() {
	if t.err != nil {
		return
	}
	if err := t.s.Delete(t.ctx, t.key); err != nil {
		t.err = fmt.Errorf("objects: self-test: delete: %w", err)
	}
}

// ForPublishing returns s after SelfTest has passed. Where the store's conditional write doesn't hold it returns
// ErrUnsupported; with allowNonAtomic it returns WithNonAtomicPointerFallback(s) in that case.
func ForPublishing(ctx context.Context, s Store, prefix string, allowNonAtomic bool) (Store, error) {
	err := SelfTest(ctx, s, prefix)
	switch {
	case err == nil:
		return s, nil
	case allowNonAtomic && errors.Is(err, ErrUnsupported):
		return WithNonAtomicPointerFallback(s), nil
	}
	return nil, err
}

// WithNonAtomicPointerFallback swaps pointers of s by reading, comparing and writing. Two publishers at once may both
// succeed, and the pointer may then go back: it is for stores to which one process alone publishes.
func WithNonAtomicPointerFallback(s Store) Store { return nonAtomic{s} }

type nonAtomic struct{ Store }

// SwapPointer implements Store, but for the promise that it is atomic.
func (s nonAtomic) SwapPointer(ctx context.Context, key string, value []byte, old Token) error {
	now, token, err := s.ReadPointer(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		token = ""
	case err != nil:
		return err
	case bytes.Equal(now, value):
		return nil
	}
	if token != old {
		return fmt.Errorf("objects: swap pointer %q: %w", key, ErrConflict)
	}
	return s.Put(ctx, key, bytes.NewReader(value))
}
