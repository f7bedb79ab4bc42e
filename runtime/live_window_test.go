package fold_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
)

// TestLiveSilentClamp pins what the window rule is there for: the server starts a consumer below its first revision
// somewhere later, without a word.
func TestLiveSilentClamp(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{})
		l.put(t, "a", "1")
		was, cursor := l.visit(t, "node", startOptions{})
		for i := range 3 {
			l.put(t, "a", fmt.Sprint("later", i))
		}
		if info := l.info(t); cursor.Revision() != 1 || info.First != 4 {
			t.Fatalf("cursor %v, log %+v", cursor, info)
		}
		c, err := l.stream(t).CreateOrUpdateConsumer(bounded(t), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 2, AckPolicy: jetstream.AckNonePolicy,
		})
		if err != nil {
			t.Fatalf("the server refuses a start below its first revision by now: %v", err)
		}
		msg, err := c.Next(jetstream.FetchMaxWait(waitBound))
		if err != nil {
			t.Fatal(err)
		}
		if meta, err := msg.Metadata(); err != nil || meta.Sequence.Stream != 4 || meta.Sequence.Consumer != 1 {
			t.Fatalf("began with %+v, %v", meta, err)
		}

		tb := l.node(t, "node", startOptions{fold: fold.Options{Repair: fold.RepairOptions{Mode: fold.RepairOff}}})
		wantRefused(t, tb, "stop", fold.ErrCursorExpired, was)
		var expired *fold.ExpiredError
		if !errors.As(tb.f.Err(), &expired) || expired.First != 4 || expired.Cursor.Revision() != 1 {
			t.Errorf("stopped with %v", tb.f.Err())
		}
	})
}

func TestLiveOfflineDeleteReconciledByRelist(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{})
		for _, domain := range []string{"kept", "gone", "back"} {
			l.put(t, domain, "1")
		}
		l.visit(t, "node", startOptions{})
		l.del(t, "gone")
		l.del(t, "back")
		l.put(t, "kept", "2")
		l.purgeMarkers(t)
		l.put(t, "back", "2")
		if info := l.info(t); info.First != 6 {
			t.Fatalf("log %+v", info)
		}
		r := newReports()
		tb := l.node(t, "node", startOptions{fold: fold.Options{Events: r.events()}})
		tb.hydrated(t)
		wantRoute(t, tb, "t", "kept", "2")
		wantRoute(t, tb, "t", "back", "2")
		wantRoute(t, tb, "t", "gone", "")
		l.wantTruth(t, tb)
		if st := tb.f.Status(); st.Repair == nil || st.Repair.Plan != "relist" || st.Repair.Deleted != 1 || st.Repair.Rows != 3 || st.Owed != "" {
			t.Errorf("status %+v, repair %+v", st, st.Repair)
		}
		if why := r.started(); len(why) != 1 || !errors.Is(why[0], fold.ErrCursorExpired) {
			t.Errorf("repairs began because of %v", why)
		}
		tb.close(t)
		r = newReports()
		l.visit(t, "node", startOptions{fold: fold.Options{Events: r.events()}})
		if why := r.started(); len(why) != 0 {
			t.Errorf("the next start repairs again: %v", why)
		}
	})
}

// TestLiveSupersessionOnlyRestartResumes: every key of a bucket with an age limit is rewritten while the node is away, and
// nothing can have aged out. The node resumes from the first retained revision.
func TestLiveSupersessionOnlyRestartResumes(t *testing.T) {
	for name, rewrites := range map[string]int{
		"cursor with a time": 5, // the log's head has moved, so the fold has its memo
		"by its samples":     1,
	} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				l := newLive(t, b, natskv.BucketConfig{MaxAge: time.Hour})
				for i := range rewrites {
					l.put(t, "hot", fmt.Sprint(i))
				}
				_, cursor := l.visit(t, "node", startOptions{})
				if memo := rewrites > 1; cursor.SeenEvicting != memo || (cursor.WrittenAt != 0) != memo {
					t.Fatalf("cursor %+v", cursor)
				}
				var last uint64
				for i := range 5 {
					last = l.put(t, "hot", fmt.Sprint("new", i))
				}
				if info := l.info(t); info.First != last || last <= cursor.Revision()+1 {
					t.Fatalf("cursor %v, log %+v", cursor, info)
				}
				r := newReports()
				opened := make(chan uint64, 8)
				events := r.events()
				events.WatchOpened = func(after fold.Cursor, _ uint64) { opened <- after.Revision() }
				tb := l.node(t, "node", startOptions{fold: fold.Options{Events: events}})
				tb.hydrated(t)
				l.caughtUp(t, tb)
				wantRoute(t, tb, "t", "hot", "new4")
				if why := r.started(); len(why) != 0 {
					t.Errorf("repairs began because of %v", why)
				}
				if st := tb.f.Status(); st.Updates != 1 || <-opened != cursor.Revision() {
					t.Errorf("%d updates came", st.Updates)
				}
			})
		})
	}
}

