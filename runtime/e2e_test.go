package fold_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
)

// These tests run folds against a real nats-server, embedded.

func connect(t testing.TB, url string, o natskv.ConnectOptions) jetstream.JetStream {
	t.Helper()
	o.URL = url
	conn, err := natskv.Connect(bounded(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = conn.Shutdown(ctx)
	})
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func openBucket(t testing.TB, js jetstream.JetStream, cfg natskv.BucketConfig) *natskv.Bucket {
	t.Helper()
	b, err := natskv.Open(bounded(t), js, "test", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func applied(t testing.TB, tb *tables, rev fold.Revision) {
	t.Helper()
	if err := tb.f.WaitApplied(bounded(t), rev); err != nil {
		t.Fatal(err)
	}
}

func TestEndToEnd(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		srv, dir := natstest.New(t), t.TempDir()
		bucket := openBucket(t, connect(t, srv.URL(), natskv.ConnectOptions{}), natskv.BucketConfig{})
		w := ft.NewRouteWriter(bucket)
		ctx := bounded(t)
		for i := range 200 {
			if _, err := w.Put(ctx, route("t", fmt.Sprint(i), "1")); err != nil {
				t.Fatal(err)
			}
		}
		tb := start(t, bucket, openStore(t, b, dir), startOptions{routes: []fold.TableOption{fold.Resident()}})
		tb.hydrated(t)
		rev, err := w.Create(ctx, route("t", "new.example", "2"))
		if err != nil {
			t.Fatal(err)
		}
		applied(t, tb, rev)
		wantRoute(t, tb, "t", "new.example", "2")
		if rev, err = w.Update(ctx, route("t", "new.example", "3"), rev); err != nil {
			t.Fatal(err)
		}
		applied(t, tb, rev)
		if v, ok := tb.routes.Peek(routeKey("t", "new.example")); !ok || v.NodeId != "3" {
			t.Fatalf("peek %v %v", v, ok)
		}
		rev, err = w.Mutate(ctx, routeKey("t", "new.example"), func(r *foldtestv1.Route, ok bool) (*foldtestv1.Route, error) {
			r.Port++
			return r, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		applied(t, tb, rev)
		if row, ok := get(t, tb.routes.Table, routeKey("t", "new.example")); !ok || row.Value.Port != 1 || row.Rev != rev {
			t.Fatalf("row %+v %v", row, ok)
		}
		var ce *fold.ConflictError
		if _, err := w.Update(ctx, route("t", "new.example", "x"), fold.NewRev(routeKey("t", "new.example"), 1)); !errors.As(err, &ce) || ce.Current.Rank() != rev.Seq() {
			t.Fatalf("update at an old revision: %v", err)
		}
		if err := w.Delete(ctx, routeKey("t", "new.example"), fold.At(rev)); err != nil {
			t.Fatal(err)
		}
		tb.close(t)

		for i := range 30 {
			if rev, err = w.Put(ctx, route("t", fmt.Sprint(i), "9")); err != nil {
				t.Fatal(err)
			}
		}
		tb = start(t, bucket, openStore(t, b, dir), startOptions{})
		applied(t, tb, rev)
		if st := tb.f.Status(); st.Updates > 31 {
			t.Fatalf("%d updates came after a restart 30 or 31 behind", st.Updates)
		}
		wantRoute(t, tb, "t", "7", "9")
		wantRoute(t, tb, "t", "new.example", "")
	})
}

func TestServerRestartMidWatch(t *testing.T) {
	srv := natstest.New(t)
	bucket := openBucket(t, connect(t, srv.URL(), natskv.ConnectOptions{}), natskv.BucketConfig{})
	w := ft.NewRouteWriter(bucket)
	tb := start(t, bucket, openStore(t, backends[1], t.TempDir()), startOptions{})
	tb.hydrated(t)
	put := func(domain string) fold.Rev[ft.RouteKey] {
		t.Helper()
		ctx := bounded(t)
		for {
			rev, err := w.Put(ctx, route("t", domain, "1"))
			if err == nil {
				return rev
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	applied(t, tb, put("before"))
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	applied(t, tb, put("after"))
	wantRoute(t, tb, "t", "before", "1")
	wantRoute(t, tb, "t", "after", "1")
	if err := srv.DropClients(); err != nil {
		t.Fatal(err)
	}
	applied(t, tb, put("again"))
	wantRoute(t, tb, "t", "again", "1")
}

// TestStartWithoutAServer: a node comes up with what it has on disk while nothing answers, says so, and catches up by
// itself once something does.
func TestStartWithoutAServer(t *testing.T) {
	srv, dir := natstest.New(t), t.TempDir()
	addr := srv.Addr()
	bucket := openBucket(t, connect(t, srv.URL(), natskv.ConnectOptions{}), natskv.BucketConfig{})
	rev, err := ft.NewRouteWriter(bucket).Put(bounded(t), route("t", "d", "1"))
	if err != nil {
		t.Fatal(err)
	}
	tb := start(t, bucket, openStore(t, backends[1], dir), startOptions{})
	applied(t, tb, rev)
	tb.close(t)
	srv.Stop()

	js := connect(t, "nats://"+addr, natskv.ConnectOptions{Background: true})
	lazy, err := natskv.Lazy(js, "test", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	lost := make(chan error, 64)
	tb = start(t, lazy, openStore(t, backends[1], dir), startOptions{fold: fold.Options{Events: fold.Events{WatchLost: func(err error) { lost <- err }}}})
	wantRoute(t, tb, "t", "d", "1")
	select {
	case err := <-lost:
		if !errors.Is(err, natskv.ErrNotConnected) {
			t.Fatalf("told %v", err)
		}
	case <-bounded(t).Done():
		t.Fatal("nobody was told that the server is away")
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port == strconv.Itoa(0) {
		t.Fatal(addr, err)
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	w := ft.NewRouteWriter(lazy)
	ctx := bounded(t)
	for rev, err = w.Put(ctx, route("t", "d", "2")); err != nil && ctx.Err() == nil; rev, err = w.Put(ctx, route("t", "d", "2")) {
		t.Logf("put: %v", err)
	}
	applied(t, tb, rev)
	wantRoute(t, tb, "t", "d", "2")
}

func TestBucketReplacedOrRewound(t *testing.T) {
	for _, more := range []bool{false, true} {
		t.Run(fmt.Sprintf("more messages than the cursor=%v", more), func(t *testing.T) {
			srv, dir := natstest.New(t), t.TempDir()
			js := connect(t, srv.URL(), natskv.ConnectOptions{})
			bucket := openBucket(t, js, natskv.BucketConfig{})
			w := ft.NewRouteWriter(bucket)
			var rev fold.Rev[ft.RouteKey]
			for i := range 5 {
				var err error
				if rev, err = w.Put(bounded(t), route("t", fmt.Sprint(i), "old")); err != nil {
					t.Fatal(err)
				}
			}
			tb := start(t, bucket, openStore(t, backends[1], dir), startOptions{})
			applied(t, tb, rev)
			tb.close(t)
			if err := js.DeleteKeyValue(bounded(t), "test"); err != nil {
				t.Fatal(err)
			}
			bucket = openBucket(t, js, natskv.BucketConfig{})
			w = ft.NewRouteWriter(bucket)
			n := 2
			if more {
				n = 9
			}
			for i := range n {
				if _, err := w.Put(bounded(t), route("t", fmt.Sprint(i), "new")); err != nil {
					t.Fatal(err)
				}
			}
			tb = start(t, bucket, openStore(t, backends[1], dir), startOptions{})
			select {
			case <-tb.f.Done():
			case <-bounded(t).Done():
				t.Fatal("the fold follows another log without a word")
			}
			var changed *fold.LogChangedError
			if err := tb.f.Err(); !errors.Is(err, fold.ErrLogReplaced) || !errors.As(err, &changed) || changed.Cursor.Revision() != 5 || changed.Hint() == "" {
				t.Fatalf("stopped with %v", err)
			}
			wantRoute(t, tb, "t", "0", "old")
			wantRoute(t, tb, "t", "4", "old")
		})
	}
}

// TestBurstOverFewKeys: a small bucket whose keys are all rewritten faster than they are read moves its head past the
// watch, by supersession. That is no loss, and no expiry.
func TestBurstOverFewKeys(t *testing.T) {
	for _, keys := range []int{1, 20} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			srv := natstest.New(t)
			js := connect(t, srv.URL(), natskv.ConnectOptions{})
			bucket := openBucket(t, js, natskv.BucketConfig{})
			tb := start(t, bucket, openStore(t, backends[1], t.TempDir()), startOptions{})
			tb.hydrated(t)
			const n = 10_000
			for i := range n {
				r := route("t", fmt.Sprint(i%keys), fmt.Sprint(i))
				b, err := proto.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				if err := js.Conn().Publish("$KV.test."+routeKey(r.Tenant, r.Domain).String(), b); err != nil {
					t.Fatal(err)
				}
			}
			applied(t, tb, fold.Seq(n))
			for i := n - keys; i < n; i++ {
				wantRoute(t, tb, "t", fmt.Sprint(i%keys), fmt.Sprint(i))
			}
		})
	}
}

func TestCursorExpired(t *testing.T) {
	srv, dir := natstest.New(t), t.TempDir()
	js := connect(t, srv.URL(), natskv.ConnectOptions{})
	bucket := openBucket(t, js, natskv.BucketConfig{})
	w := ft.NewRouteWriter(bucket)
	rev, err := w.Put(bounded(t), route("t", "a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	tb := start(t, bucket, openStore(t, backends[1], dir), startOptions{})
	applied(t, tb, rev)
	tb.close(t)
	for i := range 10 {
		if _, err := w.Put(bounded(t), route("t", fmt.Sprint(i), "2")); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := js.Stream(bounded(t), "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(bounded(t), jetstream.WithPurgeSequence(8)); err != nil {
		t.Fatal(err)
	}
	tb = start(t, bucket, openStore(t, backends[1], dir), startOptions{fold: fold.Options{Repair: fold.RepairOptions{Mode: fold.RepairOff}}})
	ended(t, tb)
	var expired *fold.ExpiredError
	if err := tb.f.Err(); !errors.Is(err, fold.ErrCursorExpired) || !errors.As(err, &expired) || expired.First != 8 || expired.Cursor.Revision() != 1 {
		t.Fatalf("stopped with %v", err)
	}
	wantRoute(t, tb, "t", "a", "1")
	wantRoute(t, tb, "t", "9", "")
	tb.close(t)

	tb = start(t, bucket, openStore(t, backends[1], dir), startOptions{})
	tb.hydrated(t)
	wantRoute(t, tb, "t", "a", "")
	wantRoute(t, tb, "t", "9", "2")
	wantRoute(t, tb, "t", "5", "") // revision 7, purged with its key
	if r := tb.f.Status().Repair; r == nil || r.Plan != "relist" || r.Deleted != 1 {
		t.Errorf("status tells of the repair %+v", r)
	}
}

// ended waits until the fold has stopped by itself.
func ended(t *testing.T, tb *tables) {
	t.Helper()
	select {
	case <-tb.f.Done():
	case <-bounded(t).Done():
		t.Fatalf("the fold goes on: %+v", tb.f.Status())
	}
}
