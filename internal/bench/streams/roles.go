package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// side is what a child has: connections to both servers.
type side struct {
	o    options
	nc   *nats.Conn
	js   jetstream.JetStream
	c    *client.Client
	addr string // a stream that was made for this child, or, for one that reads, a stream that fill made
}

var roles = map[string]func(*side, context.Context) (result, error){
	"async":      (*side).bareAsync,
	"batch100":   (*side).batches,
	"match-bare": (*side).bareMatch,
	"match":      (*side).match,
	"sync":       (*side).bareSync,
	"producer":   (*side).producer,
	"one-shot":   (*side).oneShot,
	"empty-call": (*side).emptyCall,
	"fence":      (*side).fence,

	"crowd-one-shot": (*side).crowdOneShot,
	"crowd-fence":    (*side).crowdFence,
}

// roleOf is what a child does, and the stream that it reads if it has none of its own.
func roleOf(name string) (run func(*side, context.Context) (result, error), shared string, ok bool) {
	if run, ok = roles[name]; ok {
		return run, "", true
	}
	for _, f := range framings {
		switch name {
		case f.fill():
			return func(s *side, ctx context.Context) (result, error) { return s.fill(ctx, f) }, f.addr(), true
		case f.read():
			return func(s *side, ctx context.Context) (result, error) { return s.read(ctx, f) }, f.addr(), true
		case f.bare():
			return func(s *side, ctx context.Context) (result, error) { return s.bareRead(ctx, f) }, f.addr(), true
		}
	}
	return nil, "", false
}

// runRole is a child: it prints its result as JSON.
func runRole(ctx context.Context, o options) (err error) {
	if o.profile != "" {
		f, err := os.Create(filepath.Join(o.profile, fmt.Sprintf("%s-%d.pprof", o.role, os.Getpid())))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if o.role == roleServer {
		return serve(ctx, o)
	}
	role, shared, ok := roleOf(o.role)
	if !ok {
		return fmt.Errorf("no role %q", o.role)
	}
	s := &side{o: o, addr: cmp.Or(shared, fmt.Sprintf("nova://bench/%s-%d", o.role, os.Getpid()))}
	if s.nc, err = nats.Connect(o.at.NATS); err != nil {
		return err
	}
	defer s.nc.Close()
	if s.js, err = s.jetStream(); err != nil {
		return err
	}
	if s.c, err = client.New(o.at.Stream); err != nil {
		return err
	}
	r, err := s.run(ctx, role, shared == "")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// run runs a role, in a stream of its own or one that was there before.
func (s *side) run(ctx context.Context, role func(*side, context.Context) (result, error), own bool) (r result, err error) {
	if !own {
		return role(s, ctx)
	}
	if err := s.c.CreateStream(ctx, s.addr, client.StreamConfig{Memory: s.o.memory}); err != nil {
		return r, err
	}
	r, err = role(s, ctx)
	return r, errors.Join(err, s.c.DeleteStream(ctx, s.addr))
}

func (s *side) jetStream(opts ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	return jetstream.New(s.nc, append(opts, jetstream.WithDefaultTimeout(time.Minute))...)
}

// serve runs the nats-server and a server of streams in it, as nova serve does, until the standard input ends.
func serve(ctx context.Context, o options) (err error) {
	ns, err := natstest.Start(natstest.Options{StoreDir: filepath.Join(o.dir, "server")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Shutdown()) }()
	srv, err := server.Open(ctx, server.Config{Connect: []nats.Option{nats.InProcessServer(ns.Server())}}, server.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, srv.Shutdown(ctx))
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, srv.Shutdown(ctx))
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}()
	stop, err := answerCPU(ns.URL())
	if err != nil {
		return err
	}
	defer stop()
	if err := json.NewEncoder(os.Stdout).Encode(place{NATS: ns.URL(), Stream: "http://" + l.Addr().String()}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

const cpuSubject = "bench.cpu"

// answerCPU tells the children what this process has used.
func answerCPU(url string) (stop func(), err error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	_, err = nc.Subscribe(cpuSubject, func(m *nats.Msg) { _ = m.Respond([]byte(cpuTime().String())) })
	return nc.Close, err
}

// serverCPU is what the servers' process has used; 0 if it does not say.
func (s *side) serverCPU() time.Duration {
	m, err := s.nc.Request(cpuSubject, nil, 10*time.Second)
	if err != nil {
		return 0
	}
	d, _ := time.ParseDuration(string(m.Data))
	return d
}

var body = make([]byte, bodyBytes)

// batch is a batch of its own slice, as a caller has it.
func batch(n int) []client.Record {
	records := make([]client.Record, n)
	for i := range records {
		records[i].Body = body
	}
	return records
}
