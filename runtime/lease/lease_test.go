package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/natskv"
)

// corrupt are values that are no record.
var corrupt = map[string]string{
	"empty":           "",
	"spaces":          "  ",
	"no JSON":         "held by node-1",
	"cut short":       `{"holder_id":"a","acquired_at_unix":1718000000,"expires_at_unix":17180`,
	"two values":      `{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":9999999999}{}`,
	"null":            "null",
	"a number":        "9999999999",
	"a list":          `["a",1,9999999999]`,
	"an empty object": "{}",
	"no expiry":       `{"holder_id":"a","acquired_at_unix":1}`,
	"null expiry":     `{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":null}`,
	"null holder":     `{"holder_id":null,"acquired_at_unix":1,"expires_at_unix":9999999999}`,
	"expiry is text":  `{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":"9999999999"}`,
	"expiry below 0":  `{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":-1}`,
	"expiry fraction": `{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":9999999999.5}`,
	"expiry too big":  `{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":99999999999999999999}`,
	"holder is 1":     `{"holder_id":1,"acquired_at_unix":1,"expires_at_unix":9999999999}`,
	"cursor is 1":     `{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":9999999999,"completed_cursor_hex":1}`,
	"other case":      `{"HOLDER_ID":"a","Acquired_At_Unix":1,"EXPIRES_AT_UNIX":9999999999}`,
	"not UTF-8":       "{\"holder_id\":\"\xff\",\"acquired_at_unix\":1,\"expires_at_unix\":9999999999}",
	"deep":            strings.Repeat("[", 20000),
	"huge":            `{"holder_id":"` + strings.Repeat("a", 100<<10) + `","acquired_at_unix":1,"expires_at_unix":9999999999}`,
}

// What is stored is byte for byte what the seed's implementation stores.
func TestStoredBytes(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		c := newClock()
		g := acquire(t, leaseOf(t, b, `node-42 <a&b> "é"`, c))
		const begin = `{"holder_id":"node-42 <a&b> \"é\"","acquired_at_unix":1718000000,"expires_at_unix":1718000300`
		wantValue(t, b, begin+"}")
		c.advance(7 * time.Second)
		if o, err := g.Complete(bounded(t), kv.CursorAt(0xABCDEF)); o != lease.OutcomeRecorded || err != nil {
			t.Fatal(o, err)
		}
		wantValue(t, b, begin+`,"completed_cursor_hex":"0000000000abcdef","completed_at_unix":1718000007}`)
		if r := g.Record(); *r.CompletedCursorHex != "0000000000abcdef" || r.ExpiresAtUnix != start+300 {
			t.Errorf("%+v", r)
		}
	})
}

// The seed's own record, nulls and spaces and a field of a later version included, is held and read.
func TestForeignRecord(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		c := newClock()
		l := leaseOf(t, b, "go", c)
		put(t, b, `{ "holder_id": "node-42", "acquired_at_unix": 1718000000, "expires_at_unix": 1718000300,
  "completed_cursor_hex": null, "completed_at_unix": null, "later": [1, {}] }`)
		wantHeld(t, l)
		r, ok, err := l.Current(bounded(t))
		if err != nil || !ok || r != (lease.Record{HolderID: "node-42", AcquiredAtUnix: start, ExpiresAtUnix: start + 300}) {
			t.Fatalf("%+v %v %v", r, ok, err)
		}
		if _, _, done, err := r.Completed(); done || err != nil {
			t.Fatal(done, err)
		}
	})
}

// before are the states of a key in which a lease is to be had.
var before = map[string]func(t *testing.T, b kv.Bucket, c *clock){
	"absent": func(*testing.T, kv.Bucket, *clock) {},
	"deleted": func(t *testing.T, b kv.Bucket, _ *clock) {
		put(t, b, "x")
		if _, err := b.Delete(bounded(t), key, kv.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	},
	"purged": func(t *testing.T, b kv.Bucket, _ *clock) {
		put(t, b, "x")
		if _, err := b.Delete(bounded(t), key, kv.DeleteOptions{Purge: true}); err != nil {
			t.Fatal(err)
		}
	},
	"expired": func(t *testing.T, b kv.Bucket, c *clock) {
		acquire(t, leaseOf(t, b, "gone", c))
		c.advance(ttl)
	},
	"corrupt": func(t *testing.T, b kv.Bucket, _ *clock) { put(t, b, "{") },
	"empty":   func(t *testing.T, b kv.Bucket, _ *clock) { put(t, b, "") },
	"abandoned": func(t *testing.T, b kv.Bucket, c *clock) {
		if o, err := acquire(t, leaseOf(t, b, "gave up", c)).Abandon(bounded(t)); o != lease.OutcomeRecorded || err != nil {
			t.Fatal(o, err)
		}
	},
}

func TestRaceHasOneWinner(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		c := newClock()
		for name, prepare := range before {
			for round := range 5 {
				if _, err := b.Delete(bounded(t), key, kv.DeleteOptions{Purge: true}); err != nil {
					t.Fatal(err)
				}
				prepare(t, b, c)
				won := race(t, b, c, 8)
				if len(won) != 1 {
					t.Fatalf("%s, round %d: won by %v", name, round, won)
				}
				if r, ok, err := leaseOf(t, b, "any", c).Current(bounded(t)); !ok || err != nil || r.HolderID != won[0] {
					t.Fatalf("%s: %s won and %+v %v %v is stored", name, won[0], r, ok, err)
				}
			}
		}
	})
}

