package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
)

// gRPCWeb has no session: a browser can't send while it receives.
const gRPCWeb = "gRPC-Web"

// protocols are clients of a node that no code of ours stands behind, one for each way to talk to it.
func (n *novaNode) protocols(t *testing.T) map[string]novav1connect.DataPlaneServiceClient {
	t.Helper()
	if n.wires == nil {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		n.wires = map[string]novav1connect.DataPlaneServiceClient{}
		for name, o := range map[string][]connect.ClientOption{
			"Connect": nil, "Connect with JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, gRPCWeb: {connect.WithGRPCWeb()},
		} {
			n.wires[name] = novav1connect.NewDataPlaneServiceClient(&http.Client{Transport: transport}, "http://"+n.at, o...)
		}
	}
	return n.wires
}

func appendOver(ctx context.Context, c novav1connect.DataPlaneServiceClient, addr, token string, match *uint64) error {
	_, err := c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{
		Addr: addr, FencingToken: token, Batch: &novav1.Batch{Records: []*novav1.Record{{}}, MatchSeqNum: match},
	}))
	return err
}

// sessionOver opens a session, and appends nothing.
func sessionOver(ctx context.Context, c novav1connect.DataPlaneServiceClient, addr, token string) error {
	s := c.AppendSession(ctx)
	defer func() {
		_ = s.CloseRequest()
		_ = s.CloseResponse()
	}()
	err := s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr, FencingToken: token}}})
	if _, received := s.Receive(); received != nil {
		err = received
	}
	return err
}

// detail is the one typed detail of an error that is FailedPrecondition.
func detail(t *testing.T, err error) any {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) || e.Code() != connect.CodeFailedPrecondition || !connect.IsWireError(err) || len(e.Details()) != 1 {
		t.Fatalf("no failed precondition with one detail: %v", err)
	}
	v, err := e.Details()[0].Value()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mismatchOf(t *testing.T, err error) *novav1.FencingTokenMismatch {
	t.Helper()
	m, ok := detail(t, err).(*novav1.FencingTokenMismatch)
	if !ok {
		t.Fatalf("no mismatch: %v", err)
	}
	return m
}

func TestR16AMissAndAMismatchOverEveryProtocol(t *testing.T) { check(t, r16) }

// r16 is R38 and R39 too: a miss and a mismatch are 412 with what stands over HTTP, and a failed precondition with a typed
// detail over gRPC and Connect, through each node.
func r16(ctx context.Context, t *testing.T, w *world) {
	at(t, 0)(w.a.Append(ctx, w.addr, rec("a", "b")...))
	w.fence(ctx, t, "gen-42")
	for _, n := range w.nodes {
		for _, c := range []struct{ body, want string }{
			{`{"records":[{}],"match_seq_num":0,"fencing_token":"gen-42"}`, `"tail":{"seq_num":2,`},
			{`{"records":[{}],"match_seq_num":9,"fencing_token":"gen-42"}`, `"tail":{"seq_num":2,`},
			{`{"records":[{}],"match_seq_num":9}`, `"fencing_token":"gen-42"`},
			{`{"records":[{}],"fencing_token":"gen-41"}`, `"fencing_token":"gen-42"`},
		} {
			status, body := n.post(ctx, t, w.addr, c.body)
			if status != http.StatusPreconditionFailed || !strings.Contains(body, c.want) {
				t.Fatalf("%s: %d %s", c.body, status, body)
			}
		}
		for name, wire := range n.protocols(t) {
			for _, match := range []uint64{0, 1, 3} {
				missed, ok := detail(t, appendOver(ctx, wire, w.addr, "gen-42", &match)).(*novav1.SequenceMismatch)
				if !ok || missed.GetTail().GetSeqNum() != 2 {
					t.Fatalf("a miss over %s: %v", name, missed)
				}
			}
			for _, token := range []string{"", "gen-41"} {
				if got := mismatchOf(t, appendOver(ctx, wire, w.addr, token, new(uint64(0)))).GetInstalled(); got != "gen-42" {
					t.Fatalf("a mismatch over %s: %q is installed", name, got)
				}
				if name == gRPCWeb {
					continue
				}
				if err := sessionOver(ctx, wire, w.addr, token); mismatchOf(t, err).GetInstalled() != "gen-42" {
					t.Fatalf("a session over %s: %v", name, err)
				}
			}
		}
	}
	w.holds(ctx, t, "a", "b")
}
