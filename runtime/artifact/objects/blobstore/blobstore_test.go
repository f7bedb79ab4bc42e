package blobstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/blobstore"
	"github.com/typedfold/fold/runtime/artifact/objects/objectstest"
)

// errRaced is what the condition of a test's bucket answers.
var errRaced = errors.New("raced")

// TestConformance runs over a bucket of Go CDK that publishes what a writer got when it is closed, even after a failure:
// what the store must prevent.
func TestConformance(t *testing.T) {
	var places sync.Map
	objectstest.RunConformance(t, objectstest.Harness{
		Place: func(t *testing.T) string {
			b := memblob.OpenBucket(nil)
			t.Cleanup(func() { _ = b.Close() })
			places.Store(t.Name(), &shared{bucket: b})
			return t.Name()
		},
		Open: func(_ context.Context, place string) (objects.Store, error) {
			s, _ := places.Load(place)
			return s.(*shared).open()
		},
		Many: 1010,
	})
}

// shared is a bucket whose pointers are swapped under a lock: memblob has no condition for a replacement.
type shared struct {
	mu     sync.Mutex
	bucket *blob.Bucket
}

func (s *shared) open() (objects.Store, error) {
	g, err := blobstore.New(blob.PrefixedBucket(s.bucket, ""), "memblob", blobstore.Driver{}, blobstore.Options{})
	if err != nil {
		return nil, err
	}
	return objects.Guard(&locked{Guarded: g, s: s, swap: objects.WithNonAtomicPointerFallback(unclosed{g})}, "memblob", objects.Options{})
}

type locked struct {
	*objects.Guarded
	s    *shared
	swap objects.Store
}

func (l *locked) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.swap.SwapPointer(ctx, key, value, old)
}

// Close leaves the bucket to the other stores.
func (l *locked) Close() error { return nil }

type unclosed struct{ objects.Store }

func (unclosed) Close() error { return nil }

