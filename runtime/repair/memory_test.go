package repair

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// countedLog is a log of n keys, of which it lists all but every lacks-th. It holds none of them.
type countedLog struct {
	opens
	n, lacks int
	// looked, when not nil, is called now and then while it is listed.
	looked func()
}

func countedKey(i int) string { return fmt.Sprintf("tenant.%02d.device.%08d", i%17, i) }

func (l *countedLog) lists(i int) bool { return i%l.lacks != 0 }

func (l *countedLog) Info(context.Context) (kv.LogInfo, error) {
	listed := uint64(l.n - (l.n+l.lacks-1)/l.lacks)
	return kv.LogInfo{Bucket: "counted", Created: time.Unix(1, 0), First: 1, Last: uint64(l.n), Messages: listed, Subjects: listed}, nil
}

func (l *countedLog) LastVersions(context.Context, kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		for j := range l.n {
			i := (j*7919 + 3) % l.n // in no order
			if j%10_000 == 0 && l.looked != nil {
				l.looked()
			}
			if l.lists(i) && !yield(kv.KeyVersion{Key: countedKey(i), Version: kv.Revision(uint64(i + 1)), Op: kv.OpPut}, nil) {
				return
			}
		}
	}
}

func (l *countedLog) Entry(context.Context, string) (kv.Entry, error) {
	return kv.Entry{}, kv.ErrKeyNotFound
}

func fillCounted(t testing.TB, n int) store.Store {
	t.Helper()
	s, err := pebblestore.Open(filepath.Join(t.TempDir(), "pebble"), pebblestore.Options{Durability: pebblestore.None, CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var b store.Batch
	for i := range n {
		b.Updates = append(b.Updates, kv.Update{Key: countedKey(i), Value: []byte("some value"), Version: kv.Revision(uint64(i + 1)), Op: kv.OpPut})
		if len(b.Updates) == 20_000 || i == n-1 {
			if err := s.Apply(context.Background(), &b, kv.CursorAt(uint64(i+1))); err != nil {
				t.Fatal(err)
			}
			b.Updates = b.Updates[:0]
		}
	}
	if err := s.Settle(bounded(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// countingFolder takes changes and keeps none.
type countingFolder struct {
	n      int
	looked func()
}

func (f *countingFolder) Fold(_ context.Context, changes []Change) error {
	f.n += len(changes)
	if f.looked != nil {
		f.looked()
	}
	return nil
}

// TestRelistMemoryDoesNotGrowWithTheFold: neither listing, nor fold, nor what is to be deleted is held.
func TestRelistMemoryDoesNotGrowWithTheFold(t *testing.T) {
	grew := func(n int) uint64 {
		s := fillCounted(t, n)
		var peak, least uint64
		look := func() {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			if least == 0 || m.HeapAlloc < least {
				least = m.HeapAlloc
			}
		}
		look()
		log := &countedLog{n: n, lacks: 2, looked: look}
		to := &countingFolder{looked: look}
		p := New(log, s, to, kv.AllKeys(), Options{Scratch: t.TempDir(), RunBytes: 1 << 20, Chunk: 10_000})
		var r Report
		if _, err := p.Repair(bounded(t), Request{Cause: protocol.CauseExpired, Cursor: s.Cursor()}, &r); err != nil {
			t.Fatal(err)
		}
		if want := (n + 1) / 2; to.n != want || r.Deleted != uint64(want) || r.Rows != uint64(n) || r.Listed != uint64(n-want) {
			t.Errorf("%d changes, want %d; report %v", to.n, want, r.LogValue())
		}
		return peak - least
	}
	const bound = 4 << 20 // 1 MiB of keys, a chunk of 10,000 changes, buffers, and the store's own
	for _, n := range []int{30_000, 300_000} {
		got := grew(n)
		t.Logf("%d keys: the heap grew by %d bytes", n, got)
		if got > bound {
			t.Errorf("%d keys: the heap grew by %d bytes, want at most %d", n, got, bound)
		}
	}
}

// BenchmarkRelist lists a bucket of 200,000 keys and compares it with the fold; one key in a hundred goes.
func BenchmarkRelist(b *testing.B) {
	const n = 200_000
	s := fillCounted(b, n)
	for _, runBytes := range []int{1 << 20, DefaultRunBytes} {
		b.Run(fmt.Sprintf("RunBytes=%dMiB", runBytes>>20), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := New(&countedLog{n: n, lacks: 100}, s, &countingFolder{}, kv.AllKeys(), Options{Scratch: b.TempDir(), RunBytes: runBytes})
				if _, err := p.Repair(context.Background(), Request{Cause: protocol.CauseExpired, Cursor: s.Cursor()}, &Report{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
		})
	}
}
