package kvtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

func TestRelistThenLiveTail(t *testing.T) {
	l := NewLog(Options{})
	l.Set("a", "1")
	l.Set("b", "1")
	l.Remove("b")
	w := openAt(t, l, kv.Cursor{})
	if got := drain(t, w); got != "a@1=put b@3=delete |3" {
		t.Fatal(got)
	}
	l.Set("c", "x")
	if got := drain(t, w); got != "c@4=put |4" {
		t.Fatal(got)
	}
}

// In a bubble with virtual time, a value that ages out leaves a marker, which wakes a waiting watch and ages out too.
func TestAgingInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(Options{Limits: Limits{AllowTTL: true, MarkerTTL: time.Minute}})
		ctx := context.Background()
		if _, err := l.Put(ctx, "a", []byte("1"), kv.PutOptions{TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		w := openAt(t, l, kv.CursorAt(1))
		start := time.Now()
		if d, err := w.Next(ctx, kv.Delivery{}, 10, 1<<20); err != nil || d.Frontier != 1 {
			t.Fatal(d, err)
		}
		d, err := w.Next(ctx, kv.Delivery{}, 10, 1<<20)
		if err != nil || len(d.Updates) != 1 || d.Updates[0].Op != kv.OpAgedOut || time.Since(start).Round(time.Second) != time.Hour {
			t.Fatalf("%+v %v after %v", d, err, time.Since(start))
		}
		if _, err := l.Get(ctx, "a"); !errors.Is(err, kv.ErrKeyNotFound) {
			t.Fatal(err)
		}
		if e, err := l.Entry(ctx, "a"); err != nil || e.Reason != kv.ReasonMaxAge {
			t.Fatal(e, err)
		}
		time.Sleep(time.Minute + time.Second) // virtual: until the marker is gone too
		if _, err := l.Entry(ctx, "a"); !errors.Is(err, kv.ErrKeyNotFound) {
			t.Fatal(err)
		}
		if len(l.Truth(kv.AllKeys(), 99)) != 1 {
			t.Fatal("an aged-out value is still the truth")
		}
	})
}
