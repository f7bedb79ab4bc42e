package natskv_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// TestFenceRefused: a bucket that could lose its fence record, or can't store it at once, says which setting it is.
func TestFenceRefused(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	for name, c := range map[string]struct {
		cfg     natskv.BucketConfig
		edit    func(*jetstream.StreamConfig)
		setting string
		hint    string
	}{
		"max age":            {natskv.BucketConfig{MaxAge: time.Hour}, nil, "MessageTTL", "--allow-msg-ttl"},
		"max age and a TTL":  {natskv.BucketConfig{MaxAge: time.Hour, MessageTTL: natskv.Required}, nil, "", ""},
		"markers":            {natskv.BucketConfig{MaxAge: time.Hour, MarkerTTL: time.Minute}, nil, "", ""},
		"sealed":             {natskv.BucketConfig{Sealed: true}, nil, "", ""},
		"discard old, bytes": {natskv.BucketConfig{MaxBytes: 1 << 20, DiscardOld: true}, nil, "DiscardOld", "--discard new"},
		"discard old, messages": {natskv.BucketConfig{DiscardOld: true}, func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
			"DiscardOld", "--discard new"},
		"discard old, no limit": {natskv.BucketConfig{DiscardOld: true}, nil, "", ""},
		"a limit":               {natskv.BucketConfig{MaxBytes: 1 << 20}, nil, "", ""},
		"discard new per subject": {natskv.BucketConfig{}, func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject = true },
			"DiscardNewPerSubject", "make the bucket anew"},
		"room for a few messages": {natskv.BucketConfig{}, func(c *jetstream.StreamConfig) { c.MaxMsgs = 50 }, "MaxMsgs", "--max-msgs"},
		"room for a few bytes":    {natskv.BucketConfig{MaxBytes: 5000}, nil, "MaxBytes", "--max-bytes"},
		"small values":            {natskv.BucketConfig{MaxValueSize: 40}, nil, "MaxValueSize", "--max-msg-size"},
		"no batches":              {natskv.BucketConfig{AtomicPublish: natskv.Off}, nil, "AtomicPublish", "--allow-batch"},
		"sources": {natskv.BucketConfig{}, func(c *jetstream.StreamConfig) {
			c.Sources = []*jetstream.StreamSource{{Name: "KV_b"}}
		}, "Sources", "sources"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.js.DeleteStream(bounded(t), "KV_c"); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Fatal(err)
			}
			b, err := natskv.Open(bounded(t), r.js, "c", c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if c.edit != nil {
				s, err := r.js.Stream(bounded(t), "KV_c")
				if err != nil {
					t.Fatal(err)
				}
				cfg := s.CachedInfo().Config
				c.edit(&cfg)
				if _, err := r.js.UpdateStream(bounded(t), cfg); err != nil {
					t.Fatal(err)
				}
			}
			_, err = b.InstallFence(bounded(t), "a")
			if c.setting == "" {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			var no *kv.UnsupportedError
			if !errors.As(err, &no) || no.Setting != c.setting || !strings.Contains(no.Hint(), c.hint) || !errors.Is(err, kv.ErrUnsupported) {
				t.Errorf("%v", err)
			}
			if info, err := b.Info(bounded(t)); err != nil || info.Last != 0 {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

// TestFenceOutlivesMaxAge: the record stays when all else has aged out.
func TestFenceOutlivesMaxAge(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MaxAge: time.Second, MessageTTL: natskv.Required})
	lastOf, err := r.bucket.InstallFence(bounded(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := r.bucket.FenceRecord(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.bucket.Put(bounded(t), "k", []byte("1"), kv.PutOptions{Fence: rec.Revision}); err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	if err := poll(ctx, func() (bool, error) {
		_, err := r.bucket.Entry(ctx, "k")
		return errors.Is(err, kv.ErrKeyNotFound), nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 70 { // each of its keys
		if _, err := r.bucket.Put(ctx, "k", []byte("2"), kv.PutOptions{Fence: rec.Revision}); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := r.bucket.FenceRecord(ctx); err != nil || now != rec || rec.Revision+63 != lastOf.Rank() {
		t.Errorf("%+v after %+v, %v", now, rec, err)
	}
}

// TestFenceOfAMirror: the origin is the one to fence.
func TestFenceOfAMirror(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	cfg := jetstream.StreamConfig{Name: "KV_m", Mirror: &jetstream.StreamSource{Name: "KV_b"}, AllowDirect: true, MaxMsgsPerSubject: 1}
	if _, err := r.js.CreateStream(bounded(t), cfg); err != nil {
		t.Fatal(err)
	}
	m, err := natskv.Bind(bounded(t), r.js, "m", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var no *kv.UnsupportedError
	if _, err := m.InstallFence(bounded(t), "a"); !errors.As(err, &no) || no.Setting != "Mirror" {
		t.Errorf("%v", err)
	}
}

// TestFenceOverADomain: the checked subject is the stream's own, wherever the write is sent to.
func TestFenceOverADomain(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{}, natstest.Options{Domain: "hub"})
	js, err := jetstream.NewWithDomain(r.nc, "hub")
	if err != nil {
		t.Fatal(err)
	}
	b, err := natskv.Bind(bounded(t), js, "b", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	end, err := b.InstallFence(bounded(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	at := end.Rank() - 63
	if _, err := b.Create(bounded(t), "k", []byte("1"), kv.PutOptions{Fence: at}); err != nil {
		t.Fatal(err)
	}
	v, err := b.Put(bounded(t), "k", []byte("2"), kv.PutOptions{Fence: at})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.InstallFence(bounded(t), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(bounded(t), "k", []byte("3"), kv.PutOptions{Fence: at}); !errors.Is(err, kv.ErrFenceMoved) {
		t.Errorf("%v", err)
	}
	if _, err := b.Update(bounded(t), "k", []byte("3"), v, kv.PutOptions{Fence: at}); !errors.Is(err, kv.ErrFenceMoved) {
		t.Errorf("%v", err)
	}
}
