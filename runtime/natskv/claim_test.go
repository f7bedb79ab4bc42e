package natskv_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// proxied opens a watch through a proxy, after revision 1 of a bucket that evicts and holds that alone, and reads its first
// frontier.
func proxied(t *testing.T, r *rig, p *proxy, scope kv.Scope, w natskv.WatchConfig) *watched {
	t.Helper()
	b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{Watch: w})
	if err != nil {
		t.Fatal(err)
	}
	direct := r.bucket
	r.bucket = b
	defer func() { r.bucket = direct }()
	got := r.watch(t, kv.OpenRequest{Scope: scope, After: kv.CursorAt(1)})
	if u := got.until(t, 1); len(u) != 0 {
		t.Fatal(u.text())
	}
	return got
}

func newEvictingRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, natskv.BucketConfig{DiscardOld: true, MaxBytes: 1 << 20})
	r.put(t, "k.1", "v")
	return r
}

// What retention took before it was delivered leaves no gap between deliveries when nothing comes after it: only the probe
// sees that the head moved on and nothing is pending. That is an expiry, and no frontier passes it.
func TestNothingPendingAfterAnEvictionIsAnExpiry(t *testing.T) {
	for name, scope := range map[string]kv.Scope{"All": kv.AllKeys(), "Prefix": prefixes(t, "k.")} {
		t.Run(name, func(t *testing.T) {
			r := newEvictingRig(t)
			pull := answer{subject: "CONSUMER.MSG.NEXT"} // both requests get lost, so nothing is delivered
			p := newProxy(t, r, pull, pull)
			w := proxied(t, r, p, scope, natskv.WatchConfig{Batch: 10, ProbeEvery: 50 * time.Millisecond})
			for _, key := range []string{"k.2", "k.3", "k.4", "k.5"} {
				r.put(t, key, "v")
			}
			s, err := r.js.Stream(bounded(t), "KV_b")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(bounded(t), jetstream.WithPurgeSequence(6)); err != nil {
				t.Fatal(err)
			}
			d, err := w.Next(bounded(t), kv.Delivery{}, 100, 1<<20)
			var expired *kv.ExpiredError
			if !errors.As(err, &expired) || expired.First != 6 || expired.Cursor != kv.CursorAt(1) {
				t.Fatalf("%d updates, frontier %d, %v", len(d.Updates), d.Frontier, err)
			}
		})
	}
}

// anotherLog is the stream's info with another creation time.
func anotherLog(t *testing.T, r *rig) answer {
	t.Helper()
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	info := *s.CachedInfo()
	info.Created = info.Created.Add(time.Nanosecond)
	data, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	return answer{subject: "STREAM.INFO", reply: string(data)}
}

// A bucket that was re-created under a live watch may look as the old one did, but for its creation time. Whoever looks at
// its bounds next sees that: the probe of a quiet watch, the guard after a gap, and the last check of an open.
func TestRecreatedUnderAWatch(t *testing.T) {
	lost := func(t *testing.T, w *watched) {
		t.Helper()
		d, err := w.Next(bounded(t), kv.Delivery{}, 100, 1<<20)
		if !errors.Is(err, kv.ErrWatchLost) || !strings.Contains(err.Error(), "re-created") {
			t.Fatalf("%d updates, frontier %d, %v", len(d.Updates), d.Frontier, err)
		}
	}
	t.Run("Probe", func(t *testing.T) {
		r := newEvictingRig(t)
		p := newProxy(t, r)
		w := proxied(t, r, p, kv.AllKeys(), natskv.WatchConfig{ProbeEvery: 50 * time.Millisecond})
		p.then(anotherLog(t, r))
		lost(t, w)
	})
	t.Run("Guard", func(t *testing.T) {
		r := newEvictingRig(t)
		p := newProxy(t, r)
		w := proxied(t, r, p, prefixes(t, "k."), natskv.WatchConfig{ProbeEvery: time.Hour})
		p.then(anotherLog(t, r))
		r.put(t, "other", "v")
		r.put(t, "k.2", "v")
		lost(t, w)
	})
	t.Run("Open", func(t *testing.T) {
		r := newEvictingRig(t)
		p := newProxy(t, r)
		b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.js.Stream(bounded(t), "KV_b")
		if err != nil {
			t.Fatal(err)
		}
		p.then(answer{subject: "STREAM.INFO", reply: oldInfo(t, s)}, anotherLog(t, r))
		w, err := b.Open(bounded(t), kv.OpenRequest{After: kv.CursorAt(1)})
		if err == nil {
			t.Fatalf("opened a watch of %+v", w.Info())
		}
		if !strings.Contains(err.Error(), "check consumer") || !strings.Contains(err.Error(), "replaced") {
			t.Fatal(err)
		}
		r.wantConsumers(t, 0)
	})
}
