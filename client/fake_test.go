package client_test

import (
	"context"
	"errors"
	"fmt"
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

func TestLinger(t *testing.T) {
	type seen struct {
		after   time.Duration
		records int
	}
	var got []seen
	var began time.Time
	f := &fake{session: func(_ int, s *session) error {
		if err := s.open(); err != nil {
			return err
		}
		for {
			b, err := s.receive()
			if err != nil {
				return nil
			}
			got = append(got, seen{time.Since(began), len(b.GetRecords())})
			if err := s.append(b); err != nil {
				return err
			}
		}
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		began = time.Now()
		p.Submit(ctx, rec("0")...)
		time.Sleep(30 * time.Millisecond)
		t1 := p.Submit(ctx, rec("1", "2")...)
		at(t, 1)(t1.Wait(ctx)) // at 50 ms, the first one's time
		time.Sleep(10 * time.Millisecond)
		p.Submit(ctx, rec("3")...)
		time.Sleep(5 * time.Millisecond)
		at(t, 4)(p.AppendMatch(ctx, 4, rec("4")...)) // at 65 ms: nobody waits before a conditional one
		at(t, 5)(p.Append(ctx, rec("5")...))         // at 115 ms
		if want := []seen{{50 * time.Millisecond, 3}, {65 * time.Millisecond, 1}, {65 * time.Millisecond, 1}, {115 * time.Millisecond, 1}}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v, not %v", got, want)
		}
	}, client.WithLinger(50*time.Millisecond))
}

func TestMergeLimits(t *testing.T) {
	var sizes []int
	f := &fake{session: func(_ int, s *session) error {
		if err := s.open(); err != nil {
			return err
		}
		for {
			b, err := s.receive()
			if err != nil {
				return nil
			}
			sizes = append(sizes, len(b.GetRecords()))
			if err := s.append(b); err != nil {
				return err
			}
		}
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		var last *client.Ticket
		for range 1500 {
			last = p.Submit(ctx, rec("x")...)
		}
		large := make([]byte, 400<<10)
		for range 3 {
			last = p.Submit(ctx, client.Bodies(large)...)
		}
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		at(t, 1502)(last.Wait(ctx))
		if want := []int{1000, 502, 1}; fmt.Sprint(sizes) != fmt.Sprint(want) {
			t.Fatalf("batches of %v, not %v", sizes, want)
		}
	}, client.WithLinger(time.Hour))
}

func TestRoomIsWaitedForWithinContext(t *testing.T) {
	f := &fake{session: func(_ int, s *session) error {
		if err := s.open(); err != nil {
			return err
		}
		for {
			if _, err := s.receive(); err != nil { // and never an answer
				return nil
			}
		}
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		first := p.Submit(ctx, client.Bodies(make([]byte, 900))...)
		began := time.Now()
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err := p.Append(short, client.Bodies(make([]byte, 900))...)
		if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		blocked := make(chan error)
		go func() {
			_, err := p.Append(ctx, client.Bodies(make([]byte, 900))...)
			blocked <- err
		}()
		synctest.Wait()
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := p.Close(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := <-blocked; !errors.Is(err, client.ErrUnavailable) {
			t.Fatalf("what never got room: %v", err)
		}
		if _, err := first.Wait(ctx); !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Fatalf("what was sent, and had no answer: %v", err)
		}
	}, client.WithMaxInFlight(1000))
}

func TestSubmitAndCloseAtOnce(t *testing.T) {
	for range 20 {
		f := &fake{session: func(_ int, s *session) error { return s.serve() }}
		still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
			var mu sync.Mutex
			acked := 0
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 50 {
						switch _, err := p.Append(ctx, rec("x")...); {
						case err == nil:
							mu.Lock()
							acked++
							mu.Unlock()
						case !errors.Is(err, client.ErrUnavailable):
							t.Errorf("%v", err)
							return
						}
					}
				})
			}
			for range 3 {
				wg.Go(func() {
					if err := p.Close(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if acked != len(f.log) {
				t.Fatalf("%d acknowledged, %d in the log", acked, len(f.log))
			}
		})
	}
}

func TestReconnectsSlowDown(t *testing.T) {
	f := &fake{session: func(_ int, s *session) error {
		if err := s.open(); err != nil {
			return err
		}
		_, _ = s.receive()
		return unavailable()
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		minute, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := p.Append(minute, rec("x")...); !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		f.mu.Lock()
		n := f.sessions
		f.mu.Unlock()
		if n < 5 || n > 60 {
			t.Fatalf("%d sessions in a minute", n)
		}
		if err := p.Close(minute); err == nil {
			t.Fatal("it closed with a batch that has no result")
		}
	})
}

