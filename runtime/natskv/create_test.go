package natskv_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

func TestConfigMeansWhatItSays(t *testing.T) {
	cfg := natskv.BucketConfig{
		Storage: jetstream.MemoryStorage, History: 5, MaxAge: time.Hour, MaxBytes: 1 << 20, MaxValueSize: 1000, DiscardOld: true,
		Compression: true, MarkerTTL: time.Minute, Metadata: map[string]string{"k": "v"}, Description: "d",
	}
	r := newRig(t, cfg)
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if c.Storage != jetstream.MemoryStorage || c.MaxMsgsPerSubject != 5 || c.MaxAge != time.Hour || c.MaxBytes != 1<<20 ||
		c.MaxMsgSize != 1000 || c.Discard != jetstream.DiscardOld || c.Compression != jetstream.S2Compression ||
		c.SubjectDeleteMarkerTTL != time.Minute || c.Metadata["k"] != "v" || c.Description != "d" {
		t.Errorf("stream config %+v", c)
	}
	if !c.AllowMsgTTL || !c.AllowAtomicPublish {
		t.Errorf("per-message TTL %v, atomic publish %v, want both on", c.AllowMsgTTL, c.AllowAtomicPublish)
	}
	if d := r.bucket.Differences(); len(d) != 0 {
		t.Errorf("differences of a bucket just made: %v", d)
	}
	if _, err := r.js.KeyValue(bounded(t), "b"); err != nil {
		t.Errorf("nats.go does not take it for a bucket: %v", err)
	}
}

func TestDefaultBucketIsUnlimited(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{AtomicPublish: natskv.Off})
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	if c := s.CachedInfo().Config; c.MaxBytes != -1 || c.MaxAge != 0 || c.Storage != jetstream.FileStorage || c.AllowMsgTTL || c.AllowAtomicPublish {
		t.Errorf("stream config %+v", c)
	}
	info, err := r.bucket.Info(bounded(t))
	if err != nil || info.Retention.EvictsCurrentValues || info.ServerTime.IsZero() || info.Created.IsZero() {
		t.Errorf("info %+v, %v", info, err)
	}
}

func TestExistingBucketIsUsedAsItIs(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{History: 2, MessageTTL: natskv.Off})
	b := r.open(t, natskv.BucketConfig{History: 7, MaxAge: time.Hour, MessageTTL: natskv.Required})
	var got []string
	for _, d := range b.Differences() {
		got = append(got, d.String())
	}
	want := "History: want 7, have 2; MaxAge: want 1h0m0s, have 0s; MessageTTL: want true, have false"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("differences\n%s, want\n%s", s, want)
	}
	if d := r.open(t, natskv.BucketConfig{History: 2, Sealed: true}).Differences(); len(d) != 1 || d[0].String() != "Sealed: want true, have false" {
		t.Errorf("differences %v", d)
	}
	_, err := r.bucket.Put(bounded(t), "k", nil, kv.PutOptions{TTL: time.Minute})
	wantErr(t, err, kv.ErrUnsupported)
}

func TestBindRefusesAnAbsentBucket(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	_, err := natskv.Bind(bounded(t), r.js, "other", natskv.BucketConfig{})
	wantErr(t, err, kv.ErrBucketNotFound)
	if _, err := natskv.Bind(bounded(t), r.js, "b", natskv.BucketConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "a.b", "a b", "a*"} {
		if _, err := natskv.Open(bounded(t), r.js, bad, natskv.BucketConfig{}); err == nil {
			t.Errorf("bucket name %q accepted", bad)
		}
	}
	for _, bad := range []natskv.BucketConfig{{History: 65}, {Replicas: 6}, {MaxAge: -1}, {MarkerTTL: time.Millisecond},
		{MarkerTTL: time.Second, MessageTTL: natskv.Off}, {Sealed: true, MarkerTTL: time.Second},
		{Sealed: true, MessageTTL: natskv.Required}, {Sealed: true, MessageTTL: natskv.WhereSupported}, {Watch: natskv.WatchConfig{Batch: -1}},
		{Watch: natskv.WatchConfig{Heartbeat: time.Hour}}} {
		if _, err := natskv.Open(bounded(t), r.js, "c", bad); err == nil {
			t.Errorf("config %+v accepted", bad)
		}
	}
}

