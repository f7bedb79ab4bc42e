// Package storetest holds the suites that every implementation of store.Store passes: Run for the contract of the
// port, Crash for what a killed process leaves behind. Model and Script are their oracle, for an implementation's own
// crash tests.
//
// Both suites re-execute the test binary to have a second process; they do that by the name of the test that calls
// them, so call each from a top-level test and call nothing before it.
package storetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Mode is how durable an Apply is when it returns.
type Mode string

const (
	// ModeSync: every Apply is durable.
	ModeSync Mode = "sync"
	// ModeInterval: the store makes what was applied durable by itself, a short while later.
	ModeInterval Mode = "interval"
	// ModeNone: only Sync and Close promise durability.
	ModeNone Mode = "none"
)

// Harness is the implementation under test.
type Harness struct {
	// Open opens the store in dir, and creates it when dir is missing or empty. In ModeInterval the interval is some
	// milliseconds. A path for Bulk batches should be taken at sizes of a few updates.
	Open func(dir string, m Mode) (store.Store, error)
	// OpenReadOnly opens the store in dir as one that is only read; nil for an implementation that has no such mode.
	OpenReadOnly func(dir string) (store.Store, error)
	// MaxValue is the longest value that Apply takes, where the implementation has such a limit: one byte more is
	// refused. 0 is no limit, and 64 MiB are tried.
	MaxValue int
	// Modes are the modes that Open knows; nil is all three.
	Modes []Mode
}

func (h Harness) modes() []Mode {
	if h.Modes != nil {
		return h.Modes
	}
	return []Mode{ModeSync, ModeInterval, ModeNone}
}

func (h Harness) anyMode() Mode { return h.modes()[len(h.modes())-1] }

// waitLimit bounds every wait of the suites, for slow machines; nothing waits that long for luck.
const waitLimit = 30 * time.Second

// Run checks the contract of the port.
func Run(t *testing.T, h Harness) {
	runChild(h)
	for _, c := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"RoundTrip", testRoundTrip},
		{"ReopenKeepsAll", testReopen},
		{"RemovalsAndAgeOut", testRemovals},
		{"LaterUpdateWins", testLaterUpdateWins},
		{"OpsAfterUpdates", testOpsAfterUpdates},
		{"EmptyValue", testEmptyValue},
		{"EmptyBatchMovesCursor", testEmptyBatch},
		{"CursorForms", testCursorForms},
		{"KeepsNothingOfBatch", testKeepsNothing},
		{"RefusedBatchLeavesNothing", testRefusedBatch},
		{"CancelledContext", testCancelled},
		{"LargeValues", testLargeValues},
		{"TupleOrder", testTupleOrder},
		{"Bounds", testBounds},
		{"SeekTo", testSeekTo},
		{"IteratorIsFixed", testIteratorFixed},
		{"SnapshotIsFixed", testSnapshotFixed},
		{"ReadersDuringApply", testReadersDuringApply},
		{"Durable", testDurable},
		{"Settle", testSettle},
		{"Export", testExport},
		{"ExportEmptyStore", testExportEmpty},
		{"ExportRefusesNonEmpty", testExportNonEmpty},
		{"Locked", testLocked},
		{"Closed", testClosed},
		{"CloseWithOpenReaders", testCloseOpenReaders},
		{"InfoAndStats", testInfo},
		{"BulkIsPlain", testBulkIsPlain},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
	if h.OpenReadOnly != nil {
		t.Run("ReadOnly", func(t *testing.T) { testReadOnly(t, h) })
		t.Run("ReadOnlyLocked", func(t *testing.T) { testReadOnlyLocked(t, h) })
		t.Run("ReadOnlyMakesNothing", func(t *testing.T) { testReadOnlyMakesNothing(t, h) })
		t.Run("ReadOnlyExport", func(t *testing.T) { testReadOnlyExport(t, h) })
	}
}

// opened is a store of one test, closed at its end.
type opened struct {
	store.Store
	t   *testing.T
	h   Harness
	dir string
	m   Mode
}

func openNew(t *testing.T, h Harness) *opened { return openAt(t, h, tempDir(t), h.anyMode()) }

// tempDir is a fresh path that does not exist yet.
func tempDir(t *testing.T) string { return filepath.Join(t.TempDir(), "store") }

func openAt(t *testing.T, h Harness, dir string, m Mode) *opened {
	t.Helper()
	s, err := h.Open(dir, m)
	if err != nil {
		t.Fatalf("open %s store: %v", m, err)
	}
	o := &opened{Store: s, t: t, h: h, dir: dir, m: m}
	t.Cleanup(func() {
		if err := o.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return o
}

// reopen closes the store and opens it again.
func (o *opened) reopen() {
	o.t.Helper()
	if err := o.Close(); err != nil {
		o.t.Fatalf("close: %v", err)
	}
	s, err := o.h.Open(o.dir, o.m)
	if err != nil {
		o.t.Fatalf("re-open: %v", err)
	}
	o.Store = s
}

func (o *opened) apply(b *store.Batch, c kv.Cursor) {
	o.t.Helper()
	if err := o.Apply(o.t.Context(), b, c); err != nil {
		o.t.Fatalf("apply at %v: %v", c, err)
	}
}

func (o *opened) wantModel(m *Model) {
	o.t.Helper()
	if got := o.Cursor(); got != m.Cursor {
		o.t.Fatalf("cursor is %v, want %v", got, m.Cursor)
	}
	if err := m.Check(o.Store); err != nil {
		o.t.Fatal(err)
	}
}

// applyBoth applies to the store and to the model.
func (o *opened) applyBoth(m *Model, b *store.Batch, c kv.Cursor) {
	o.t.Helper()
	o.apply(b, c)
	m.Apply(b, c)
}

func put(key, value string, rev uint64) kv.Update {
	return kv.Update{Key: key, Value: []byte(value), Version: kv.Revision(rev), Op: kv.OpPut, Reason: kv.ReasonUser}
}

func remove(key string, op kv.Op, rev uint64) kv.Update {
	return kv.Update{Key: key, Version: kv.Revision(rev), Op: op, Reason: kv.ReasonUser}
}

func dataKey(key string) []byte { return store.AppendKey(nil, store.SpaceData, key) }

// getValue is the stored bytes under key.
func getValue(g store.Getter, key []byte) (string, bool, error) {
	var v store.Value
	ok, err := g.Get(key, &v)
	if err != nil {
		return "", false, err
	}
	s := string(v.Bytes)
	v.Release()
	v.Release() // must be harmless
	return s, ok, nil
}

// eventually polls until cond holds, and fails the test when it does not within the limit.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", waitLimit, what)
		case <-tick.C:
		}
	}
}

// rootTest is the top-level test's name, by which a child process runs it again.
func rootTest(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

func isEmptyDir(dir string) bool {
	ents, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(ents) == 0
}
