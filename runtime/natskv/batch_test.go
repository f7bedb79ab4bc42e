package natskv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// puts is a batch of puts of these keys.
func puts(keys ...string) kv.Batch {
	var b kv.Batch
	for _, key := range keys {
		b.Ops = append(b.Ops, kv.BatchOp{Kind: kv.BatchPut, Key: key, Value: []byte("batch")})
	}
	return b
}

func last(t *testing.T, b *natskv.Bucket) uint64 {
	t.Helper()
	info, err := b.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.Last
}

// stored is that a batch has been written whole, and is the log's end.
func stored(t *testing.T, b *natskv.Bucket, v kv.Version, err error, batch kv.Batch) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if end := last(t, b); v.Rank() != end {
		t.Errorf("the batch is at %v, the log at %d", v, end)
	}
	for i, op := range batch.Ops {
		e, err := b.Get(bounded(t), op.Key)
		if want := v.Rank() - uint64(len(batch.Ops)-1-i); err != nil || e.Version.Rank() != want || !bytes.Equal(e.Value, op.Value) {
			t.Errorf("operation %d: %+v, %v; want revision %d", i, e, err, want)
		}
	}
}

func TestBatchOnABucketWithoutAtomicPublish(t *testing.T) {
	off := natskv.BucketConfig{AtomicPublish: natskv.Off, Metadata: map[string]string{"owner": "x"}, Description: "d", History: 3, MarkerTTL: time.Minute}
	r := newRig(t, off)
	batch := puts("a", "b")
	_, err := r.bucket.WriteBatch(bounded(t), batch)
	wantErr(t, err, kv.ErrUnsupported)
	var no *kv.UnsupportedError
	if !errors.As(err, &no) || no.Setting != "AtomicPublish" || !strings.Contains(no.Hint(), "TurnOnAtomicPublish") || !strings.Contains(no.Hint(), "nats stream edit KV_b --allow-batch") {
		t.Errorf("%v, hint %q", err, no.Hint())
	}
	if n := last(t, r.bucket); n != 0 {
		t.Errorf("%d messages stored", n)
	}
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	before := s.CachedInfo().Config
	r.open(t, natskv.BucketConfig{}) // does not touch it
	if info, err := s.Info(bounded(t)); err != nil || info.Config.AllowAtomicPublish {
		t.Errorf("%+v, %v", info, err)
	}
	b := r.open(t, natskv.BucketConfig{TurnOnAtomicPublish: true, History: 3, MarkerTTL: time.Minute})
	info, err := s.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	before.AllowAtomicPublish = true
	for _, m := range []map[string]string{before.Metadata, info.Config.Metadata} { // the server's own note of what it needs
		delete(m, "_nats.req.level")
	}
	if got, want := fmt.Sprintf("%+v", info.Config), fmt.Sprintf("%+v", before); got != want {
		t.Errorf("after it was turned on\n%s, want\n%s", got, want)
	}
	if d := b.Differences(); len(d) != 0 {
		t.Errorf("differences %v", d)
	}
	for _, b := range []*natskv.Bucket{b, r.bucket} { // also the one that was open before
		v, err := b.WriteBatch(bounded(t), batch)
		stored(t, b, v, err, batch)
	}
	cfg := info.Config
	cfg.AllowAtomicPublish = false
	if _, err := r.js.UpdateStream(bounded(t), cfg); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err = b.WriteBatch(bounded(t), batch)
		wantErr(t, err, kv.ErrUnsupported)
	}
	bound, err := natskv.Bind(bounded(t), r.js, "b", natskv.BucketConfig{TurnOnAtomicPublish: true})
	if err != nil {
		t.Fatal(err)
	}
	v, err := bound.WriteBatch(bounded(t), batch)
	stored(t, bound, v, err, batch)
	for _, bad := range []natskv.BucketConfig{{TurnOnAtomicPublish: true, AtomicPublish: natskv.Off}, {MaxBatch: -1}} {
		if _, err := natskv.Open(bounded(t), r.js, "b", bad); err == nil {
			t.Errorf("config %+v accepted", bad)
		}
	}
}

