package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/mem"
)

// rig is a driver over a store in memory whose operations can be made to fail.
type rig struct {
	objects.Store
	calls map[string]int
	// before and after run around each operation with the number of its call, from 1. What they return is its error.
	before, after func(op string, n int) error
	blocks        bool // every operation waits for the end of its context
}

func newRig(t *testing.T, o objects.Options) (*rig, *objects.Guarded) {
	t.Helper()
	m, err := mem.Open(objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	none := func(string, int) error { return nil }
	r := &rig{Store: m, calls: map[string]int{}, before: none, after: none}
	g, err := objects.Guard(r, "rig", o)
	if err != nil {
		t.Fatal(err)
	}
	return r, g
}

func (r *rig) do(ctx context.Context, op string, f func() error) error {
	r.calls[op]++
	n := r.calls[op]
	if r.blocks {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := r.before(op, n); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return r.after(op, n)
}

func (r *rig) Put(ctx context.Context, key string, in io.Reader) error {
	return r.do(ctx, "put", func() error { return r.Store.Put(ctx, key, in) })
}

func (r *rig) Get(ctx context.Context, key string) (out io.ReadCloser, info objects.Info, err error) {
	err = r.do(ctx, "get", func() (err error) {
		out, info, err = r.Store.Get(ctx, key)
		return err
	})
	return out, info, err
}

func (r *rig) Stat(ctx context.Context, key string) (info objects.Info, err error) {
	err = r.do(ctx, "stat", func() (err error) {
		info, err = r.Store.Stat(ctx, key)
		return err
	})
	return info, err
}

func (r *rig) Delete(ctx context.Context, key string) error {
	return r.do(ctx, "delete", func() error { return r.Store.Delete(ctx, key) })
}

func (r *rig) ReadPointer(ctx context.Context, key string) (value []byte, t objects.Token, err error) {
	err = r.do(ctx, "read", func() (err error) {
		value, t, err = r.Store.ReadPointer(ctx, key)
		return err
	})
	return value, t, err
}

func (r *rig) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	return r.do(ctx, "swap", func() error { return r.Store.SwapPointer(ctx, key, value, old) })
}

func (r *rig) CleanUploads(ctx context.Context, prefix string, olderThan time.Duration) error {
	return r.do(ctx, "clean", func() error { return nil })
}

func (r *rig) List(ctx context.Context, prefix string) iter.Seq2[objects.Object, error] {
	return func(yield func(objects.Object, error) bool) {
		r.calls["list"]++
		if r.blocks {
			<-ctx.Done()
			return // a driver that says nothing of it
		}
		for o, err := range r.Store.List(ctx, prefix) {
			if err := r.before("list "+o.Key, r.calls["list"]); err != nil {
				yield(objects.Object{}, err)
				return
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// failing fails the first calls of one operation.
func failing(op string, times int, err error) func(string, int) error {
	return func(at string, n int) error {
		if at == op && n <= times {
			return err
		}
		return nil
	}
}

var errDown = fmt.Errorf("%w: 503", objects.ErrUnavailable)

func TestRetries(t *testing.T) {
	ops := map[string]func(context.Context, objects.Store) error{
		"delete": func(ctx context.Context, s objects.Store) error { return s.Delete(ctx, "k") },
		"read": func(ctx context.Context, s objects.Store) error {
			_, _, err := s.ReadPointer(ctx, "k")
			return err
		},
		"get": func(ctx context.Context, s objects.Store) error {
			_, _, err := s.Get(ctx, "k")
			return err
		},
		"stat": func(ctx context.Context, s objects.Store) error {
			_, err := s.Stat(ctx, "k")
			return err
		},
		"put": func(ctx context.Context, s objects.Store) error { return s.Put(ctx, "k", strings.NewReader("v")) },
	}
	for op, run := range ops {
		for _, c := range []struct {
			times int
			fails error
			want  error
			calls int
		}{
			{0, errDown, nil, 1},
			{3, errDown, nil, 4},
			{4, errDown, objects.ErrUnavailable, 4},
			{1, objects.ErrDenied, objects.ErrDenied, 1},
			{1, io.ErrClosedPipe, io.ErrClosedPipe, 1},
		} {
			synctest.Test(t, func(t *testing.T) {
				r, g := newRig(t, objects.Options{})
				if err := r.Store.Put(t.Context(), "k", strings.NewReader("v")); err != nil {
					t.Fatal(err)
				}
				r.before = failing(op, c.times, c.fails)
				begin := time.Now()
				err := run(t.Context(), g)
				if !errors.Is(err, c.want) || r.calls[op] != c.calls {
					t.Errorf("%s, %d times %v: %v after %d calls", op, c.times, c.fails, err, r.calls[op])
				}
				if took := time.Since(begin); c.calls == 4 && (took < 700*time.Millisecond || took > 1400*time.Millisecond) {
					t.Errorf("%s: four attempts take %v", op, took)
				}
			})
		}
	}
}

func TestPutOfAStreamIsTriedOnce(t *testing.T) {
	r, g := newRig(t, objects.Options{})
	r.before = failing("put", 1, errDown)
	err := g.Put(t.Context(), "k", struct{ io.Reader }{strings.NewReader("v")})
	if !errors.Is(err, objects.ErrUnavailable) || r.calls["put"] != 1 {
		t.Errorf("%v after %d calls", err, r.calls["put"])
	}
}

func TestPutGoesBackToWhereTheReaderBegan(t *testing.T) {
	r, g := newRig(t, objects.Options{Backoff: 1})
	r.after = failing("put", 2, errDown)
	in := strings.NewReader("skipped value")
	if _, err := in.Seek(8, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := g.Put(t.Context(), "k", in); err != nil {
		t.Fatal(err)
	}
	if value, _, err := g.ReadPointer(t.Context(), "k"); string(value) != "value" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
}

func TestEveryWaitEnds(t *testing.T) {
	o := objects.Options{Timeout: time.Second, Stall: 3 * time.Second}
	for name, run := range map[string]func(context.Context, objects.Store) error{
		"delete": func(ctx context.Context, s objects.Store) error { return s.Delete(ctx, "k") },
		"read": func(ctx context.Context, s objects.Store) error {
			_, _, err := s.ReadPointer(ctx, "k")
			return err
		},
		"swap": func(ctx context.Context, s objects.Store) error { return s.SwapPointer(ctx, "k", nil, "") },
		"get": func(ctx context.Context, s objects.Store) error {
			_, _, err := s.Get(ctx, "k")
			return err
		},
		"stat": func(ctx context.Context, s objects.Store) error {
			_, err := s.Stat(ctx, "k")
			return err
		},
		"put":   func(ctx context.Context, s objects.Store) error { return s.Put(ctx, "k", strings.NewReader("v")) },
		"clean": func(ctx context.Context, s objects.Store) error { return s.CleanUploads(ctx, "k", 0) },
		"list": func(ctx context.Context, s objects.Store) (last error) {
			for _, err := range s.List(ctx, "k") {
				last = err
			}
			return last
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, g := newRig(t, o)
			r.blocks = true
			begin := time.Now()
			if err := run(t.Context(), g); !errors.Is(err, objects.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("%s takes %v", name, took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			begin = time.Now()
			err := run(ctx, g)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, objects.ErrUnavailable) {
				t.Errorf("%s under a short context: %v", name, err)
			}
			if took := time.Since(begin); took != 100*time.Millisecond {
				t.Errorf("%s ends %v after its context", name, took-100*time.Millisecond)
			}
		})
	}
}

// TestStalledBody: a body that gives nothing ends, and one whose reader takes its time does not.
func TestStalledBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := newRig(t, objects.Options{Timeout: time.Second, Stall: 3 * time.Second})
		slow := &slowBody{data: "value"}
		r.Store = bodyStore{r.Store, slow}
		body, _, err := g.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // virtual
		p := make([]byte, 2)
		if _, err := io.ReadFull(body, p); err != nil {
			t.Fatal(err)
		}
		slow.blocks = true
		if _, err := body.Read(p); !errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("stalled read: %v", err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestBodyThatEndsEarly(t *testing.T) {
	r, g := newRig(t, objects.Options{})
	r.Store = bodyStore{r.Store, &slowBody{data: "val"}}
	body, _, err := g.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(body); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("%q, %v", got, err)
	}
}

type bodyStore struct {
	objects.Store
	body *slowBody
}

func (s bodyStore) Get(ctx context.Context, _ string) (io.ReadCloser, objects.Info, error) {
	s.body.ctx = ctx
	return s.body, objects.Info{Size: 5}, nil
}

// slowBody gives a byte a read, or waits for the end of its context.
type slowBody struct {
	ctx    context.Context
	data   string
	blocks bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.blocks {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	if b.data == "" {
		return 0, io.EOF
	}
	p[0] = b.data[0]
	b.data = b.data[1:]
	return 1, nil
}

func (b *slowBody) Close() error { return nil }

// TestStalledReader: an upload whose reader gives nothing ends.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g := newRig(t, objects.Options{Stall: 3 * time.Second})
		in, out := io.Pipe()
		begin := time.Now()
		go func() {
			for range 5 {
				time.Sleep(2 * time.Second) // virtual: progress, if slow
				_, _ = out.Write([]byte("x"))
			}
		}()
		if err := g.Put(t.Context(), "k", in); !errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begin); took != 13*time.Second {
			t.Errorf("ended after %v", took)
		}
		if _, _, err := g.Get(t.Context(), "k"); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("a stalled upload left an object: %v", err)
		}
		in.Close() // ends the reads that were left behind
	})
}

func TestListGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := newRig(t, objects.Options{})
		want := []string{"a", "b", "c", "d", "e", "f"}
		for _, key := range want {
			if err := g.Put(t.Context(), key, strings.NewReader(key)); err != nil {
				t.Fatal(err)
			}
		}
		// Each call fails at the next key: more failures than attempts, but each gets further.
		r.before = func(op string, n int) error {
			if n <= len(want) && op == "list "+want[n-1] {
				return errDown
			}
			return nil
		}
		var got []string
		for o, err := range g.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, o.Key)
		}
		if strings.Join(got, "") != "abcdef" {
			t.Errorf("listed %q", got)
		}
		r.before = func(op string, _ int) error {
			if op == "list c" {
				return errDown
			}
			return nil
		}
		got, before := nil, r.calls["list"]
		var last error
		for o, err := range g.List(t.Context(), "") {
			if last = err; err == nil {
				got = append(got, o.Key)
			}
		}
		if strings.Join(got, "") != "ab" || !errors.Is(last, objects.ErrUnavailable) || r.calls["list"]-before != 4 {
			t.Errorf("listed %q, then %v, in %d calls", got, last, r.calls["list"]-before)
		}
	})
}

