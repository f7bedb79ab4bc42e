package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// Options shape a Server. Zero values are the defaults.
type Options struct {
	// Auth is the bearer tokens that it knows; nil lets anybody do anything, and then it listens on the loopback only.
	Auth *Auth
	// TLS is its certificate; nil is HTTP without TLS.
	TLS *tls.Config
	// MaxBody bounds a request's body in bytes; default 8 MiB. MaxHeader bounds its header; default 64 KiB.
	MaxBody, MaxHeader int
	// SessionBytes bounds what one session, and Bytes what all requests together, have in flight; default 8 and 256 MiB.
	SessionBytes, Bytes int64
	// Sessions bounds the append sessions that are open; default 10,000.
	Sessions int64
	// Reads bounds the reads that are open; default 10,000.
	Reads int64
	// UnaryTimeout bounds a call that is no session and no read, and how long the log may give nothing to a read that does not
	// follow; default 30 s.
	UnaryTimeout time.Duration
	// Logger gets a line for each call; default slog.Default().
	Logger *slog.Logger
	// Events tell what the server does.
	Events Events
	// Now is the clock of the records of streams that it leads, and of their retention; default time.Now.
	Now func() time.Time
}

// Validate reports the first option that makes no sense.
func (o Options) Validate() error {
	switch {
	case o.MaxBody < 0 || o.MaxHeader < 0 || o.SessionBytes < 0 || o.Bytes < 0 || o.Sessions < 0 || o.Reads < 0:
		return errors.New("server: a negative limit")
	case o.UnaryTimeout < 0:
		return errors.New("server: a negative timeout")
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.MaxBody = cmp.Or(o.MaxBody, 8<<20)
	o.MaxHeader = cmp.Or(o.MaxHeader, 64<<10)
	o.SessionBytes = cmp.Or(o.SessionBytes, 8<<20)
	o.Bytes = cmp.Or(o.Bytes, 256<<20)
	o.Sessions = cmp.Or(o.Sessions, 10_000)
	o.Reads = cmp.Or(o.Reads, 10_000)
	o.UnaryTimeout = cmp.Or(o.UnaryTimeout, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Config says how a server reaches NATS.
type Config struct {
	// URL is the NATS servers, as nats.Connect takes them.
	URL string
	// Connect are further options of the connection: credentials, TLS, a name. A server that does not answer twice within
	// 10 s each is taken for gone, unless nats.PingInterval or nats.MaxPingsOutstanding say otherwise.
	Connect []nats.Option
}

// options are those of the connection. A link that is dead without a word is noticed by pings alone; the defaults of NATS take
// minutes. What is sent while there is no connection is not kept: a write is sent now or never.
func (c Config) options() []nats.Option {
	opts := []nats.Option{nats.Name("nova"), nats.MaxReconnects(-1), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2)}
	return append(append(opts, c.Connect...), nats.ReconnectBufSize(-1))
}

// Server is one node of the stream plane. It is safe for concurrent use.
type Server struct {
	node     *node.Node
	o        Options
	own      *nats.Conn // closed with the server; nil when it is not its own
	bytes    *room
	sessions *room
	reads    *room

	mu       sync.Mutex
	http     []*http.Server
	closing  chan struct{} // closed when the server ends
	once     sync.Once
	closeErr error
}

// openTimeout bounds how long Open waits for JetStream, which is asked again when it has not answered within askAgain: while
// the cluster chooses a leader nobody answers, and a question from that time stays without an answer.
const (
	openTimeout = 30 * time.Second
	askAgain    = 2 * time.Second
)

// Open connects to NATS, and makes a server that owns the connection.
func Open(ctx context.Context, c Config, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	nc, err := nats.Connect(c.URL, c.options()...)
	if err != nil {
		return nil, fmt.Errorf("server: connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc)
	if err == nil {
		err = answers(ctx, js)
	}
	var n *node.Node
	if err == nil {
		n, err = node.New(nc, js, node.Options{Logger: o.Logger, Now: o.Now, Events: o.Events.nodeEvents()})
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("server: %w", err)
	}
	s := newServer(n, o)
	s.own = nc
	return s, nil
}

// answers waits until JetStream answers, with whatever.
func answers(ctx context.Context, js jetstream.JetStream) error {
	within, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		asking, done := context.WithTimeout(within, askAgain)
		_, err := js.AccountInfo(asking)
		done()
		if !errors.Is(err, context.DeadlineExceeded) || within.Err() != nil {
			return err
		}
	}
}

func newServer(n *node.Node, o Options) *Server {
	o = o.withDefaults()
	return &Server{
		node: n, o: o, bytes: newRoom(o.Bytes), sessions: newRoom(o.Sessions), reads: newRoom(o.Reads), closing: make(chan struct{}),
	}
}

// Handler serves everything: gRPC, Connect and JSON, health and reflection.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	options := []connect.HandlerOption{connect.WithInterceptors(guard{s}), connect.WithReadMaxBytes(s.o.MaxBody), connect.WithCompressMinBytes(compressFrom)}
	path, service := novav1connect.NewDataPlaneServiceHandler(rpc{s}, options...)
	mux.Handle(path, together(service))
	names := []string{novav1connect.DataPlaneServiceName}
	mux.Handle(grpchealth.NewHandler(health{s, grpchealth.NewStaticChecker(names...)}))
	reflector := grpcreflect.NewStaticReflector(names...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector))
	s.routes(mux)
	mux.Handle(anyPath, unknown(mux))
	return identified(sameOrigin(mux))
}

// health says that a server which ends does not serve, so that balancers leave it alone.
type health struct {
	s *Server
	*grpchealth.StaticChecker
}

func (h health) Check(ctx context.Context, q *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if h.s.ends() {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return h.StaticChecker.Check(ctx, q)
}

// ErrNeedsAuth is a server without Auth that was to listen beyond the loopback.
var ErrNeedsAuth = errors.New("server: without auth it listens on the loopback only")

// Serve answers on a listener until Shutdown, which makes it return http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	if addr, ok := l.Addr().(*net.TCPAddr); s.o.Auth == nil && ok && !addr.IP.IsLoopback() {
		return fmt.Errorf("%w: %s; give it a table of tokens, or listen on 127.0.0.1", ErrNeedsAuth, addr)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Server{
		Handler: s.Handler(), TLSConfig: s.o.TLS, Protocols: protocols, MaxHeaderBytes: s.o.MaxHeader,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	s.mu.Lock()
	select {
	case <-s.closing:
		s.mu.Unlock()
		return http.ErrServerClosed
	default:
	}
	s.http = append(s.http, h)
	s.mu.Unlock()
	if s.o.TLS != nil {
		return h.ServeTLS(l, "", "")
	}
	return h.Serve(l)
}

// Shutdown refuses new calls, has sessions and reads end, hands the streams that it leads to other nodes, and closes the
// connection that it owns. Within ctx, what was submitted is answered. A second call returns what the first did.
func (s *Server) Shutdown(ctx context.Context) error {
	s.once.Do(func() {
		close(s.closing)
		s.mu.Lock()
		servers := s.http
		s.mu.Unlock()
		var errs []error
		for _, h := range servers {
			if err := h.Shutdown(ctx); err != nil {
				errs = append(errs, err, h.Close())
			}
		}
		errs = append(errs, s.node.Close(ctx))
		if s.own != nil {
			s.own.Close()
		}
		s.closeErr = errors.Join(errs...)
	})
	return s.closeErr
}

// ends reports whether the server ends.
func (s *Server) ends() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// ending is a context that ends with the server too, for as long as one of its reads is open. It is for reads: a write that is
// cut short would have an outcome that nobody knows.
func (s *Server) ending(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if !s.reads.TryAcquire(1) {
		return nil, nil, fmt.Errorf("%w: %d reads are open", errBusy, s.o.Reads)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-s.closing:
			cancel(errEnding)
		case <-stop:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(stop)
		cancel(nil)
		s.reads.Release(1)
	}), nil
}

var errEnding = &sequencer.UnavailableError{Err: errors.New("this node ends; another one answers")}

// stream is the stream of an address, for a caller that may do this with it.
func (s *Server) stream(ctx context.Context, v Verb, addr string) (*node.Stream, error) {
	a, err := s.allowed(ctx, v, addr)
	if err != nil {
		return nil, err
	}
	return s.node.Stream(ctx, a)
}

func (s *Server) allowed(ctx context.Context, v Verb, addr string) (nova.Addr, error) {
	a, err := nova.ParseAddr(addr)
	if err != nil {
		return a, err
	}
	return a, s.may(ctx, v, a.Namespace)
}

func (s *Server) may(ctx context.Context, v Verb, namespace string) error {
	if s.o.Auth == nil || callerOf(ctx).may(v, namespace) {
		return nil
	}
	return errForbidden
}

// append is one attempt. It counts in the server's bytes while it lasts.
func (s *Server) append(ctx context.Context, st *node.Stream, a sequencer.Append) (sequencer.Result, error) {
	n := min(int64(nova.BatchBytes(a.Records)), s.o.Bytes)
	if !s.bytes.TryAcquire(n) {
		return sequencer.Result{}, errBusy
	}
	defer s.bytes.Release(n)
	return st.Append(ctx, a)
}

// list are the streams of a namespace that the caller may read.
func (s *Server) list(ctx context.Context, namespace string) ([]jslog.Description, error) {
	if namespace != "" {
		if err := nova.CheckName("namespace", namespace); err != nil {
			return nil, err
		}
		if err := s.may(ctx, VerbRead, namespace); err != nil {
			return nil, err
		}
	}
	all, err := s.node.List(ctx, namespace)
	if err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, d := range all {
		if s.may(ctx, VerbRead, d.Addr.Namespace) == nil {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// description is all that is told of a stream.
type description struct {
	jslog.Description
	first, tail   nova.Position
	token, leader string
}

func describe(ctx context.Context, st *node.Stream) (d description, err error) {
	now, err := st.Stands(ctx)
	if err != nil {
		return d, err
	}
	d.tail, d.token = now.Tail, now.Token
	if d.Description, err = st.Log().Describe(ctx); err != nil {
		return d, err
	}
	if d.first, _, err = reader.Bounds(ctx, st.Log()); err != nil {
		return d, err
	}
	d.leader, err = st.Leader(ctx)
	return d, err
}
