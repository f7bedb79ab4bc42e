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

	"github.com/typedfold/fold/examples/internal/quickstart"
	"github.com/typedfold/fold/examples/routes/router"
)

type serveConfig struct {
	nats   quickstart.NATS
	listen string
	admin  string
	data   string
	grace  time.Duration
}

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := serveConfig{nats: quickstart.NATS{Name: "routes", Background: true}}
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(stderr)
	c.nats.Flags(fs)
	fs.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` for requests")
	fs.StringVar(&c.admin, "admin", "127.0.0.1:8081", "`address` for /livez, /readyz and /statusz")
	fs.StringVar(&c.data, "data", "", "`folder` of the fold; without it, a temporary one that starts empty and is removed at the end")
	fs.DurationVar(&c.grace, "grace", 10*time.Second, "how long a shutdown may take")
	if err := fs.Parse(args); err != nil {
		return err
	}
	return c.run(ctx, stdout, slog.New(slog.NewTextHandler(stderr, nil)))
}

// run serves until ctx ends, then winds down within the grace period: first the requests, then the fold, then NATS.
func (c serveConfig) run(ctx context.Context, stdout io.Writer, log *slog.Logger) (err error) {
	grace, cancel := graceful(ctx, c.grace)
	defer cancel()
	session, err := c.nats.Start(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close(grace)) }()

	r, cleanUp, err := c.startRouter(ctx, session, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close(), cleanUp()) }()

	origins := noOrigins
	if session.URL != "" {
		if origins, err = startSample(ctx, session); err != nil {
			return err
		}
	}
	defer origins.close()
	front, err := listen(c.listen, r, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, front.shutdown(grace)) }()
	admin, err := listen(c.admin, r.Health(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.shutdown(grace)) }()

	fmt.Fprintf(stdout, "requests on http://%s, health on http://%s\n", front.addr, admin.addr)
	origins.explain(stdout, session.URL, front.addr, admin.addr)
	select {
	case <-ctx.Done():
		log.Info("shutting down", "within", c.grace)
		r.Drain()
		return nil
	case err := <-front.failed:
		return err
	case err := <-admin.failed:
		return err
	}
}

// startRouter opens the fold's store and starts the router on it.
func (c serveConfig) startRouter(ctx context.Context, session *quickstart.Session, log *slog.Logger) (*router.Router, func() error, error) {
	dir, cleanUp := c.data, func() error { return nil }
	if dir == "" {
		tmp, err := os.MkdirTemp("", "routes-*")
		if err != nil {
			return nil, nil, err
		}
		dir, cleanUp = tmp, func() error { return os.RemoveAll(tmp) }
	}
	js, err := session.JetStream()
	if err != nil {
		return nil, nil, errors.Join(err, cleanUp())
	}
	// Lazy, so that a router whose NATS is away starts all the same, on what it has on disk.
	bucket, err := natskv.Lazy(js, router.Bucket, natskv.BucketConfig{})
	if err != nil {
		return nil, nil, errors.Join(err, cleanUp())
	}
	store, err := pebblestore.Open(dir, pebblestore.Options{Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, cleanUp())
	}
	r, err := router.Start(ctx, bucket, store, fold.Options{Logger: log, ShutdownTimeout: c.grace})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close(), cleanUp())
	}
	return r, cleanUp, nil
}

// graceful is a context that ends so long after ctx has.
func graceful(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return grace, func() { stop(); cancel() }
}

// httpServer is one listener.
type httpServer struct {
	addr   string
	srv    *http.Server
	failed chan error
}

func listen(addr string, h http.Handler, log *slog.Logger) (*httpServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &httpServer{addr: l.Addr().String(), failed: make(chan error, 1)}
	s.srv = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	go func() {
		if err := s.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	}()
	return s, nil
}

// shutdown lets requests end within ctx, then cuts them off.
func (s *httpServer) shutdown(ctx context.Context) error {
	if err := s.srv.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests on %s cut off: %w", s.addr, err), s.srv.Close())
	}
	return nil
}
