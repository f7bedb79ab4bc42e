package kvtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

func TestFaultsHitTheirCalls(t *testing.T) {
	l := NewLog(Options{})
	ctx := context.Background()
	own := errors.New("own")
	l.Inject(Fault{At: PointInfo, Skip: 1, Times: 2, Fail: true}, Fault{At: PointOpen, Err: own})
	var got []bool
	for range 5 {
		_, err := l.Info(ctx)
		if err != nil && !errors.Is(err, ErrInjected) {
			t.Fatal(err)
		}
		got = append(got, err == nil)
	}
	for i, want := range []bool{true, false, false, true, true} {
		if got[i] != want {
			t.Fatal(got)
		}
	}
	if _, err := l.Open(ctx, kv.OpenRequest{}); !errors.Is(err, own) {
		t.Fatal(err)
	}
	if _, err := l.Open(ctx, kv.OpenRequest{}); err != nil || l.Calls(PointOpen) != 2 || l.OpenWatches() != 1 {
		t.Fatal(err, l.Calls(PointOpen), l.OpenWatches())
	}
	l.Inject(Fault{At: PointRead, Times: 1 << 30, Fail: true}, Fault{At: PointList, Times: 1 << 30, Fail: true})
	if _, err := l.Get(ctx, "a"); !errors.Is(err, ErrInjected) {
		t.Fatal(err)
	}
	for _, err := range l.Scan(ctx, kv.AllKeys()) {
		if !errors.Is(err, ErrInjected) {
			t.Fatal(err)
		}
	}
	l.ClearFaults()
	if _, err := l.Get(ctx, "a"); !errors.Is(err, kv.ErrKeyNotFound) {
		t.Fatal(err)
	}
}

func TestFaultyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(Options{})
		at := kv.Revision(l.Set("a", "1"))
		// An interloper between a read and its update.
		l.Inject(Fault{At: PointWrite, Do: func(l *Log) { l.Set("a", "2") }})
		_, err := l.Update(context.Background(), "a", []byte("mine"), at, kv.PutOptions{})
		var conflict *kv.ConflictError
		if !errors.As(err, &conflict) || conflict.Current != kv.Revision(2) {
			t.Fatal(err)
		}
		// Written, and the answer lost.
		l.Inject(Fault{At: PointWrite, AnswerLost: true})
		_, err = l.Put(context.Background(), "a", []byte("3"), kv.PutOptions{})
		if e, _ := l.Get(context.Background(), "a"); !errors.Is(err, kv.ErrOutcomeUnknown) || string(e.Value) != "3" {
			t.Fatal(err, e)
		}
		// Held until the caller gave up: not written, and the caller can't know.
		l.Inject(Fault{At: PointWrite, Delay: -1})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = l.Put(ctx, "a", []byte("4"), kv.PutOptions{})
		if e, _ := l.Get(context.Background(), "a"); !errors.Is(err, kv.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || string(e.Value) != "3" {
			t.Fatal(err, e)
		}
		// Slow, and then done.
		l.Inject(Fault{At: PointWrite, Delay: time.Minute})
		began := time.Now()
		if v, err := l.Put(context.Background(), "a", []byte("5"), kv.PutOptions{}); err != nil || v != kv.Revision(4) || time.Since(began) != time.Minute {
			t.Fatal(v, err, time.Since(began))
		}
	})
}

