package natskv_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// rewrite puts n keys over and over until the test is done with it.
func (r *rig) rewrite(t *testing.T, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := r.bucket.Put(bounded(t), fmt.Sprintf("k.%d", i%n), nil, kv.PutOptions{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func TestListingsUnderRewriteMissNoKey(t *testing.T) {
	const n = 300
	r := newRig(t, natskv.BucketConfig{Watch: natskv.WatchConfig{Batch: 20}})
	r.fill(t, n, func(i int) string { return fmt.Sprintf("k.%d", i) })
	defer r.rewrite(t, n)()
	for round := range 10 {
		seen := map[string]kv.Version{}
		for k, err := range r.bucket.Keys(bounded(t), prefixes(t, "k.")) {
			if err != nil {
				t.Fatal(err)
			}
			if old, ok := seen[k.Key]; ok && old.Rank() >= k.Version.Rank() {
				t.Fatalf("%s came at %v, then at %v", k.Key, old, k.Version)
			}
			seen[k.Key] = k.Version
		}
		if len(seen) != n {
			t.Fatalf("round %d listed %d of %d keys", round, len(seen), n)
		}
	}
	r.wantConsumers(t, 0)
}

func TestListingOfNothing(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	list := func(scope kv.Scope) (out []string) {
		for e, err := range r.bucket.Scan(bounded(t), scope) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, e.Key)
		}
		return out
	}
	if got := list(kv.AllKeys()); got != nil {
		t.Errorf("empty bucket: %v", got)
	}
	r.put(t, "a", "v")
	r.delete(t, "a")
	if got := list(kv.AllKeys()); got != nil {
		t.Errorf("tombstones: %v", got)
	}
	r.put(t, "b", "v")
	if got := list(prefixes(t, "none.", "no")); got != nil {
		t.Errorf("empty scope: %v", got)
	}
	if got := list(kv.AllKeys()); strings.Join(got, ",") != "b" {
		t.Errorf("one key: %v", got)
	}
}

// A listing that is told "nothing pending" too early goes on to the head that it read first.
func TestListingDoesNotBelieveNothingPending(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	for i := range 5 {
		r.put(t, fmt.Sprintf("k.%d", i), "v")
	}
	p := newProxy(t, r)
	b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	// The consumer's first info says that all was delivered, long before the rest is.
	early := `{"num_pending":0,"delivered":{"consumer_seq":0,"stream_seq":0}}`
	full := `{"num_pending":0,"delivered":{"consumer_seq":9,"stream_seq":9}}`
	p.answers = []answer{{subject: "CONSUMER.INFO", reply: full}, {subject: "CONSUMER.INFO", reply: early}}
	n := 0
	for _, err := range b.Keys(bounded(t), prefixes(t, "k.")) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 5 {
		t.Fatalf("%d keys", n)
	}
}

// A fold follows a bucket under writes while everything that can break does.
func TestFollowThroughRestartsAndCuts(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{History: 64, Timeout: 2 * time.Second})
	w := r.watch(t, kv.OpenRequest{})
	rev := uint64(1)
	r.fill(t, 1, func(int) string { return "first" })
	w.until(t, rev) // a watch without a cursor to come back to would be a re-list, which has each key's newest value only
	for round := range 3 {
		r.fill(t, 500, func(i int) string { return fmt.Sprintf("k.%d", i) })
		rev += 500
		var err error
		if round == 1 {
			err = r.Restart()
		} else {
			err = r.DropClients()
		}
		if err != nil {
			t.Fatal(err)
		}
		r.ready(t)
	}
	r.follow(t, w, 1, rev)
}
