package natskv_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

const (
	notReady  = `{"error":{"code":503,"err_code":10163,"description":"expected last sequence per subject temporarily unavailable"}}`
	constant  = `{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`
	wrongLast = `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 99"}}`
)

func TestWrongSequenceErrors(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	first := kv.Revision(r.put(t, "k", "v"))
	open := func(t *testing.T, answers ...answer) (*natskv.Bucket, *proxy) {
		p := newProxy(t, r)
		b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{})
		if err != nil {
			t.Fatal(err)
		}
		p.answers = answers
		return b, p
	}
	last := first
	t.Run("NothingStoredIsTriedAgain", func(t *testing.T) {
		b, p := open(t, answer{subject: "$KV.", reply: notReady}, answer{subject: "$KV.", reply: constant}, answer{subject: "$KV.", reply: notReady})
		v, err := b.Update(bounded(t), "k", nil, last, kv.PutOptions{})
		if err != nil || p.count("$KV.") != 4 || p.count("MSG.GET") != 0 {
			t.Fatalf("%v, %v after %d writes and %d reads", v, err, p.count("$KV."), p.count("MSG.GET"))
		}
		last = v
	})
	t.Run("ARevisionThatDidNotMoveIsNoConflict", func(t *testing.T) {
		b, p := open(t, answer{subject: "$KV.", reply: wrongLast})
		v, err := b.Update(bounded(t), "k", nil, last, kv.PutOptions{})
		if err != nil || p.count("MSG.GET") != 1 {
			t.Fatalf("%v, %v after %d reads", v, err, p.count("MSG.GET"))
		}
		last = v
	})
	t.Run("AConflictShowsTheTrueRevision", func(t *testing.T) {
		b, _ := open(t, answer{subject: "$KV.", reply: notReady, before: func() { last = kv.Revision(r.put(t, "k", "moved")) }})
		var conflict *kv.ConflictError
		if _, err := b.Delete(bounded(t), "k", kv.DeleteOptions{At: kv.Revision(last.Rank())}); !errors.As(err, &conflict) || conflict.Current != last {
			t.Fatalf("%v, last %v", err, last)
		}
	})
	t.Run("TheAttemptsAreBounded", func(t *testing.T) {
		var always []answer
		for range 100 {
			always = append(always, answer{subject: "$KV.", reply: notReady})
		}
		b, p := open(t, always...)
		_, err := b.Create(bounded(t), "new", nil, kv.PutOptions{})
		var api *natskv.APIError
		if !errors.As(err, &api) || api.ErrCode != 10163 || errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrOutcomeUnknown) || p.count("$KV.") > 20 {
			t.Fatalf("%v after %d attempts", err, p.count("$KV."))
		}
	})
	t.Run("SilenceIsAnUnknownOutcome", func(t *testing.T) {
		p := newProxy(t, r)
		b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{Timeout: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		p.answers = []answer{{subject: "$KV.", forward: true}}
		_, err = b.Put(bounded(t), "silent", nil, kv.PutOptions{})
		wantErr(t, err, kv.ErrOutcomeUnknown)
		if p.count("$KV.") != 1 {
			t.Fatalf("sent %d times", p.count("$KV."))
		}
		if _, err := r.bucket.Get(bounded(t), "silent"); err != nil {
			t.Fatalf("it was stored, and reads %v", err)
		}
	})
}

func TestOneOfManyCreatesWins(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.put(t, "lock", "old")
	r.delete(t, "lock")
	var wg sync.WaitGroup
	var won atomic.Int32
	for range 8 {
		wg.Go(func() {
			_, err := r.bucket.Create(bounded(t), "lock", nil, kv.PutOptions{})
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, kv.ErrKeyExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d creates won", won.Load())
	}
}

func TestCreateAfterEveryKindOfEnd(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MarkerTTL: time.Minute})
	ctx := bounded(t)
	ends := map[string]func(key string) error{
		"deleted": func(key string) error { _, err := r.bucket.Delete(ctx, key, kv.DeleteOptions{}); return err },
		"purged":  func(key string) error { _, err := r.bucket.Delete(ctx, key, kv.DeleteOptions{Purge: true}); return err },
		"aged": func(key string) error {
			if _, err := r.bucket.Put(ctx, key, nil, kv.PutOptions{TTL: 10 * time.Millisecond}); err != nil { // a second for the server
				return err
			}
			return poll(ctx, func() (bool, error) { e, err := r.bucket.Entry(ctx, key); return e.Op == kv.OpAgedOut, err })
		},
	}
	for key, end := range ends {
		r.put(t, key, "v")
		if err := end(key); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		_, err := r.bucket.Get(ctx, key)
		wantErr(t, err, kv.ErrKeyNotFound)
		if _, err := r.bucket.Create(ctx, key, nil, kv.PutOptions{}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestWritesToAnAbsentBucketAndWithoutServer(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Timeout: time.Second})
	if err := r.js.DeleteStream(bounded(t), "KV_b"); err != nil {
		t.Fatal(err)
	}
	_, err := r.bucket.Put(bounded(t), "k", nil, kv.PutOptions{})
	wantErr(t, err, kv.ErrBucketNotFound)
	_, err = r.bucket.Get(bounded(t), "k")
	wantErr(t, err, kv.ErrBucketNotFound)
	_, err = r.bucket.Open(bounded(t), kv.OpenRequest{})
	wantErr(t, err, kv.ErrBucketNotFound)
	r.Stop()
	_, err = r.bucket.Put(bounded(t), "k", nil, kv.PutOptions{})
	wantErr(t, err, kv.ErrOutcomeUnknown)
	if _, err = r.bucket.Open(bounded(t), kv.OpenRequest{}); err == nil || errors.Is(err, kv.ErrBucketNotFound) {
		t.Fatalf("open without a server: %v", err)
	}
}

func TestTooLargeAValueIsNotStored(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{}, natstest.Options{MaxPayload: 2000})
	_, err := r.bucket.Put(bounded(t), "k", make([]byte, 4000), kv.PutOptions{})
	if err == nil || errors.Is(err, kv.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
}
