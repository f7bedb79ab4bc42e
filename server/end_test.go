package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestShutdownLosesNothingAcknowledged ends a node while sessions and single calls append through it.
func TestShutdownLosesNothingAcknowledged(t *testing.T) {
	ctx := timed(t)
	s := natstest.New(t)
	r, other := serve(t, s, server.Options{}), serve(t, s, server.Options{})
	r.create(ctx)
	var mu sync.Mutex
	acked := map[uint64]string{}
	note := func(start uint64, body string) {
		mu.Lock()
		defer mu.Unlock()
		acked[start] = body
	}
	var wg sync.WaitGroup
	busy := make(chan struct{}, 8)
	for i := range 4 {
		c := r.rpc()
		wg.Go(func() { // one call after another
			for n := 0; ; n++ {
				body := fmt.Sprintf("one %d %d", i, n)
				a, err := c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch(body)}))
				if err != nil {
					return
				}
				note(a.Msg.GetStart().GetSeqNum(), body)
				if n == 10 {
					busy <- struct{}{}
				}
			}
		})
		wg.Go(func() { // a session
			s := c.AppendSession(ctx)
			_ = s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr}}})
			if _, err := s.Receive(); err != nil {
				t.Error(err)
				return
			}
			window := make(chan struct{}, 64) // so that the single calls get on too
			go func() {
				for n := 0; ; n++ {
					select {
					case window <- struct{}{}:
					case <-ctx.Done():
						return
					}
					if s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Batch{Batch: batch(fmt.Sprintf("session %d %d", i, n))}}) != nil {
						return
					}
				}
			}()
			for n := 0; ; n++ {
				m, err := s.Receive()
				if err != nil {
					if connect.CodeOf(err) != connect.CodeUnavailable {
						t.Errorf("a session ends with %v", err)
					}
					_ = s.CloseRequest()
					return
				}
				<-window
				note(m.GetAck().GetStart().GetSeqNum(), fmt.Sprintf("session %d %d", i, n))
				if n == 100 {
					busy <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		select {
		case <-busy:
		case <-ctx.Done():
			t.Fatal("too slow")
		}
	}
	r.shutdown()
	wg.Wait()
	read, err := other.rpc().Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr}))
	if err != nil {
		t.Fatal(err)
	}
	for read.Receive() {
		for _, rec := range read.Msg().GetRecords() {
			if body, ok := acked[rec.GetSeqNum()]; ok && body == string(rec.GetBody()) {
				delete(acked, rec.GetSeqNum())
			}
		}
	}
	if err := read.Err(); err != nil || len(acked) > 0 {
		t.Fatalf("%d acknowledged records are not there: %v", len(acked), err)
	}
	if _, err := other.rpc().Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch("x")})); err != nil {
		t.Fatal(err)
	}
}

// TestShutdownEndsIdleSessionsAndReads has a session and a read in which nothing happens.
func TestShutdownEndsIdleSessionsAndReads(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.create(ctx)
	s := r.rpc().AppendSession(ctx)
	if err := s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	read, err := r.rpc().Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr, Follow: true}))
	if err != nil || !read.Receive() || len(read.Msg().GetRecords()) != 0 {
		t.Fatalf("an answer without records is due at the tail: %v", err)
	}
	go r.shutdown() // it reports what goes wrong when the test ends
	_, err = s.Receive()
	detailOf[*novav1.NothingWritten](t, err, connect.CodeUnavailable)
	_ = s.CloseRequest()
	if read.Receive() {
		t.Fatal("a record")
	}
	detailOf[*novav1.NothingWritten](t, read.Err(), connect.CodeUnavailable)
}

// TestSlowReaderIsBounded has readers that read nothing. What they hold is far less than the stream for each; the measure has
// the buffers of the NATS server in it, which runs in this process.
func TestSlowReaderIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // it collects garbage again and again, on a busy machine
	defer cancel()
	r := serve(t, natstest.New(t), server.Options{})
	_, err := r.rpc().CreateStream(ctx, connect.NewRequest(&novav1.CreateStreamRequest{Addr: addr})) // on disk
	if err != nil {
		t.Fatal(err)
	}
	const size = 64
	body := strings.Repeat("x", 900<<10)
	for range size {
		if _, err := r.rpc().Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch(body)})); err != nil {
			t.Fatal(err)
		}
	}
	before := heap()
	const readers = 4
	var conns []net.Conn
	for range readers {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.at, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.at+records, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", "text/event-stream")
		if err := q.Write(c); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil { // the answer has begun
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	// Other calls go on, and after each of them the slow ones hold no more than before.
	most := uint64(0)
	for range 20 {
		if _, err := r.rpc().Tail(ctx, connect.NewRequest(&novav1.TailRequest{Addr: addr})); err != nil {
			t.Fatal(err)
		}
		most = max(most, heap())
	}
	if more := int64(most) - int64(before); more > readers*36<<20 {
		t.Fatalf("%d readers that read nothing hold %d MiB", len(conns), more>>20)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestASlowBodyIsNotWaitedForForever has a request whose body never comes.
func TestASlowBodyIsNotWaitedForForever(t *testing.T) {
	r := serve(t, natstest.New(t), server.Options{UnaryTimeout: 50 * time.Millisecond})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n", records); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil { // the server answers, and closes the connection
		t.Fatal(err)
	}
}
