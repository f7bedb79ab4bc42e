package fold_test

import (
	"fmt"
	"testing"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
)

// TestIndexesEndToEnd reads by index what a writer sent through a real server, before and after a restart.
func TestIndexesEndToEnd(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		srv, dir := natstest.New(t), t.TempDir()
		bucket := openBucket(t, connect(t, srv.URL(), natskv.ConnectOptions{}), natskv.BucketConfig{})
		w := ix.NewHostWriter(bucket)
		ctx := bounded(t)
		host := func(i, node int) *indexedv1.Host {
			return &indexedv1.Host{Region: "eu", Name: fmt.Sprint(i), NodeId: fmt.Sprint(node), Cert: []byte(fmt.Sprint("cert", i))}
		}
		for i := range 60 {
			if _, err := w.Put(ctx, host(i, i%3)); err != nil {
				t.Fatal(err)
			}
		}
		tb := mustStartIndexed(t, bucket, openStore(t, b, dir), fold.Options{})
		if err := tb.f.WaitHydrated(ctx); err != nil {
			t.Fatal(err)
		}
		if n, err := tb.hosts.CountByNode(ctx, "1"); err != nil || n != 20 {
			t.Errorf("%d rows of node 1, %v", n, err)
		}
		if err := w.Delete(ctx, ix.HostKey{Region: "eu", Name: "1"}); err != nil {
			t.Fatal(err)
		}
		rev, err := w.Put(ctx, host(4, 2))
		if err != nil {
			t.Fatal(err)
		}
		if err := tb.f.WaitApplied(ctx, rev); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n, err := tb.hosts.CountByNode(ctx, "1"); err != nil || n != 18 {
				t.Errorf("%d rows of node 1, %v", n, err)
			}
			if row, ok, err := tb.hosts.GetByCert(ctx, []byte("cert4")); err != nil || !ok || row.Value.NodeId != "2" {
				t.Errorf("%v %v %v", row, ok, err)
			}
			if _, ok, err := tb.hosts.GetByCert(ctx, []byte("cert1")); err != nil || ok {
				t.Errorf("the row that was deleted: %v %v", ok, err)
			}
			tb.mustCheck(t)
			if err := tb.f.Close(); err != nil {
				t.Fatal(err)
			}
			tb = mustStartIndexed(t, bucket, openStore(t, b, dir), fold.Options{})
		}
	})
}
