package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// protocols are the ways in which the service is spoken to.
var protocols = map[string][]connect.ClientOption{
	"connect": nil, "connect json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc web": {connect.WithGRPCWeb()},
}

// detailOf is an error's only detail, which must be of a type.
func detailOf[T proto.Message](t *testing.T, err error, code connect.Code) T {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) || e.Code() != code || len(e.Details()) != 1 {
		t.Fatalf("%v", err)
	}
	v, err := e.Details()[0].Value()
	d, ok := v.(T)
	if err != nil || !ok {
		t.Fatalf("detail %T, %v", v, err)
	}
	return d
}

// TestR38EveryProcedureOverEveryProtocol has the typed details too.
func TestR38EveryProcedureOverEveryProtocol(t *testing.T) {
	r := serve(t, natstest.New(t), server.Options{})
	for name, options := range protocols {
		t.Run(name, func(t *testing.T) {
			ctx := timed(t)
			c := r.rpc(options...)
			if _, err := c.Tail(ctx, connect.NewRequest(&novav1.TailRequest{Addr: addr})); connect.CodeOf(err) != connect.CodeNotFound {
				t.Fatal(err)
			}
			if _, err := c.CreateStream(ctx, connect.NewRequest(&novav1.CreateStreamRequest{Addr: addr, Memory: true})); err != nil {
				t.Fatal(err)
			}
			if _, err := c.CreateStream(ctx, connect.NewRequest(&novav1.CreateStreamRequest{Addr: addr, Memory: true})); connect.CodeOf(err) != connect.CodeAlreadyExists {
				t.Fatal(err)
			}
			a, err := c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch("a", "b")}))
			if err != nil || a.Msg.GetEnd().GetSeqNum() != 2 {
				t.Fatalf("%v, %v", a, err)
			}
			miss := batch("x")
			miss.MatchSeqNum = new(uint64)
			_, err = c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: miss}))
			if d := detailOf[*novav1.SequenceMismatch](t, err, connect.CodeFailedPrecondition); d.GetTail().GetSeqNum() != 2 || d.GetTail().GetTimestamp() == 0 {
				t.Fatal(d)
			}
			f, err := c.Fence(ctx, connect.NewRequest(&novav1.FenceRequest{Addr: addr, FencingToken: "t"}))
			if err != nil || f.Msg.GetTail().GetSeqNum() != 2 {
				t.Fatalf("%v, %v", f, err)
			}
			_, err = c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch("x")}))
			if d := detailOf[*novav1.FencingTokenMismatch](t, err, connect.CodeFailedPrecondition); d.GetInstalled() != "t" {
				t.Fatal(d)
			}
			token, err := c.FencingToken(ctx, connect.NewRequest(&novav1.FencingTokenRequest{Addr: addr}))
			if err != nil || token.Msg.GetFencingToken() != "t" {
				t.Fatalf("%v, %v", token, err)
			}
			if _, err := c.Fence(ctx, connect.NewRequest(&novav1.FenceRequest{Addr: addr, FencingToken: strings.Repeat("x", 37)})); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Fatal(err)
			}
			if name != "grpc web" && name != "connect json" {
				session(ctx, t, c)
			}
			read, err := c.Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr}))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for read.Receive() {
				n += len(read.Msg().GetRecords())
			}
			if err := read.Err(); err != nil || n < 2 {
				t.Fatalf("%d records, %v", n, err)
			}
			outside, err := c.Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr, Start: &novav1.ReadRequest_SeqNum{SeqNum: 99}}))
			if err == nil && !outside.Receive() {
				err = outside.Err()
			}
			if d := detailOf[*novav1.OutOfRange](t, err, connect.CodeOutOfRange); d.GetTail().GetSeqNum() < 2 {
				t.Fatal(d)
			}
			d, err := c.DescribeStream(ctx, connect.NewRequest(&novav1.DescribeStreamRequest{Addr: addr}))
			if err != nil || d.Msg.GetFencingToken() != "t" || d.Msg.GetLeader() == "" {
				t.Fatalf("%v, %v", d, err)
			}
			if _, err := c.Trim(ctx, connect.NewRequest(&novav1.TrimRequest{Addr: addr, SeqNum: 1})); err != nil {
				t.Fatal(err)
			}
			l, err := c.ListStreams(ctx, connect.NewRequest(&novav1.ListStreamsRequest{Namespace: "demo"}))
			if err != nil || len(l.Msg.GetStreams()) != 1 {
				t.Fatalf("%v, %v", l, err)
			}
			if _, err := c.DeleteStream(ctx, connect.NewRequest(&novav1.DeleteStreamRequest{Addr: addr})); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// session opens one under the token t, and has a miss between batches, a message of another kind as the last.
