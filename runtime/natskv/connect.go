package natskv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNotConnected: Connect has not been called, or Shutdown has.
var ErrNotConnected = errors.New("not connected")

// ConnectOptions say how to reach a server and as whom. Creds go before CredsFile, and both before what the URL holds.
// Printed or encoded, they show no secret; only in an unexported field of another struct fmt can't be told.
type ConnectOptions struct {
	// URL is one or more server URLs, with commas between; it may hold user:password@ or token@, the same in all.
	URL string
	// Creds is the content of a .creds file in base64.
	Creds string
	// CredsFile is the path of a .creds file, which is read again at each reconnect.
	CredsFile string
	// Name is what the server's lists show this client as; default "fold".
	Name string
	// Domain is the JetStream domain; "" is the server's own.
	Domain string
	// Background has Connect return without a server, too, and go on trying for good: for a node that must start while
	// the server is away.
	Background bool
	// Timeout bounds one attempt to connect; default 30 s.
	Timeout time.Duration
	// Hooks hear of what happens to the connection.
	Hooks ConnectHooks
	// Extra are options of nats.go for what the fields above don't name, such as TLS roots.
	Extra []nats.Option
}

// ConnectHooks are called from the connection's own goroutine; each may be nil and must not block.
type ConnectHooks struct {
	Disconnected func(err error) // err is nil when it was asked for
	Reconnected  func()
	Error        func(err error)
}

// Conn is a connection that can be shut down and made again. It is safe for concurrent use.
type Conn struct {
	about  string                // the options without secrets
	secret func() ConnectOptions // a function, so that no way of printing a Conn reaches them
	domain string
	lent   *nats.Conn    // a connection that belongs to somebody else
	dial   chan struct{} // holds one token: whoever has it dials or shuts down
	active atomic.Pointer[session]
}

type session struct {
	nc *nats.Conn
	js jetstream.JetStream
}

// NewConn is a connection that is not up yet.
func NewConn(o ConnectOptions) *Conn {
	c := &Conn{about: o.String(), secret: func() ConnectOptions { return o }, domain: o.Domain, dial: make(chan struct{}, 1)}
	c.dial <- struct{}{}
	return c
}

