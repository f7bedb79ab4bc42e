package natskv_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// oldInfo is a stream's info as an answer to a later request.
func oldInfo(t *testing.T, s jetstream.Stream) string {
	t.Helper()
	data, err := json.Marshal(s.CachedInfo())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// follow reads until rev through as many watches as it takes, as a loop does, and checks that every revision comes once
// and in order.
func (r *rig) follow(t *testing.T, w *watched, cursor, rev uint64) (lost int) {
	t.Helper()
	ctx := bounded(t)
	for {
		got, err := w.read(ctx, rev)
		for _, u := range got {
			if u.Version.Rank() != cursor+1 {
				t.Fatalf("revision %v came after %d", u.Version, cursor)
			}
			cursor++
		}
		if err == nil {
			return lost
		}
		wantErr(t, err, kv.ErrWatchLost)
		lost++
		var next kv.Watch
		for next, err = r.bucket.Open(ctx, kv.OpenRequest{After: kv.CursorAt(cursor)}); err != nil; next, err = r.bucket.Open(ctx, kv.OpenRequest{After: kv.CursorAt(cursor)}) {
			if errors.Is(err, kv.ErrCursorExpired) || ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			if err := next.Close(bounded(t)); err != nil {
				t.Error(err)
			}
		})
		w = &watched{next}
	}
}

func TestServerRestartLosesTheWatchAndNothingElse(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Timeout: 2 * time.Second})
	r.fill(t, 10, func(i int) string { return fmt.Sprintf("k%d", i) })
	w := r.watch(t, kv.OpenRequest{})
	w.until(t, 10)
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	r.ready(t)
	r.fill(t, 50, func(i int) string { return fmt.Sprintf("n%d", i) })
	if lost := r.follow(t, w, 10, 60); lost == 0 {
		t.Error("a consumer in memory outlived its server")
	}
}

func TestWatchEndsWithItsServer(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Watch: natskv.WatchConfig{Heartbeat: 50 * time.Millisecond}})
	w := r.watch(t, kv.OpenRequest{})
	r.Stop()
	_, err := w.end(t)
	wantErr(t, err, kv.ErrWatchLost)
}

func TestWatchEndsWithItsConnection(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	w, err := r.bucket.Open(bounded(t), kv.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.nc.Close()
	_, err = (&watched{w}).end(t)
	wantErr(t, err, kv.ErrWatchLost)
	if err := w.Close(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

func TestWatchEndsWithItsConsumerOrBucket(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, r *rig) error{
		"Consumer": func(ctx context.Context, r *rig) error {
			s, err := r.js.Stream(ctx, "KV_b")
			if err != nil {
				return err
			}
			for name := range s.ConsumerNames(ctx).Name() {
				if err := s.DeleteConsumer(ctx, name); err != nil {
					return err
				}
			}
			return nil
		},
		"Bucket": func(ctx context.Context, r *rig) error { return r.js.DeleteStream(ctx, "KV_b") },
		"BucketReplaced": func(ctx context.Context, r *rig) error {
			if err := r.js.DeleteStream(ctx, "KV_b"); err != nil {
				return err
			}
			_, err := natskv.Open(ctx, r.js, "b", natskv.BucketConfig{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, natskv.BucketConfig{})
			r.put(t, "k", "v")
			w := r.watch(t, kv.OpenRequest{})
			w.until(t, 1)
			if err := end(bounded(t), r); err != nil {
				t.Fatal(err)
			}
			_, err := w.end(t)
			wantErr(t, err, kv.ErrWatchLost)
		})
	}
}

func TestSlowReaderLosesNothing(t *testing.T) {
	const n = 20_000
	r := newRig(t, natskv.BucketConfig{Watch: natskv.WatchConfig{Batch: 300, MaxBytes: 4000}})
	w := r.watch(t, kv.OpenRequest{})
	r.fill(t, n, func(i int) string { return fmt.Sprintf("k%d", i) })
	var d kv.Delivery
	for cursor := uint64(0); cursor < n; {
		d.Updates = d.Updates[:0]
		var err error
		if d, err = w.Next(bounded(t), d, 37, 1000); err != nil {
			t.Fatal(err)
		}
		for _, u := range d.Updates {
			if cursor++; u.Version.Rank() != cursor {
				t.Fatalf("revision %v, want %d", u.Version, cursor)
			}
		}
	}
}

// A request whose bytes are used up to the last one ends without a word of the server. Messages of one size, and
// requests of some multiple of it, make that the rule.
func TestRequestsThatEndInSilence(t *testing.T) {
	const n = 400
	r := newRig(t, natskv.BucketConfig{})
	for i := range n {
		r.put(t, fmt.Sprintf("k%04d", i+1000), "value")
	}
	for size := 90; size < 190; size += 10 {
		b, err := natskv.Bind(bounded(t), r.js, "b", natskv.BucketConfig{Watch: natskv.WatchConfig{Batch: 50, MaxBytes: 4 * size}})
		if err != nil {
			t.Fatal(err)
		}
		r.bucket = b
		if got := r.watch(t, kv.OpenRequest{}).until(t, n); len(got) != n {
			t.Fatalf("%d updates", len(got))
		}
	}
}

func TestValueLargerThanARequest(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Watch: natskv.WatchConfig{MaxBytes: 1000}})
	big := bytes.Repeat([]byte("x"), 50_000)
	for i := range 6 {
		r.put(t, fmt.Sprintf("small%d", i), "v")
		r.put(t, fmt.Sprintf("big%d", i), string(big))
	}
	got := r.watch(t, kv.OpenRequest{}).until(t, 12)
	if len(got) != 12 || len(got[11].Value) != len(big) {
		t.Fatalf("%d updates", len(got))
	}
}

