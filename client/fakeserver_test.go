package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/typedfold/fold/client"
	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
)

// inProcess carries requests to a handler without a network, so that a test's clock can stand still.
type inProcess struct{ h http.Handler }

func (c inProcess) Do(q *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	ctx, cancel := context.WithCancel(q.Context())
	out := &answer{header: http.Header{}, w: w, begun: make(chan struct{})}
	there := q.Clone(ctx)
	there.Proto, there.ProtoMajor, there.ProtoMinor = "HTTP/2.0", 2, 0
	context.AfterFunc(ctx, func() {
		_ = w.CloseWithError(context.Canceled) // it may be closed already
		_ = q.Body.Close()
	})
	go func() {
		defer cancel()
		c.h.ServeHTTP(out, there)
		out.WriteHeader(http.StatusOK)
		_ = w.Close()
	}()
	select {
	case <-out.begun:
		return &http.Response{
			StatusCode: out.status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: out.sent, Body: body, Request: q, ContentLength: -1,
		}, nil
	case <-q.Context().Done():
		return nil, q.Context().Err()
	}
}

// answer is what a handler writes.
type answer struct {
	header, sent http.Header
	w            *io.PipeWriter
	status       int
	begun        chan struct{}
	once         sync.Once
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) Flush()              { a.WriteHeader(http.StatusOK) }
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.w.Write(b)
}

func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	})
}

type bidi = connect.BidiStream[novav1.AppendSessionRequest, novav1.AppendSessionResponse]

// fake is a server whose nth session, from 1 on, is a function.
type fake struct {
	novav1connect.UnimplementedDataPlaneServiceHandler
	session func(n int, s *session) error

	mu       sync.Mutex
	sessions int
	log      []string
}

func (f *fake) AppendSession(_ context.Context, s *bidi) error {
	f.mu.Lock()
	f.sessions++
	n := f.sessions
	f.mu.Unlock()
	return f.session(n, &session{f: f, s: s})
}

func (f *fake) client(t *testing.T) *client.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(novav1connect.NewDataPlaneServiceHandler(f))
	c, err := client.New("http://fake", client.WithHTTPClient(inProcess{mux}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// session is one session of a fake.
type session struct {
	f *fake
	s *bidi
}

func (s *session) open() error {
	if _, err := s.s.Receive(); err != nil {
		return err
	}
	return s.send(&novav1.AppendSessionResponse{Message: &novav1.AppendSessionResponse_Opened_{Opened: &novav1.AppendSessionResponse_Opened{}}})
}

func (s *session) send(m *novav1.AppendSessionResponse) error { return s.s.Send(m) }

func (s *session) receive() (*novav1.Batch, error) {
	m, err := s.s.Receive()
	return m.GetBatch(), err
}

func ack(start, end uint64) *novav1.AppendSessionResponse {
	return &novav1.AppendSessionResponse{Message: &novav1.AppendSessionResponse_Ack_{Ack: &novav1.AppendSessionResponse_Ack{
		Start: &novav1.Position{SeqNum: start}, End: &novav1.Position{SeqNum: end}, Tail: &novav1.Position{SeqNum: end},
	}}}
}

// append appends a batch to the fake's log, and acknowledges it.
func (s *session) append(b *novav1.Batch) error {
	s.f.mu.Lock()
	start := uint64(len(s.f.log))
	for _, r := range b.GetRecords() {
		s.f.log = append(s.f.log, string(r.GetBody()))
	}
	end := uint64(len(s.f.log))
	s.f.mu.Unlock()
	return s.send(ack(start, end))
}

// serve appends all that comes.
func (s *session) serve() error {
	if err := s.open(); err != nil {
		return err
	}
	for {
		b, err := s.receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.append(b)
		}
		if err != nil {
			return err
		}
	}
}

func fencedBy(token string) error {
	e := connect.NewError(connect.CodeFailedPrecondition, errors.New("fenced"))
	d, err := connect.NewErrorDetail(&novav1.FencingTokenMismatch{Installed: token})
	if err != nil {
		return err
	}
	e.AddDetail(d)
	return e
}

func unavailable() error { return connect.NewError(connect.CodeUnavailable, errors.New("away")) }

// still runs a test whose clock moves only when everybody waits. A goroutine that outlives it fails it.
func still(t *testing.T, f *fake, g func(ctx context.Context, t *testing.T, p *client.Producer), opts ...client.StreamOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		p, err := f.client(t).OpenStream(ctx, "nova://a/b", opts...)
		if err != nil {
			t.Fatal(err)
		}
		g(ctx, t, p)
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