// Connect makes a connection.
func Connect(ctx context.Context, o ConnectOptions) (*Conn, error) {
	c := NewConn(o)
	if err := c.Connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// FromConn uses a connection that stays its owner's: Shutdown lets go of it and does not close it.
func FromConn(nc *nats.Conn) (*Conn, error) {
	c := NewConn(ConnectOptions{})
	c.lent = nc
	return c, c.attach(nc)
}

// Connect brings the connection up. It does nothing on one that is up, so concurrent calls make one connection, and it
// works after Shutdown.
func (c *Conn) Connect(ctx context.Context) error {
	select {
	case <-c.dial:
	case <-ctx.Done():
		return fmt.Errorf("connect: %w", ctx.Err())
	}
	defer func() { c.dial <- struct{}{} }()
	if s := c.active.Load(); s != nil && !s.nc.IsClosed() {
		return nil
	}
	if c.lent != nil {
		return c.attach(c.lent)
	}
	nc, err := c.secret().connect(ctx)
	if err != nil {
		return fmt.Errorf("connect %s: %w", c.about, err)
	}
	if err := c.attach(nc); err != nil {
		nc.Close()
		return err
	}
	return nil
}

func (c *Conn) attach(nc *nats.Conn) error {
	if nc == nil || nc.IsClosed() {
		return fmt.Errorf("connect: the connection is closed: %w", ErrNotConnected)
	}
	var js jetstream.JetStream
	var err error
	if c.domain != "" {
		js, err = jetstream.NewWithDomain(nc, c.domain)
	} else {
		js, err = jetstream.New(nc)
	}
	if err != nil {
		return fmt.Errorf("connect: jetstream: %w", err)
	}
	c.active.Store(&session{nc: nc, js: js})
	return nil
}

// connect dials once, within ctx. A dial that ends after ctx is closed.
func (o ConnectOptions) connect(ctx context.Context) (*nats.Conn, error) {
	servers, options, err := o.natsOptions()
	if err != nil {
		return nil, err
	}
	timeout := o.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	if d, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(d))
	}
	if timeout <= 0 {
		return nil, context.DeadlineExceeded
	}
	options = append(options, nats.Timeout(timeout))
	type dialed struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan dialed)
	go func() {
		nc, err := nats.Connect(servers, options...)
		select {
		case done <- dialed{nc, err}:
		case <-ctx.Done():
			if err == nil {
				nc.Close()
			}
		}
	}()
	select {
	case d := <-done:
		return d.nc, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// natsOptions are the servers without credentials, and everything else.
func (o ConnectOptions) natsOptions() (servers string, options []nats.Option, err error) {
	servers, fromURL, err := splitCredentials(o.URL)
	if err != nil {
		return "", nil, err
	}
	name := o.Name
	if name == "" {
		name = "fold"
	}
	options = []nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.PingInterval(10 * time.Second), // a half-dead TCP connection is found within three
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { call(o.Hooks.Disconnected, err) }),
		nats.ReconnectHandler(func(*nats.Conn) {
			if o.Hooks.Reconnected != nil {
				o.Hooks.Reconnected()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { call(o.Hooks.Error, err) }),
	}
	if o.Background {
		options = append(options, nats.RetryOnFailedConnect(true))
	}
	options = append(options, o.Extra...)
	switch {
	case o.Creds != "":
		creds, err := decodeCreds(o.Creds)
		if err != nil {
			return "", nil, err
		}
		options = append(options, nats.UserCredentialBytes(creds))
	case o.CredsFile != "":
		options = append(options, nats.UserCredentials(o.CredsFile))
	case fromURL != nil:
		options = append(options, fromURL)
	}
	return servers, options, nil
}

func call(hook func(error), err error) {
	if hook != nil {
		hook(err)
	}
}

// reconnectDelay grows from 50 ms to 5 s, with jitter, so that a fleet does not come back in one moment.
func reconnectDelay(attempts int) time.Duration {
	d := min(50*time.Millisecond<<min(attempts, 7), 5*time.Second)
	return d/2 + rand.N(d/2)
}

// JetStream is the connection's JetStream; ErrNotConnected when it is down for good.
func (c *Conn) JetStream() (jetstream.JetStream, error) {
	s := c.active.Load()
	if s == nil {
		return nil, ErrNotConnected
	}
	return s.js, nil
}

// Healthy reports whether the connection is up at this moment; it asks nobody.
func (c *Conn) Healthy() bool {
	s := c.active.Load()
	return s != nil && s.nc.IsConnected()
}

// Ping asks the server and waits for its answer.
func (c *Conn) Ping(ctx context.Context) error {
	s := c.active.Load()
	if s == nil {
		return fmt.Errorf("ping: %w", ErrNotConnected)
	}
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// Shutdown sends what is buffered, within ctx, and closes the connection; watches on it end. Connect works again after
// it. A second Shutdown does nothing.
func (c *Conn) Shutdown(ctx context.Context) error {
	select {
	case <-c.dial:
	case <-ctx.Done():
		return fmt.Errorf("shutdown: %w", ctx.Err())
	}
	defer func() { c.dial <- struct{}{} }()
	s := c.active.Swap(nil)
	if s == nil || c.lent != nil {
		return nil
	}
	defer s.nc.Close()
	if !s.nc.IsConnected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("shutdown: flush: %w", err)
	}
	return nil
}

// Capabilities are what a server can do, to branch on.
type Capabilities struct {
	ServerVersion string
	// StreamingWatch, PrefixWatch, Purge and CompareAndSet hold on every server with JetStream.
	StreamingWatch, PrefixWatch, Purge, CompareAndSet bool
	// MessageTTL: a put can name a TTL, in a bucket that allows it.
	MessageTTL bool
	// AtomicPublish: several messages can be stored as one, in a bucket that allows it.
	AtomicPublish bool
	// MaxMessageSize is the largest message, in bytes.
	MaxMessageSize int64
}

// Capabilities asks the server what it can do.
func (c *Conn) Capabilities(ctx context.Context) (Capabilities, error) {
	s := c.active.Load()
	if s == nil {
		return Capabilities{}, fmt.Errorf("capabilities: %w", ErrNotConnected)
	}
	level := serverLevel(ctx, s.js, 30*time.Second)
	if err := ctx.Err(); err != nil {
		return Capabilities{}, fmt.Errorf("capabilities: %w", err)
	}
	return Capabilities{
		ServerVersion:  s.nc.ConnectedServerVersion(),
		StreamingWatch: true,
		PrefixWatch:    true,
		Purge:          true,
		CompareAndSet:  true,
		MessageTTL:     level >= levelMessageTTL,
		AtomicPublish:  level >= levelAtomicPublish,
		MaxMessageSize: s.nc.MaxPayload(),
	}, nil
}
