package fold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/natskv"
)

// fenced installs a token.
func fenced(t testing.TB, b fold.Bucket, token string) fold.Seq {
	t.Helper()
	tail, err := fold.Fence(bounded(t), b, token)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

func presenting(b fold.Bucket, token string) ft.RouteWriter {
	return ft.NewRouteWriter(b, fold.WithFencingToken(token))
}

// writesOf are all ways to write the row a, which is at revision at, and a row that is absent.
func writesOf(b fold.Bucket, w ft.RouteWriter, at fold.Rev[ft.RouteKey]) map[string]func(context.Context) error {
	a := route("t", "a", "9")
	batch := func(fill func(*fold.Batch)) func(context.Context) error {
		return func(ctx context.Context) error {
			one := fold.NewBatch(b)
			fill(one)
			return one.Commit(ctx)
		}
	}
	return map[string]func(context.Context) error{
		"put":       func(ctx context.Context) error { _, err := w.Put(ctx, a); return err },
		"create":    func(ctx context.Context) error { _, err := w.Create(ctx, route("t", "new", "9")); return err },
		"update":    func(ctx context.Context) error { _, err := w.Update(ctx, a, at); return err },
		"delete":    func(ctx context.Context) error { return w.Delete(ctx, at.Key()) },
		"purge":     func(ctx context.Context) error { return w.Delete(ctx, at.Key(), fold.Purge()) },
		"delete at": func(ctx context.Context) error { return w.Delete(ctx, at.Key(), fold.At(at)) },
		"mutate": func(ctx context.Context) error {
			_, err := w.Mutate(ctx, at.Key(), func(r *foldtestv1.Route, _ bool) (*foldtestv1.Route, error) {
				r.NodeId = "9"
				return r, nil
			})
			return err
		},
		"batch":         batch(func(one *fold.Batch) { w.PutIn(one, a); w.CreateIn(one, route("t", "new", "9")) }),
		"batch, checks": batch(func(one *fold.Batch) { w.UpdateIn(one, a, at); w.CreateIn(one, route("t", "new", "9")) }),
	}
}

// values are the log's messages, those of reserved keys left out.
func values(log *kvtest.Log) (out []string) {
	for _, u := range log.Retained() {
		if !kv.Reserved(u.Key) {
			out = append(out, fmt.Sprintf("%s=%s@%v", u.Key, u.Value, u.Version))
		}
	}
	return out
}

func lastRevision(log *kvtest.Log) uint64 {
	info, err := log.Info(context.Background())
	if err != nil {
		return 0
	}
	return info.Last
}

// TestFencedWriters: who presents what is installed writes, in every way, and nobody else does.
func TestFencedWriters(t *testing.T) {
	const never = "never"
	for _, installed := range []string{never, "", "a", "b"} {
		for _, presented := range []string{"", "a", "b"} {
			first := newHistoryLog(8)
			rev, err := ft.NewRouteWriter(first).Put(bounded(t), route("t", "a", "1"))
			if err != nil {
				t.Fatal(err)
			}
			if installed != never {
				fenced(t, first, "other") // so that a record is there to be replaced
				fenced(t, first, installed)
			}
			for name := range writesOf(first, presenting(first, presented), rev) {
				log := first.Clone()
				err := writesOf(log, presenting(log, presented), rev)[name](bounded(t))
				was, is := values(first), values(log)
				var out *fold.FencedError
				switch {
				case presented == installed, presented == "" && installed == never:
					if err != nil || slices.Equal(was, is) {
						t.Errorf("%q installed, %q presented: %s: %v", installed, presented, name, err)
					}
				case installed == never:
					var none *fold.NoFenceError
					if !errors.As(err, &none) || !errors.Is(err, fold.ErrNoFence) || errors.Is(err, fold.ErrFencedOut) || fold.Hint(err) == "" {
						t.Errorf("never fenced, %q presented: %s: %v", presented, name, err)
					}
				case !errors.As(err, &out) || out.Installed != installed || out.Presented != presented || !errors.Is(err, fold.ErrFencedOut) ||
					errors.Is(err, kv.ErrConflict) || errors.Is(err, fold.ErrOutcomeUnknown) || fold.Hint(err) == "":
					t.Errorf("%q installed, %q presented: %s: %v", installed, presented, name, err)
				}
				if err != nil && !slices.Equal(was, is) {
					t.Errorf("%q installed, %q presented: %s wrote %q over %q", installed, presented, name, is, was)
				}
			}
		}
	}
}

// TestFenceAnswers: the tail that a Fence answers is the log's last revision, above all that was written before, and a batch
// may follow it. A token that is installed changes nothing.
func TestFenceAnswers(t *testing.T) {
	log := newLog()
	ctx := bounded(t)
	var last uint64
	record := func() kv.FenceRecord {
		rec, err := log.FenceRecord(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	for i, token := range []string{"", "a", "b", "a", ""} {
		tail := fenced(t, log, token)
		if tail.Seq() <= last || tail.Seq() != lastRevision(log) {
			t.Fatalf("fence %d answers %d, the log is at %d, and was at %d", i, tail, lastRevision(log), last)
		}
		at := record()
		again := fenced(t, log, token)
		if record() != at || again != tail+1 || again.Seq() != lastRevision(log) {
			t.Fatalf("the same token again answers %d after %d: %+v after %+v", again, tail, record(), at)
		}
		w := presenting(log, token)
		b := fold.NewBatch(log)
		b.Match(again)
		w.PutIn(b, route("t", "a", token))
		if err := b.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		last = b.Revision().Seq()
	}
	for _, token := range []string{"0123456789012345678901234567890123456", "\xff"} {
		var bad *fold.FencingTokenError
		if _, err := fold.Fence(ctx, log, token); !errors.As(err, &bad) || !errors.Is(err, fold.ErrFencingToken) {
			t.Errorf("token %q: %v", token, err)
		}
		if _, err := presenting(log, token).Put(ctx, route("t", "a", "x")); !errors.Is(err, fold.ErrFencingToken) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if lastRevision(log) != last {
		t.Errorf("tokens that none can be moved the log to %d", lastRevision(log))
	}
}

// TestFenceOnOtherBuckets: a bucket that can't be fenced says so, and is written without a token as ever.
func TestFenceOnOtherBuckets(t *testing.T) {
	log := newLog()
	plain := struct{ fold.Bucket }{log}
	var not *fold.UnsupportedError
	if _, err := fold.Fence(bounded(t), plain, "a"); !errors.As(err, &not) {
		t.Errorf("%v", err)
	}
	if _, err := presenting(plain, "a").Put(bounded(t), route("t", "a", "1")); !errors.As(err, &not) {
		t.Errorf("%v", err)
	}
	if _, err := ft.NewRouteWriter(plain).Put(bounded(t), route("t", "a", "1")); err != nil {
		t.Error(err)
	}
	if _, err := fold.Fence(bounded(t), nil, "a"); err == nil {
		t.Error("no bucket was fenced")
	}
	for _, limits := range []kvtest.Limits{{MaxAge: time.Hour}, {MaxMessages: 1000}} {
		evicts := kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: limits})
		if _, err := fold.Fence(bounded(t), evicts, "a"); !errors.As(err, &not) || lastRevision(evicts) != 0 {
			t.Errorf("%+v: %v", limits, err)
		}
	}
}

// TestBatchOfMixedTokens: a batch is of one token.
func TestBatchOfMixedTokens(t *testing.T) {
	log := newLog()
	fenced(t, log, "a")
	for _, tokens := range [][2]string{{"a", "b"}, {"a", ""}, {"", "a"}} {
		b, last := fold.NewBatch(log), lastRevision(log)
		presenting(log, tokens[0]).PutIn(b, route("t", "a", "1"))
		presenting(log, tokens[1]).PutIn(b, route("t", "b", "1"))
		var of *fold.BatchError
		if err := b.Commit(bounded(t)); !errors.As(err, &of) || of.Index != 1 || lastRevision(log) != last {
			t.Errorf("tokens %q: %v", tokens, err)
		}
	}
}

// lagging is a bucket whose reads of the fence record are as old as a partitioned leader's.
type lagging struct {
	*kvtest.Log
	old   []kv.FenceRecord // what the next reads show; Revision 0 is none
	reads int
}

func (b *lagging) FenceRecord(ctx context.Context) (kv.FenceRecord, error) {
	b.reads++
	if len(b.old) == 0 {
		return b.Log.FenceRecord(ctx)
	}
	rec := b.old[0]
	b.old = b.old[1:]
	if rec.Revision == 0 {
		return rec, kv.ErrKeyNotFound
	}
	return rec, nil
}

// TestFenceStaleReads: a read of an older log makes nobody think that it is fenced out, or that a token is installed.
func TestFenceStaleReads(t *testing.T) {
	history := func(tokens ...string) (*lagging, []kv.FenceRecord) {
		b := &lagging{Log: newLog()}
		var all []kv.FenceRecord
		for _, token := range tokens {
			fenced(t, b, token)
			rec, err := b.FenceRecord(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, rec)
		}
		return b, all
	}
	write := func(b fold.Bucket, token string) error {
		_, err := presenting(b, token).Put(bounded(t), route("t", "a", "1"))
		return err
	}
	t.Run("another token was installed", func(t *testing.T) {
		b, recs := history("b", "a")
		b.old = []kv.FenceRecord{recs[0], recs[0]}
		if err := write(b, "a"); err != nil {
			t.Error(err)
		}
	})
	t.Run("it never ends", func(t *testing.T) {
		b, recs := history("b", "a")
		b.old = slices.Repeat(recs[:1], 100)
		if err := write(b, "a"); !errors.Is(err, fold.ErrNotWritten) || errors.Is(err, fold.ErrFencedOut) {
			t.Error(err)
		}
	})
	t.Run("no record", func(t *testing.T) {
		b, _ := history("a")
		b.old = []kv.FenceRecord{{}}
		if err := write(b, "a"); !errors.Is(err, fold.ErrNoFence) {
			t.Error(err)
		}
	})
	t.Run("its token was installed", func(t *testing.T) {
		b, recs := history("a", "b")
		b.old = []kv.FenceRecord{recs[0], recs[0]}
		if err := write(b, "a"); !errors.Is(err, fold.ErrFencedOut) {
			t.Error(err)
		}
	})
	t.Run("an installed token is not the one that was read", func(t *testing.T) {
		b, recs := history("a", "b")
		b.old = []kv.FenceRecord{recs[0]}
		fenced(t, b, "a")
		if rec, err := b.FenceRecord(bounded(t)); err != nil || rec.Token != "a" || rec.Revision <= recs[1].Revision {
			t.Errorf("%+v, %v", rec, err)
		}
	})
	t.Run("the same token was installed anew", func(t *testing.T) {
		b, _ := history("a")
		w := presenting(b, "a")
		for _, token := range []string{"", "b", "a"} {
			if _, err := w.Put(bounded(t), route("t", "a", "1")); token == "" && err != nil {
				t.Fatal(err)
			}
			fenced(t, b, token)
		}
		reads := b.reads
		for range 3 { // one of them finds out, and the others know
			if _, err := w.Put(bounded(t), route("t", "a", "1")); err != nil {
				t.Error(err)
			}
		}
		if b.reads != reads+1 {
			t.Errorf("%d reads of the record", b.reads-reads)
		}
	})
}

// TestFenceLostAnswers: an answer that does not come leaves open what became of a Fence and of a write, and of no proof.
func TestFenceLostAnswers(t *testing.T) {
	log := newLog()
	lose := func() { log.Inject(kvtest.Fault{At: kvtest.PointWrite, AnswerLost: true}) }
	lose()
	if _, err := fold.Fence(bounded(t), log, "a"); !errors.Is(err, fold.ErrOutcomeUnknown) {
		t.Fatalf("%v", err)
	}
	at, err := log.FenceRecord(bounded(t))
	if err != nil || at.Token != "a" {
		t.Fatalf("%+v, %v", at, err)
	}
	lose()
	if _, err := fold.Fence(bounded(t), log, "a"); err == nil || errors.Is(err, fold.ErrOutcomeUnknown) {
		t.Errorf("a Fence that changes nothing, without a proof: %v", err)
	}
	fenced(t, log, "a")
	if now, err := log.FenceRecord(bounded(t)); err != nil || now != at {
		t.Errorf("%+v after %+v, %v", now, at, err)
	}
	lose()
	if _, err := presenting(log, "a").Put(bounded(t), route("t", "a", "1")); !errors.Is(err, fold.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	lose()
	if _, err := presenting(log, "b").Put(bounded(t), route("t", "a", "2")); err == nil || errors.Is(err, fold.ErrOutcomeUnknown) || errors.Is(err, fold.ErrFencedOut) {
		t.Errorf("a refusal without a proof: %v", err)
	}
}

// TestFenceRecordLost: a record that is gone or garbled lets nobody write who would have asked for it.
func TestFenceRecordLost(t *testing.T) {
	for name, harm := range map[string]func(*kvtest.Log){
		"deleted": func(l *kvtest.Log) { l.Remove(kv.FenceKey(0)) },
		"garbled": func(l *kvtest.Log) { l.Set(kv.FenceKey(0), "x") },
	} {
		log := newLog()
		fenced(t, log, "")
		w, token := ft.NewRouteWriter(log), presenting(log, "a")
		if _, err := w.Put(bounded(t), route("t", "a", "1")); err != nil {
			t.Fatal(err)
		}
		harm(log)
		before := values(log)
		for who, w := range map[string]ft.RouteWriter{"wrote before": w, "is new": ft.NewRouteWriter(log), "has a token": token} {
			_, err := w.Put(bounded(t), route("t", "a", "2"))
			if err == nil || errors.Is(err, fold.ErrFencedOut) || !slices.Equal(before, values(log)) {
				t.Errorf("%s: a writer that %s: %v", name, who, err)
			}
		}
		fenced(t, log, "a")
		if _, err := token.Put(bounded(t), route("t", "a", "3")); err != nil {
			t.Errorf("%s: after a Fence: %v", name, err)
		}
	}
}

// TestFirstFence: writers without a token don't ask a bucket that was never fenced, look from time to time, and ask it from
// then on.
func TestFirstFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &lagging{Log: newLog()}
		w := ft.NewRouteWriter(b)
		put := func() error { _, err := w.Put(t.Context(), route("t", "a", "1")); return err }
		for range 3 {
			if err := put(); err != nil {
				t.Fatal(err)
			}
		}
		if b.reads != 1 {
			t.Errorf("%d reads of the fence", b.reads)
		}
		if _, err := fold.Fence(t.Context(), b, "a"); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Errorf("a writer that has just looked: %v", err)
		}
		if _, err := ft.NewRouteWriter(b).Put(t.Context(), route("t", "a", "1")); !errors.Is(err, fold.ErrFencedOut) {
			t.Errorf("a writer that looks now: %v", err)
		}
		time.Sleep(6 * time.Second) // of the bubble's clock
		if err := put(); !errors.Is(err, fold.ErrFencedOut) {
			t.Errorf("a writer that looked a while ago: %v", err)
		}
		if _, err := fold.Fence(t.Context(), b, ""); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Error(err)
		}
		if _, err := fold.Fence(t.Context(), b, "b"); err != nil {
			t.Fatal(err)
		}
		if err := put(); !errors.Is(err, fold.ErrFencedOut) {
			t.Errorf("a writer that asks: %v", err)
		}
	})
}

