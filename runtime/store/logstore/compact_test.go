package logstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

var ctxBackground = context.Background()

func TestCompactionIsBounded(t *testing.T) {
	m := newMemFS()
	var done []Compaction
	s := mustOpen(t, m, Options{CompactBytes: 2000, Hooks: Hooks{Compacted: func(c Compaction) { done = append(done, c) }}})
	value := strings.Repeat("v", 100)
	var applied, rewritten int64
	for n := uint64(1); n <= 400; n++ {
		before := s.Stats().DiskBytes
		if err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put(fmt.Sprintf("k%d", n%50), value, n)}}, kv.CursorAt(n)); err != nil {
			t.Fatal(err)
		}
		if after := s.Stats().DiskBytes; after > before {
			applied += int64(after - before)
		}
	}
	live := s.table.live
	for _, c := range done {
		rewritten += c.After
		if c.Before-c.After <= 0 || c.Keys == 0 || c.Cursor.IsNone() {
			t.Errorf("a rewrite of %+v", c)
		}
	}
	if len(done) < 3 || rewritten > applied+2*live {
		t.Errorf("%d rewrites of %d bytes for %d applied, %d live", len(done), rewritten, applied, live)
	}
	if got := int64(s.Stats().DiskBytes); got > 2*live+2*2000 {
		t.Errorf("the log has %d bytes for %d live", got, live)
	}
	if s.table.tree.Len() != 50 {
		t.Errorf("%d keys", s.table.tree.Len())
	}
	var sum int64
	s.table.tree.Scan(func(e entry) bool { sum += e.size(); return true })
	if sum != live {
		t.Errorf("live is %d, counted %d", live, sum)
	}
}

func TestFailedCompactionGoesOn(t *testing.T) {
	const compactBytes, valueBytes = 2000, 300
	m := newMemFS()
	var failed []error
	s := mustOpen(t, m, Options{CompactBytes: compactBytes, Hooks: Hooks{CompactionFailed: func(err error) { failed = append(failed, err) }}})
	n := uint64(0)
	apply := func() (shrunk bool) {
		t.Helper()
		n++
		before := s.Stats().DiskBytes
		if err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put("k", strings.Repeat("v", valueBytes), n)}}, kv.CursorAt(n)); err != nil {
			t.Fatal(err)
		}
		return s.Stats().DiskBytes < before
	}
	for s.size-s.base <= compactBytes {
		apply()
	}
	m.failAt = m.calls + 1 // the first call of the rewrite that is due
	if apply() || len(failed) != 1 || !errors.Is(failed[0], errInjected) {
		t.Fatalf("the hook heard %v", failed)
	}
	tries := 0
	for !apply() {
		if tries++; tries > 2*compactBytes/valueBytes {
			t.Fatal("it is not tried again")
		}
	}
	if tries < compactBytes/valueBytes/2 || len(failed) != 1 {
		t.Fatalf("it is tried again after %d batches; failures %v", tries, failed)
	}
	for tries = 0; !apply(); {
		if tries++; tries > compactBytes/valueBytes+1 {
			t.Fatal("the failure before still holds a rewrite back")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = mustOpen(t, m, Options{}); s.Cursor() != kv.CursorAt(n) {
		t.Fatalf("cursor %v, want %d", s.Cursor(), n)
	}
}

// TestUnsyncedNamePoisons: once the new log has its name but may lose it, nothing more is written.
func TestUnsyncedNamePoisons(t *testing.T) {
	m := newMemFS()
	s := mustOpen(t, m, Options{Durability: None})
	if err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put("a", "1", 1)}}, kv.CursorAt(1)); err != nil {
		t.Fatal(err)
	}
	m.failAt = m.calls + 5 // create, write header, write base, sync, rename, then the directory
	m.failAt++
	if err := s.Settle(t.Context()); !errors.Is(err, store.ErrPoisoned) || m.failed[0] != "syncdir" {
		t.Fatalf("settle: %v after %v", err, m.failed)
	}
	if s.Durable() == s.Cursor() {
		t.Fatal("what is not synced is called durable")
	}
	var v store.Value
	if ok, err := s.Get([]byte("da"), &v); !ok || err != nil {
		t.Fatalf("get: %v, %v", ok, err)
	}
}

func TestStaleTempIsRemoved(t *testing.T) {
	m := newMemFS()
	m.names[testPath+tempSuffix] = &memNode{data: []byte("half a rewrite")}
	mustOpen(t, m, Options{})
	if m.names[testPath+tempSuffix] != nil {
		t.Fatal("it is still there")
	}
}