func TestConcurrentOpensMakeOneBucket(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := natskv.Open(bounded(t), r.js, "shared", natskv.BucketConfig{History: 1 + i%2}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A bucket from which single messages can be deleted is not sealed, whatever else it denies.
func TestSealedIsAllOfIt(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	cfg := jetstream.StreamConfig{Name: "KV_open", Subjects: []string{"$KV.open.>"}, MaxMsgsPerSubject: 1, DenyPurge: true, Discard: jetstream.DiscardNew}
	if _, err := r.js.CreateStream(bounded(t), cfg); err != nil {
		t.Fatal(err)
	}
	b, err := natskv.Open(bounded(t), r.js, "open", natskv.BucketConfig{Sealed: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := b.Differences(); len(d) != 1 || d[0].String() != "Sealed: want true, have false" {
		t.Errorf("differences %v", d)
	}
	if info, err := b.Info(bounded(t)); err != nil || info.Markers != (protocol.MarkerRules{Delete: true}) {
		t.Errorf("markers %+v, %v", info.Markers, err)
	}
}

func TestProviderWithoutUnlimitedBuckets(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MaxBytes: 1 << 20})
	limits := map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxBytesRequired: true}}
	if err := r.Server.Server().GlobalAccount().UpdateJetStreamLimits(limits); err != nil {
		t.Fatal(err)
	}
	_, err := natskv.Open(bounded(t), r.js, "c", natskv.BucketConfig{})
	var unsupported *kv.UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.Setting != "MaxBytes" {
		t.Fatalf("error %v", err)
	}
	if _, err := natskv.Open(bounded(t), r.js, "c", natskv.BucketConfig{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
}

func TestCreateFallsBackToTheRawAPI(t *testing.T) {
	const exists = `{"error":{"code":400,"err_code":10058,"description":"stream name already in use"}}`
	const full = `{"error":{"code":400,"err_code":10027,"description":"maximum number of streams reached"}}`
	for _, c := range []struct {
		name    string
		answers []answer
		creates int
		fails   bool
	}{
		{"NotJSON", []answer{{subject: "STREAM.CREATE", reply: "created, thanks"}}, 2, false},
		{"OtherShape", []answer{{subject: "STREAM.CREATE", reply: `{"config":[]}`}}, 2, false},
		{"Silence", []answer{{subject: "STREAM.CREATE"}}, 2, false},
		{"BothUnreadableButStored", []answer{{subject: "STREAM.CREATE", reply: "?", forward: true}, {subject: "STREAM.CREATE", reply: "?"}}, 2, false},
		{"BothUnreadableAndNotStored", []answer{{subject: "STREAM.CREATE", reply: "?"}, {subject: "STREAM.CREATE", reply: "?"}}, 2, true},
		{"SomebodyElseMadeIt", []answer{{subject: "STREAM.CREATE", reply: exists, forward: true}}, 1, false},
		{"AtTheLimitButThere", []answer{{subject: "STREAM.CREATE", reply: full, forward: true}}, 1, false},
		{"AtTheLimit", []answer{{subject: "STREAM.CREATE", reply: full}}, 1, true},
		{"Refused", []answer{{subject: "STREAM.CREATE", reply: `{"error":{"code":403,"err_code":1,"description":"no"}}`}}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, newRig(t, natskv.BucketConfig{}), c.answers...)
			b, err := natskv.Open(bounded(t), p.js, "raw", natskv.BucketConfig{Timeout: 500 * time.Millisecond, History: 3})
			if (err != nil) != c.fails {
				t.Fatalf("open: %v", err)
			}
			if n := p.count("STREAM.CREATE"); n != c.creates {
				t.Errorf("%d requests to create, want %d", n, c.creates)
			}
			if err != nil {
				return
			}
			if d := b.Differences(); len(d) != 0 {
				t.Error(d)
			}
			if _, err := b.Put(bounded(t), "k", nil, kv.PutOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDomain(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{}, natstest.Options{Domain: "hub"})
	js, err := jetstream.NewWithDomain(r.nc, "hub")
	if err != nil {
		t.Fatal(err)
	}
	if r.bucket, err = natskv.Open(bounded(t), js, "b", natskv.BucketConfig{}); err != nil {
		t.Fatal(err)
	}
	rev := r.put(t, "k", "v")
	w := r.watch(t, kv.OpenRequest{})
	if s := w.until(t, rev).text(); s != "k=v@1 put" {
		t.Fatal(s)
	}
	if _, err := r.bucket.Get(bounded(t), "k"); err != nil {
		t.Fatal(err)
	}
}
