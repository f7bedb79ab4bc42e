package client_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/client"
)

// closedPort is an address of the loopback where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// writes are the calls that change something.
func writes(c *client.Client, addr string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"append":       func(ctx context.Context) error { _, err := c.Append(ctx, addr, rec("x")...); return err },
		"append match": func(ctx context.Context) error { _, err := c.AppendMatch(ctx, addr, 0, rec("x")...); return err },
		"fence":        func(ctx context.Context) error { _, err := c.Fence(ctx, addr, "t"); return err },
		"trim":         func(ctx context.Context) error { _, err := c.Trim(ctx, addr, 1); return err },
		"create":       func(ctx context.Context) error { return c.CreateStream(ctx, addr, client.StreamConfig{}) },
		"delete":       func(ctx context.Context) error { return c.DeleteStream(ctx, addr) },
		"open": func(ctx context.Context) error {
			_, err := c.OpenStream(ctx, addr)
			return err
		},
	}
}

// TestARequestThatNeverLeftIsDefinite: with a server that is not there, or no way to it in time, nothing was written.
func TestARequestThatNeverLeftIsDefinite(t *testing.T) {
	own := func(at string) *client.Client {
		c, err := client.New("http://" + at)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	refused := closedPort(t)
	for transport, c := range map[string]*client.Client{"own": own(refused), "given": newClient(t, refused)} {
		for what, f := range writes(c, "nova://a/b") {
			err := f(t.Context())
			if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s over the %s transport: %v", what, transport, err)
			}
		}
	}
	// A server that can't be trusted is sent nothing.
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.EnableHTTP2 = true
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	distrusts, err := client.New(untrusted.URL)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range writes(distrusts, "nova://a/b") {
		err := f(t.Context())
		if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) || !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Errorf("%s to a server of an unknown authority: %v", what, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, f := range writes(own(refused), "nova://a/b") {
		if err := f(ended); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("%s under a context that has ended: %v", what, err)
		}
	}
}

// TestARequestThatLeftIsNot: a server that takes requests and goes away without an answer may have done what they say.
func TestARequestThatLeftIsNot(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	var got atomic.Int64
	srv := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		got.Add(1)
		panic(http.ErrAbortHandler)
	})}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-ended
	})
	c, err := client.New("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range writes(c, "nova://a/b") {
		before := got.Load()
		err := f(t.Context())
		if what == "open" { // writes nothing by itself
			continue
		}
		if !errors.Is(err, client.ErrOutcomeUnknown) || errors.Is(err, client.ErrUnavailable) || got.Load() != before+1 {
			t.Errorf("%s, with %d requests: %v", what, got.Load()-before, err)
		}
	}
}

// TestAReadTellsThatItTriesAgain: each attempt that comes to nothing is told of, with the pause that follows it.
func TestAReadTellsThatItTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := client.New("http://fake", client.WithHTTPClient(nobody{}))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var pauses []time.Duration
		var last error
		for _, err := range c.Read(ctx, "nova://a/b", client.ReadOptions{Retrying: func(err error, pause time.Duration) {
			if !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("it tries again after %v", err)
			}
			pauses = append(pauses, pause)
		}}) {
			last = err
		}
		if !errors.Is(last, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), last)
		}
		if n := len(pauses); n < 10 || n > 40 || pauses[0] > 10*time.Millisecond || pauses[n-1] < 2*time.Second {
			t.Errorf("pauses of %v", pauses)
		}
	})
}

// nobody is a transport whose dials are all refused.
type nobody struct{}

func (nobody) Do(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

func TestOptionsMakeSense(t *testing.T) {
	if _, err := client.New("http://127.0.0.1:1", client.WithTimeout(-1)); !errors.As(err, new(*client.InvalidError)) {
		t.Errorf("a negative timeout: %v", err)
	}
	c, err := client.New("http://fake", client.WithHTTPClient(nobody{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]client.StreamOption{
		"linger": client.WithLinger(-1), "bytes": client.WithMaxInFlight(-1), "pause": client.WithMaxPause(-1),
	} {
		if _, err := c.OpenStream(t.Context(), "nova://a/b", o); !errors.As(err, new(*client.InvalidError)) {
			t.Errorf("a negative %s: %v", name, err)
		}
	}
}
