package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

const addr = "nova://demo/events"

// serve runs a server on a NATS server of its own, and gives a client of it.
func serve(t *testing.T, s *natstest.Server) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	srv, err := server.Open(ctx, server.Config{URL: s.URL()}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	c, err := client.New("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClient(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := serve(t, natstest.New(t))
	if err := c.CreateStream(ctx, addr, client.StreamConfig{Memory: true}); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateStream(ctx, addr, client.StreamConfig{Memory: true}); !errors.Is(err, client.ErrExists) {
		t.Fatalf("a second creation: %v", err)
	}
	if r, err := c.Append(ctx, addr, client.Bodies([]byte("0"), []byte("1"))...); err != nil || r.End.SeqNum != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	_, err := c.AppendMatch(ctx, addr, 1, client.Bodies([]byte("x"))...)
	var seq *client.SequenceError
	if !errors.As(err, &seq) || seq.Tail.SeqNum != 2 || seq.Resent {
		t.Fatalf("a miss: %v", err)
	}
	p, err := c.OpenStream(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	var tickets []*client.Ticket
	for i := range 500 {
		if i%7 == 0 {
			tickets = append(tickets, p.SubmitMatch(ctx, uint64(i+2), client.Bodies([]byte(fmt.Sprint(i+2)))...))
		} else {
			tickets = append(tickets, p.Submit(ctx, client.Bodies([]byte(fmt.Sprint(i+2)))...))
		}
	}
	for i, ticket := range tickets {
		if r, err := ticket.Wait(ctx); err != nil || r.Start.SeqNum != uint64(i+2) || r.End.SeqNum != uint64(i+3) {
			t.Fatalf("batch %d: %+v, %v", i, r, err)
		}
	}
	if _, err := p.AppendMatch(ctx, 7, client.Bodies([]byte("x"))...); !errors.As(err, &seq) || seq.Tail.SeqNum != 502 {
		t.Fatalf("a miss in a session: %v", err)
	}
	tail, err := c.Fence(ctx, addr, "gen-42")
	if err != nil || tail.SeqNum != 502 {
		t.Fatalf("%+v, %v", tail, err)
	}
	var fenced *client.FenceError
	if _, err := p.Append(ctx, client.Bodies([]byte("x"))...); !errors.As(err, &fenced) || fenced.Installed != "gen-42" || !errors.Is(err, client.ErrFencedOut) {
		t.Fatalf("an append of a superseded producer: %v", err)
	}
	if err := p.Close(ctx); err != nil {
		t.Fatalf("the close of a superseded producer: %v", err)
	}
	if _, err := c.OpenStream(ctx, addr, client.WithFencingToken("other")); !errors.Is(err, client.ErrFencedOut) {
		t.Fatalf("another token at open: %v", err)
	}
	if token, err := c.FencingToken(ctx, addr); err != nil || token != "gen-42" {
		t.Fatalf("%q, %v", token, err)
	}
	if r, err := c.Presenting("gen-42").Append(ctx, addr, client.Bodies([]byte("502"))...); err != nil || r.Start.SeqNum != 502 {
		t.Fatalf("%+v, %v", r, err)
	}
	next := uint64(0)
	for rec, err := range c.Read(ctx, addr, client.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.SeqNum != next || string(rec.Body) != fmt.Sprint(next) {
			t.Fatalf("record %d is %d: %q", next, rec.SeqNum, rec.Body)
		}
		next++
	}
	if next != 503 {
		t.Fatalf("%d records", next)
	}
}
