package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// feed makes updates of n keys of 25 bytes with values of 200, each key once and in no order. Half of each value
// compresses.
type feed struct {
	n, i    int
	values  []byte
	updates []kv.Update
	rng     *rand.Rand
}

const (
	feedValue  = 200
	feedValues = 1 << 20
)

func newFeed(n int) *feed {
	f := &feed{n: n, values: make([]byte, feedValues), rng: rand.New(rand.NewPCG(1, 2))}
	for i := 0; i < len(f.values); i += 16 {
		copy(f.values[i:], "endpoint")
		for j := 8; j < 16; j++ {
			f.values[i+j] = byte(f.rng.Uint32())
		}
	}
	return f
}

func feedKey(id uint64) string {
	b := append(make([]byte, 0, 25), "route.tenant"...)
	b = strconv.AppendUint(b, 100+id%900, 10)
	b = append(b, ".d"...)
	digits := strconv.FormatUint(id, 10)
	b = append(b, "00000000"[:8-len(digits)]...)
	return string(append(b, digits...))
}

// next is the next batch, at most size updates, in a slice that is used again. It begins anew after the last key.
func (f *feed) next(size int) []kv.Update {
	f.updates = f.updates[:0]
	for range size {
		id := uint64(f.i) * 2654435761 % uint64(f.n)
		f.i++
		off := f.rng.IntN(feedValues - feedValue)
		f.updates = append(f.updates, kv.Update{
			Key: feedKey(id), Value: f.values[off : off+feedValue], Version: kv.Revision(uint64(f.i)), UnixNano: 1_700_000_000_000_000_000, Op: kv.OpPut, Reason: kv.ReasonUser,
		})
	}
	return f.updates
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// finish has all flushes and compactions done that are due. Pebble flushes few small updates when it is asked to only.
func (s *Store) finish(b *testing.B) {
	if err := s.db.Flush(); err != nil {
		b.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); s.db.Metrics().Compact.NumInProgress > 0; <-tick.C {
		if time.Now().After(end) {
			b.Fatal("compactions go on for a minute")
		}
	}
}

// BenchmarkApply is one update of a hydrate into a growing store; cpu-us/op has the flushes and compactions in it,
// and those that are due at its end. Run it with a count that is a hydrate: -benchtime=1000000x.
func BenchmarkApply(b *testing.B) {
	for _, bulk := range []bool{false, true} {
		for _, size := range []int{1000, 10_000, 50_000} {
			if bulk && size < 10_000 {
				continue
			}
			b.Run(fmt.Sprintf("bulk=%v/batch=%d", bulk, size), func(b *testing.B) {
				s, err := Open(b.TempDir(), Options{BulkMinUpdates: 1})
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					if err := s.Close(); err != nil {
						b.Error(err)
					}
				}()
				f := newFeed(max(b.N, size))
				b.ReportAllocs()
				cpu := cpuTime()
				b.ResetTimer()
				for done := 0; done < b.N; {
					n := min(size, b.N-done)
					if err := s.Apply(b.Context(), &store.Batch{Updates: f.next(n), Bulk: bulk}, kv.CursorAt(uint64(f.i))); err != nil {
						b.Fatal(err)
					}
					done += n
				}
				b.StopTimer()
				if err := s.db.Flush(); err != nil {
					b.Fatal(err)
				}
				s.finish(b)
				b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// benchStore is a settled store of 200,000 keys, and their store keys.
func benchStore(b *testing.B) (*Store, [][]byte) {
	const n = 200_000
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	f := newFeed(n)
	for range 4 {
		if err := s.Apply(b.Context(), &store.Batch{Updates: f.next(n / 4), Bulk: true}, kv.CursorAt(uint64(f.i))); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Settle(b.Context()); err != nil {
		b.Fatal(err)
	}
	keys := make([][]byte, 1<<14)
	for i := range keys {
		keys[i] = store.AppendKey(nil, store.SpaceData, feedKey(f.rng.Uint64N(n)))
	}
	return s, keys
}

func BenchmarkGetHot(b *testing.B) {
	s, keys := benchStore(b)
	b.ReportAllocs()
	var v store.Value
	for i := 0; b.Loop(); i++ {
		if ok, err := s.Get(keys[i%len(keys)], &v); err != nil || !ok {
			b.Fatal(ok, err)
		}
		v.Release()
	}
}

func BenchmarkGetAbsent(b *testing.B) {
	s, keys := benchStore(b)
	for _, k := range keys {
		k[len(k)-1] = 'x'
	}
	b.ReportAllocs()
	var v store.Value
	for i := 0; b.Loop(); i++ {
		if ok, err := s.Get(keys[i%len(keys)], &v); err != nil || ok {
			b.Fatal(ok, err)
		}
	}
}

// BenchmarkScan is one key of a scan over all.
func BenchmarkScan(b *testing.B) {
	s, _ := benchStore(b)
	lower := []byte{byte(store.SpaceData)}
	o := store.IterOptions{Lower: lower, Upper: store.PrefixEnd(lower)}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		it, err := s.Iter(o)
		if err != nil {
			b.Fatal(err)
		}
		for done < b.N && it.Next() {
			if v, err := it.Value(); err != nil || len(v) < feedValue {
				b.Fatal(len(v), err)
			}
			done++
		}
		if err := it.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApplySmall is one batch of few updates, as they come once a fold has caught up.
func BenchmarkApplySmall(b *testing.B) {
	for _, size := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{Durability: None})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			}()
			f := newFeed(100_000)
			b.ReportAllocs()
			cpu := cpuTime()
			b.ResetTimer()
			for range b.N {
				if err := s.Apply(b.Context(), &store.Batch{Updates: f.next(size)}, kv.CursorAt(uint64(f.i))); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			s.finish(b)
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
		})
	}
}