func TestErrors(t *testing.T) {
	full := ioError("append to", "p", &fs.PathError{Op: "write", Path: "p", Err: syscall.ENOSPC})
	if !errors.Is(full, store.ErrDiskFull) || !errors.Is(full, syscall.ENOSPC) {
		t.Errorf("a full disk is %v", full)
	}
	s := mustOpen(t, newMemFS(), Options{})
	long := put("k", "", 1)
	long.ContentType = strings.Repeat("x", maxContentType+1)
	for what, b := range map[string]*store.Batch{
		"key":          {Updates: []kv.Update{put(strings.Repeat("k", MaxKey+1), "", 1)}},
		"op key":       {Ops: []store.Op{{Key: make([]byte, MaxKey+2)}}},
		"content type": {Updates: []kv.Update{long}},
		"op value":     {Ops: []store.Op{{Key: []byte("ak"), Value: make([]byte, MaxValue+maxRecordHead+1)}}},
	} {
		var size *SizeError
		if err := s.Apply(t.Context(), b, kv.CursorAt(1)); !errors.As(err, &size) || !errors.Is(err, ErrTooLarge) || size.Hint() == "" || !s.Cursor().IsNone() {
			t.Errorf("%s: %v", what, err)
		}
	}
	largest := put(strings.Repeat("k", MaxKey), "", 1)
	largest.Value, largest.ContentType = make([]byte, MaxValue), long.ContentType[1:]
	rec := store.AppendRecord(nil, &largest)
	b := &store.Batch{Updates: []kv.Update{largest}, Ops: []store.Op{{Key: store.AppendKey(nil, store.SpaceAccepted, largest.Key), Value: rec}}}
	if err := s.Apply(t.Context(), b, kv.CursorAt(1)); err != nil {
		t.Fatalf("the largest record: %v", err)
	}
	if err := errors.Join(s.Settle(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s = mustOpen(t, s.o.FS.(*memFS), Options{}); s.Cursor() != kv.CursorAt(1) || s.table.tree.Len() != 2 {
		t.Fatalf("cursor %v, %d keys", s.Cursor(), s.table.tree.Len())
	}
	for _, o := range []Options{{Durability: None + 1}, {FlushInterval: -1}, {CompactBytes: -1}} {
		if _, err := Open(testPath, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestSettleEndsWithItsContext(t *testing.T) {
	m := newMemFS()
	s := mustOpen(t, m, Options{})
	value := strings.Repeat("v", 64<<10)
	for n := uint64(1); n <= 64; n++ { // some frames of live data
		if err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put(fmt.Sprintf("k%d", n), value, n)}}, kv.CursorAt(n)); err != nil {
			t.Fatal(err)
		}
	}
	before := s.Stats().DiskBytes
	ctx := &countedContext{Context: t.Context(), left: 3}
	if err := s.Settle(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("settle: %v", err)
	}
	if m.names[testPath+tempSuffix] != nil || s.Stats().DiskBytes != before {
		t.Fatal("it left something")
	}
	if err := s.Settle(t.Context()); err != nil || s.Stats().DiskBytes >= before {
		t.Fatalf("settle: %v", err)
	}
}

// countedContext is cancelled after some looks at it.
type countedContext struct {
	context.Context
	left int
}

func (c *countedContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestPutSize(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 16383, 16384, 1 << 21, MaxValue} {
		if got, want := putSize(1, n), int64(len(appendPutHead(nil, 1, n))+1+n); got != want {
			t.Errorf("value of %d bytes: %d, want %d", n, got, want)
		}
	}
}

func TestInspect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put("a", "1", 1), put("b", "2", 2)}}, kv.CursorAt(2)); err != nil {
		t.Fatal(err)
	}
	c, err := Inspect(path) // while it is open
	if err != nil || c.Cursor != kv.CursorAt(2) || c.Keys != 2 || c.Format != 3 || c.TornBytes != 0 || c.LiveBytes == 0 || c.Bytes != int64(s.Stats().DiskBytes) {
		t.Fatalf("%+v, %v", c, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, append(data, 1, 2, 3))
	if c, err = Inspect(path); err != nil || c.TornBytes != 3 {
		t.Fatalf("%+v, %v", c, err)
	}
	sameFile(t, path, append(data, 1, 2, 3))
	data[len(magic)] = 9
	writeFile(t, path, data)
	if _, err := Inspect(path); !errors.Is(err, store.ErrFormat) {
		t.Fatalf("another version: %v", err)
	}
}