// TestFoldPassesFencesOver: a fold of a fenced bucket is that of the same bucket without a fence, its cursor goes past the
// reserved keys, and nothing is owed for them, live, after a restart and through a re-list.
func TestFoldPassesFencesOver(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{})
		w := presenting(l.bucket, "a")
		ctx := bounded(t)
		fenced(t, l.bucket, "a")
		node := l.node(t, "live", startOptions{})
		node.hydrated(t)
		rev, err := w.Create(ctx, route("t", "a", "1"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Update(ctx, route("t", "a", "2"), rev); err != nil {
			t.Fatal(err)
		}
		tail := fenced(t, l.bucket, "a")
		check := func(name string, node *tables) {
			t.Helper()
			applied(t, node, tail)
			s := node.f.Status()
			if len(s.Unmatched) > 0 || s.Rejections > 0 || s.Owed != "" || s.Applied < tail.Seq() {
				t.Errorf("%s: %+v", name, s)
			}
			if n, err := node.routes.Count(ctx, ft.RouteAll()); err != nil || n != 1 {
				t.Errorf("%s: %d rows, %v", name, n, err)
			}
		}
		check("live", node)
		if err := node.f.Close(); err != nil {
			t.Fatal(err)
		}
		tail = fenced(t, l.bucket, "b") // nothing else is to come
		node = l.node(t, "live", startOptions{})
		check("restarted", node)
		fresh := l.node(t, "fresh", startOptions{})
		check("re-listed", fresh)
		if got, want := digestOf(t, fresh), digestOf(t, node); got != want {
			t.Errorf("digests %v and %v", got, want)
		}
	})
}