func TestBentDeliveries(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		want  string
	}{
		"true":                {Fault{At: PointDelivery}, "a@1=put b@2=put c@3=put |3"},
		"first is duplicated": {Fault{At: PointDelivery, Shape: ShapeDuplicate}, "a@1=put a@1=put b@2=put c@3=put |3"},
		"later is duplicated": {Fault{At: PointDelivery, Skip: 1, Shape: ShapeDuplicate}, "a@1=put b@2=put b@2=put c@3=put |3"},
		"unknown version":     {Fault{At: PointDelivery, Shape: ShapeUnknownVersion}, "a@1=put b@unknown=put c@3=put |3"},
		"gap":                 {Fault{At: PointDelivery, Skip: 1, Shape: ShapeGap}, "a@1=put b@2=put |3"},
		"split":               {Fault{At: PointNext, Times: 9, Limit: 1}, "a@1=put b@2=put c@3=put |3"},
		"lost":                {Fault{At: PointNext, Skip: 1, Fail: true}, "a@1=put b@2=put |2 watch: watch lost: injected fault"},
	} {
		l := NewLog(Options{})
		for _, key := range []string{"a", "b", "c"} {
			l.Set(key, "1")
		}
		l.Inject(Fault{At: PointNext, Limit: 2}, c.fault)
		if got := drain(t, openAt(t, l, kv.Cursor{})); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// A frontier never names an update that had no version.
func TestUnknownVersionHoldsTheFrontier(t *testing.T) {
	l := NewLog(Options{})
	l.Set("a", "1")
	l.Set("b", "1")
	l.Inject(Fault{At: PointDelivery, Shape: ShapeUnknownVersion})
	d, err := openAt(t, l, kv.Cursor{}).Next(context.Background(), kv.Delivery{}, 10, 1<<20)
	if err != nil || d.Frontier != 1 || len(d.Updates) != 2 || !d.Updates[1].Version.IsUnknown() {
		t.Fatalf("%+v %v", d, err)
	}
	// The log itself was not bent.
	if e, err := l.Get(context.Background(), "b"); err != nil || e.Version != kv.Revision(2) {
		t.Fatal(e, err)
	}
}

// Unchecked opens do what JetStream does: they clamp, and wait past the end, without a word.
func TestUncheckedOpens(t *testing.T) {
	l := NewLog(Options{})
	for _, key := range []string{"a", "b", "c", "d"} {
		l.Set(key, "1")
	}
	l.EvictTo(4)
	l.Inject(Fault{At: PointOpen, Times: 2, Unchecked: true})
	if got := drain(t, openAt(t, l, kv.CursorAt(1))); got != "d@4=put |4" {
		t.Fatal(got)
	}
	w := openAt(t, l, kv.CursorAt(6))
	drain(t, w)
	l.Set("e", "1")
	l.Set("f", "1")
	l.Set("g", "1")
	if got := drain(t, w); got != "g@7=put |7" {
		t.Fatal(got)
	}
}

func TestStaleInfo(t *testing.T) {
	l := NewLog(Options{})
	ctx := context.Background()
	first, _ := l.Info(ctx)
	l.Set("a", "1")
	l.Inject(Fault{At: PointInfo, Stale: true})
	if stale, err := l.Info(ctx); err != nil || stale != first {
		t.Fatal(stale, err)
	}
	if now, err := l.Info(ctx); err != nil || now.Last != 1 {
		t.Fatal(now, err)
	}
}

// Eviction between the moments of a call is scripted with Do; a stalled watch is one whose Next is held.
func TestStallThenOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(Options{Limits: Limits{Evicts: true}})
		l.Set("a", "1")
		w := openAt(t, l, kv.CursorAt(1))
		l.Inject(Fault{At: PointNext, Delay: time.Hour, Do: func(l *Log) {
			l.Set("b", "1")
			l.Set("c", "1")
			l.EvictTo(3)
		}})
		_, err := w.Next(context.Background(), kv.Delivery{}, 1, 1)
		var expired *kv.ExpiredError
		if !errors.As(err, &expired) || expired.First != 3 || expired.Cursor != kv.CursorAt(1) {
			t.Fatal(err)
		}
		if l.OpenWatches() != 0 {
			t.Fatal("an ended watch is still open")
		}
	})
}

// A listing can fail midway, end short of its end, and be overtaken by writes between two of its keys.
func TestFaultyListings(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		want  string
	}{
		"true":           {Fault{}, "a b(delete) c"},
		"at once":        {Fault{Fail: true}, "failed"},
		"midway":         {Fault{After: 2, Fail: true}, "a b(delete) failed"},
		"at its end":     {Fault{After: 3, Fail: true}, "a b(delete) c failed"},
		"beyond its end": {Fault{After: 4, Fail: true}, "a b(delete) c"},
		"short":          {Fault{After: 1, Short: true}, "a"},
		"nothing at all": {Fault{Short: true}, ""},
		"written to":     {Fault{After: 1, Do: func(l *Log) { l.Set("d", "1") }}, "a b(delete) c"},
	} {
		l := NewLog(Options{})
		l.Set("a", "1")
		l.Remove("b")
		l.Set("c", "1")
		c.fault.At = PointList
		l.Inject(c.fault)
		var got []string
		for k, err := range l.LastVersions(context.Background(), kv.AllKeys()) {
			switch {
			case errors.Is(err, ErrInjected):
				got = append(got, "failed")
			case err != nil:
				t.Fatal(err)
			case k.Op != kv.OpPut:
				got = append(got, k.Key+"("+k.Op.String()+")")
			default:
				got = append(got, k.Key)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %q, want %q", name, text, c.want)
		}
		if wrote := l.last() == 4; wrote != (c.fault.Do != nil) {
			t.Errorf("%s: %d revisions", name, l.last())
		}
	}
}

// A listing that is stopped before a fault's turn never meets it, and one held midway ends with its context.
func TestListingFaultsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(Options{})
		l.Set("a", "1")
		l.Set("b", "1")
		l.Inject(Fault{At: PointList, After: 1, Fail: true}, Fault{At: PointList, Skip: 1, After: 1, Delay: -1})
		for _, err := range l.Keys(context.Background(), kv.AllKeys()) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n := 0
		for _, err := range l.Scan(ctx, kv.AllKeys()) {
			if n++; n == 2 && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if n != 2 {
			t.Fatalf("%d results", n)
		}
	})
}
