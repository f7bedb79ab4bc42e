package kvtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Target is one bucket under test: empty, never written, with history 1, and nobody else writes to it.
type Target struct {
	Bucket kv.Bucket
	Can    Capabilities
	Admin  Admin
	// Markers is what the log says of its delete markers.
	Markers protocol.MarkerRules
	// Wait bounds each wait for what must come; default a minute.
	Wait time.Duration
}

// Capabilities are what not every target has. The suite checks what is claimed, and the refusal of a TTL where it is
// not; a claim whose Admin function is missing fails.
type Capabilities struct {
	// TTL: a put may name one.
	TTL bool
	// EmptyPutIsTombstone: the bucket was opened to read a put without bytes as a delete.
	EmptyPutIsTombstone bool
	// Sealed: the bucket refuses whatever could take a delete marker out of its log, purges too.
	Sealed bool
	// AgeOut needs Admin.PutAgedOut.
	AgeOut bool
	// PurgeMarkers needs Admin.PurgeMarkers.
	PurgeMarkers bool
	// Rewind needs Admin.Rewind.
	Rewind bool
}

// Admin is what a test does to the bucket past the port. EvictTo and Recreate are required.
type Admin struct {
	// EvictTo removes every message below rev; rev may be one past the last.
	EvictTo func(ctx context.Context, rev uint64) error
	// Recreate deletes the bucket and makes it anew, under the same name and settings.
	Recreate func(ctx context.Context) error
	// PutAgedOut puts a value and returns once its age has removed it and the server's MaxAge marker is there.
	PutAgedOut func(ctx context.Context, key string, value []byte) error
	// PurgeMarkers removes all tombstones from inside the log.
	PurgeMarkers func(ctx context.Context) error
	// Rewind takes the log back to when rev was its last revision; its creation time stays.
	Rewind func(ctx context.Context, rev uint64) error
}

type conformanceCase struct {
	name    string
	applies func(Capabilities) bool // nil is always
	run     func(*suite)
}

func unsealed(c Capabilities) bool { return !c.Sealed }

// RunConformance checks that a bucket keeps what package kv promises, batches too where it is a kv.Batcher, and fences where it is a kv.Fencer. Each case gets a target of its own.
func RunConformance(t *testing.T, newTarget func(t *testing.T) Target) {
	first := newTarget(t)
	can := first.Can
	ok := t.Run("Capabilities", func(t *testing.T) {
		for _, missing := range first.missing() {
			t.Errorf("the target has no Admin.%s", missing)
		}
	})
	if !ok {
		return
	}
	cases := slices.Concat(writeCases, listCases, lastCases, watchCases, resumeCases)
	if fences(&first) {
		cases = append(cases, fenceCases...)
	}
	if batches(&first) {
		cases = append(cases, batchCases...)
	}
	for _, c := range cases {
		if c.applies != nil && !c.applies(can) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(newSuite(t, newTarget(t))) })
	}
}

func (g *Target) missing() []string {
	var out []string
	for _, need := range []struct {
		name string
		is   bool
		has  bool
	}{
		{"EvictTo", true, g.Admin.EvictTo != nil},
		{"Recreate", true, g.Admin.Recreate != nil},
		{"PutAgedOut", g.Can.AgeOut, g.Admin.PutAgedOut != nil},
		{"PurgeMarkers", g.Can.PurgeMarkers, g.Admin.PurgeMarkers != nil},
		{"Rewind", g.Can.Rewind, g.Admin.Rewind != nil},
	} {
		if need.is && !need.has {
			out = append(out, need.name)
		}
	}
	return out
}

// suite is one case's target and the calls that cases share. Its context bounds the whole case.
type suite struct {
	*testing.T
	kv.Bucket
	target Target
	wait   time.Duration
	ctx    context.Context
}

func newSuite(t *testing.T, g Target) *suite {
	wait := g.Wait
	if wait == 0 {
		wait = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	t.Cleanup(cancel)
	return &suite{T: t, Bucket: g.Bucket, target: g, wait: wait, ctx: ctx}
}

// Name is the bucket's, not the test's.
func (s *suite) Name() string { return s.Bucket.Name() }

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) put(key, value string) kv.Version {
	s.Helper()
	v, err := s.Put(s.ctx, key, []byte(value), kv.PutOptions{})
	s.must(err)
	return v
}

func (s *suite) del(key string) kv.Version {
	s.Helper()
	v, err := s.Delete(s.ctx, key, kv.DeleteOptions{})
	s.must(err)
	return v
}

