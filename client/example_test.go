package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/server"
)

// exampleServer stands for nova serve.
func exampleServer() (url string, end func()) {
	ctx := context.Background()
	s, err := server.Open(ctx, server.Config{URL: single.URL()}, server.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return "http://" + l.Addr().String(), func() {
		if err := s.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
		<-ended
	}
}

// A stream is made, appended to, and read.
func ExampleNew() {
	url, end := exampleServer() // such as http://127.0.0.1:4225, where nova serve listens
	defer end()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	const addr = "nova://example/greetings"
	if err := c.CreateStream(ctx, addr, client.StreamConfig{}); err != nil {
		log.Fatal(err)
	}
	r, err := c.Append(ctx, addr, client.Bodies([]byte("hello"), []byte("goodbye"))...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the first record is", r.Start.SeqNum, "and the tail", r.Tail.SeqNum)
	for rec, err := range c.Read(ctx, addr, client.ReadOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.SeqNum, string(rec.Body))
	}
	// Output:
	// the first record is 0 and the tail 2
	// 0 hello
	// 1 goodbye
}

// Two writers append at the same number: one of them misses, and is told where the stream stands.
func ExampleClient_AppendMatch() {
	url, end := exampleServer()
	defer end()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	const addr = "nova://example/counter"
	if err := c.CreateStream(ctx, addr, client.StreamConfig{}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.AppendMatch(ctx, addr, 0, client.Bodies([]byte("mine"))...); err != nil {
		log.Fatal(err)
	}
	_, err = c.AppendMatch(ctx, addr, 0, client.Bodies([]byte("yours"))...)
	var miss *client.SequenceError
	if errors.As(err, &miss) {
		fmt.Println("nothing was appended; the next number is", miss.Tail.SeqNum)
	}
	r, err := c.AppendMatch(ctx, addr, miss.Tail.SeqNum, client.Bodies([]byte("yours"))...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("appended at", r.Start.SeqNum)
	// Output:
	// nothing was appended; the next number is 1
	// appended at 1
}

// A producer has many batches in flight, in order, each with the number that it must get.
func ExampleClient_OpenStream() {
	url, end := exampleServer()
	defer end()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	const addr = "nova://example/pipeline"
	if err := c.CreateStream(ctx, addr, client.StreamConfig{}); err != nil {
		log.Fatal(err)
	}
	p, err := c.OpenStream(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	var tickets []*client.Ticket
	for n, body := range []string{"a", "b", "c"} {
		tickets = append(tickets, p.SubmitMatch(ctx, uint64(n), client.Bodies([]byte(body))...))
	}
	for _, t := range tickets {
		r, err := t.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("acknowledged", r.Start.SeqNum)
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// acknowledged 0
	// acknowledged 1
	// acknowledged 2
}

// A successor takes a stream over: it fences, opens with its token, and goes on at the tail. The owner before it is locked
// out, and hears of it.
func ExampleClient_Fence() {
	url, end := exampleServer()
	defer end()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	const addr = "nova://example/owned"
	if err := c.CreateStream(ctx, addr, client.StreamConfig{}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Fence(ctx, addr, "term-1"); err != nil {
		log.Fatal(err)
	}
	before, err := c.OpenStream(ctx, addr, client.WithFencingToken("term-1"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := before.Append(ctx, client.Bodies([]byte("by the owner before"))...); err != nil {
		log.Fatal(err)
	}

	tail, err := c.Fence(ctx, addr, "term-2")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("records below", tail.SeqNum, "are of the owner before")
	after, err := c.OpenStream(ctx, addr, client.WithFencingToken("term-2"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := after.AppendMatch(ctx, tail.SeqNum, client.Bodies([]byte("by its successor"))...); err != nil {
		log.Fatal(err)
	}

	<-before.Done() // it appends nothing, and is told all the same
	fmt.Println(before.Err())
	_, err = before.Append(ctx, client.Bodies([]byte("too late"))...)
	fmt.Println("locked out:", errors.Is(err, client.ErrFencedOut))
	if err := errors.Join(before.Close(ctx), after.Close(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// records below 1 are of the owner before
	// fenced out: the installed token is "term-2"
	// locked out: true
}

// A read begins at a number, at a time, or so many records before the tail, and may go on with what comes.
func ExampleClient_Read() {
	url, end := exampleServer()
	defer end()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Fatal(err)
	}
	const addr = "nova://example/followed"
	if err := c.CreateStream(ctx, addr, client.StreamConfig{}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Append(ctx, addr, client.Bodies([]byte("0"), []byte("1"), []byte("2"))...); err != nil {
		log.Fatal(err)
	}
	for rec, err := range c.Read(ctx, addr, client.ReadOptions{TailOffset: new(uint64(2)), Follow: true}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.SeqNum, string(rec.Body))
		if rec.SeqNum == 2 { // somebody appends while it waits
			if _, err := c.Append(ctx, addr, client.Bodies([]byte("3"))...); err != nil {
				log.Fatal(err)
			}
		}
		if rec.SeqNum == 3 {
			break
		}
	}
	// Output:
	// 1 1
	// 2 2
	// 3 3
}