// race has n nodes take the lease at once, and returns who did.
func race(t *testing.T, b kv.Bucket, c *clock, n int) (won []string) {
	t.Helper()
	ctx := bounded(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	gun := make(chan struct{})
	for i := range n {
		holder := fmt.Sprintf("node-%d", i)
		l := leaseOf(t, b, holder, c)
		all.Go(func() {
			<-gun
			_, ok, err := l.TryAcquire(ctx, ttl)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if ok {
				won = append(won, holder)
			}
		})
	}
	close(gun)
	all.Wait()
	return won
}

// In a bucket where an empty value is a tombstone, an empty lease is absent.
func TestRaceInAReferenceBucket(t *testing.T) {
	b := serverBucket(t, natskv.BucketConfig{EmptyPut: natskv.EmptyPutIsTombstone, MessageTTL: natskv.Off})
	put(t, b, "")
	if won := race(t, b, newClock(), 8); len(won) != 1 {
		t.Fatal(won)
	}
}

func TestHeldUntilItsExpiry(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		c := newClock()
		mine, other := leaseOf(t, b, "mine", c), leaseOf(t, b, "other", c)
		acquire(t, mine)
		wantHeld(t, other)
		wantHeld(t, mine) // its own node does not have it twice
		c.advance(ttl - time.Second)
		wantHeld(t, other)
		c.advance(time.Second)
		if r := acquire(t, other).Record(); r != (lease.Record{HolderID: "other", AcquiredAtUnix: start + 300, ExpiresAtUnix: start + 600}) {
			t.Fatalf("%+v", r)
		}
		wantHeld(t, mine)
	})
}

// TestHolderFromTheFuture: a holder whose clock is years ahead has the lease for the time that it was taken for, as the server
// saw it, and does not stop the fleet for years.
func TestHolderFromTheFuture(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		var ahead, right clock
		stored := time.Now()
		ahead.nanos.Store(stored.AddDate(10, 0, 0).UnixNano())
		right.nanos.Store(stored.UnixNano())
		acquire(t, leaseOf(t, b, "ahead", &ahead))
		other := leaseOf(t, b, "other", &right)
		wantHeld(t, other)
		right.advance(ttl - time.Minute)
		wantHeld(t, other)
		right.advance(2 * time.Minute)
		acquire(t, other)
	})
}

func TestCorruptValueIsReplaced(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		l := leaseOf(t, b, "mine", newClock())
		for name, value := range corrupt {
			v := put(t, b, value)
			_, ok, err := l.Current(bounded(t))
			var bad *lease.CorruptError
			if ok || !errors.As(err, &bad) || bad.Version != v || bad.Key != key || bad.Hint() == "" || len(err.Error()) > 400 {
				t.Errorf("%s: %v %v", name, ok, err)
			}
			acquire(t, l)
			wantValue(t, b, `{"holder_id":"mine","acquired_at_unix":1718000000,"expires_at_unix":1718000300}`)
		}
	})
}

func TestCompletionIsVisible(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		c := newClock()
		mine, other := leaseOf(t, b, "mine", c), leaseOf(t, b, "other", c)
		cursor := kv.Cursor{Version: kv.Revision(42), SeenEvicting: true, WrittenAt: 77}
		g := acquire(t, mine)
		c.advance(time.Minute)
		if o, err := g.Complete(bounded(t), cursor); o != lease.OutcomeRecorded || err != nil {
			t.Fatal(o, err)
		}
		r, ok, err := other.Current(bounded(t))
		if err != nil || !ok || r.ExpiresAtUnix != start+300 {
			t.Fatalf("%+v %v %v", r, ok, err)
		}
		if got, at, done, err := r.Completed(); got != cursor || !at.Equal(time.Unix(start+60, 0)) || !done || err != nil {
			t.Fatal(got, at, done, err)
		}
		wantHeld(t, other) // until it expires
		if _, err := g.Complete(bounded(t), cursor); !errors.Is(err, lease.ErrResolved) {
			t.Fatal(err)
		}
		if _, err := g.Abandon(bounded(t)); !errors.Is(err, lease.ErrResolved) {
			t.Fatal(err)
		}
		c.advance(4 * time.Minute)
		acquire(t, other)
		wantValue(t, b, `{"holder_id":"other","acquired_at_unix":1718000300,"expires_at_unix":1718000600}`)
	})
}