func TestBatchLimitIsTheServers(t *testing.T) {
	keys := make([]string, 1500)
	for i := range keys {
		keys[i] = "k" + strconv.Itoa(i)
	}
	for _, limit := range []int{5, 1200} {
		r := newRig(t, natskv.BucketConfig{MaxBatch: 1400, Storage: jetstream.MemoryStorage}, natstest.Options{Tune: func(o *server.Options) { o.JetStreamLimits.MaxBatchSize = limit }})
		for n, want := range map[int]int{limit + 1: limit, 1401: 1400} {
			_, err := r.bucket.WriteBatch(bounded(t), puts(keys[:n]...))
			var size *kv.BatchSizeError
			if !errors.As(err, &size) || size.Ops != n || size.Limit != want {
				t.Errorf("%d operations: %v", n, err)
			}
		}
		if n := last(t, r.bucket); n != 0 {
			t.Errorf("%d messages stored", n)
		}
		batch := puts(keys[:limit]...)
		v, err := r.bucket.WriteBatch(bounded(t), batch)
		stored(t, r.bucket, v, err, batch)
	}
}

// begin sends the first messages of a batch, as a client that ends before it commits.
func (r *rig) begin(t *testing.T, id string, keys ...string) {
	t.Helper()
	for i, key := range keys {
		m := nats.NewMsg("$KV.b." + key)
		m.Header["Nats-Batch-Id"] = []string{id}
		m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		reply, err := r.nc.RequestMsgWithContext(bounded(t), m)
		if err != nil || len(reply.Data) > 0 {
			t.Fatalf("message %d of a batch: %v, %s", i+1, err, reply.Data)
		}
	}
}

func TestBatchOfAClientThatDies(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{}, natstest.Options{Tune: func(o *server.Options) { o.JetStreamLimits.MaxBatchTimeout = 100 * time.Millisecond }})
	nc, err := r.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	abandoned, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.KV_b")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r.put(t, "a", "1")
	r.begin(t, "dead", "a", "b", "c")
	w := r.watch(t, kv.OpenRequest{})
	w.until(t, 1)
	if n := last(t, r.bucket); n != 1 {
		t.Errorf("the log is at %d", n)
	}
	if _, err := abandoned.NextMsgWithContext(bounded(t)); err != nil {
		t.Fatal(err)
	}
	r.begin(t, "dead too", "a", "b", "c") // this one ends with the server
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	r.ready(t)
	batch := puts("b", "c")
	v, err := r.bucket.WriteBatch(bounded(t), batch)
	stored(t, r.bucket, v, err, batch)
	if v.Rank() != 3 {
		t.Errorf("the next batch is at %v", v)
	}
	if e, err := r.bucket.Get(bounded(t), "a"); err != nil || string(e.Value) != "1" {
		t.Errorf("%+v, %v", e, err)
	}
}

// Too many batches at once are waited for.
func TestBatchWaitsForItsTurn(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{}, natstest.Options{Tune: func(o *server.Options) {
		o.JetStreamLimits.MaxBatchInflightPerStream, o.JetStreamLimits.MaxBatchTimeout = 1, 200*time.Millisecond
	}})
	r.begin(t, "first", "x")
	batch := puts("a", "b")
	v, err := r.bucket.WriteBatch(bounded(t), batch)
	stored(t, r.bucket, v, err, batch)
	r.begin(t, "second", "x")
	ctx, cancel := context.WithTimeout(bounded(t), 20*time.Millisecond)
	defer cancel()
	_, err = r.bucket.WriteBatch(ctx, batch)
	wantErr(t, err, context.DeadlineExceeded)
	if errors.Is(err, kv.ErrOutcomeUnknown) || last(t, r.bucket) != 2 {
		t.Errorf("%v, and the log is at %d", err, last(t, r.bucket))
	}
}