func TestLargePointers(t *testing.T) {
	r, g := newRig(t, objects.Options{MaxPointer: 10})
	if err := g.SwapPointer(t.Context(), "k", make([]byte, 11), ""); !errors.Is(err, objects.ErrTooLarge) {
		t.Errorf("swap: %v", err)
	}
	if err := g.SwapPointer(t.Context(), "k", make([]byte, 10), ""); err != nil {
		t.Errorf("swap: %v", err)
	}
	if err := r.Store.Put(t.Context(), "k", bytes.NewReader(make([]byte, 11))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.ReadPointer(t.Context(), "k"); !errors.Is(err, objects.ErrTooLarge) {
		t.Errorf("read: %v", err)
	}
}

// TestListOutOfOrder: what a listing would skip is told.
func TestListOutOfOrder(t *testing.T) {
	r, g := newRig(t, objects.Options{})
	r.Store = disordered{r.Store}
	var got string
	var last error
	for o, err := range g.List(t.Context(), "") {
		got, last = got+o.Key, err
	}
	if got != "b" || !errors.Is(last, objects.ErrOrder) {
		t.Errorf("listed %q, then %v", got, last)
	}
}

type disordered struct{ objects.Store }

func (disordered) List(context.Context, string) iter.Seq2[objects.Object, error] {
	return func(yield func(objects.Object, error) bool) {
		_ = yield(objects.Object{Key: "b"}, nil) && yield(objects.Object{Key: "a"}, nil)
	}
}
