package server_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"

	natsserver "github.com/nats-io/nats-server/v2/server"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/server"
)

// silentLog is a NATS server on which a log has one stream with one record, and answers no question but those of some subjects.
func silentLog(t *testing.T, answered ...string) (*natstest.Server, *atomic.Int64) {
	t.Helper()
	s := natstest.New(t, natstest.Options{Tune: func(o *natsserver.Options) { o.JetStream = false }})
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	first := base64.StdEncoding.EncodeToString(frame.Append(nil, &frame.Frame{}))
	message := fmt.Sprintf(`{"message":{"subject":"nova.demo.events.r","seq":1,"data":%q,"time":"2026-01-01T00:00:00Z"}}`, first)
	asked := &atomic.Int64{}
	for subject, answer := range map[string]string{
		"$JS.API.INFO":             `{}`,
		"$JS.API.STREAM.INFO.>":    `{"config":{"name":"NOVA=demo=events","metadata":{"nova.controls":"1"}}}`,
		"$JS.API.STREAM.MSG.GET.>": message,
		"$JS.API.CONSUMER.>":       "",
		"$JS.API.STREAM.CREATE.>":  "",
		"$JS.API.STREAM.DELETE.>":  "",
		"nova.>":                   "",
	} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			asked.Add(1)
			for _, a := range append(answered, "$JS.API.INFO", "$JS.API.STREAM.INFO") {
				switch {
				case !strings.HasPrefix(m.Subject, a):
				case strings.Contains(string(m.Data), "nova.demo.events.c."): // nobody has led it yet
					_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
				default:
					_ = m.Respond([]byte(answer))
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s, asked
}

// TestAChangeThatTheLogDoesNotAnswer may have come to be, and both protocols say so.
func TestAChangeThatTheLogDoesNotAnswer(t *testing.T) {
	ctx := timed(t)
	s, _ := silentLog(t, "$JS.API.STREAM.MSG.GET")
	r := serve(t, s, server.Options{UnaryTimeout: 500 * time.Millisecond})
	for _, c := range []struct{ method, path, body string }{{"PUT", "/v1/demo/new", "{}"}, {"DELETE", "/v1/demo/events", ""}} {
		if status, body := r.do(ctx, c.method, c.path, c.body); status != 503 || !strings.Contains(body, `"outcome":"unknown"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	calls := map[string]error{}
	_, calls["create"] = r.rpc().CreateStream(ctx, connect.NewRequest(&novav1.CreateStreamRequest{Addr: "nova://demo/new"}))
	_, calls["delete"] = r.rpc().DeleteStream(ctx, connect.NewRequest(&novav1.DeleteStreamRequest{Addr: addr}))
	for name, err := range calls {
		var e *connect.Error
		if !errors.As(err, &e) || e.Code() != connect.CodeUnavailable || len(e.Details()) != 1 || e.Details()[0].Type() != "nova.v1.OutcomeUnknown" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestALogThatSaysNothing: while the log has no leader a read is unavailable, and never says where it would go on.
func TestALogThatSaysNothing(t *testing.T) {
	ctx := timed(t)
	s, _ := silentLog(t)
	r := serve(t, s, server.Options{UnaryTimeout: 4 * time.Second})
	for _, query := range []string{"?seq_num=3", "?seq_num=3&wait=1", "?seq_num=3&wait=60", "?tail_offset=1"} {
		if status, body := r.do(ctx, "GET", records+query, ""); status != 503 || !strings.Contains(body, `"code":"unavailable"`) || strings.Contains(body, "next") {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	for _, follow := range []bool{false, true} {
		read, err := r.rpc().Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr, Follow: follow}))
		if err != nil {
			t.Fatal(err)
		}
		for read.Receive() {
			t.Errorf("it reads %v", read.Msg())
		}
		if err := read.Err(); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("a read, with follow %v: %v", follow, err)
		}
	}
	if _, err := r.rpc().Tail(ctx, connect.NewRequest(&novav1.TailRequest{Addr: addr})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the tail: %v", err)
	}
}

// TestALogThatIsSilentLater: a read that knows where it begins, and then is given no consumer, is unavailable.
func TestALogThatIsSilentLater(t *testing.T) {
	ctx := timed(t)
	s, _ := silentLog(t, "$JS.API.STREAM.MSG.GET")
	r := serve(t, s, server.Options{UnaryTimeout: 2 * time.Second})
	r.want(ctx, 503, `"code":"unavailable"`, "GET", records, "")
	r.want(ctx, 503, `"code":"unavailable"`, "GET", records+"?wait=20", "")
	read, err := r.rpc().Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr, Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	for read.Receive() {
		if n := len(read.Msg().GetRecords()); n > 0 {
			t.Errorf("it reads %d records", n)
		}
	}
	if err := read.Err(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a read that follows: %v", err)
	}
}