func TestBatchAbandonedByTheServer(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{}, natstest.Options{Tune: func(o *server.Options) { o.JetStreamLimits.MaxBatchTimeout = 50 * time.Millisecond }})
	nc, err := r.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	abandoned, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.KV_b")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, late := range []string{"mid", "end"} {
		p := newProxy(t, r)
		b, err := natskv.Open(bounded(t), p.js, "b", natskv.BucketConfig{})
		if err != nil {
			t.Fatal(err)
		}
		p.delay(late, func() {
			if _, err := abandoned.NextMsg(10 * time.Second); err != nil {
				t.Error(err)
			}
		})
		_, err = b.WriteBatch(bounded(t), puts("a", "mid", "end"))
		wantErr(t, err, kv.ErrBatchAbandoned)
		if errors.Is(err, kv.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if n := last(t, r.bucket); n != 0 {
			t.Errorf("%d messages stored", n)
		}
		p.close(t)
	}
}

func TestBatchRefusedMessages(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MaxValueSize: 1000, MaxBytes: 20_000}, natstest.Options{MaxPayload: 5000})
	batch := puts("a", "b", "c", "d")
	for name, c := range map[string]struct {
		size  int
		index int
		match error
	}{
		"over the server's limit, not even sent": {5000, 1, nats.ErrMaxPayload},
		"over the bucket's limit":                {1200, 2, nil},
		"the first is over the bucket's limit":   {1200, 0, nil},
	} {
		big := puts("a", "b", "c", "d")
		big.Ops[c.index].Value = make([]byte, c.size)
		_, err := r.bucket.WriteBatch(bounded(t), big)
		var bad *kv.BatchError
		if !errors.As(err, &bad) || bad.Index != c.index || bad.Key != big.Ops[c.index].Key || c.match != nil && !errors.Is(err, c.match) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, kv.ErrOutcomeUnknown) || last(t, r.bucket) != 0 {
			t.Errorf("%s: %v, and the log is at %d", name, err, last(t, r.bucket))
		}
	}
	var full kv.Batch
	for i := range 30 {
		full.Ops = append(full.Ops, kv.BatchOp{Kind: kv.BatchPut, Key: fmt.Sprintf("k%d", i), Value: make([]byte, 800)})
	}
	_, err := r.bucket.WriteBatch(bounded(t), full)
	if err == nil || !strings.Contains(err.Error(), "nothing stored") || errors.Is(err, kv.ErrOutcomeUnknown) || last(t, r.bucket) != 0 {
		t.Errorf("a full bucket: %v, and the log is at %d", err, last(t, r.bucket))
	}
	v, err := r.bucket.WriteBatch(bounded(t), batch)
	stored(t, r.bucket, v, err, batch)
	if err := r.js.DeleteStream(bounded(t), "KV_b"); err != nil {
		t.Fatal(err)
	}
	_, err = r.bucket.WriteBatch(bounded(t), batch)
	wantErr(t, err, kv.ErrBucketNotFound)
}

func TestBatchOfAMirror(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	mirror := jetstream.StreamConfig{Name: "KV_m", Mirror: &jetstream.StreamSource{Name: "KV_b"}, MaxMsgsPerSubject: 1, AllowDirect: true, MirrorDirect: true}
	if _, err := r.js.CreateStream(bounded(t), mirror); err != nil {
		t.Fatal(err)
	}
	m, err := natskv.Bind(bounded(t), r.js, "m", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.WriteBatch(bounded(t), puts("a", "b"))
	var no *kv.UnsupportedError
	if !errors.As(err, &no) || !strings.Contains(no.Detail, "mirror of stream KV_b") || no.Hint() == "" {
		t.Errorf("%v", err)
	}
}

// TestSettingIsNotTurnedOnBlindly: an answer without the stream's configuration changes nothing of it.
func TestSettingIsNotTurnedOnBlindly(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{AtomicPublish: natskv.Off})
	p := newProxy(t, r, answer{subject: "STREAM.INFO", pass: true, forward: true}, answer{subject: "STREAM.INFO", reply: `{"state":{}}`})
	_, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{TurnOnAtomicPublish: true})
	if err == nil || !strings.Contains(err.Error(), "no configuration") {
		t.Errorf("%v", err)
	}
}
