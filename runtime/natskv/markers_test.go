package natskv_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

// What the log says of its markers and of its retention, by how the bucket was made.
func TestMarkerRules(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    natskv.BucketConfig
		rules  protocol.MarkerRules
		safety protocol.MarkerSafety
		evicts bool
		inside bool
	}{
		"Default":      {natskv.BucketConfig{}, protocol.MarkerRules{Purge: true, Rollup: true}, protocol.MarkersUnsealed, false, false},
		"Sealed":       {natskv.BucketConfig{Sealed: true}, protocol.MarkerRules{}, protocol.MarkersSealed, false, false},
		"SealedMaxAge": {natskv.BucketConfig{Sealed: true, MaxAge: time.Hour}, protocol.MarkerRules{}, protocol.MarkersSealed, true, false},
		"MarkerTTL": {
			natskv.BucketConfig{MarkerTTL: time.Minute},
			protocol.MarkerRules{Purge: true, Rollup: true, MessageTTL: true, MarkerTTL: int64(time.Minute)}, protocol.MarkersUnsealed, true, true,
		},
		"MessageTTL": {
			natskv.BucketConfig{MessageTTL: natskv.Required},
			protocol.MarkerRules{Purge: true, Rollup: true, MessageTTL: true}, protocol.MarkersUnsealed, true, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.cfg)
			info, err := r.bucket.Info(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			watched := r.watch(t, kv.OpenRequest{}).Info()
			for _, got := range []kv.LogInfo{info, watched} {
				if got.Markers != c.rules || protocol.MarkersCanVanish(got.Markers, int64(time.Second)) != c.safety {
					t.Errorf("markers %+v, want %+v and %v", got.Markers, c.rules, c.safety)
				}
				if got.Retention.EvictsCurrentValues != c.evicts || got.Retention.EvictsInside != c.inside {
					t.Errorf("retention %+v", got.Retention)
				}
			}
		})
	}
}

// A sealed bucket takes deletes and refuses every way to take a marker out; the server does not unseal it.
func TestSealedBucket(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Sealed: true})
	r.put(t, "k", "v")
	_, err := r.bucket.Delete(bounded(t), "k", kv.DeleteOptions{Purge: true})
	wantErr(t, err, kv.ErrUnsupported)
	rev := r.delete(t, "k")
	if d := r.bucket.Differences(); len(d) != 0 {
		t.Error(d)
	}
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := r.js.KeyValue(bounded(t), "b")
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"purge":             s.Purge(bounded(t)),
		"purge of a key":    s.Purge(bounded(t), jetstream.WithPurgeSubject("$KV.b.k")),
		"delete message":    s.DeleteMsg(bounded(t), rev),
		"secure delete":     s.SecureDeleteMsg(bounded(t), rev),
		"purge of a KV key": bucket.Purge(bounded(t), "k"),
		"PurgeDeletes":      bucket.PurgeDeletes(bounded(t), jetstream.DeleteMarkersOlderThan(-1)),
	} {
		if err == nil {
			t.Errorf("%s: done", what)
		}
	}
	for what, edit := range map[string]func(*jetstream.StreamConfig){
		"purges":         func(c *jetstream.StreamConfig) { c.DenyPurge = false },
		"deletes":        func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"rollups":        func(c *jetstream.StreamConfig) { c.AllowRollup = true },
		"both":           func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = true, false },
		"server markers": func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Minute },
	} {
		cfg := s.CachedInfo().Config
		edit(&cfg)
		if _, err := r.js.UpdateStream(bounded(t), cfg); err == nil {
			t.Errorf("%s were allowed again", what)
		}
	}
	if e, err := r.bucket.Entry(bounded(t), "k"); err != nil || e.Op != kv.OpDelete || e.Version != kv.Revision(rev) {
		t.Errorf("the marker is %+v, %v", e, err)
	}
}

// Per-message TTLs can be switched on for a sealed bucket. It is unsealed then, and the next look says so; the server does
// not switch them off again.
func TestMessageTTLUnseals(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Sealed: true})
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	for _, on := range []bool{true, false} {
		cfg.AllowMsgTTL = on
		if _, err := r.js.UpdateStream(bounded(t), cfg); (err == nil) != on {
			t.Fatalf("message TTLs %v: %v", on, err)
		}
		info, err := r.bucket.Info(bounded(t))
		if err != nil || info.Markers != (protocol.MarkerRules{MessageTTL: true}) || !info.Retention.EvictsInside {
			t.Fatalf("%+v, %v", info, err)
		}
		if got := protocol.MarkersCanVanish(info.Markers, int64(time.Second)); got != protocol.MarkersUnsealed {
			t.Fatal(got)
		}
	}
	if d := r.open(t, natskv.BucketConfig{Sealed: true}).Differences(); len(d) != 1 || d[0].String() != "MessageTTL: want false, have true" {
		t.Errorf("differences %v", d)
	}
}

// A value can leave from inside the log without a trace: the first revision says nothing of it, so no listing is the truth.
func TestAgeingFromInsideIsEviction(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MessageTTL: natskv.Required})
	r.put(t, "anchor", "v")
	if _, err := r.bucket.Put(bounded(t), "aged", []byte("v"), kv.PutOptions{TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	err := poll(bounded(t), func() (bool, error) {
		info, err := r.bucket.Info(bounded(t))
		return info.Messages == 1, err
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.bucket.Info(bounded(t))
	if err != nil || info.First != 1 || info.Last != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	if got := protocol.ListingTruth(info.Retention.Kernel(), false); got != protocol.TruthNo || !protocol.HasEvicted(info.Retention.Kernel()) {
		t.Errorf("the listing is the truth: %v", got)
	}
}
