package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

const addr = "nova://demo/events"

// running is a server under test.
type running struct {
	t   *testing.T
	at  string
	srv *server.Server
	// shutdown ends it within a bound; only the first call does.
	shutdown func()
}

func serve(t *testing.T, s *natstest.Server, o server.Options) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	srv, err := server.Open(ctx, server.Config{URL: s.URL()}, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	r := &running{t: t, at: "http://" + l.Addr().String(), srv: srv}
	r.shutdown = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(r.shutdown)
	return r
}

// h2 is an HTTP client that speaks HTTP/2 only.
func h2(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (r *running) rpc(o ...connect.ClientOption) novav1connect.DataPlaneServiceClient {
	return novav1connect.NewDataPlaneServiceClient(h2(r.t), r.at, o...)
}

// create makes the stream of the tests.
func (r *running) create(ctx context.Context) {
	r.t.Helper()
	_, err := r.rpc().CreateStream(ctx, connect.NewRequest(&novav1.CreateStreamRequest{Addr: addr, Memory: true}))
	if err != nil {
		r.t.Fatal(err)
	}
}

func timed(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// do sends a request and gives back the status, and the body without the line break at its end.
func (r *running) do(ctx context.Context, method, path, body string, header ...string) (int, string) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(ctx, method, r.at+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	a, err := transport.RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.StatusCode, string(bytes.TrimSpace(b))
}

// want fails unless the answer has the status, and contains the text.
func (r *running) want(ctx context.Context, status int, text, method, path, body string, header ...string) {
	r.t.Helper()
	got, answer := r.do(ctx, method, path, body, header...)
	if got != status || !strings.Contains(answer, text) {
		r.t.Fatalf("%s %s %s: %d %s, not %d %s", method, path, body, got, answer, status, text)
	}
}

func batch(bodies ...string) *novav1.Batch {
	b := &novav1.Batch{}
	for _, body := range bodies {
		b.Records = append(b.Records, &novav1.Record{Body: []byte(body)})
	}
	return b
}
