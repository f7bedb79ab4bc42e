package natskv

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
)

// TestWhatALogOnceAllowedStaysKnown: an operator edits a log under a watch, and edits it back. What it lost meanwhile it has
// lost, so the watch goes on with the worst that it read: that it evicts, and the lowest age limit.
func TestWhatALogOnceAllowedStaysKnown(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nc, err := natstest.New(t).Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(ctx, js, "b", BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		s, err := js.Stream(ctx, "KV_b")
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		change(&c)
		if _, err := js.UpdateStream(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() *watch {
		t.Helper()
		info, err := b.api.streamInfo(ctx, b.stream)
		if err != nil {
			t.Fatal(err)
		}
		return b.newWatch(kv.OpenRequest{}, info)
	}
	read := func(w *watch) (evicts bool, limit time.Duration) {
		t.Helper()
		if _, err := w.bounds(ctx); err != nil {
			t.Fatal(err)
		}
		return w.evicts.Load(), time.Duration(w.ageLimit.Load())
	}
	w := begin()
	if evicts, _ := read(w); evicts {
		t.Error("a bucket that keeps everything evicts")
	}
	edit(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	if evicts, _ := read(w); !evicts {
		t.Error("with a limit it evicts nothing")
	}
	limited := begin()
	edit(func(c *jetstream.StreamConfig) { c.MaxAge = 10 * time.Minute })
	read(limited)
	edit(func(c *jetstream.StreamConfig) { c.MaxAge = 2 * time.Hour })
	if evicts, limit := read(limited); !evicts || limit != 10*time.Minute {
		t.Errorf("with a limit that was lower: evicts %t, %v", evicts, limit)
	}
	edit(func(c *jetstream.StreamConfig) { c.MaxAge = 0 })
	if evicts, _ := read(w); !evicts {
		t.Error("without a limit any more, what it took is forgotten")
	}
	if evicts, _ := read(begin()); evicts {
		t.Error("a watch that begins now has heard of it")
	}
}
