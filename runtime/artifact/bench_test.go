package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const benchKeys = 1_000_000

// benchGround is a store of n keys of 200 bytes each, settled.
func benchGround(b *testing.B, backend string, n int) *ground {
	b.Helper()
	g := &ground{dir: b.TempDir()}
	s, err := openStore(backend, g.path("live"))
	must(b, err)
	g.store = s
	b.Cleanup(func() { must(b, s.Close()) })
	rev := uint64(0)
	for n > 0 {
		batch := store.Batch{Bulk: true}
		for range min(n, 10_000) {
			rev++
			// Values that don't compress, so that files are as large as their contents.
			v := fmt.Sprintf("%064x", rev*0x9E3779B97F4A7C15)
			batch.Updates = append(batch.Updates, kv.Update{Key: fmt.Sprintf("n.%d", rev), Value: []byte(strings.Repeat(v[48:], 12)), Version: kv.Revision(rev), Op: kv.OpPut})
		}
		n -= len(batch.Updates)
		must(b, s.Apply(context.Background(), &batch, kv.CursorAt(rev)))
	}
	must(b, s.Settle(context.Background()))
	return g
}

// BenchmarkExport compares an export with its parts, interleaved: held/checkpoint is what keeps applies waiting over the
// store's own checkpoint, export/parts the whole over a checkpoint, a reading and hashing of its files and an open.
func BenchmarkExport(b *testing.B) {
	for _, backend := range []string{"pebble", "append-log"} {
		b.Run(backend, func(b *testing.B) {
			g := benchGround(b, backend, benchKeys)
			ctx := context.Background()
			var held, whole, checkpoint, parts time.Duration
			var m Manifest
			export := func() {
				began := time.Now()
				p, err := Begin(g.path("artifact"), ExportOptions{})
				must(b, err)
				from := time.Now()
				must(b, p.Checkpoint(ctx, g.store))
				held += time.Since(from)
				m, err = p.Finish(ctx)
				must(b, errors.Join(err, p.Abort()))
				whole += time.Since(began)
				must(b, os.RemoveAll(g.path("artifact")))
			}
			inParts := func() {
				began := time.Now()
				must(b, g.store.Export(ctx, g.path("bare")))
				checkpoint += time.Since(began)
				hashBare(b, g.path("bare"))
				opened, err := g.store.Kind().Open(g.path("bare"))
				must(b, err)
				must(b, opened.Close())
				parts += time.Since(began)
				must(b, os.RemoveAll(g.path("bare")))
			}
			rev := g.store.Cursor().Revision()
			write := func() {
				rev++
				must(b, g.store.Apply(ctx, &store.Batch{Updates: []kv.Update{{Key: "n.0", Value: []byte("v"), Version: kv.Revision(rev), Op: kv.OpPut}}}, kv.CursorAt(rev)))
			}
			for i := 0; b.Loop(); i++ {
				first, second := export, inParts
				if i%2 == 1 {
					first, second = second, first
				}
				write()
				first()
				write()
				second()
			}
			b.SetBytes(m.Size())
			b.ReportMetric(held.Seconds()/checkpoint.Seconds(), "held/checkpoint")
			b.ReportMetric(whole.Seconds()/parts.Seconds(), "export/parts")
		})
	}
}

// hashBare reads and hashes all files of an export of a store.
func hashBare(b *testing.B, dir string) {
	b.Helper()
	for _, name := range names(b, dir) {
		f, err := os.Open(filepath.Join(dir, name))
		must(b, err)
		i, err := f.Stat()
		must(b, err)
		_, err = pour(context.Background(), io.Discard, f, i.Size())
		must(b, errors.Join(err, f.Close()))
	}
}

// BenchmarkImport is an import from a folder, and the packing and the import of a stream.
func BenchmarkImport(b *testing.B) {
	for _, backend := range []string{"pebble", "append-log"} {
		g := benchGround(b, backend, benchKeys)
		dir, m := g.export(b, "artifact")
		o := Options{Kinds: kinds()}
		b.Run(backend+"/folder", func(b *testing.B) {
			b.SetBytes(m.Size())
			for b.Loop() {
				_, err := Import(context.Background(), dir, g.path("dest"), o)
				must(b, err)
				must(b, os.RemoveAll(g.path("dest")))
			}
		})
		b.Run(backend+"/pack", func(b *testing.B) {
			b.SetBytes(m.PackedSize())
			for b.Loop() {
				must(b, Pack(context.Background(), dir, m, io.Discard))
			}
		})
		b.Run(backend+"/packed", func(b *testing.B) {
			b.SetBytes(m.PackedSize())
			for b.Loop() {
				r, w := io.Pipe()
				go func() { w.CloseWithError(Pack(context.Background(), dir, m, w)) }()
				must(b, ImportPacked(context.Background(), r, m, g.path("dest"), o))
				must(b, os.RemoveAll(g.path("dest")))
			}
		})
	}
}
