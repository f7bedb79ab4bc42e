package fold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	codecv1 "github.com/typedfold/fold/internal/foldtest/gen/codec/v1"
	cd "github.com/typedfold/fold/internal/foldtest/gen/codec/v1/codecv1fold"
	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	jd "github.com/typedfold/fold/internal/foldtest/gen/judge/v1/judgev1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

func commit(t testing.TB, b *fold.Batch) {
	t.Helper()
	if err := b.Commit(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

// A batch goes through the writers of several tables, the bucket and a fold.
func TestBatchAcrossTables(t *testing.T) {
	eachBackend(t, func(t *testing.T, be backend) {
		ctx, log := bounded(t), newLog()
		tb := start(t, log, openStore(t, be, t.TempDir()), startOptions{})
		routes, metas, sessions := ft.NewRouteWriter(log), ft.NewRouteMetaWriter(log), ft.NewSessionWriter(log)
		old, err := routes.Put(ctx, route("t", "old", "1"))
		if err != nil {
			t.Fatal(err)
		}
		b := fold.NewBatch(log)
		routes.PutIn(b, route("t", "a", "1"))
		routes.UpdateIn(b, route("t", "old", "2"), old)
		metas.CreateIn(b, &foldtestv1.RouteMeta{Tenant: "t", Domain: "a", Note: "n"})
		sessions.PutIn(b, &foldtestv1.Session{Region: "eu", Id: 7, User: "u"})
		routes.DeleteIn(b, routeKey("t", "never"))
		if b.Len() != 5 || b.Revision().Seq() != 0 {
			t.Errorf("%d operations at %v", b.Len(), b.Revision())
		}
		if _, ok := routes.RevIn(b, routeKey("t", "a")); ok {
			t.Error("a batch that is not committed has revisions")
		}
		commit(t, b)
		if b.Revision().Seq() != 6 {
			t.Errorf("the batch is at %v", b.Revision())
		}
		if err := tb.f.WaitApplied(ctx, b.Revision()); err != nil {
			t.Fatal(err)
		}
		row, ok, err := tb.routes.GetRow(ctx, routeKey("t", "a"))
		if rev, has := routes.RevIn(b, routeKey("t", "a")); err != nil || !ok || !has || row.Rev != rev || rev.Seq() != 2 {
			t.Errorf("%+v, %v, %v; the batch says %v", row, ok, err, rev)
		}
		row, _, err = tb.routes.GetRow(ctx, routeKey("t", "old"))
		if rev, has := routes.RevIn(b, row.Key); err != nil || row.Value.NodeId != "2" || !has || row.Rev != rev {
			t.Errorf("%+v, %v", row, err)
		}
		if v, ok, err := tb.metas.Get(ctx, ft.RouteMetaKey{Tenant: "t", Domain: "a"}); err != nil || !ok || v.Note != "n" {
			t.Errorf("%v, %v, %v", v, ok, err)
		}
		s, ok, err := tb.sessions.GetRow(ctx, ft.SessionKey{Region: "eu", ID: 7})
		if rev, has := sessions.RevIn(b, s.Key); err != nil || !ok || s.Value.User != "u" || s.Value.Region != "eu" || !has || rev != s.Rev {
			t.Errorf("%+v, %v, %v", s, ok, err)
		}
		if rev, has := routes.RevIn(b, routeKey("t", "never")); !has || rev.Seq() != 6 {
			t.Errorf("the delete is at %v", rev)
		}
		if _, has := routes.RevIn(b, routeKey("t", "other")); has {
			t.Error("a row that is not in the batch has a revision of it")
		}
		// The revisions are good for the next one.
		next := fold.NewBatch(log)
		rev, _ := routes.RevIn(b, routeKey("t", "a"))
		routes.UpdateIn(next, route("t", "a", "2"), rev)
		sessions.DeleteIn(next, s.Key, fold.At(s.Rev), fold.Purge())
		next.Match(b.Revision())
		commit(t, next)
		if e := entry(t, log, s.Key.String()); e.Op != kv.OpPurge || e.Version.Rank() != 8 {
			t.Errorf("after the purge: %+v", e)
		}
	})
}

// What one operation meets fails all of them.
func TestBatchIsAllOrNothing(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log)
	first, err := w.Put(ctx, route("t", "a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.Update(ctx, route("t", "a", "2"), first)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		op    func(b *fold.Batch)
		match error
	}{
		"update": {func(b *fold.Batch) { w.UpdateIn(b, route("t", "a", "3"), first) }, kv.ErrConflict},
		"create": {func(b *fold.Batch) { w.CreateIn(b, route("t", "a", "3")) }, kv.ErrKeyExists},
		"delete": {func(b *fold.Batch) { w.DeleteIn(b, routeKey("t", "a"), fold.At(first)) }, kv.ErrConflict},
	} {
		b := fold.NewBatch(log)
		w.PutIn(b, route("t", "b", "1"))
		c.op(b)
		w.PutIn(b, route("t", "c", "1"))
		err := b.Commit(ctx)
		var of *fold.BatchError
		if !errors.As(err, &of) || of.Index != 1 || of.Key != routeKey("t", "a").String() || !errors.Is(err, c.match) {
			t.Errorf("%s: %v", name, err)
		}
		var conflict *fold.ConflictError
		if name != "create" && (!errors.As(err, &conflict) || conflict.Current != kv.Revision(second.Seq()) || conflict.Expected != kv.Revision(first.Seq())) {
			t.Errorf("%s: %v", name, err)
		}
		var exists *fold.ExistsError
		if name == "create" && (!errors.As(err, &exists) || exists.Current != kv.Revision(second.Seq())) {
			t.Errorf("%s: %v", name, err)
		}
		if _, has := w.RevIn(b, routeKey("t", "b")); has || b.Revision().Seq() != 0 {
			t.Errorf("%s: a batch that failed has revisions", name)
		}
		if got := log.Retained(); len(got) != 1 || got[0].Version.Rank() != second.Seq() {
			t.Errorf("%s: the log holds %v", name, got)
		}
	}
	b := fold.NewBatch(log)
	w.PutIn(b, route("t", "b", "1"))
	b.Match(first)
	var match *fold.MatchError
	if err := b.Commit(ctx); !errors.As(err, &match) || match.Want != first.Seq() || match.Got != second.Seq() || match.Bucket != "test" {
		t.Errorf("%v", err)
	}
	if err := w.Delete(ctx, routeKey("t", "a")); err != nil {
		t.Fatal(err)
	}
	b = fold.NewBatch(log)
	w.CreateIn(b, route("t", "a", "4")) // a tombstone is no row
	b.Match(fold.Seq(3))
	commit(t, b)
}

// bare is a bucket that can't write batches.
type bare struct{ kv.Bucket }

// Whatever is wrong before anything is sent is told, all of it, and nothing is sent.
func TestBatchIsRefusedLocally(t *testing.T) {
	log, other := newLog(), newLog()
	w, foreign := ft.NewRouteWriter(log), ft.NewForeignWriter(kvtest.NewLog(kvtest.Options{Bucket: "elsewhere"}))
	docs := ft.NewDocWriter(log)
	b := fold.NewBatch(log)
	w.PutIn(b, route("t", "fine", "1"))                                                               // 0
	w.PutIn(b, nil)                                                                                   // 1
	docs.PutIn(b, &foldtestv1.Doc{Path: "d", Body: strings.Repeat("x", 100)})                         // 2
	w.UpdateIn(b, route("t", "b", "1"), fold.NewRev(routeKey("t", "c"), 5))                           // 3
	w.UpdateIn(b, route("t", "b", "1"), fold.Rev[ft.RouteKey]{})                                      // 4
	w.DeleteIn(b, routeKey("t", "b"), fold.At(fold.NewRev(routeKey("t", "c"), 5)))                    // 5
	w.DeleteIn(b, routeKey("t", "fine"))                                                              // 6
	ft.NewForeignWriter(log).PutIn(b, &foldtestv1.Foreign{Id: "x"})                                   // 7
	foreign.PutIn(b, &foldtestv1.Foreign{Id: "x"})                                                    // 8
	ft.NewRouteWriter(other).PutIn(b, route("t", "d", "1"))                                           // 9
	ft.NewUnsetWriter(log).CreateIn(b, &foldtestv1.Unset{})                                           // 10
	w.PutIn(b, route("t", strings.Repeat("x", fold.MaxKeyBytes), "1"))                                // 11
	ft.NewRouteWriter(nil).PutIn(b, route("t", "e", "1"))                                             // 12
	jd.NewLeasesWriter(log).UpdateInAt(b, leaseKey("eu"), lease("x"), fold.NewRev(leaseKey("us"), 1)) // 13
	wrong := lease("x")
	wrong.N = 4
	jd.NewLeasesWriter(log).PutInAt(b, leaseKey("eu"), wrong) // 14
	err := b.Commit(bounded(t))
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		t.Fatal(err)
	}
	got := map[int]error{}
	for _, err := range joined.Unwrap() {
		var of *fold.BatchError
		if !errors.As(err, &of) {
			t.Errorf("%v is no BatchError", err)
			continue
		}
		got[of.Index] = err
	}
	is := map[int]func(error) bool{
		1: rejects(fold.ValueDecode),
		2: rejects(fold.ValueTooLarge),
		3: isA[*fold.RevError[ft.RouteKey]],
		4: isA[*fold.RevError[ft.RouteKey]],
		5: isA[*fold.RevError[ft.RouteKey]],
		6: func(err error) bool {
			return isA[*fold.DuplicateKeyError](err) && strings.Contains(err.Error(), "operation 0 already")
		},
		7:  func(err error) bool { return errors.Is(err, fold.ErrWrongBucket) },
		8:  func(err error) bool { return errors.Is(err, fold.ErrWrongBucket) },
		9:  func(err error) bool { return strings.Contains(err.Error(), "another one") },
		10: rejects(fold.KeyFieldUnset),
		11: rejects(fold.KeyTooLong),
		12: func(err error) bool { return strings.Contains(err.Error(), "no bucket") },
		13: isA[*fold.RevError[jd.LeasesKey]],
		14: func(err error) bool { return err != nil },
	}
	for i, ok := range is {
		if !ok(got[i]) {
			t.Errorf("operation %d: %v", i, got[i])
		}
		delete(got, i)
	}
	if len(got) > 0 {
		t.Errorf("also refused: %v", got)
	}
	if log.Calls(kvtest.PointWrite) != 0 {
		t.Errorf("%d writes were sent", log.Calls(kvtest.PointWrite))
	}
}

func isA[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func rejects(code fold.RejectCode) func(error) bool {
	return func(err error) bool {
		var rej *fold.Rejection
		return errors.As(err, &rej) && rej.Code == code
	}
}

func TestBatchIsUsedOnce(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := ft.NewRouteWriter(log)
	b := fold.NewBatch(log)
	w.PutIn(b, route("t", "a", "1"))
	commit(t, b)
	w.PutIn(b, route("t", "b", "1"))
	if err := b.Commit(ctx); !errors.Is(err, fold.ErrBatchUsed) {
		t.Errorf("%v", err)
	}
	if b.Revision().Seq() != 1 || b.Len() != 1 || len(log.Retained()) != 1 {
		t.Errorf("after a second commit: %v, %d operations, %v", b.Revision(), b.Len(), log.Retained())
	}
	failed := fold.NewBatch(log)
	w.CreateIn(failed, route("t", "a", "2"))
	for _, want := range []error{kv.ErrKeyExists, fold.ErrBatchUsed} {
		if err := failed.Commit(ctx); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	empty := fold.NewBatch(log)
	if err := empty.Commit(ctx); err != nil || empty.Revision().Seq() != 0 {
		t.Errorf("an empty batch: %v, %v", empty.Revision(), err)
	}
	for name, broken := range map[string]func() *fold.Batch{
		"empty with match": func() *fold.Batch { b := fold.NewBatch(log); b.Match(fold.Seq(1)); return b },
		"match of nothing": func() *fold.Batch {
			b := fold.NewBatch(log)
			w.PutIn(b, route("t", "c", "1"))
			b.Match(nil)
			return b
		},
		"no bucket":  func() *fold.Batch { b := fold.NewBatch(nil); w.PutIn(b, route("t", "c", "1")); return b },
		"zero value": func() *fold.Batch { b := new(fold.Batch); w.PutIn(b, route("t", "c", "1")); return b },
	} {
		if err := broken().Commit(ctx); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
	if n := len(log.Retained()); n != 1 {
		t.Errorf("the log holds %d messages", n)
	}
	b = fold.NewBatch(bare{log})
	ft.NewRouteWriter(bare{log}).PutIn(b, route("t", "c", "1"))
	if err := b.Commit(ctx); !errors.Is(err, kv.ErrUnsupported) {
		t.Errorf("a bucket without batches: %v", err)
	}
}

func TestBatchWhoseOutcomeIsUnknown(t *testing.T) {
	log := newLog()
	b := fold.NewBatch(log)
	ft.NewRouteWriter(log).PutIn(b, route("t", "a", "1"))
	log.Inject(kvtest.Fault{At: kvtest.PointWrite, AnswerLost: true})
	if err := b.Commit(bounded(t)); !errors.Is(err, fold.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
}

// What a writer adds to its messages it adds in a batch too.
func TestBatchKeepsTheWritersExtras(t *testing.T) {
	log := kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: kvtest.Limits{AllowTTL: true}, Now: func() time.Time { return time.Unix(1, 0) }})
	b := fold.NewBatch(log)
	cd.NewJsonWriter(log).PutIn(b, &codecv1.Json{Id: "x", N: 1})
	ft.NewRouteWriter(log, fold.WithTTL(time.Hour)).CreateIn(b, route("t", "a", "1"))
	commit(t, b)
	got := log.Retained()
	if len(got) != 2 || got[0].ContentType != "application/json" || !strings.HasPrefix(string(got[0].Value), "{") {
		t.Errorf("%v", got)
	}
	sealed := newLog() // takes no TTL
	b = fold.NewBatch(sealed)
	ft.NewRouteWriter(sealed, fold.WithTTL(time.Hour)).CreateIn(b, route("t", "a", "1"))
	if err := b.Commit(bounded(t)); !errors.Is(err, kv.ErrUnsupported) {
		t.Errorf("a TTL in a bucket without: %v", err)
	}
}

func TestKeyedWriterInABatch(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := jd.NewLeasesWriter(log)
	b := fold.NewBatch(log)
	w.CreateInAt(b, leaseKey("eu"), lease("a"))
	w.PutInAt(b, leaseKey("us"), lease("b"))
	commit(t, b)
	rev, ok := w.RevIn(b, leaseKey("eu"))
	if !ok || rev.Seq() != 1 {
		t.Fatal(rev, ok)
	}
	b = fold.NewBatch(log)
	w.UpdateInAt(b, leaseKey("eu"), lease("c"), rev)
	w.DeleteIn(b, leaseKey("us"))
	commit(t, b)
	if got := log.Retained(); len(got) != 2 || got[0].Op != kv.OpPut || got[1].Op != kv.OpDelete {
		t.Errorf("%v", got)
	}
	b = fold.NewBatch(log)
	w.UpdateInAt(b, leaseKey("eu"), lease("d"), rev)
	if err := b.Commit(ctx); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("%v", err)
	}
	b = fold.NewBatch(log)
	w.CreateInAt(b, leaseKey("eu"), lease("d"))
	if err := b.Commit(ctx); !errors.Is(err, kv.ErrKeyExists) {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	b = fold.NewBatch(log)
	w.PutInAt(b, leaseKey("eu"), lease("d"))
	if err := b.Commit(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// noted is a bucket by value that Go can't always compare.
type noted struct {
	fold.Bucket
	notes any
}

func TestBatchOfABucketThatCannotBeCompared(t *testing.T) {
	log := newLog()
	b := fold.NewBatch(noted{log, []string{"x"}})
	ft.NewRouteWriter(noted{log, []string{"y"}}).PutIn(b, route("t", "a", "1"))
	if b.Len() != 1 {
		t.Errorf("%d operations", b.Len())
	}
	var unsupported *fold.UnsupportedError
	if err := b.Commit(bounded(t)); !errors.As(err, &unsupported) { // so the operation itself was good
		t.Error(err)
	}
}
