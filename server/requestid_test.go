package server_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// logText is a log that a test reads while the server writes it.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := json.NewDecoder(bytes.NewReader(l.text.Bytes())); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestRequestIDs: each answer names its request, as the log does; a client may choose the name if it is fit for that.
func TestRequestIDs(t *testing.T) {
	ctx := timed(t)
	log := &logText{}
	r := serve(t, natstest.New(t), server.Options{Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r.create(ctx)
	for id, kept := range map[string]bool{
		"abc-123": true, strings.Repeat("x", 64): true, "a/b:c+d=e_f.g": true,
		"": false, strings.Repeat("x", 65): false, "a b": false, "ä": false, `"`: false, "a%0ab": false, "{}": false,
	} {
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.at+records, strings.NewReader(`{"records":[{}],"match_seq_num":9}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		if id != "" {
			q.Header.Set(server.RequestIDHeader, id)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			RequestID string `json:"request_id"`
		}
		err = json.NewDecoder(a.Body).Decode(&body)
		_ = a.Body.Close()
		got := a.Header.Get(server.RequestIDHeader)
		if err != nil || got == "" || body.RequestID != got || (got == id) != kept {
			t.Errorf("request %q is named %q, and %q in the body: %v", id, got, body.RequestID, err)
		}
		found := false
		for _, line := range log.lines(t) {
			found = found || line["request"] == got
		}
		if !found {
			t.Errorf("the log has no line of request %q", got)
		}
	}
	for name, o := range map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}} {
		q := connect.NewRequest(&novav1.TailRequest{Addr: "nova://demo/none"})
		q.Header().Set(server.RequestIDHeader, name)
		_, err := r.rpc(o...).Tail(ctx, q)
		if e := new(connect.Error); !asConnect(err, &e) || e.Meta().Get(server.RequestIDHeader) != name {
			t.Errorf("%s: %v has no name of its request", name, err)
		}
		q.Msg.Addr = addr
		ok, err := r.rpc(o...).Tail(ctx, q)
		if err != nil || ok.Header().Get(server.RequestIDHeader) != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What a person may have to look into has it in its text.
	s := r.rpc().AppendSession(ctx)
	s.RequestHeader().Set(server.RequestIDHeader, "the-session")
	if err := s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	go r.shutdown()
	if _, err := s.Receive(); err == nil || !strings.Contains(err.Error(), "(request the-session)") {
		t.Errorf("a session that is ended: %v", err)
	}
	_ = s.CloseRequest()
}

func asConnect(err error, e **connect.Error) bool {
	c, ok := err.(*connect.Error)
	*e = c
	return ok
}

// TestNoSecretIsLogged goes through every kind of call with a bearer token, and with fencing tokens, the right ones and wrong.
func TestNoSecretIsLogged(t *testing.T) {
	ctx := timed(t)
	log := &logText{}
	auth, err := server.NewAuth(server.Grant{
		Name: "writer", Token: "bearer-secret", Namespaces: map[string][]server.Verb{"*": {server.VerbRead, server.VerbAppend, server.VerbFence, server.VerbAdmin}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, natstest.New(t), server.Options{Auth: auth, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	right, wrong := []string{"Authorization", "Bearer bearer-secret"}, []string{"Authorization", "Bearer other-secret"}
	r.want(ctx, 201, "", "PUT", "/v1/demo/events", "", right...)
	r.want(ctx, 200, "", "PUT", "/v1/demo/events/fence", `{"fencing_token":"fence-secret"}`, right...)
	for _, header := range [][]string{right, wrong, {"Authorization", "bearer-secret"}, {"X-Request-Id", "Bearer bearer-secret"}} {
		for _, call := range [][3]string{
			{"POST", records, `{"records":[{"body":"x"}],"fencing_token":"fence-secret"}`}, {"POST", records, `{"records":[{}],"fencing_token":"mine-secret"}`},
			{"POST", records, `{"records":[{}]}`}, {"POST", records, `{"fencing_token":"fence-secret"`}, {"GET", "/v1/demo/events/fence", ""},
			{"GET", "/v1/demo/events", ""}, {"PUT", "/v1/demo/events/fence", `{"fencing_token":"fence-secret"}`},
			{"PUT", "/v1/demo/events/fence", `{"fencing_token":"` + strings.Repeat("fence-secret", 4) + `"}`},
		} {
			r.do(ctx, call[0], call[1], call[2], header...)
		}
	}
	for header := range map[string]bool{"Bearer bearer-secret": true, "Bearer other-secret": true} {
		for range everyProcedure(ctx, r, header) {
		}
	}
	r.shutdown()
	if text := log.String(); strings.Contains(text, "secret") || !strings.Contains(text, "caller=writer") || !strings.Contains(text, "fenced out") {
		for line := range strings.SplitSeq(text, "\n") {
			if strings.Contains(line, "secret") {
				t.Error(line)
			}
		}
		t.Errorf("%d bytes of log", len(text))
	}
}
