package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/natskv"
)

const (
	key = "export.routes"
	// start is the clock's first second.
	start = 1718000000
	ttl   = 5 * time.Minute
)

// clock stands still until it is moved. It starts within a second, as clocks do.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(start*int64(time.Second) + 999_999_999)
	return c
}

func (c *clock) now() time.Time { return time.Unix(0, c.nanos.Load()) }

func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// buckets runs a test on the simulated log and on a server.
func buckets(t *testing.T, test func(t *testing.T, b kv.Bucket)) {
	t.Run("sim", func(t *testing.T) { test(t, kvtest.NewLog(kvtest.Options{})) })
	t.Run("nats", func(t *testing.T) { test(t, serverBucket(t, natskv.BucketConfig{})) })
}

func serverBucket(t *testing.T, cfg natskv.BucketConfig) *natskv.Bucket {
	t.Helper()
	nc, err := natstest.New(t).Connect(nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	b, err := natskv.Open(bounded(t), js, "leases", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bounded is a context that ends before a test's patience does.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func leaseOf(t *testing.T, b lease.Bucket, holder string, c *clock) *lease.Lease {
	t.Helper()
	l, err := lease.New(lease.Options{Bucket: b, Key: key, Holder: holder, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t *testing.T, l *lease.Lease) *lease.Guard {
	t.Helper()
	g, won, err := l.TryAcquire(bounded(t), ttl)
	if err != nil || !won || g == nil {
		t.Fatalf("not acquired: %v %v %v", g, won, err)
	}
	return g
}

func wantHeld(t *testing.T, l *lease.Lease) {
	t.Helper()
	if g, won, err := l.TryAcquire(bounded(t), ttl); err != nil || won || g != nil {
		t.Fatalf("a lease that is held: %v %v %v", g, won, err)
	}
}

func put(t *testing.T, b kv.Writer, value string) kv.Version {
	t.Helper()
	v, err := b.Put(bounded(t), key, []byte(value), kv.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantValue compares what is stored, byte for byte.
func wantValue(t *testing.T, b kv.Reader, want string) {
	t.Helper()
	if e, err := b.Get(bounded(t), key); err != nil || string(e.Value) != want {
		t.Fatalf("stored %q, %v; want %q", e.Value, err, want)
	}
}

func last(t *testing.T, b kv.Watcher) uint64 {
	t.Helper()
	info, err := b.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.Last
}
