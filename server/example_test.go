package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// A node serves streams that lie in a NATS cluster, and ends in order.
func ExampleOpen() {
	cluster, err := natstest.Start(natstest.Options{}) // stands for a NATS cluster with JetStream
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Stop()
	ctx := context.Background()
	s, err := server.Open(ctx, server.Config{URL: cluster.URL()}, server.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()

	c, err := client.New("http://" + l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	if err := c.CreateStream(ctx, "nova://demo/events", client.StreamConfig{}); err != nil {
		log.Fatal(err)
	}
	r, err := c.Append(ctx, "nova://demo/events", client.Bodies([]byte("hello"))...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("record", r.Start.SeqNum)
	fmt.Println("streams led:", s.Stats().Leads)

	if err := s.Shutdown(ctx); err != nil { // what was submitted is answered, and streams are handed to other nodes
		log.Fatal(err)
	}
	fmt.Println(<-ended)
	// Output:
	// record 0
	// streams led: 1
	// http: Server closed
}

// A server is an http.Handler too, with a table of bearer tokens if it is given one.
func ExampleServer_Handler() {
	cluster, err := natstest.Start(natstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Stop()
	ctx := context.Background()
	auth, err := server.NewAuth(server.Grant{
		Name: "ingest", Token: "a long random text",
		Namespaces: map[string][]server.Verb{"demo": {server.VerbRead, server.VerbAppend, server.VerbAdmin}},
	})
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.Open(ctx, server.Config{URL: cluster.URL()}, server.Options{Auth: auth, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	web := httptest.NewServer(s.Handler())
	defer web.Close()

	for _, token := range []string{"", "a long random text"} {
		q, err := http.NewRequestWithContext(ctx, http.MethodPut, web.URL+"/v1/demo/events", strings.NewReader("{}"))
		if err != nil {
			log.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		q.Header.Set(server.RequestIDHeader, "example-1")
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s", a.StatusCode, body)
	}
	// Output:
	// 401 {"code":"unauthenticated","message":"a known bearer token is needed","request_id":"example-1"}
	// 201 {"addr":"nova://demo/events"}
}
