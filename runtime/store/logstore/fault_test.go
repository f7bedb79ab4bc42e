package logstore

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

var faultScript = storetest.Script{Seed: 11, Bulk: true}

const faultBatches = 12

// drive runs the script on m: Apply, at times Sync and Settle. A step that fails is tried again, unless faults are
// sticky or the store is poisoned. It returns the store, nil if it did not open, and the last batch acknowledged.
func drive(t *testing.T, m *memFS, d Durability, after func(*Store)) (s *Store, acked uint64) {
	t.Helper()
	o := Options{FS: m, Durability: d, CompactBytes: 600}
	s, err := Open(testPath, o)
	if err != nil {
		if !errors.Is(err, errInjected) || len(m.locked) != 0 {
			t.Fatalf("open: %v, locks %v", err, m.locked)
		}
		return nil, 0
	}
	step := func(what string, do func() error) bool {
		t.Helper()
		for {
			err := do()
			if err == nil {
				after(s)
				return true
			}
			if !errors.Is(err, errInjected) {
				t.Fatalf("%s: %v", what, err)
			}
			if s.Cursor().Revision() != acked {
				t.Fatalf("%s failed and the cursor is %v, want %d", what, s.Cursor(), acked)
			}
			if err := faultScript.CheckRecovered(s); err != nil {
				t.Fatalf("%s failed, and in RAM: %v", what, err)
			}
			if errors.Is(err, store.ErrPoisoned) {
				for again, err := range map[string]error{"apply": do(), "sync": s.Sync(t.Context()), "settle": s.Settle(t.Context())} {
					if !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, errInjected) {
						t.Fatalf("%s on a poisoned store: %v", again, err)
					}
				}
				return false
			}
			if m.sticky {
				return false
			}
		}
	}
	for n := uint64(1); n <= faultBatches; n++ {
		b, c := faultScript.Batch(n)
		if !step(fmt.Sprintf("apply %d", n), func() error { return s.Apply(t.Context(), b, c) }) {
			return s, acked
		}
		acked = n
		if n%4 == 0 && !step("sync", func() error { return s.Sync(t.Context()) }) {
			return s, acked
		}
		if n == 7 && !step("settle", func() error { return s.Settle(t.Context()) }) {
			return s, acked
		}
	}
	return s, acked
}

// recovered opens what is left on m and checks that it is the fold at a cursor from low to high, and can be written.
func recovered(m *memFS, low, high uint64) error {
	s, err := Open(testPath, Options{FS: m, Durability: Sync})
	if err != nil {
		return err
	}
	n := s.Cursor().Revision()
	if n < low || n > high {
		err = fmt.Errorf("cursor %d, want from %d to %d", n, low, high)
	}
	if s.Durable() != s.Cursor() {
		err = errors.Join(err, fmt.Errorf("durable %v at cursor %v", s.Durable(), s.Cursor()))
	}
	if err = errors.Join(err, faultScript.CheckRecovered(s)); err == nil {
		b, c := faultScript.Batch(n + 1)
		err = errors.Join(s.Apply(ctxBackground, b, c), faultScript.CheckRecovered(s))
	}
	if names, _ := m.ReadDir("d"); len(names) != 1 {
		err = errors.Join(err, fmt.Errorf("files left: %q", names))
	}
	return errors.Join(err, s.Close())
}

// lossesOf checks every shape in which a loss of power now could leave the files.
func lossesOf(t *testing.T, m *memFS, durable, high uint64) {
	t.Helper()
	for shape := range tails {
		for _, renamed := range []bool{false, true} {
			if err := recovered(m.powerLoss(shape, renamed), durable, high); err != nil {
				t.Fatalf("loss of power, tail %d, renamed %v: %v", shape, renamed, err)
			}
		}
	}
}

// TestFaultAtEveryCall fails each call to the file system in turn, once or from then on, and tears failing writes.
func TestFaultAtEveryCall(t *testing.T) {
	for _, d := range []Durability{Sync, None} {
		clean := newMemFS()
		if s, acked := drive(t, clean, d, func(*Store) {}); s == nil || acked != faultBatches || s.Close() != nil {
			t.Fatalf("%v: without faults %d batches", d, acked)
		}
		ops := map[string]bool{}
		for at := 1; at <= clean.calls; at++ {
			for _, sticky := range []bool{false, true} {
				for _, tear := range []int{0, 1, frameHeadLen + 5, 1 << 20} {
					m := newMemFS()
					m.failAt, m.sticky, m.tear = at, sticky, tear
					t.Run(fmt.Sprintf("%v/call%d/sticky=%v/tear%d", d, at, sticky, tear), func(t *testing.T) { oneFault(t, m, d) })
					for _, op := range m.failed[:min(1, len(m.failed))] {
						ops[op] = true
					}
					if at > 1 && clean.log[at-1] != "write" {
						break // nothing to tear
					}
				}
			}
		}
		for _, op := range []string{"open", "write", "sync", "rename", "syncdir", "mkdir", "remove"} {
			if !ops[op] {
				t.Errorf("%v: no %s failed first; %v did", d, op, ops)
			}
		}
	}
}