func (s *suite) info() kv.LogInfo {
	s.Helper()
	info, err := s.Info(s.ctx)
	s.must(err)
	return info
}

// is fails unless err matches the sentinel.
func (s *suite) is(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("got %v, want %v", err, want)
	}
}

// as fails unless err holds a T, and returns it.
func as[T error](s *suite, err error) T {
	s.Helper()
	var want T
	if !errors.As(err, &want) {
		s.Fatalf("got %v (%T), want a %T", err, err, want)
	}
	return want
}

func equal[T comparable](s *suite, what string, got, want T) {
	s.Helper()
	if got != want {
		s.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (s *suite) scope(prefixes ...string) kv.Scope {
	s.Helper()
	if len(prefixes) == 0 {
		return kv.AllKeys()
	}
	scope, err := kv.Prefixes(prefixes...)
	s.must(err)
	return scope
}

// reader reads one watch and checks, with every delivery, what the port promises of all of them.
type reader struct {
	s        *suite
	w        kv.Watch
	scope    kv.Scope
	frontier uint64
	newest   uint64
	max      int
	maxBytes int
}

func (s *suite) open(req kv.OpenRequest) *reader {
	s.Helper()
	w, err := s.Open(s.ctx, req)
	s.must(err)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.wait)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	return &reader{s: s, w: w, scope: req.Scope, newest: req.After.Revision(), max: 100, maxBytes: 1 << 20}
}

// boundedNext is one Next call, which fails the test when it goes on after its context.
func (s *suite) boundedNext(ctx context.Context, w kv.Watch, into kv.Delivery, limit, maxBytes int) (kv.Delivery, error) {
	s.Helper()
	type result struct {
		d   kv.Delivery
		err error
	}
	done := make(chan result, 1)
	go func() {
		d, err := w.Next(ctx, into, limit, maxBytes)
		done <- result{d, err}
	}()
	select {
	case r := <-done:
		return r.d, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.d, r.err
	case <-time.After(10 * time.Second):
		s.Fatal("Next goes on after its context has ended")
		return kv.Delivery{}, nil
	}
}

// next is one Next call.
func (r *reader) next() (kv.Delivery, error) {
	s := r.s
	s.Helper()
	d, err := s.boundedNext(s.ctx, r.w, kv.Delivery{}, r.max, r.maxBytes)
	if err != nil {
		return d, err
	}
	if len(d.Updates) == 0 && d.Frontier == 0 {
		s.Fatal("a Next told nothing")
	}
	size := 0
	for i := range d.Updates {
		u := &d.Updates[i]
		rev, ok := u.Version.Uint64()
		switch {
		case !ok:
			s.Fatalf("update of %q has version %v", u.Key, u.Version)
		case rev <= r.newest:
			s.Fatalf("revision %d came after revision %d", rev, r.newest)
		case rev <= r.frontier:
			s.Fatalf("revision %d came after frontier %d", rev, r.frontier)
		case !r.scope.Contains(u.Key):
			s.Fatalf("key %q is not in scope %v", u.Key, r.scope)
		}
		r.newest = rev
		size += u.Size()
	}
	if len(d.Updates) > r.max || len(d.Updates) > 1 && size > r.maxBytes {
		s.Fatalf("%d updates of %d bytes; asked for at most %d and %d", len(d.Updates), size, r.max, r.maxBytes)
	}
	if d.Frontier != 0 && (d.Frontier < r.newest || d.Frontier < r.frontier) {
		s.Fatalf("frontier %d is behind revision %d or frontier %d", d.Frontier, r.newest, r.frontier)
	}
	r.frontier = max(r.frontier, d.Frontier)
	return d, nil
}

// to reads until the frontier has reached rev, and returns the updates.
func (r *reader) to(rev uint64) []kv.Update {
	r.s.Helper()
	var out []kv.Update
	for r.frontier < rev {
		d, err := r.next()
		if err != nil {
			r.s.Fatalf("after frontier %d, waiting for %d: %v", r.frontier, rev, err)
		}
		out = append(out, d.Updates...)
	}
	return out
}

// fold applies updates to a map as a fold does.
func fold(into map[string]string, updates []kv.Update) {
	for _, u := range updates {
		if u.Op.Removes() {
			delete(into, u.Key)
		} else if u.Op == kv.OpPut {
			into[u.Key] = string(u.Value)
		}
	}
}