func session(ctx context.Context, t *testing.T, c novav1connect.DataPlaneServiceClient) {
	t.Helper()
	s := c.AppendSession(ctx)
	open := &novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr, FencingToken: "t"}}}
	if err := s.Send(open); err != nil {
		t.Fatal(err)
	}
	miss := batch("x")
	miss.MatchSeqNum = new(uint64(77))
	hit := batch("c")
	hit.MatchSeqNum = new(uint64(2))
	for _, b := range []*novav1.Batch{hit, miss, batch("d"), batch("e")} {
		if err := s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Batch{Batch: b}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	got := ""
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.GetMessage().(type) {
		case *novav1.AppendSessionResponse_Opened_:
			got += fmt.Sprint("opened ", m.Opened.GetTail().GetSeqNum(), " ")
		case *novav1.AppendSessionResponse_Ack_:
			got += fmt.Sprint(m.Ack.GetStart().GetSeqNum(), " ")
		case *novav1.AppendSessionResponse_Miss:
			got += "miss "
		}
	}
	if got != "opened 2 2 miss 3 4 " {
		t.Fatal(got)
	}
	again := c.AppendSession(ctx)
	if err := errors.Join(again.Send(open), again.Send(open)); err != nil {
		t.Fatal(err)
	}
	_, _ = again.Receive()
	if _, err := again.Receive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Fatalf("a session that is opened twice: %v", err)
	}
	_ = again.CloseResponse()
}

func TestSessionIsBounded(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{SessionBytes: 3000, Sessions: 1})
	r.create(ctx)
	s := r.rpc().AppendSession(ctx)
	open := &novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr}}}
	if err := s.Send(open); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	second := r.rpc(connect.WithGRPC()).AppendSession(ctx)
	_ = second.Send(open)
	if _, err := second.Receive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("a session too many: %v", err)
	}
	_ = second.CloseResponse()
	const n = 500 // far more than may be in flight, and the answers are read at the end
	sent := make(chan error, 1)
	go func() {
		body := strings.Repeat("x", 1000)
		for range n {
			if err := s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Batch{Batch: batch(body)}}); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.CloseRequest()
	}()
	for i := range n {
		m, err := s.Receive()
		if err != nil || m.GetAck().GetStart().GetSeqNum() != uint64(i) {
			t.Fatalf("answer %d: %v, %v", i, m, err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	ctx := timed(t)
	s := natstest.New(t)
	r := serve(t, s, server.Options{})
	stream := grpcreflect.NewClient(h2(t), r.at, connect.WithGRPC()).NewStream(ctx)
	names, err := stream.ListServices()
	if err != nil || !slices.Contains(names, novav1connect.DataPlaneServiceName) {
		t.Fatalf("%v, %v", names, err)
	}
	_, _ = stream.Close()
	h := r.srv.Handler()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Server{Handler: h, ReadHeaderTimeout: time.Second} // a server that embeds the handler outlives it
	go func() { _ = own.Serve(l) }()
	defer func() { _ = own.Close() }()
	status := func() string {
		t.Helper()
		a, err := http.Post("http://"+l.Addr().String()+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Body.Close() }()
		b, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := status(); !strings.Contains(got, `"SERVING_STATUS_SERVING"`) {
		t.Fatal(got)
	}
	r.shutdown()
	if got := status(); !strings.Contains(got, `"SERVING_STATUS_NOT_SERVING"`) {
		t.Fatal(got)
	}
	c := novav1connect.NewDataPlaneServiceClient(http.DefaultClient, "http://"+l.Addr().String())
	_, err = c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch("x")}))
	detailOf[*novav1.NothingWritten](t, err, connect.CodeUnavailable)
}

func TestNoAuthNoNetwork(t *testing.T) {
	s := natstest.New(t)
	srv, err := server.Open(timed(t), server.Config{URL: s.URL()}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Shutdown(timed(t)) }()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := srv.Serve(l); !errors.Is(err, server.ErrNeedsAuth) {
		t.Fatal(err)
	}
}

