package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// reading is a watch that is read all the time.
type reading struct {
	watch kv.Watch
	stop  context.CancelFunc
	at    chan uint64 // each frontier
	ended chan error
}

func read(t *testing.T, c *client, after kv.Cursor) *reading {
	t.Helper()
	w, err := c.bucket.Open(bounded(t), kv.OpenRequest{Scope: kv.AllKeys(), After: after})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	r := &reading{watch: w, stop: stop, at: make(chan uint64, 1000), ended: make(chan error, 1)}
	go func() {
		for {
			d, err := w.Next(ctx, kv.Delivery{}, 100, 1<<20)
			if err != nil {
				r.ended <- err
				return
			}
			r.at <- d.Frontier
		}
	}()
	return r
}

// reaches waits for a frontier, or the end of the watch.
func (r *reading) reaches(t *testing.T, rev uint64) error {
	t.Helper()
	for ctx := bounded(t); ; {
		select {
		case at := <-r.at:
			if at >= rev {
				return nil
			}
		case err := <-r.ended:
			return err
		case <-ctx.Done():
			t.Fatalf("the watch does not reach revision %d", rev)
		}
	}
}

// TestSupersessionAfterQuietIsNoExpiry: on a bucket whose values only age out, what a watch has is known to have been the
// last as long as somebody looked, and not just when it was written. A burst over one key that the watch gets late expires
// nothing then: neither the first one of a new bucket, nor one after a quiet of more than half of the age.
func TestSupersessionAfterQuietIsNoExpiry(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, quiet time.Duration // between the last write and the watch, and after the watch began; 0 is no write
	}{
		{"a new bucket", 0, 0},
		{"a new bucket, later", 0, maxAge * 3 / 4},
		{"quiet before the watch", maxAge * 3 / 4, 0},
		{"quiet under the watch", time.Second, maxAge * 3 / 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			bubble(t, func(t *testing.T) {
				h := &host{dir: filepath.Join(dir, "server")}
				h.start(t)
				defer h.stop()
				writer, reader := dial(t, h, 1, natskv.BucketConfig{MaxAge: maxAge}), dial(t, h, 2, natskv.BucketConfig{})
				defer writer.close(t)
				defer reader.close(t)
				after := kv.Cursor{}
				put := func(i int) uint64 {
					v, err := writer.bucket.Put(bounded(t), "hot", fmt.Append(nil, i), kv.PutOptions{})
					must(t, err)
					return v.Rank()
				}
				if c.before > 0 {
					after = kv.CursorAt(put(0))
					time.Sleep(c.before)
				}
				r := read(t, reader, after)
				defer func() {
					r.stop()
					must(t, r.watch.Close(bounded(t)))
				}()
				time.Sleep(c.quiet + time.Second)
				reader.line.cut()
				last := uint64(0)
				for i := range 10 {
					last = put(i)
				}
				reader.line.mend()
				if err := r.reaches(t, last); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestQuietThenARestartIsNoExpiry: the watch is gone with the server, and its successor is told how long it had stood where it
// did. A fleet that hears a burst late after a quiet would stop as one otherwise, with nobody's artifact ahead.
func TestQuietThenARestartIsNoExpiry(t *testing.T) {
	for backend := range stores {
		t.Run(backend, func(t *testing.T) {
			dir := t.TempDir()
			bubble(t, func(t *testing.T) {
				s := &story{t: t, seed: 1, r: rand.New(rand.NewPCG(1, 0)), backend: backend, kind: "ages", dir: dir, counts: map[string]int{}}
				s.set()
				defer s.clear()
				s.start(s.steady)
				must(t, s.steady.f.WaitHydrated(bounded(t)))
				s.write("hot", false)
				s.caughtUp(s.steady)
				time.Sleep(maxAge * 3 / 4)
				s.steady.client.line.cut()
				s.restart()
				s.steady.client.line.cut()
				for range 10 {
					s.write("hot", false)
				}
				s.steady.client.line.mend()
				s.caughtUp(s.steady)
				if st := s.steady.f.Status(); st.Repair != nil {
					t.Errorf("repaired: %+v", st.Repair)
				}
				s.atomic(s.steady)
			})
		})
	}
}
