package logstore

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// benchBatch is count puts from first on, of keys modulo keys and values of size bytes.
func benchBatch(first, count, keys, size int) (*store.Batch, kv.Cursor) {
	b := &store.Batch{Updates: make([]kv.Update, count)}
	for i := range b.Updates {
		n := first + i
		b.Updates[i] = kv.Update{Key: fmt.Sprintf("node.region-%d", n%keys), Value: make([]byte, size), Version: kv.Revision(uint64(n + 1)), Op: kv.OpPut}
	}
	return b, kv.CursorAt(uint64(first + count))
}

func openBench(b *testing.B, path string, o Options) *Store {
	b.Helper()
	s, err := Open(path, o)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func applyBench(b *testing.B, s *Store, batch *store.Batch, c kv.Cursor) {
	b.Helper()
	if err := s.Apply(b.Context(), batch, c); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAppend100Records: 100 puts of 512 bytes into a fresh log, as one batch or one by one.
func BenchmarkAppend100Records(b *testing.B) {
	for _, per := range []int{100, 1} {
		b.Run(fmt.Sprintf("batch%d", per), func(b *testing.B) {
			batches := make([]*store.Batch, 100/per)
			cursors := make([]kv.Cursor, len(batches))
			for i := range batches {
				batches[i], cursors[i] = benchBatch(i*per, per, 100, 512)
			}
			dir := b.TempDir()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				s := openBench(b, filepath.Join(dir, fmt.Sprint(i)), Options{Durability: None})
				b.StartTimer()
				for i, batch := range batches {
					applyBench(b, s, batch, cursors[i])
				}
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "updates/s")
		})
	}
}

// loadBench times the load of a log of 500 keys written three times, rewritten before or not.
func loadBench(b *testing.B, compacted bool) {
	path := filepath.Join(b.TempDir(), "log")
	s := openBench(b, path, Options{Durability: None})
	for i := range 15 {
		batch, c := benchBatch(i*100, 100, 500, 512)
		applyBench(b, s, batch, c)
	}
	if compacted {
		if err := s.Settle(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	file, err := osFS{}.OpenFile(path, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		l, err := load(path, file, size)
		if err != nil || l.table.tree.Len() != 500 {
			b.Fatalf("%+v, %v", l, err)
		}
	}
}

func BenchmarkLoad500Entries(b *testing.B)          { loadBench(b, false) }
func BenchmarkLoad500EntriesCompacted(b *testing.B) { loadBench(b, true) }

// BenchmarkCompact5000To500: a log of 500 keys, each written ten times, rewritten and synced.
func BenchmarkCompact5000To500(b *testing.B) {
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		s := openBench(b, filepath.Join(dir, fmt.Sprint(i)), Options{Durability: None})
		for round := range 10 {
			batch, c := benchBatch(round*500, 500, 500, 8)
			applyBench(b, s, batch, c)
		}
		b.StartTimer()
		if err := s.Settle(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkHydrate: batches of 1024 puts of 200 bytes under new keys.
func BenchmarkHydrate(b *testing.B) {
	s := openBench(b, filepath.Join(b.TempDir(), "log"), Options{Durability: None})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		b.StopTimer()
		batch, c := benchBatch(n, 1024, 1<<40, 200)
		b.StartTimer()
		applyBench(b, s, batch, c)
		n += 1024
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "updates/s")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

func readBench(b *testing.B) *Store {
	s := openBench(b, filepath.Join(b.TempDir(), "log"), Options{Durability: None})
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	for i := range 100 {
		batch, c := benchBatch(i*1000, 1000, 100_000, 200)
		applyBench(b, s, batch, c)
	}
	return s
}

func BenchmarkGet(b *testing.B) {
	s := readBench(b)
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = store.AppendKey(nil, store.SpaceData, fmt.Sprintf("node.region-%d", (i*7919)%100_000))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		var v store.Value
		if ok, err := s.Get(keys[i%len(keys)], &v); !ok || err != nil {
			b.Fatal(ok, err)
		}
		v.Release()
		i++
	}
}

func BenchmarkScan1000(b *testing.B) {
	s := readBench(b)
	lower := store.AppendKey(nil, store.SpaceData, "node.region-5")
	b.ReportAllocs()
	for b.Loop() {
		it, err := s.Iter(store.IterOptions{Lower: lower})
		if err != nil {
			b.Fatal(err)
		}
		for n := 0; n < 1000; n++ {
			if !it.Next() {
				b.Fatal("too few keys")
			}
		}
		if err := it.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
