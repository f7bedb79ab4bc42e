package fold_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// example starts a fold of the route table over a bucket in memory. With a server, the bucket comes from natskv.Open.
func example(opts ...fold.TableOption) (f *fold.Fold, routes ft.RouteTable, w ft.RouteWriter, end func()) {
	dir, err := os.MkdirTemp("", "fold-example-")
	check(err)
	store, err := logstore.Open(dir+"/routes.log", logstore.Options{})
	check(err)
	bucket := kvtest.NewLog(kvtest.Options{Bucket: "test"})
	b := fold.NewBuilder(bucket, store, fold.Options{Logger: quiet})
	routes, err = ft.RegisterRoute(b, opts...)
	check(err)
	f, err = b.Start(context.Background())
	check(err)
	return f, routes, ft.NewRouteWriter(bucket), func() {
		check(f.Close())
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A writer takes over from another one, and locks it out.
func ExampleFence() {
	ctx := context.Background()
	bucket := kvtest.NewLog(kvtest.Options{Bucket: "test"})
	row := &foldtestv1.Route{Tenant: "acme", Domain: "a.example", NodeId: "n1"}

	_, err := fold.Fence(ctx, bucket, "gen-1")
	check(err)
	old := ft.NewRouteWriter(bucket, fold.WithFencingToken("gen-1"))
	_, err = old.Put(ctx, row)
	check(err)

	tail, err := fold.Fence(ctx, bucket, "gen-2") // nothing of gen-1 is stored above tail
	check(err)
	fresh := ft.NewRouteWriter(bucket, fold.WithFencingToken("gen-2"))
	b := fold.NewBatch(bucket)
	b.Match(tail) // and nothing of anybody since
	fresh.PutIn(b, row)
	check(b.Commit(ctx))

	_, err = old.Put(ctx, row)
	var out *fold.FencedError
	if errors.As(err, &out) {
		fmt.Printf("%q is fenced out by %q\n", out.Presented, out.Installed)
	}
	// Output:
	// "gen-1" is fenced out by "gen-2"
}

// A write, a wait for it, and reads of what the node holds itself.
func Example() {
	ctx := context.Background()
	f, routes, w, end := example()
	defer end()

	for _, domain := range []string{"b.example", "a.example"} {
		rev, err := w.Create(ctx, &foldtestv1.Route{Tenant: "acme", Domain: domain, NodeId: "n1"})
		check(err)
		check(f.WaitApplied(ctx, rev)) // read your own write
	}
	for row, err := range routes.List(ctx, ft.RouteByTenant("acme")) {
		check(err)
		fmt.Println(row.Key.Domain, "on", row.Value.NodeId, "at revision", row.Rev.Seq())
	}
	// Output:
	// a.example on n1 at revision 2
	// b.example on n1 at revision 1
}

// Mutate reads, changes and writes, and begins again when somebody else was faster.
func ExampleWriter_Mutate() {
	ctx := context.Background()
	f, routes, w, end := example()
	defer end()

	k := ft.RouteKey{Tenant: "acme", Domain: "a.example"}
	for range 3 {
		rev, err := w.Mutate(ctx, k, func(r *foldtestv1.Route, exists bool) (*foldtestv1.Route, error) {
			if !exists {
				r.Tenant, r.Domain = k.Tenant, k.Domain
			}
			r.Port++
			return r, nil
		})
		check(err)
		check(f.WaitApplied(ctx, rev))
	}
	r, ok, err := routes.Get(ctx, k)
	fmt.Println(r.GetPort(), ok, err)
	// Output: 3 true <nil>
}

// An update at a revision fails when the row has moved on, and says to where.
func ExampleWriter_Update() {
	ctx := context.Background()
	_, _, w, end := example()
	defer end()

	r := &foldtestv1.Route{Tenant: "acme", Domain: "a.example"}
	seen, err := w.Create(ctx, r)
	check(err)
	_, err = w.Put(ctx, r)
	check(err)
	var conflict *fold.ConflictError
	if _, err := w.Update(ctx, r, seen); errors.As(err, &conflict) {
		fmt.Println("expected", conflict.Expected, "is", conflict.Current)
	}
	// Output: expected 1 is 2
}

// Watch tells of each change after it is committed; WithInitial begins with what is there.
func ExampleTable_Watch() {
	ctx := context.Background()
	f, routes, w, end := example()
	defer end()

	r := &foldtestv1.Route{Tenant: "acme", Domain: "a.example", NodeId: "n1"}
	rev, err := w.Put(ctx, r)
	check(err)
	check(f.WaitApplied(ctx, rev))
	for e, err := range routes.Watch(ctx, nil, fold.WithInitial()) {
		check(err)
		fmt.Println(e.Op, e.Key, e.New.GetNodeId())
		if e.Op.Removes() {
			break
		}
		if e.New.NodeId == "n1" {
			r.NodeId = "n2"
			_, err = w.Put(ctx, r)
		} else {
			err = w.Delete(ctx, e.Key)
		}
		check(err)
	}
	// Output:
	// put route.acme.a/2Eexample n1
	// put route.acme.a/2Eexample n2
	// delete route.acme.a/2Eexample
}

// Resident tables answer from memory, without an allocation.
func ExampleTable_Peek() {
	ctx := context.Background()
	f, routes, w, end := example(fold.Resident())
	defer end()

	rev, err := w.Put(ctx, &foldtestv1.Route{Tenant: "acme", Domain: "a.example", NodeId: "n1"})
	check(err)
	check(f.WaitApplied(ctx, rev))
	r, ok := routes.Peek(rev.Key())
	fmt.Println(r.GetNodeId(), ok)
	// Output: n1 true
}

// Without tables and without a store: the caller's own parse and apply, and the cursor to persist.
func ExampleWatchApplied() {
	bucket := kvtest.NewLog(kvtest.Options{})
	bucket.Set("greeting", "hello")
	bucket.Set("subject", "world")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	cursor, err := fold.WatchApplied(ctx, fold.WatchConfig{Watcher: bucket, Logger: quiet},
		func(u *kv.Update) (string, bool) { return u.Key + "=" + string(u.Value), u.Op == fold.OpPut },
		func(_ context.Context, batch []string) error {
			fmt.Println(batch)
			stop()
			return nil
		})
	fmt.Println(cursor, err)
	// Output:
	// [greeting=hello subject=world]
	// 2 <nil>
}
