// Package natstest runs a nats-server with JetStream inside the process, for tests, demos and examples only: nothing
// that ships may import it.
package natstest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options make a Server. The zero value serves any client of the loopback, with its files in a temporary folder.
type Options struct {
	// StoreDir holds JetStream's files; "" makes a temporary folder, which Shutdown removes.
	StoreDir string
	// Token, or User and Password, is what clients must present; none by default.
	Token          string
	User, Password string
	// Domain is the JetStream domain; none by default.
	Domain string
	// MaxPayload is the largest message in bytes; 0 is the server's default of 1 MiB.
	MaxPayload int32
	// StartTimeout bounds the wait until the server accepts clients; default 10 s.
	StartTimeout time.Duration
	// Tune changes the server's own options before each start; for what the fields above don't name.
	Tune func(*server.Options)
}

// Server is one server that can be stopped and started again on the same port and files. It is not safe for
// concurrent use, except URL.
type Server struct {
	opts   Options
	dir    string
	ownDir bool
	port   int
	srv    *server.Server
}

// Start runs a server on a free port of the loopback.
func Start(o Options) (*Server, error) {
	if o.StartTimeout == 0 {
		o.StartTimeout = 10 * time.Second
	}
	s := &Server{opts: o, dir: o.StoreDir, port: server.RANDOM_PORT}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "natstest-*")
		if err != nil {
			return nil, fmt.Errorf("natstest: store folder: %w", err)
		}
		s.dir, s.ownDir = dir, true
	}
	if err := s.run(); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	return s, nil
}

// New runs a server for one test or benchmark and stops it at its end.
func New(tb testing.TB, options ...Options) *Server {
	tb.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	if o.StoreDir == "" {
		o.StoreDir = tb.TempDir()
	}
	s, err := Start(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func (s *Server) run() error {
	o := &server.Options{
		ServerName:      "natstest",
		Host:            "127.0.0.1",
		Port:            s.port,
		NoLog:           true,
		NoSigs:          true,
		JetStream:       true,
		JetStreamDomain: s.opts.Domain,
		StoreDir:        s.dir,
		MaxPayload:      s.opts.MaxPayload,
		Authorization:   s.opts.Token,
		Username:        s.opts.User,
		Password:        s.opts.Password,
	}
	if s.opts.Tune != nil {
		s.opts.Tune(o)
	}
	srv, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("natstest: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(s.opts.StartTimeout) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("natstest: server on port %d not ready after %v", s.port, s.opts.StartTimeout)
	}
	addr, ok := srv.Addr().(*net.TCPAddr)
	if !ok {
		srv.Shutdown()
		return fmt.Errorf("natstest: server listens on %v, not on TCP", srv.Addr())
	}
	s.srv, s.port = srv, addr.Port
	return nil
}

// Addr is the host and port, the same after a restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is what a client connects to, without credentials.
func (s *Server) URL() string { return "nats://" + s.Addr() }

// Stop shuts the server down and keeps its port and files, so that Restart finds them. Stopping a stopped server does
// nothing.
func (s *Server) Stop() {
	if s.srv == nil {
		return
	}
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	s.srv = nil
}

// Restart stops the server if it runs, and starts it on the same port and files.
func (s *Server) Restart() error {
	s.Stop()
	return s.run()
}

// DropClients cuts every client's connection as a broken network does, bytes in flight included; the server goes on.
func (s *Server) DropClients() error {
	if s.srv == nil {
		return errors.New("natstest: server is stopped")
	}
	conns, err := s.srv.Connz(&server.ConnzOptions{Limit: 10_000})
	if err != nil {
		return fmt.Errorf("natstest: list clients: %w", err)
	}
	for _, c := range conns.Conns {
		if err := s.srv.DisconnectClientByID(c.Cid); err != nil {
			return fmt.Errorf("natstest: drop client %d: %w", c.Cid, err)
		}
	}
	return nil
}

// Server is the server itself, nil while it is stopped, for what this package does not wrap.
func (s *Server) Server() *server.Server { return s.srv }

// Connect dials the server with its own credentials.
func (s *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	switch {
	case s.opts.Token != "":
		options = append(options, nats.Token(s.opts.Token))
	case s.opts.User != "":
		options = append(options, nats.UserInfo(s.opts.User, s.opts.Password))
	}
	return nats.Connect(s.URL(), options...)
}

// Shutdown stops the server for good and removes its folder if it made it.
func (s *Server) Shutdown() error {
	s.Stop()
	return s.removeDir()
}

func (s *Server) removeDir() error {
	if !s.ownDir {
		return nil
	}
	return os.RemoveAll(s.dir)
}
