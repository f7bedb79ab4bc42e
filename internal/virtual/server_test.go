package virtual

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/natskv"
)

// bound is the virtual time that any wait may take.
const bound = 10 * time.Minute

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// bubble runs a story in virtual time. The client pools timers for the whole process: those of one bubble end the process when
// the next one meets them, so they are forgotten, also after a failure.
func bubble(t *testing.T, tell func(t *testing.T)) {
	t.Helper()
	defer func() {
		runtime.GC()
		runtime.GC()
	}()
	synctest.Test(t, tell)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is a nats-server that is only reached through pipes, and can be restarted on its files.
type host struct {
	dir string

	mu  sync.Mutex
	srv *server.Server
}

func (h *host) start(t *testing.T) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		ServerName: "virtual", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: h.dir,
	})
	must(t, err)
	srv.Start()
	if !srv.ReadyForConnections(bound) {
		t.Fatal("the server does not come up")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.srv = srv
}

func (h *host) stop() {
	h.mu.Lock()
	srv := h.srv
	h.srv = nil
	h.mu.Unlock()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

var errNoServer = errors.New("no server there")

// line is one client's way to the server. While it is frail, each connection breaks after some bytes, in the middle of
// whatever they say.
type line struct {
	host  *host
	frail atomic.Bool
	cuts  atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
	down   bool
	last   *wire
}

// cut breaks the connection, and lets none be made until it is mended.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	if l.last != nil {
		_ = l.last.Close()
	}
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *line) Dial(string, string) (net.Conn, error) {
	l.host.mu.Lock()
	srv := l.host.srv
	l.host.mu.Unlock()
	if srv == nil {
		return nil, errNoServer
	}
	c, err := srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.Join(errNoServer, c.Close())
	}
	w := &wire{Conn: c, line: l}
	l.last = w
	w.left.Store(2_000 + l.random.Int64N(100_000)) // the handshake and some more
	return w, nil
}

// wire is a connection.
type wire struct {
	net.Conn
	line *line
	left atomic.Int64
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	return w.spend(n, err)
}

func (w *wire) Write(b []byte) (int, error) {
	if most := int(max(w.left.Load(), 0)); w.line.frail.Load() && len(b) > most {
		_, _ = w.Conn.Write(b[:most])
		return w.spend(len(b), nil)
	}
	n, err := w.Conn.Write(b)
	return w.spend(n, err)
}

func (w *wire) spend(n int, err error) (int, error) {
	if err != nil || !w.line.frail.Load() {
		return n, err
	}
	if left := w.left.Add(-int64(n)); left < 0 {
		if left+int64(n) >= 0 {
			w.line.cuts.Add(1)
		}
		_ = w.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, nil
}

// client is a connection over a line, and its bucket.
type client struct {
	line   *line
	conn   *natskv.Conn
	bucket *natskv.Bucket
}

func dial(t *testing.T, h *host, seed uint64, cfg natskv.BucketConfig) *client {
	t.Helper()
	c := &client{line: &line{host: h, random: rand.New(rand.NewPCG(seed, 1))}}
	var err error
	c.conn, err = natskv.Connect(bounded(t), natskv.ConnectOptions{URL: "nats://127.0.0.1:4222", Extra: []nats.Option{nats.SetCustomDialer(c.line)}})
	must(t, err)
	js, err := c.conn.JetStream()
	must(t, err)
	c.bucket, err = natskv.Open(bounded(t), js, "test", cfg)
	must(t, err)
	return c
}

func (c *client) close(t *testing.T) {
	t.Helper()
	c.line.frail.Store(false)
	must(t, c.conn.Shutdown(bounded(t)))
}
