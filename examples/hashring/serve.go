package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store/pebblestore"

	ringv1 "github.com/typedfold/fold/examples/hashring/gen/ring/v1"
	"github.com/typedfold/fold/examples/hashring/gen/ring/v1/ringv1fold"
	"github.com/typedfold/fold/examples/hashring/ring"
	"github.com/typedfold/fold/examples/internal/quickstart"
)

const grace = 10 * time.Second

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	nats := quickstart.NATS{Name: "hashring", Background: true}
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(stderr)
	nats.Flags(fs)
	listen := fs.String("listen", "127.0.0.1:8090", "`address` of the HTTP face")
	data := fs.String("data", "", "`folder` of the fold; without it, a temporary one that is removed at the end")
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if *data == "" {
		if *data, err = os.MkdirTemp("", "hashring-*"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*data)) }()
	}
	session, err := nats.Start(ctx, log)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		err = errors.Join(err, session.Close(ctx))
	}()
	js, err := session.JetStream()
	if err != nil {
		return err
	}
	bucket, err := natskv.Lazy(js, ring.Bucket, natskv.BucketConfig{}) // a node starts on its disk, with or without NATS
	if err != nil {
		return err
	}
	n, err := startNode(ctx, bucket, *data, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.fold.Close()) }()
	if session.URL != "" {
		if err := startSample(ctx, bucket); err != nil {
			return err
		}
	}
	return serveHTTP(ctx, *listen, n.rings.Handler(), func(addr string) { explain(stdout, addr, session.URL) })
}

// node is a running fold with its table and its hooks.
type node struct {
	fold    *fold.Fold
	origins ringv1fold.OriginTable
	rings   *ring.Rings
}

// startNode wires bucket, store, table and hooks.
func startNode(ctx context.Context, bucket fold.Bucket, dir string, log *slog.Logger) (*node, error) {
	store, err := pebblestore.Open(dir, pebblestore.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	n := &node{rings: ring.NewRings()}
	b := fold.NewBuilder(bucket, store, fold.Options{Logger: log, ShutdownTimeout: grace})
	if n.origins, err = ringv1fold.RegisterOrigin(b, ringv1fold.WithOriginHooks(n.rings)); err == nil {
		n.fold, err = b.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close()) // a fold that started owns the store; one that didn't leaves it here
	}
	return n, nil
}

// serveHTTP serves until ctx ends, then lets requests end.
func serveHTTP(ctx context.Context, addr string, h http.Handler, started func(addr string)) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	started(l.Addr().String())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return srv.Shutdown(ctx)
}

// startSample fills the embedded server's bucket.
func startSample(ctx context.Context, bucket fold.Bucket) error {
	w := ringv1fold.NewOriginWriter(bucket)
	b := fold.NewBatch(bucket)
	for i := 1; i <= 4; i++ {
		w.CreateIn(b, &ringv1.Origin{Ring: "cdn", OriginId: fmt.Sprintf("o%d", i), Address: fmt.Sprintf("10.0.0.%d:80", i), Weight: 1})
	}
	return b.Commit(ctx)
}

func explain(w io.Writer, addr, nats string) {
	fmt.Fprintf(w, "rings on http://%s\n", addr)
	if nats == "" {
		return
	}
	fmt.Fprintf(w, `
An embedded NATS server is on %[1]s

Try:

  curl http://%[2]s/cdn                    # the members of ring cdn
  curl http://%[2]s/cdn/some/path.jpg      # whose request is it, and who is next
  go run ./examples/hashring leave --server %[1]s cdn o2
  go run ./examples/hashring join --server %[1]s --weight 2 cdn o5 10.0.0.5:80

Ctrl-C ends it.
`, nats, addr)
}