// TestNobodyGetsInWithoutAToken calls everything with no token, with a wrong one, and with one that may do nothing there.
func TestNobodyGetsInWithoutAToken(t *testing.T) {
	ctx := timed(t)
	auth, err := server.NewAuth(
		server.Grant{Name: "all", Token: "all-secret", Namespaces: map[string][]server.Verb{"*": {server.VerbRead, server.VerbAppend, server.VerbFence, server.VerbAdmin}}},
		server.Grant{Name: "elsewhere", Token: "else-secret", Namespaces: map[string][]server.Verb{"other": {server.VerbRead, server.VerbAppend, server.VerbFence, server.VerbAdmin}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	r := serve(t, natstest.New(t), server.Options{Auth: auth, Events: server.Events{Call: func(c server.Call) {
		mu.Lock()
		defer mu.Unlock()
		seen[c.Method] = true
	}}})
	r.want(ctx, 201, "", "PUT", "/v1/demo/events", `{"memory":true}`, "Authorization", "Bearer all-secret")
	for _, c := range []struct {
		header string
		status int
		code   connect.Code
	}{
		{"", 401, connect.CodeUnauthenticated}, {"Bearer wrong", 401, connect.CodeUnauthenticated}, {"Bearer ", 401, connect.CodeUnauthenticated},
		{"Basic all-secret", 401, connect.CodeUnauthenticated}, {"Bearer else-secret", 403, connect.CodePermissionDenied},
	} {
		for _, route := range []string{
			"POST /records", "GET /records", "DELETE /records?before=0", "GET /tail", "GET /fence", "PUT /fence", "DELETE /fence", "PUT ", "GET ", "DELETE ",
		} {
			method, path, _ := strings.Cut(route, " ")
			r.want(ctx, c.status, `"code"`, method, "/v1/demo/events"+path, `{"fencing_token":"x"}`, "Authorization", c.header)
		}
		r.want(ctx, c.status, `"code"`, "GET", "/v1/demo", "", "Authorization", c.header)
		if c.status == 401 {
			r.want(ctx, 401, `"code"`, "GET", "/v1", "", "Authorization", c.header)
		} else {
			r.want(ctx, 200, `{"streams":[]}`, "GET", "/v1", "", "Authorization", c.header)
		}
		for name, err := range everyProcedure(ctx, r, c.header) {
			if connect.CodeOf(err) != c.code {
				t.Errorf("%s with %q: %v", name, c.header, err)
			}
		}
	}
	r.want(ctx, 200, `{"tail":{"seq_num":0,`, "GET", "/v1/demo/events/tail", "", "Authorization", "bearer all-secret")
	r.want(ctx, 200, `{"fencing_token":""}`, "GET", "/v1/demo/events/fence", "", "Authorization", "Bearer all-secret")
	methods := 0
	for m := range maps.Keys(seen) {
		if strings.HasPrefix(m, "/"+novav1connect.DataPlaneServiceName) {
			methods++
		}
	}
	if service := novav1.File_nova_v1_dataplane_proto.Services().Get(0).Methods().Len(); methods != service {
		t.Errorf("%d procedures were tried, the service has %d", methods, service)
	}
}

// everyProcedure calls each procedure on the tests' stream; the result is the errors.
func everyProcedure(ctx context.Context, r *running, header string) map[string]error {
	c := r.rpc(connect.WithInterceptors(withHeader(header)))
	errs := map[string]error{}
	_, errs["Append"] = c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch("x")}))
	_, errs["Tail"] = c.Tail(ctx, connect.NewRequest(&novav1.TailRequest{Addr: addr}))
	_, errs["Fence"] = c.Fence(ctx, connect.NewRequest(&novav1.FenceRequest{Addr: addr, FencingToken: "x"}))
	_, errs["FencingToken"] = c.FencingToken(ctx, connect.NewRequest(&novav1.FencingTokenRequest{Addr: addr}))
	_, errs["Trim"] = c.Trim(ctx, connect.NewRequest(&novav1.TrimRequest{Addr: addr}))
	_, errs["CreateStream"] = c.CreateStream(ctx, connect.NewRequest(&novav1.CreateStreamRequest{Addr: addr}))
	_, errs["ListStreams"] = c.ListStreams(ctx, connect.NewRequest(&novav1.ListStreamsRequest{Namespace: "demo"}))
	_, errs["DescribeStream"] = c.DescribeStream(ctx, connect.NewRequest(&novav1.DescribeStreamRequest{Addr: addr}))
	_, errs["DeleteStream"] = c.DeleteStream(ctx, connect.NewRequest(&novav1.DeleteStreamRequest{Addr: addr}))
	read, err := c.Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr}))
	if err == nil && !read.Receive() {
		err = read.Err()
	}
	errs["Read"] = err
	s := c.AppendSession(ctx)
	_ = s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr}}})
	_, errs["AppendSession"] = s.Receive()
	_ = s.CloseResponse()
	return errs
}

// withHeader sets the Authorization header.
type withHeader string

func (h withHeader) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, q connect.AnyRequest) (connect.AnyResponse, error) {
		q.Header().Set("Authorization", string(h))
		return next(ctx, q)
	}
}

func (h withHeader) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		c := next(ctx, s)
		c.RequestHeader().Set("Authorization", string(h))
		return c
	}
}

func (h withHeader) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func TestLoadAuthShowsNoToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.json")
	for _, text := range []string{`{"grants":[{"name":"a","token":"hunter2","x":1}]}`, `{"grants":[{"name":"a","token":"hunter2`, `{"grants":[{"name":"a","token":"hunter2","namespaces":{"n":["all"]}}]}`, `{}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := server.LoadAuth(path); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
