package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// single is the NATS server of all tests that need but one.
var single *natstest.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if single, err = natstest.Start(natstest.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := single.Shutdown(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// addresses makes stream names that no other test has.
var addresses atomic.Int64

// world is two nodes on one log, and a stream.
type world struct {
	addr   string
	config client.StreamConfig
	nodes  [2]*novaNode
	a, b   *client.Client // of the one node, and of the other
}

// bound is how long a requirement may take, on a machine that does much else.
const bound = 2 * time.Minute

// requirement is a statement that holds on every kind of log.
type requirement func(ctx context.Context, t *testing.T, w *world)

// check runs a requirement on one NATS server, in memory and on disk.
func check(t *testing.T, r requirement) {
	t.Helper()
	for _, memory := range []bool{true, false} {
		t.Run(map[bool]string{true: "memory", false: "file"}[memory], func(t *testing.T) {
			run(t, single.URL(), client.StreamConfig{Memory: memory}, r)
		})
	}
}

func run(t *testing.T, urls string, config client.StreamConfig, r requirement) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	w := newWorld(ctx, t, urls, config)
	r(ctx, t, w)
}

func newWorld(ctx context.Context, t *testing.T, urls string, config client.StreamConfig) *world {
	t.Helper()
	w := &world{addr: fmt.Sprintf("nova://test/s%d", addresses.Add(1)), config: config}
	for i := range w.nodes {
		w.nodes[i] = startNode(ctx, t, urls)
	}
	w.a, w.b = w.nodes[0].client(t), w.nodes[1].client(t)
	err := w.a.CreateStream(ctx, w.addr, config)
	for tried := 1; errors.Is(err, client.ErrUnavailable) && tried < 50; tried++ { // a busy cluster finds no peers for a moment
		t.Logf("create: %v", err)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		if err = w.a.CreateStream(ctx, w.addr, config); errors.Is(err, client.ErrExists) {
			err = nil // the attempt before had got through
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// many is how often a requirement is tried: replicas cost more a try.
func (w *world) many(n int) int {
	if w.config.Replicas > 1 {
		return n / 4
	}
	return n
}

// novaNode is one server, whose connection to NATS can be cut.
type novaNode struct {
	at, urls string
	wires    map[string]novav1connect.DataPlaneServiceClient // by the name of their protocol
	*dialer
	shutdown func()
}

func startNode(ctx context.Context, t *testing.T, urls string) *novaNode {
	t.Helper()
	n := &novaNode{urls: urls, dialer: &dialer{}}
	srv, err := server.Open(ctx, server.Config{URL: urls, Connect: []nats.Option{
		nats.SetCustomDialer(n.dialer), nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0), nats.DontRandomize(),
	}}, server.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.at = l.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	n.shutdown = sync.OnceFunc(func() {
		n.heal()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(n.shutdown)
	return n
}

func (n *novaNode) client(t *testing.T) *client.Client {
	t.Helper()
	return newClient(t, n.at)
}

func newClient(t *testing.T, at string) *client.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New("http://"+at, client.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dialer makes connections that can be cut, and refuses new ones while it is isolated.
type dialer struct {
	mu       sync.Mutex
	conns    []net.Conn
	isolated bool
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isolated {
		return nil, errors.New("isolated by the test")
	}
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err == nil {
		d.conns = append(d.conns, c)
	}
	return c, err
}

// isolate cuts the node off from the log.
func (d *dialer) isolate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isolated = true
	for _, c := range d.conns {
		_ = c.Close() // it may be closed already
	}
	d.conns = nil
}

func (d *dialer) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isolated = false
}

// bodies are all records of the stream; their numbers are dense from 0.
func (w *world) bodies(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var all []string
	for rec, err := range w.b.Read(ctx, w.addr, client.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.SeqNum != uint64(len(all)) {
			t.Fatalf("record %d comes where %d was due", rec.SeqNum, len(all))
		}
		all = append(all, string(rec.Body))
	}
	return all
}

func (w *world) holds(ctx context.Context, t *testing.T, want ...string) {
	t.Helper()
	if got := w.bodies(ctx, t); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("the stream holds %q, not %q", got, want)
	}
}

func (w *world) open(ctx context.Context, t *testing.T, c *client.Client, opts ...client.StreamOption) *client.Producer {
	t.Helper()
	p, err := c.OpenStream(ctx, w.addr, append([]client.StreamOption{client.WithMaxPause(2 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (w *world) fence(ctx context.Context, t *testing.T, token string) client.Tail {
	t.Helper()
	tail, err := w.b.Fence(ctx, w.addr, token)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

// post appends over HTTP and JSON, and is the status and the body.
func (n *novaNode) post(ctx context.Context, t *testing.T, addr, body string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.at+"/v1/"+strings.TrimPrefix(addr, "nova://")+"/records", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func rec(bodies ...string) []client.Record {
	all := make([]client.Record, len(bodies))
	for i, b := range bodies {
		all[i].Body = []byte(b)
	}
	return all
}

// at fails unless an append succeeded, and its first record got a number.
func at(t *testing.T, start uint64) func(*client.AppendResult, error) {
	t.Helper()
	return func(r *client.AppendResult, err error) {
		t.Helper()
		if err != nil || r.Start.SeqNum != start {
			t.Fatalf("an append at %d: %+v, %v", start, r, err)
		}
	}
}

// missed fails unless an append missed; the result is what it says.
func missed(t *testing.T, err error) *client.SequenceError {
	t.Helper()
	var seq *client.SequenceError
	if !errors.As(err, &seq) || errors.Is(err, client.ErrFencedOut) {
		t.Fatalf("a miss: %v", err)
	}
	return seq
}

// fencedOut fails unless an append was refused for its token.
func fencedOut(t *testing.T, installed string, err error) *client.FenceError {
	t.Helper()
	var fenced *client.FenceError
	if !errors.As(err, &fenced) || !errors.Is(err, client.ErrFencedOut) || fenced.Installed != installed {
		t.Fatalf("fenced out by %q: %v", installed, err)
	}
	return fenced
}