func oneFault(t *testing.T, m *memFS, d Durability) {
	s, acked := drive(t, m, d, func(*Store) {})
	if s == nil {
		if err := recovered(m.restart(), 0, 0); err != nil {
			t.Fatalf("after an open that failed: %v", err)
		}
		return
	}
	high := acked
	if errors.Is(s.Sync(t.Context()), store.ErrPoisoned) {
		high++ // whether the write that poisoned it counts, only a re-open tells
	}
	durable := s.Durable().Revision()
	if d == Sync && durable != acked {
		t.Fatalf("durable is %d, acknowledged %d", durable, acked)
	}
	lossesOf(t, m, durable, high)
	if err := recovered(m.restart(), acked, high); err != nil {
		t.Fatalf("after a re-open: %v", err)
	}
	if err := s.Close(); err != nil && !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	if err := recovered(m.restart(), acked, high); err != nil {
		t.Fatalf("after close and re-open: %v", err)
	}
}

func TestPowerLossAfterEveryStep(t *testing.T) {
	for _, d := range []Durability{Sync, Interval, None} {
		m := newMemFS()
		s, _ := drive(t, m, d, func(s *Store) {
			lossesOf(t, m, s.Durable().Revision(), s.Cursor().Revision())
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		lossesOf(t, m, faultBatches, faultBatches)
	}
}

// TestSyncUnderOneCursor: a batch that does not move the cursor is still synced.
func TestSyncUnderOneCursor(t *testing.T) {
	m := newMemFS()
	s := mustOpen(t, m, Options{Durability: None})
	c := kv.CursorAt(1)
	for _, key := range []string{"a", "b"} {
		if err := errors.Join(s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put(key, "x", 1)}}, c), s.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	left := mustOpen(t, m.powerLoss(tailGone, false), Options{})
	var v store.Value
	if ok, err := left.Get([]byte("db"), &v); err != nil || !ok {
		t.Fatalf("the second batch is lost: %v, %v", ok, err)
	}
}

func TestFailedTruncatePoisons(t *testing.T) {
	m := newMemFS()
	s := mustOpen(t, m, Options{Durability: None})
	if err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put("a", "1", 1)}}, kv.CursorAt(1)); err != nil {
		t.Fatal(err)
	}
	m.failAt, m.sticky, m.tear = m.calls+1, true, 9
	second := &store.Batch{Updates: []kv.Update{put("a", "2", 2)}}
	if err := s.Apply(t.Context(), second, kv.CursorAt(2)); !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, errInjected) {
		t.Fatalf("write and truncate fail: %v", err)
	}
	m.failAt, m.sticky = 0, false
	if err := s.Apply(t.Context(), second, kv.CursorAt(2)); !errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("apply on a poisoned store: %v", err)
	}
	var v store.Value
	if ok, err := s.Get([]byte("da"), &v); err != nil || !ok || s.Cursor() != kv.CursorAt(1) {
		t.Fatalf("reads on a poisoned store: %v, %v, cursor %v", ok, err, s.Cursor())
	}
	if err := s.Close(); !errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("close: %v", err)
	}
	if s = mustOpen(t, m, Options{}); s.Cursor() != kv.CursorAt(1) || s.Recovery().TornBytes != 9 {
		t.Fatalf("re-open: cursor %v, %+v", s.Cursor(), s.Recovery())
	}
}

func TestIntervalSyncsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS()
		s := mustOpen(t, m, Options{FlushInterval: time.Second})
		apply := func(n uint64) error {
			return s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put("a", "1", n)}}, kv.CursorAt(n))
		}
		for n := uint64(1); n <= 10; n++ { // later batches don't put the sync off
			if err := apply(n); err != nil {
				t.Fatal(err)
			}
			if got := s.Durable(); !got.IsNone() {
				t.Fatalf("durable is %v after %d ms", got, n*90)
			}
			time.Sleep(90 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := s.Durable(); got != kv.CursorAt(10) {
			t.Fatalf("durable is %v after a second", got)
		}
		calls := m.calls
		time.Sleep(time.Hour)
		if m.calls != calls {
			t.Fatal("an idle store syncs")
		}

		m.failAt = m.calls + 2 // the write goes well, its sync does not
		if err := apply(11); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := apply(12); !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, errInjected) {
			t.Fatalf("apply after a failed sync: %v", err)
		}
		if s.Durable() != kv.CursorAt(10) || s.Cursor() != kv.CursorAt(11) {
			t.Fatalf("durable %v, cursor %v", s.Durable(), s.Cursor())
		}
	})
}

// TestOpenMakesDurable: what a killed process had left to the page cache is synced before it is called durable.
func TestOpenMakesDurable(t *testing.T) {
	m := newMemFS()
	s := mustOpen(t, m, Options{Durability: None})
	for n := uint64(1); n <= 3; n++ {
		b, c := faultScript.Batch(n)
		if err := s.Apply(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
	}
	killed := m.restart()
	s = mustOpen(t, killed, Options{Durability: None})
	if s.Durable().Revision() != 3 {
		t.Fatalf("durable is %v", s.Durable())
	}
	lossesOf(t, killed, 3, 3)
}
