package objects_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/mem"
)

// breaking is a driver whose streams break off: each one after the next count of bytes, and none once they are used up.
type breaking struct {
	*objects.Guarded
	after  []int64
	with   error
	opened []int64 // the offsets of the streams
	gave   int64
	// meanwhile comes before each stream but the first. refuse fails it.
	meanwhile func()
	refuse    error
}

func newBreaking(t *testing.T, value string, o objects.Options, after ...int64) (*breaking, *objects.Guarded) {
	t.Helper()
	m, err := mem.Open(objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &breaking{Guarded: m, after: after, with: errDown}
	b.put(t, value)
	g, err := objects.Guard(b, "breaking", o)
	if err != nil {
		t.Fatal(err)
	}
	return b, g
}

func (b *breaking) put(t *testing.T, value string) {
	t.Helper()
	if err := b.Put(t.Context(), "k", strings.NewReader(value)); err != nil {
		t.Fatal(err)
	}
}

func (b *breaking) Get(ctx context.Context, key string) (io.ReadCloser, objects.Info, error) {
	return b.GetFrom(ctx, key, 0)
}

func (b *breaking) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, objects.Info, error) {
	b.opened = append(b.opened, offset)
	if offset > 0 {
		if b.meanwhile != nil {
			b.meanwhile()
		}
		if b.refuse != nil {
			return nil, objects.Info{}, b.refuse
		}
	}
	r, info, err := b.Guarded.GetFrom(ctx, key, offset)
	if err != nil {
		return nil, info, err
	}
	s := &counted{ReadCloser: r, b: b, left: info.Size + 1}
	if len(b.after) > 0 {
		s.left, b.after = b.after[0], b.after[1:]
	}
	return s, info, nil
}

type counted struct {
	io.ReadCloser
	b    *breaking
	left int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.b.with
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.b.gave += int64(n)
	return n, err
}

const text = "0123456789abcdefghijklmnopqrstuvwxyz"

// TestBrokenStreamsAreReadOn breaks one stream at every offset, or many in a row. Each break costs one opening, at the
// next byte, and no byte comes twice.
func TestBrokenStreamsAreReadOn(t *testing.T) {
	cases := [][]int64{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {5, 1, 29}, {35, 0, 0}, {0, 0, 0}, {0, 1, 0, 0, 1, 0, 0, 5, 0, 0}}
	for at := range int64(len(text)) {
		cases = append(cases, []int64{at})
	}
	for _, after := range cases {
		for _, with := range []error{errDown, io.EOF} {
			synctest.Test(t, func(t *testing.T) {
				b, g := newBreaking(t, text, objects.Options{}, after...)
				b.with = with
				r, _, err := g.Get(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r)
				if err = errors.Join(err, r.Close()); err != nil || string(got) != text || b.gave != int64(len(text)) {
					t.Errorf("breaks after %v: %q of %d bytes sent, %v", after, got, b.gave, err)
				}
				want := []int64{0}
				for _, n := range after {
					want = append(want, want[len(want)-1]+n)
				}
				if fmt.Sprint(b.opened) != fmt.Sprint(want) {
					t.Errorf("breaks after %v: opened at %v, not %v", after, b.opened, want)
				}
			})
		}
	}
}

// TestBrokenStreamsEnd: attempts in a row without a byte end the reading, each after a longer pause; and a final answer
// ends it at once.
func TestBrokenStreamsEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  []int64
		refuse error
		want   error
		opened int
		pauses time.Duration
	}{
		{"no more bytes", []int64{5, 0, 0, 0}, nil, objects.ErrUnavailable, 4, 1400 * time.Millisecond},
		{"none at all", []int64{0, 0, 0, 0}, nil, objects.ErrUnavailable, 4, 1400 * time.Millisecond},
		{"progress begins a new count", []int64{5, 0, 0, 1, 0, 0, 0}, nil, objects.ErrUnavailable, 7, 2800 * time.Millisecond},
		{"not opened again", []int64{5}, errDown, objects.ErrUnavailable, 4, 1400 * time.Millisecond},
		{"behind its last byte", []int64{36}, nil, objects.ErrUnavailable, 1, 0},
		{"gone", []int64{5}, objects.ErrNotFound, objects.ErrNotFound, 2, 200 * time.Millisecond},
		{"no ranges", []int64{5}, objects.ErrNoRanges, objects.ErrUnavailable, 2, 200 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, g := newBreaking(t, text, objects.Options{}, c.after...)
			b.refuse = c.refuse
			begin := time.Now()
			r, _, err := g.Get(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.ReadAll(r)
			if !errors.Is(err, c.want) || len(b.opened) != c.opened {
				t.Errorf("%s: %v after %v", c.name, err, b.opened)
			}
			if took := time.Since(begin); took < c.pauses/2 || took > c.pauses {
				t.Errorf("%s: pauses of %v", c.name, took)
			}
			if _, again := r.Read(make([]byte, 1)); again != err || len(b.opened) != c.opened {
				t.Errorf("%s: the next read ended with %v after %v", c.name, again, b.opened)
			}
			if err := r.Close(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if _, err := r.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: read after its end", c.name)
			}
		})
	}
}

// TestChangedObjectIsNotReadOn: the rest of another object is not the rest of this one.
func TestChangedObjectIsNotReadOn(t *testing.T) {
	for name, value := range map[string]string{"other bytes": strings.ToUpper(text), "longer": text + "x", "shorter": text[1:]} {
		synctest.Test(t, func(t *testing.T) {
			b, g := newBreaking(t, text, objects.Options{}, 5)
			b.meanwhile = func() { b.put(t, value) }
			r, _, err := g.Get(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); !errors.Is(err, objects.ErrChanged) || string(got) != text[:5] {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStalledStreamIsReadOn: one that gives nothing is ended, and another one is opened.
func TestStalledStreamIsReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBreaking(t, text, objects.Options{Stall: time.Minute, Timeout: time.Second})
		driver := &stallsOnce{breaking: b}
		g, err := objects.Guard(driver, "stalling", objects.Options{Stall: time.Minute, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := g.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != text || driver.streams != 2 {
			t.Errorf("%q, %v after %d streams", got, err, driver.streams)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		driver.streams = 0
		if r, _, err = g.Get(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { cancel(io.ErrClosedPipe) })
		if _, err := io.ReadAll(r); !errors.Is(err, io.ErrClosedPipe) || driver.streams != 1 {
			t.Errorf("cancelled: %v after %d streams", err, driver.streams)
		}
	})
}

// stallsOnce is a driver whose first stream gives one byte, and then waits for the end of its context.
type stallsOnce struct {
	*breaking
	streams int
}

func (s *stallsOnce) Get(ctx context.Context, key string) (io.ReadCloser, objects.Info, error) {
	s.streams++
	_, info, err := s.breaking.GetFrom(ctx, key, 0)
	return io.NopCloser(io.MultiReader(strings.NewReader(text[:1]), &slowBody{ctx: ctx, blocks: true})), info, err
}

func (s *stallsOnce) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, objects.Info, error) {
	s.streams++
	return s.breaking.GetFrom(ctx, key, offset)
}