func TestAbandonFreesTheLease(t *testing.T) {
	buckets(t, func(t *testing.T, b kv.Bucket) {
		c := newClock()
		mine, other := leaseOf(t, b, "mine", c), leaseOf(t, b, "other", c)
		g := acquire(t, mine)
		if o, err := g.Abandon(bounded(t)); o != lease.OutcomeRecorded || err != nil {
			t.Fatal(o, err)
		}
		if _, ok, err := mine.Current(bounded(t)); ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, err := g.Abandon(bounded(t)); !errors.Is(err, lease.ErrResolved) {
			t.Fatal(err)
		}
		acquire(t, other)
		wantHeld(t, mine)
	})
}

// Who comes back after its lease was taken over changes nothing, and is told.
func TestLateHolderIsTold(t *testing.T) {
	for name, resolve := range map[string]func(context.Context, *lease.Guard) (lease.Outcome, error){
		"complete": func(ctx context.Context, g *lease.Guard) (lease.Outcome, error) {
			return g.Complete(ctx, kv.CursorAt(9))
		},
		"abandon": func(ctx context.Context, g *lease.Guard) (lease.Outcome, error) { return g.Abandon(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			buckets(t, func(t *testing.T, b kv.Bucket) {
				c := newClock()
				late := acquire(t, leaseOf(t, b, "late", c))
				c.advance(ttl)
				acquire(t, leaseOf(t, b, "other", c))
				head := last(t, b)
				if o, err := resolve(bounded(t), late); o != lease.OutcomeTaken || err != nil {
					t.Fatal(o, err)
				}
				if now := last(t, b); now != head {
					t.Errorf("something was written, at %d", now)
				}
				wantValue(t, b, `{"holder_id":"other","acquired_at_unix":1718000300,"expires_at_unix":1718000600}`)
				if _, err := resolve(bounded(t), late); !errors.Is(err, lease.ErrResolved) {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestAgedOutLease(t *testing.T) {
	for _, marker := range []bool{false, true} {
		l := kvtest.NewLog(kvtest.Options{})
		c := newClock()
		acquire(t, leaseOf(t, l, "gone", c))
		l.AgeOut(key, marker)
		if _, ok, err := leaseOf(t, l, "any", c).Current(bounded(t)); ok || err != nil {
			t.Fatal(marker, ok, err)
		}
		acquire(t, leaseOf(t, l, "mine", c))
	}
}

func TestTTL(t *testing.T) {
	log := kvtest.NewLog(kvtest.Options{})
	l := leaseOf(t, log, "mine", newClock())
	for _, short := range []time.Duration{-time.Hour, 0, time.Nanosecond, time.Second - 1} {
		_, won, err := l.TryAcquire(bounded(t), short)
		var e *lease.TTLError
		if won || !errors.Is(err, lease.ErrTTLTooShort) || !errors.As(err, &e) || e.TTL != short || e.Hint() == "" || !strings.Contains(err.Error(), short.String()) {
			t.Errorf("%v: %v %v", short, won, err)
		}
	}
	if log.Calls(kvtest.PointRead)+log.Calls(kvtest.PointWrite) != 0 {
		t.Error("the bucket was asked")
	}
	g, won, err := l.TryAcquire(bounded(t), 2*time.Second-1)
	if err != nil || !won || g.Record().ExpiresAtUnix != start+1 {
		t.Error(g, won, err)
	}
}

// A clock before 1970 is read as 1970, since a record has no room for it.
func TestClockBelowZero(t *testing.T) {
	log := kvtest.NewLog(kvtest.Options{})
	l, err := lease.New(lease.Options{Bucket: log, Key: key, Holder: "mine", Now: func() time.Time { return time.Unix(-5, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, l)
	wantValue(t, log, `{"holder_id":"mine","acquired_at_unix":0,"expires_at_unix":300}`)
}

func TestOptions(t *testing.T) {
	good := lease.Options{Bucket: kvtest.NewLog(kvtest.Options{}), Key: key, Holder: "node-1"}
	if _, err := lease.New(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*lease.Options){
		"no bucket":     func(o *lease.Options) { o.Bucket = nil },
		"no holder":     func(o *lease.Options) { o.Holder = "" },
		"257 bytes":     func(o *lease.Options) { o.Holder = strings.Repeat("a", 257) },
		"not printable": func(o *lease.Options) { o.Holder = "a\nb" },
		`"a\u2028b"`:    func(o *lease.Options) { o.Holder = "a\u2028b" },
		`"a\xffb"`:      func(o *lease.Options) { o.Holder = "a\xffb" },
		"key":           func(o *lease.Options) { o.Key = "a b" },
		`key ""`:        func(o *lease.Options) { o.Key = "" },
	} {
		o := good
		change(&o)
		if _, err := lease.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The default clock is the wall clock.
func TestDefaultClock(t *testing.T) {
	l, err := lease.New(lease.Options{Bucket: kvtest.NewLog(kvtest.Options{}), Key: key, Holder: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now().Unix()
	r := acquire(t, l).Record()
	if at := int64(r.AcquiredAtUnix); at < from || at > time.Now().Unix() {
		t.Error(r)
	}
}
