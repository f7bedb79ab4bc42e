package fold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

func entry(t testing.TB, log *kvtest.Log, key string) kv.Entry {
	t.Helper()
	e, err := log.Entry(bounded(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWriterWrites(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log)
	k := routeKey("t", "a")

	created, err := w.Create(ctx, route("t", "a", "1"))
	if err != nil || created.Seq() != 1 || created.Key() != k {
		t.Fatalf("create: %v %v", created, err)
	}
	var exists *fold.ExistsError
	if _, err := w.Create(ctx, route("t", "a", "2")); !errors.As(err, &exists) || exists.Key != k.String() || exists.Current != kv.Revision(1) || !errors.Is(err, kv.ErrKeyExists) {
		t.Fatalf("create of what exists: %v", err)
	}
	put, err := w.Put(ctx, route("t", "a", "2"))
	if err != nil || put.Seq() != 2 {
		t.Fatalf("put: %v %v", put, err)
	}
	var conflict *fold.ConflictError
	if _, err := w.Update(ctx, route("t", "a", "3"), created); !errors.As(err, &conflict) || conflict.Expected != kv.Revision(1) || conflict.Current != kv.Revision(2) {
		t.Fatalf("update at an old revision: %v", err)
	}
	updated, err := w.Update(ctx, route("t", "a", "3"), put)
	if err != nil || updated.Seq() != 3 {
		t.Fatalf("update: %v %v", updated, err)
	}
	if err := w.Delete(ctx, k, fold.At(put)); !errors.As(err, &conflict) || conflict.Expected != kv.Revision(2) || conflict.Current != kv.Revision(3) {
		t.Fatalf("delete at an old revision: %v", err)
	}
	if err := w.Delete(ctx, k, fold.At(updated)); err != nil {
		t.Fatal(err)
	}
	if e := entry(t, log, k.String()); e.Op != kv.OpDelete || e.Version != kv.Revision(4) {
		t.Fatalf("after the delete: %+v", e)
	}
	if _, err := w.Update(ctx, route("t", "a", "4"), updated); !errors.As(err, &conflict) || conflict.Current != kv.Revision(4) {
		t.Fatalf("update of a deleted row: %v", err)
	}
	if err := w.Delete(ctx, routeKey("no", "body")); err != nil {
		t.Fatalf("delete of what is not there: %v", err)
	}
}

func TestCreateAfterTheRowIsGone(t *testing.T) {
	for name, gone := range map[string]func(t *testing.T, log *kvtest.Log, w ft.RouteWriter, rev ft.RouteRev){
		"delete": func(t *testing.T, _ *kvtest.Log, w ft.RouteWriter, _ ft.RouteRev) {
			if err := w.Delete(bounded(t), routeKey("t", "a")); err != nil {
				t.Fatal(err)
			}
		},
		"delete at": func(t *testing.T, _ *kvtest.Log, w ft.RouteWriter, rev ft.RouteRev) {
			if err := w.Delete(bounded(t), routeKey("t", "a"), fold.At(rev)); err != nil {
				t.Fatal(err)
			}
		},
		"purge": func(t *testing.T, log *kvtest.Log, w ft.RouteWriter, rev ft.RouteRev) {
			if err := w.Delete(bounded(t), routeKey("t", "a"), fold.Purge(), fold.At(rev)); err != nil {
				t.Fatal(err)
			}
			if e := entry(t, log, routeKey("t", "a").String()); e.Op != kv.OpPurge {
				t.Fatalf("%+v", e)
			}
		},
		"age-out with a marker":    func(_ *testing.T, log *kvtest.Log, _ ft.RouteWriter, _ ft.RouteRev) { log.AgeOut("route.t.a", true) },
		"age-out without a marker": func(_ *testing.T, log *kvtest.Log, _ ft.RouteWriter, _ ft.RouteRev) { log.AgeOut("route.t.a", false) },
	} {
		t.Run(name, func(t *testing.T) {
			log := newHistoryLog(4)
			w := ft.NewRouteWriter(log)
			rev, err := w.Put(bounded(t), route("t", "a", "1"))
			if err != nil {
				t.Fatal(err)
			}
			gone(t, log, w, rev)
			again, err := w.Create(bounded(t), route("t", "a", "2"))
			if err != nil || again.Seq() <= rev.Seq() {
				t.Fatalf("create: %v %v", again, err)
			}
			if e := entry(t, log, "route.t.a"); e.Op != kv.OpPut || e.Version != kv.Revision(again.Seq()) {
				t.Fatalf("%+v", e)
			}
		})
	}
}

func TestRevisionOfAnotherKeyIsRefusedHere(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log)
	rev, err := w.Put(ctx, route("t", "a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	settings := fold.NewRev(ft.SettingsKey{}, rev.Seq())
	writes := log.Calls(kvtest.PointWrite)
	var wrong *fold.RevError[ft.RouteKey]
	_, err = w.Update(ctx, route("t", "b", "1"), rev)
	if !errors.As(err, &wrong) || wrong.Key != routeKey("t", "b") || wrong.At != rev {
		t.Errorf("update: %v", err)
	}
	for name, err := range map[string]error{
		"update at no revision":           second(w.Update(ctx, route("t", "a", "1"), ft.RouteRev{})),
		"delete at another key":           w.Delete(ctx, routeKey("t", "b"), fold.At(rev)),
		"delete at no revision":           w.Delete(ctx, routeKey("t", "a"), fold.At(fold.NewRev(routeKey("t", "a"), 0))),
		"delete at another table's key":   w.Delete(ctx, routeKey("t", "a"), fold.At(settings)),
		"purging delete at another key":   w.Delete(ctx, routeKey("t", "b"), fold.Purge(), fold.At(rev)),
		"update at the key of no message": second(w.Update(ctx, route("", "", ""), rev)),
	} {
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := log.Calls(kvtest.PointWrite); n != writes {
		t.Errorf("the bucket was asked %d times", n-writes)
	}
}

func second[A any](_ A, err error) error { return err }

// TestWriterRefusesWhatAFoldWould: a value that no fold would accept is never sent.
func TestWriterRefusesWhatAFoldWould(t *testing.T) {
	ctx, log := bounded(t), newLog()
	routes, sessions, docs, unset := ft.NewRouteWriter(log), ft.NewSessionWriter(log), ft.NewDocWriter(log), ft.NewUnsetWriter(log)
	long := strings.Repeat("x", fold.MaxKeyBytes)
	for _, c := range []struct {
		name  string
		err   error
		code  fold.RejectCode
		table string
		field string
	}{
		{"key field unset", second(unset.Put(ctx, &foldtestv1.Unset{Text: "x"})), fold.KeyFieldUnset, "Unset", "id"},
		{"key too long", second(routes.Put(ctx, route(long, "d", "1"))), fold.KeyTooLong, "Route", ""},
		{"deleted key too long", routes.Delete(ctx, routeKey(long, "d")), fold.KeyTooLong, "Route", ""},
		{"value too large", second(docs.Create(ctx, &foldtestv1.Doc{Path: "a", Body: strings.Repeat("x", 64)})), fold.ValueTooLarge, "Doc", ""},
		{"text is not UTF-8", second(routes.Put(ctx, route("t", "d", "\xff"))), fold.ValueDecode, "Route", ""},
		{"key text is not UTF-8", second(routes.Put(ctx, route("t\xff", "d", "1"))), fold.ValueDecode, "Route", ""},
		{"filled key text is not UTF-8", second(sessions.Put(ctx, &foldtestv1.Session{Region: "\xff", Id: 1})), fold.KeySegment, "Session", "region"},
		{"nil", second(routes.Put(ctx, nil)), fold.ValueDecode, "Route", ""},
		{"nil, filled", second(sessions.Create(ctx, nil)), fold.ValueDecode, "Session", ""},
		{"nil update", second(routes.Update(ctx, nil, fold.NewRev(routeKey("", ""), 1))), fold.ValueDecode, "Route", ""},
		{"nil from f", second(routes.Mutate(ctx, routeKey("", ""), func(*foldtestv1.Route, bool) (*foldtestv1.Route, error) { return nil, nil })), fold.ValueDecode, "Route", ""},
	} {
		var rej *fold.Rejection
		if !errors.As(c.err, &rej) || rej.Code != c.code || rej.Table != c.table || rej.Field != c.field || rej.Revision != 0 {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	if n := log.Calls(kvtest.PointWrite); n != 0 {
		t.Errorf("the bucket was asked %d times", n)
	}
	// The longest key and the largest value that are allowed go through.
	k := routeKey(strings.Repeat("x", fold.MaxKeyBytes-len("route..d")), "d")
	if _, err := routes.Put(ctx, route(k.Tenant, k.Domain, "1")); err != nil {
		t.Errorf("a key of %d bytes: %v", len(k.String()), err)
	}
	doc := &foldtestv1.Doc{Path: "a", Body: strings.Repeat("x", 64-5)}
	if size := proto.Size(doc); size != 64 {
		t.Fatalf("%d bytes", size)
	}
	if _, err := docs.Put(ctx, doc); err != nil {
		t.Errorf("a value of 64 bytes: %v", err)
	}
	if _, err := unset.Put(ctx, &foldtestv1.Unset{Id: proto.Uint32(0)}); err != nil {
		t.Errorf("a key field set to zero: %v", err)
	}
}

func TestFillClearsACopyAndTheFoldFillsItBack(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewSessionWriter(log)
	v := &foldtestv1.Session{Region: "eu", Id: -3, User: "u"}
	before := proto.Clone(v)
	rev, err := w.Put(ctx, v)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(v, before) {
		t.Errorf("the caller's message became %v", v)
	}
	e := entry(t, log, rev.Key().String())
	var wire foldtestv1.Session
	if err := proto.Unmarshal(e.Value, &wire); err != nil || wire.Region != "" || wire.Id != 0 || wire.User != "u" {
		t.Errorf("on the wire: %v %v", &wire, err)
	}
	tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{})
	if err := tb.f.WaitApplied(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if row, ok := get(t, tb.sessions.Table, rev.Key()); !ok || !proto.Equal(row.Value, before) || row.Rev != rev {
		t.Errorf("row %+v %v", row, ok)
	}
	_, err = w.Mutate(ctx, rev.Key(), func(s *foldtestv1.Session, exists bool) (*foldtestv1.Session, error) {
		if !exists || !proto.Equal(s, before) {
			t.Errorf("mutate got %v %v", s, exists)
		}
		s.User = "w"
		return s, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadYourWrites(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx, log := bounded(t), newLog()
		w := ft.NewRouteWriter(log)
		tb := start(t, log, openStore(t, b, t.TempDir()), startOptions{routes: []fold.TableOption{fold.Resident()}})
		for i := range 100 {
			rev, err := w.Put(ctx, route("t", "a", fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			if err := tb.f.WaitApplied(ctx, rev); err != nil {
				t.Fatal(err)
			}
			wantRoute(t, tb, "t", "a", fmt.Sprint(i))
			if v, ok := tb.routes.Peek(rev.Key()); !ok || v.NodeId != fmt.Sprint(i) {
				t.Fatalf("peek after write %d: %v %v", i, v, ok)
			}
		}
	})
}

func TestWriterAndBuckets(t *testing.T) {
	ctx := bounded(t)
	other := kvtest.NewLog(kvtest.Options{Bucket: "edge-eu"})
	w := ft.NewRouteWriter(other)
	var be *fold.BucketError
	for name, err := range map[string]error{
		"put":    second(w.Put(ctx, route("t", "a", "1"))),
		"delete": w.Delete(ctx, routeKey("t", "a")),
		"mutate": second(w.Mutate(ctx, routeKey("t", "a"), func(v *foldtestv1.Route, _ bool) (*foldtestv1.Route, error) {
			t.Error("f was called")
			return v, nil
		})),
	} {
		if !errors.As(err, &be) || be.Has != "test" || be.Want != "edge-eu" || !errors.Is(err, fold.ErrWrongBucket) || be.Hint() == "" {
			t.Errorf("%s to the wrong bucket: %v", name, err)
		}
	}
	if n := other.Calls(kvtest.PointWrite) + other.Calls(kvtest.PointRead); n != 0 {
		t.Errorf("the bucket was asked %d times", n)
	}
	if _, err := ft.NewRouteWriter(other, fold.WithLogicalBucket("test")).Put(ctx, route("t", "a", "1")); err != nil {
		t.Errorf("a bucket that serves the logical one: %v", err)
	}
	if _, err := ft.NewRouteWriter(nil).Put(ctx, route("t", "a", "1")); err == nil || !strings.Contains(err.Error(), "no bucket") {
		t.Errorf("no bucket: %v", err)
	}
}

func TestWriterTTL(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log, fold.WithTTL(time.Minute))
	var ue *kv.UnsupportedError
	if _, err := w.Put(ctx, route("t", "a", "1")); !errors.As(err, &ue) || ue.Setting == "" || !errors.Is(err, kv.ErrUnsupported) {
		t.Errorf("a TTL where none is allowed: %v", err)
	}
	if len(log.Retained()) != 0 {
		t.Error("it was written all the same")
	}
	now := time.Unix(1000, 0)
	log = kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: kvtest.Limits{AllowTTL: true}, Now: func() time.Time { return now }})
	w = ft.NewRouteWriter(log, fold.WithTTL(time.Minute))
	rev, err := w.Create(ctx, route("t", "a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Update(ctx, route("t", "a", "2"), rev); err != nil {
		t.Fatal(err)
	}
	now = now.Add(59 * time.Second)
	if _, err := log.Get(ctx, "route.t.a"); err != nil {
		t.Error(err)
	}
	now = now.Add(2 * time.Second)
	if _, err := log.Get(ctx, "route.t.a"); !errors.Is(err, kv.ErrKeyNotFound) {
		t.Errorf("after the TTL: %v", err)
	}
}

func TestMutateCountsEveryIncrement(t *testing.T) {
	const writers, each = 16, 25
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log, fold.WithMutateAttempts(10_000))
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				_, err := w.Mutate(ctx, routeKey("t", "n"), func(v *foldtestv1.Route, exists bool) (*foldtestv1.Route, error) {
					if !exists {
						v.Tenant, v.Domain = "t", "n"
					}
					v.Port++
					return v, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	e := entry(t, log, "route.t.n")
	var v foldtestv1.Route
	if err := proto.Unmarshal(e.Value, &v); err != nil || v.Port != writers*each || e.Version.Rank() != writers*each {
		t.Errorf("counted to %d at revision %v (%v), want %d", v.Port, e.Version, err, writers*each)
	}
}

func TestMutateBounds(t *testing.T) {
	ctx, log := bounded(t), newLog()
	setRoute(t, log, route("t", "a", "0"))
	// Each write of another one comes between read and write.
	log.Inject(kvtest.Fault{At: kvtest.PointWrite, Times: 100, Do: func(l *kvtest.Log) { setRoute(t, l, route("t", "a", "theirs")) }})
	calls := 0
	_, err := ft.NewRouteWriter(log, fold.WithMutateAttempts(3)).Mutate(ctx, routeKey("t", "a"), func(v *foldtestv1.Route, _ bool) (*foldtestv1.Route, error) {
		calls++
		return v, nil
	})
	var conflict *fold.ConflictError
	if !errors.As(err, &conflict) || calls != 3 || !strings.Contains(err.Error(), "lost 3 races") || conflict.Current.Rank() != 4 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	log.ClearFaults()
	// A row that is deleted in between is created again.
	log.Inject(kvtest.Fault{At: kvtest.PointWrite, Do: func(l *kvtest.Log) { l.Remove("route.t.a") }})
	var saw []bool
	rev, err := ft.NewRouteWriter(log).Mutate(ctx, routeKey("t", "a"), func(_ *foldtestv1.Route, exists bool) (*foldtestv1.Route, error) {
		saw = append(saw, exists)
		return route("t", "a", "mine"), nil
	})
	if err != nil || fmt.Sprint(saw) != "[true false]" || rev.Seq() != 6 {
		t.Errorf("%v %v, f saw %v", rev, err, saw)
	}
	// A context that ends while it waits for its next try.
	ending, cancel := context.WithCancel(ctx)
	log.Inject(kvtest.Fault{At: kvtest.PointWrite, Times: 100, Do: func(l *kvtest.Log) {
		setRoute(t, l, route("t", "a", "theirs"))
		cancel()
	}})
	if _, err := ft.NewRouteWriter(log).Mutate(ending, routeKey("t", "a"), func(v *foldtestv1.Route, _ bool) (*foldtestv1.Route, error) { return v, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

func TestMutatePassesErrorsThrough(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log)
	// An error of f is f's own, also when it looks like a lost race.
	for _, own := range []error{errors.New("no"), &fold.ConflictError{Key: "another"}, kv.ErrKeyNotFound} {
		calls := 0
		_, err := w.Mutate(ctx, routeKey("t", "a"), func(*foldtestv1.Route, bool) (*foldtestv1.Route, error) {
			calls++
			return nil, own
		})
		if err != own || calls != 1 {
			t.Errorf("f's error %v came back as %v after %d calls", own, err, calls)
		}
	}
	if _, err := w.Mutate(ctx, routeKey("t", "a"), func(v *foldtestv1.Route, _ bool) (*foldtestv1.Route, error) {
		return route("t", "b", "1"), nil
	}); err == nil || !strings.Contains(err.Error(), `"route.t.b", not to "route.t.a"`) {
		t.Errorf("a value of another key: %v", err)
	}
	if len(log.Retained()) != 0 {
		t.Error("something was written")
	}
	log.Set("route.t.a", "\xff")
	var rej *fold.Rejection
	if _, err := w.Mutate(ctx, routeKey("t", "a"), func(v *foldtestv1.Route, _ bool) (*foldtestv1.Route, error) { return v, nil }); !errors.As(err, &rej) || rej.Code != fold.ValueDecode || rej.Revision != 1 {
		t.Errorf("a current value that can't be read: %v", err)
	}
	log.Inject(kvtest.Fault{At: kvtest.PointRead, Fail: true})
	if _, err := w.Mutate(ctx, routeKey("t", "a"), nil); !errors.Is(err, kvtest.ErrInjected) {
		t.Errorf("a read that fails: %v", err)
	}
	log.Inject(kvtest.Fault{At: kvtest.PointWrite, AnswerLost: true})
	log.Remove("route.t.a")
	if _, err := w.Mutate(ctx, routeKey("t", "a"), func(*foldtestv1.Route, bool) (*foldtestv1.Route, error) { return route("t", "a", "1"), nil }); !errors.Is(err, kv.ErrOutcomeUnknown) {
		t.Errorf("an answer that is lost: %v", err)
	}
	if e := entry(t, log, "route.t.a"); e.Version.Rank() != 3 {
		t.Errorf("a write of unknown outcome was done again: %+v", e)
	}
}

func TestWriterIsSafeForConcurrentUse(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log)
	shared := route("t", "shared", "1")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				if _, err := w.Put(ctx, shared); err != nil {
					t.Error(err)
				}
				own := route("t", fmt.Sprint(i), fmt.Sprint(j))
				rev, err := w.Put(ctx, own)
				if err != nil {
					t.Error(err)
				}
				if rev, err = w.Update(ctx, own, rev); err != nil {
					t.Error(err)
				}
				if err := w.Delete(ctx, rev.Key(), fold.At(rev)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if !proto.Equal(shared, route("t", "shared", "1")) {
		t.Errorf("the caller's message became %v", shared)
	}
}
