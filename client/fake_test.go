package client_test

import (
	"context"
	"errors"
	"fmt"
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