func TestBrokenConnectionUnderFlight(t *testing.T) {
	const n = 20_000
	r := newRig(t, natskv.BucketConfig{Timeout: 5 * time.Second, Watch: natskv.WatchConfig{Batch: 2000}})
	r.fill(t, n, func(i int) string { return fmt.Sprintf("k%d", i) })
	w := r.watch(t, kv.OpenRequest{})
	d, err := w.Next(bounded(t), kv.Delivery{}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := r.DropClients(); err != nil {
			t.Fatal(err)
		}
		r.ready(t)
	}
	t.Logf("lost %d watches", r.follow(t, w, uint64(len(d.Updates)), n))
}

// TestOverrunAfterTheSettingsWereEdited: a log that evicted nothing when the watch began may do so later.
func TestOverrunAfterTheSettingsWereEdited(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Watch: natskv.WatchConfig{Batch: 10}})
	r.put(t, "first", "v")
	w := r.watch(t, kv.OpenRequest{})
	w.until(t, 1)
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Discard, cfg.MaxBytes = jetstream.DiscardOld, 200_000
	if _, err := r.js.UpdateStream(bounded(t), cfg); err != nil {
		t.Fatal(err)
	}
	r.fill(t, 10_000, func(i int) string { return fmt.Sprintf("k.%d", i) })
	got, err := w.end(t)
	var expired *kv.ExpiredError
	if !errors.As(err, &expired) || expired.First <= expired.Cursor.Revision()+1 {
		t.Fatalf("after %d updates: %v", len(got), err)
	}
	for i, u := range got {
		if u.Version.Rank() != uint64(i)+2 {
			t.Fatalf("revision %v handed out after a hole", u.Version)
		}
	}
}

func TestOverrunIsAnExpiry(t *testing.T) {
	for name, scope := range map[string]kv.Scope{"All": kv.AllKeys(), "Prefix": prefixes(t, "k.")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, natskv.BucketConfig{DiscardOld: true, MaxBytes: 200_000, Watch: natskv.WatchConfig{Batch: 10, ProbeEvery: 50 * time.Millisecond}})
			r.put(t, "k.first", "v")
			w := r.watch(t, kv.OpenRequest{Scope: scope})
			w.until(t, 1)
			r.fill(t, 10_000, func(i int) string { return fmt.Sprintf("k.%d", i) })
			got, err := w.end(t)
			var expired *kv.ExpiredError
			if !errors.As(err, &expired) || expired.First <= expired.Cursor.Revision()+1 {
				t.Fatalf("after %d updates: %v", len(got), err)
			}
			for i, u := range got {
				if u.Version.Rank() != uint64(i)+2 {
					t.Fatalf("revision %v handed out after a hole", u.Version)
				}
			}
		})
	}
}