func TestWithoutConditionsItFailsClosed(t *testing.T) {
	g, err := blobstore.New(memblob.OpenBucket(nil), "memblob", blobstore.Driver{}, blobstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SwapPointer(t.Context(), "k", []byte("v"), ""); !errors.Is(err, objects.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if _, err := objects.ForPublishing(t.Context(), g, "", false); !errors.Is(err, objects.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if _, _, err := g.ReadPointer(t.Context(), "k"); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("a refused swap left a value: %v", err)
	}
	s, err := objects.ForPublishing(t.Context(), g, "", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SwapPointer(t.Context(), "k", []byte("v"), ""); err != nil {
		t.Errorf("%v", err)
	}
	if err := g.CleanUploads(t.Context(), "", 0); err != nil {
		t.Error(err)
	}
}

// TestConditionThatCantBeSet: what BeforeWrite refuses is never sent.
func TestConditionThatCantBeSet(t *testing.T) {
	var failing error
	d := blobstore.Driver{
		Token:     func(*blob.Reader) (objects.Token, error) { return "t", nil },
		Condition: func(func(any) bool, objects.Token, int) error { return failing },
		Classify: func(err error) error {
			if errors.Is(err, errRaced) {
				return fmt.Errorf("%w: %w", objects.ErrConflict, err)
			}
			return blobstore.ByCode(err)
		},
	}
	g, err := blobstore.New(memblob.OpenBucket(nil), "memblob", d, blobstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ gives, want error }{
		{objects.ErrUnsupported, objects.ErrUnsupported},
		{errRaced, objects.ErrConflict},
	} {
		failing = c.gives
		if err := g.SwapPointer(t.Context(), "k", []byte("v"), "old"); !errors.Is(err, c.want) {
			t.Errorf("%v gives %v", c.gives, err)
		}
		if _, _, err := g.ReadPointer(t.Context(), "k"); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("%v: %v", c.gives, err)
		}
	}
	d.BeforePut = func(func(any) bool, blobstore.Parts) error { return errRaced }
	g, err = blobstore.New(memblob.OpenBucket(nil), "memblob", d, blobstore.Options{Options: objects.Options{Backoff: 1}})
	if err != nil {
		t.Fatal(err)
	}
	err = g.Put(t.Context(), "k", strings.NewReader("v"))
	if !errors.Is(err, objects.ErrUnavailable) || errors.Is(err, objects.ErrConflict) {
		t.Errorf("a payload that another request is in the way of: %v", err)
	}
}

func TestByStatus(t *testing.T) {
	cause := errors.New("cause")
	for status, want := range map[int]error{
		0: objects.ErrUnavailable, 408: objects.ErrUnavailable, 425: objects.ErrUnavailable, 429: objects.ErrUnavailable,
		500: objects.ErrUnavailable, 503: objects.ErrUnavailable, 401: objects.ErrDenied, 403: objects.ErrDenied,
		404: objects.ErrNotFound, 409: objects.ErrConflict, 412: objects.ErrConflict, 501: objects.ErrUnsupported,
		400: nil, 301: nil, 416: nil,
	} {
		err := blobstore.ByStatus(status, cause)
		if !errors.Is(err, cause) || want != nil && !errors.Is(err, want) || want == nil && err != cause {
			t.Errorf("%d %s: %v", status, http.StatusText(status), err)
		}
	}
}

// TestPartsFor: no object that S3 takes has more parts than it takes, and memory stays in bounds.
func TestPartsFor(t *testing.T) {
	const mib, gib, tib = int64(1) << 20, int64(1) << 30, int64(1) << 40
	for _, o := range []blobstore.Options{{}, {PartSize: 5 << 20, Parallel: 1}, {PartSize: 64 << 20, Parallel: 4}} {
		o = o.WithDefaults()
		base, last := int64(o.PartSize), int64(0)
		sizes := []int64{-1, 0, 1, 5 * gib, 9000*base - 1, 9000 * base, 9000*base + 1, 80 * gib, 100 * gib, 500 * gib, tib, 5*tib - 1, 5 * tib}
		slices.Sort(sizes)
		for _, size := range sizes {
			p := o.PartsFor(size)
			part, parallel := int64(p.Size), int64(p.Parallel)
			if parts := (size + part - 1) / part; parts > 9000 {
				t.Errorf("%d bytes: %d parts of %d", size, parts, part)
			}
			if size < 9000*base && (part != base || p.Parallel != o.Parallel) || part < base || part > 5*gib || part%mib != 0 {
				t.Errorf("%d bytes: parts of %d, %d at once", size, part, parallel)
			}
			if parallel < min(2, int64(o.Parallel)) || parallel > int64(o.Parallel) || parallel > 2 && part*parallel > base*int64(o.Parallel) {
				t.Errorf("%d bytes: %d parts of %d at once", size, parallel, part)
			}
			if part > max(base, size/9000+mib) || part < last {
				t.Errorf("%d bytes: parts of %d, larger than needed", size, part)
			}
			last = part
		}
	}
	if p := (blobstore.Options{}).WithDefaults().PartsFor(1 << 40); p.Size != 117<<20 || p.Parallel != 2 {
		t.Errorf("a TiB goes in %+v", p)
	}
}

// TestPartsFollowTheHint: what a reader says reaches the driver, through the guard and the retries.
func TestPartsFollowTheHint(t *testing.T) {
	var got []blobstore.Parts
	d := blobstore.Driver{BeforePut: func(_ func(any) bool, p blobstore.Parts) error {
		if got = append(got, p); len(got) == 1 {
			return fmt.Errorf("%w: once", errRaced)
		}
		return nil
	}}
	g, err := blobstore.New(memblob.OpenBucket(nil), "memblob", d, blobstore.Options{Options: objects.Options{Backoff: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Put(t.Context(), "k", &says{ReadSeeker: strings.NewReader("v"), size: 100 << 30}); err != nil {
		t.Fatal(err)
	}
	if err := g.Put(t.Context(), "k", struct{ io.Reader }{strings.NewReader("v")}); err != nil {
		t.Fatal(err)
	}
	large, usual := blobstore.Parts{Size: 12 << 20, Parallel: 5}, blobstore.Parts{Size: 8 << 20, Parallel: 8}
	if !slices.Equal(got, []blobstore.Parts{large, large, usual}) {
		t.Errorf("%+v", got)
	}
}

type says struct {
	io.ReadSeeker
	size int64
}

func (s *says) Size() int64 { return s.size }

func TestOptions(t *testing.T) {
	for _, bad := range []blobstore.Options{{PartSize: -1}, {PartSize: 1 << 20}, {Parallel: -1}, {Options: objects.Options{Stall: -time.Second}}} {
		if _, err := blobstore.New(memblob.OpenBucket(nil), "memblob", blobstore.Driver{}, bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
