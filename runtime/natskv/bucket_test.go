package natskv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// rig is one server with one bucket.
type rig struct {
	*natstest.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	bucket *natskv.Bucket
}

func newRig(t testing.TB, cfg natskv.BucketConfig, server ...natstest.Options) *rig {
	t.Helper()
	r := &rig{Server: natstest.New(t, server...)}
	nc, err := r.Connect(nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r.nc = nc
	if r.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	r.bucket = r.open(t, cfg)
	return r
}

func (r *rig) open(t testing.TB, cfg natskv.BucketConfig) *natskv.Bucket {
	t.Helper()
	b, err := natskv.Open(bounded(t), r.js, "b", cfg)
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

func (r *rig) put(t testing.TB, key, value string) uint64 {
	t.Helper()
	v, err := r.bucket.Put(bounded(t), key, []byte(value), kv.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Rank()
}

func (r *rig) delete(t testing.TB, key string) uint64 {
	t.Helper()
	v, err := r.bucket.Delete(bounded(t), key, kv.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Rank()
}

// fill puts n keys without waiting for each.
func (r *rig) fill(t testing.TB, n int, key func(i int) string) {
	t.Helper()
	var sent []jetstream.PubAckFuture
	acknowledged := func() {
		for _, f := range sent {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				t.Fatal(err)
			case <-bounded(t).Done():
				t.Fatal("puts not acknowledged")
			}
		}
		sent = sent[:0]
	}
	for i := range n {
		f, err := r.js.PublishAsync("$KV.b."+key(i), fmt.Appendf(nil, "v%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if sent = append(sent, f); len(sent) == 1000 {
			acknowledged()
		}
	}
	acknowledged()
}

// ready waits until the bucket answers again.
func (r *rig) ready(t testing.TB) {
	t.Helper()
	err := poll(bounded(t), func() (bool, error) {
		ctx, cancel := context.WithTimeout(bounded(t), 200*time.Millisecond)
		defer cancel()
		_, err := r.bucket.Info(ctx)
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func TestReadsAndWrites(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	ctx := bounded(t)
	_, err := r.bucket.Get(ctx, "a.b")
	wantErr(t, err, kv.ErrKeyNotFound)
	if rev := r.put(t, "a.b", "one"); rev != 1 {
		t.Fatalf("first revision %d", rev)
	}
	e, err := r.bucket.Get(ctx, "a.b")
	if err != nil || string(e.Value) != "one" || e.Version != kv.Revision(1) || e.Key != "a.b" || e.UnixNano == 0 {
		t.Fatalf("get = %+v, %v", e, err)
	}
	if _, err := r.bucket.Update(ctx, "a.b", []byte("two"), kv.Revision(1), kv.PutOptions{ContentType: "x/y"}); err != nil {
		t.Fatal(err)
	}
	_, err = r.bucket.Update(ctx, "a.b", []byte("three"), kv.Revision(1), kv.PutOptions{})
	var conflict *kv.ConflictError
	if !errors.As(err, &conflict) || conflict.Current != kv.Revision(2) {
		t.Fatalf("update at an old revision: %v", err)
	}
	_, err = r.bucket.Create(ctx, "a.b", nil, kv.PutOptions{})
	var exists *kv.ExistsError
	if !errors.As(err, &exists) || exists.Current != kv.Revision(2) {
		t.Fatalf("create over a value: %v", err)
	}
	_, err = r.bucket.Delete(ctx, "a.b", kv.DeleteOptions{At: kv.Revision(1)})
	wantErr(t, err, kv.ErrConflict)
	if _, err := r.bucket.Delete(ctx, "a.b", kv.DeleteOptions{At: kv.Revision(2)}); err != nil {
		t.Fatal(err)
	}
	_, err = r.bucket.Get(ctx, "a.b")
	wantErr(t, err, kv.ErrKeyNotFound)
	e, err = r.bucket.Entry(ctx, "a.b")
	if err != nil || e.Op != kv.OpDelete || !e.IsTombstone() || e.Version != kv.Revision(3) {
		t.Fatalf("entry = %+v, %v", e, err)
	}
	if v, err := r.bucket.Create(ctx, "a.b", []byte("again"), kv.PutOptions{}); err != nil || v != kv.Revision(4) {
		t.Fatalf("create after a delete: %v, %v", v, err)
	}
	if _, err := r.bucket.Delete(ctx, "a.b", kv.DeleteOptions{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if e, err = r.bucket.Entry(ctx, "a.b"); err != nil || e.Op != kv.OpPurge {
		t.Fatalf("entry = %+v, %v", e, err)
	}
	for _, bad := range []string{"", ".a", "a..b", "a b", "a*", ">"} {
		_, err := r.bucket.Put(ctx, bad, nil, kv.PutOptions{})
		wantErr(t, err, kv.ErrInvalidKey)
	}
}

func TestWatchListsThenFollows(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{History: 3})
	for i := range 3 {
		r.put(t, "a", fmt.Sprint(i))
	}
	r.put(t, "b", "x")
	r.delete(t, "b")
	w := r.watch(t, kv.OpenRequest{})
	got := w.until(t, 5)
	if s := got.text(); s != "a=2@3 put, b=@5 delete" {
		t.Fatalf("listed %s", s)
	}
	r.put(t, "c", "new")
	if s := w.until(t, 6).text(); s != "c=new@6 put" {
		t.Fatalf("then %s", s)
	}
}