func TestGarbageEndsTheProducer(t *testing.T) {
	miss := &novav1.AppendSessionResponse{Message: &novav1.AppendSessionResponse_Miss{Miss: &novav1.SequenceMismatch{}}}
	for name, wrong := range map[string][]*novav1.AppendSessionResponse{
		"too many answers":         {ack(7, 8), ack(8, 9)},
		"too few records":          {ack(7, 7)},
		"backwards":                {ack(8, 7)},
		"another number":           {ack(7, 8), ack(9, 10)},
		"a miss without condition": {miss},
		"an empty answer":          {{}},
		"opened again":             {{Message: &novav1.AppendSessionResponse_Opened_{Opened: &novav1.AppendSessionResponse_Opened{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{session: func(_ int, s *session) error {
				if err := s.open(); err != nil {
					return err
				}
				if _, err := s.receive(); err != nil {
					return nil
				}
				if name == "another number" {
					if _, err := s.receive(); err != nil {
						return nil
					}
				}
				for _, m := range wrong {
					if err := s.send(m); err != nil {
						return nil
					}
				}
				_, _ = s.receive()
				return nil
			}}
			still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
				plain := p.Submit(ctx, rec("x")...)
				synctest.Wait()
				match := p.SubmitMatch(ctx, 8, rec("y")...)
				_, plainErr := plain.Wait(ctx)
				_, err := match.Wait(ctx)
				if plainErr != nil && !errors.Is(plainErr, client.ErrOutcomeUnknown) || err == nil || errors.Is(err, client.ErrFencedOut) || errors.As(err, new(*client.SequenceError)) {
					t.Fatalf("%v; %v", plainErr, err)
				}
				if _, err := p.Append(ctx, rec("z")...); err == nil {
					t.Fatal("it goes on")
				}
				if f.sessions != 1 {
					t.Fatalf("%d sessions", f.sessions)
				}
			})
		})
	}
}

func TestFenceWhileAway(t *testing.T) {
	f := &fake{session: func(n int, s *session) error {
		if n > 1 {
			_, _ = s.receive() // what opens it
			return fencedBy("theirs")
		}
		if err := s.open(); err != nil {
			return err
		}
		if _, err := s.receive(); err != nil {
			return err
		}
		return unavailable()
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		sent := p.Submit(ctx, rec("sent")...)
		synctest.Wait() // it was sent, the connection is lost, and the producer pauses
		staged := p.Submit(ctx, rec("staged")...)
		_, err := sent.Wait(ctx)
		if !fencedOut(t, "theirs", err).Resent {
			t.Fatalf("an attempt may have been appended: %v", err)
		}
		_, err = staged.Wait(ctx)
		if fencedOut(t, "theirs", err).Resent {
			t.Fatalf("it was never sent: %v", err)
		}
	})
}

func TestFenceInASessionIsDefinite(t *testing.T) {
	f := &fake{session: func(_ int, s *session) error {
		if err := s.open(); err != nil {
			return err
		}
		for range 2 {
			if _, err := s.receive(); err != nil {
				return err
			}
		}
		return fencedBy("theirs")
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		tickets := []*client.Ticket{p.SubmitMatch(ctx, 0, rec("a")...), p.SubmitMatch(ctx, 1, rec("b")...)}
		for _, ticket := range tickets {
			_, err := ticket.Wait(ctx)
			if fencedOut(t, "theirs", err).Resent {
				t.Fatal(err)
			}
		}
	})
}

func TestAnInvalidBatchFailsAlone(t *testing.T) {
	f := &fake{session: func(n int, s *session) error {
		if n > 1 {
			return s.serve()
		}
		if err := s.open(); err != nil {
			return err
		}
		for range 3 {
			if _, err := s.receive(); err != nil {
				return err
			}
		}
		return connect.NewError(connect.CodeInvalidArgument, errors.New("too large for the log"))
	}}
	still(t, f, func(ctx context.Context, t *testing.T, p *client.Producer) {
		bad := p.SubmitMatch(ctx, 0, rec("bad")...)
		b, c := p.SubmitMatch(ctx, 0, rec("b")...), p.SubmitMatch(ctx, 1, rec("c")...)
		if _, err := bad.Wait(ctx); !errors.As(err, new(*client.InvalidError)) {
			t.Fatal(err)
		}
		at(t, 0)(b.Wait(ctx))
		at(t, 1)(c.Wait(ctx))
		if fmt.Sprint(f.log) != "[b c]" {
			t.Fatal(f.log)
		}
	})
}

func TestOpenEndsWithItsContext(t *testing.T) {
	for _, name := range []string{"no answer"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{session: func(_ int, s *session) error {
					_, _ = s.receive()
					_, _ = s.receive()
					return nil
				}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				_, err := f.client(t).OpenStream(ctx, "nova://a/b")
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnavailable) || time.Since(began) > time.Second {
					t.Fatalf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestAFenceThatCrossesAnAppend: a session ends while a batch is on its way to it. Its reason is not lost over that the batch
// can't be sent, so it is not opened again.
func TestAFenceThatCrossesAnAppend(t *testing.T) {
	for range 200 {
		ends := make(chan struct{})
		f := &fake{session: func(n int, s *session) error {
			if n > 1 {
				return s.serve()
			}
			if err := s.open(); err != nil {
				return err
			}
			<-ends
			return fencedBy("theirs")
		}}
		mux := http.NewServeMux()
		mux.Handle(novav1connect.NewDataPlaneServiceHandler(f))
		c, err := client.New("http://fake", client.WithHTTPClient(inProcess{mux}))
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.OpenStream(t.Context(), "nova://a/b")
		if err != nil {
			t.Fatal(err)
		}
		go close(ends)
		_, err = p.Append(t.Context(), rec("x")...)
		if fencedOut(t, "theirs", err).Resent {
			t.Fatal(err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