// TestLivePrefixScopeRestartsOnABusyBucket: what the node follows was evicted long ago, and the rest of the bucket is busy.
// The frontier keeps its cursor within the log.
func TestLivePrefixScopeRestartsOnABusyBucket(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{MaxBytes: 64 << 10, DiscardOld: true, Watch: natskv.WatchConfig{ProbeEvery: 20 * time.Millisecond}})
		scope, err := fold.Prefixes("route.mine.")
		if err != nil {
			t.Fatal(err)
		}
		w := ft.NewRouteWriter(l.bucket)
		if _, err := w.Put(bounded(t), route("mine", "quiet", "1")); err != nil {
			t.Fatal(err)
		}
		follow := func(events fold.Events) *tables {
			t.Helper()
			builder := fold.NewBuilder(l.bucket, l.store(t, "node"), fold.Options{Scope: scope, Logger: quiet, Events: events})
			var tb tables
			var err error
			if tb.routes, err = ft.RegisterRoute(builder); err != nil {
				t.Fatal(err)
			}
			if tb.f, err = builder.Start(bounded(t)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tb.f.Close() })
			return &tb
		}
		r := newReports()
		tb := follow(r.events())
		tb.hydrated(t)
		for i := range 100 { // no more than the node can follow
			l.put(t, fmt.Sprint(i), strings.Repeat("x", 2000))
			if i%10 == 9 {
				l.caughtUp(t, tb)
			}
		}
		if info := l.info(t); info.First < 10 {
			t.Fatalf("nothing was evicted: %+v", info)
		}
		wantRoute(t, tb, "mine", "quiet", "1")
		tb.close(t)
		l.put(t, "away", "1")
		opened := make(chan uint64, 8)
		events := r.events()
		events.WatchOpened = func(after fold.Cursor, _ uint64) { opened <- after.Revision() }
		tb = follow(events)
		tb.hydrated(t)
		rev, err := w.Put(bounded(t), route("mine", "new", "1"))
		if err != nil {
			t.Fatal(err)
		}
		applied(t, tb, rev)
		wantRoute(t, tb, "mine", "quiet", "1")
		wantRoute(t, tb, "mine", "new", "1")
		if after := <-opened; after < 101 {
			t.Errorf("resumed after revision %d", after)
		}
		if why := r.started(); len(why) != 0 {
			t.Errorf("repairs began because of %v", why)
		}
	})
}

// TestLivePrefixesOverlapAndSplitTokens: prefixes one of which covers another, and one that ends inside of a token. A
// re-list deletes what is gone in scope, and nothing that lies out of it.
func TestLivePrefixesOverlapAndSplitTokens(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{})
		scope, err := fold.Prefixes("n.", "n.k", "nod")
		if err != nil {
			t.Fatal(err)
		}
		follow := func() (*tables, store.Store) {
			t.Helper()
			s := l.store(t, "node")
			f, err := fold.NewBuilder(l.bucket, s, fold.Options{Scope: scope, Logger: quiet}).Start(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return &tables{f: f}, s
		}
		in := []string{"n.1", "n.k", "n.k.2", "nod", "node", "node.x"}
		stale := []string{"n.gone", "n.k.gone", "n.kgone", "nodgone", "nod.gone"}
		out := []string{"n", "no", "noc", "noe", "m.n.k", "o"}
		want := map[string]string{}
		for _, key := range slices.Concat(in, stale) {
			l.putRaw(t, key, "1")
		}
		tb, _ := follow()
		tb.hydrated(t)
		tb.close(t)

		// What lies out of the scope is not the repair's, wherever it came from.
		s := l.store(t, "node")
		var planted store.Batch
		for _, key := range out {
			planted.Updates = append(planted.Updates, kv.Update{Key: key, Value: []byte("planted"), Op: kv.OpPut, Version: kv.Revision(1)})
			want[key] = "planted"
		}
		if err := errors.Join(s.Apply(bounded(t), &planted, s.Cursor()), s.Close()); err != nil {
			t.Fatal(err)
		}
		for _, key := range stale {
			if _, err := l.bucket.Delete(bounded(t), key, kv.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range in {
			l.putRaw(t, key, "2")
			want[key] = "2"
		}
		l.purgeMarkers(t)
		tb, s = follow()
		tb.hydrated(t)
		l.caughtUp(t, tb)
		if r := tb.f.Status().Repair; r == nil || r.Plan != "relist" || r.Deleted != uint64(len(stale)) || r.Rows != uint64(len(in)+len(stale)) || r.Listed != uint64(len(in)) {
			t.Errorf("repair %+v", r)
		}
		if got := rowsOf(t, s); !maps.Equal(got, want) {
			t.Errorf("rows %v, want %v", got, want)
		}
	})
}

// rowsOf are a store's keys and their newest values.
func rowsOf(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	lower := []byte{byte(store.SpaceData)}
	it, err := s.Iter(store.IterOptions{Lower: lower, Upper: store.PrefixEnd(lower)})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for it.Next() {
		value, err := it.Value()
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.ParseRecord(value)
		if err != nil {
			t.Fatal(err)
		}
		rows[store.NATSKey(it.Key())] = string(r.Value)
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Fatal(err)
	}
	return rows
}
