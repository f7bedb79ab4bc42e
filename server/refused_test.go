package server_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestReplicasNeedServers: what one server can't do is the caller's mistake, and nothing was made.
func TestReplicasNeedServers(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.want(ctx, 400, `"message":"the log refuses: replicas \u003e 1 not supported`, "PUT", "/v1/demo/events", `{"replicas":3}`)
	_, err := r.rpc().CreateStream(ctx, connect.NewRequest(&novav1.CreateStreamRequest{Addr: addr, Replicas: 3}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Error(err)
	}
	r.want(ctx, 200, `{"streams":[]}`, "GET", "/v1", "")
}

// TestADamagedLogIsNotAskedAgain: of a log whose frames are gone, and of one with a message that is none, every call says so,
// by a code behind which nobody tries again.
func TestADamagedLogIsNotAskedAgain(t *testing.T) {
	for name, damage := range map[string]func(context.Context, *nats.Conn, jetstream.Stream) error{
		"no frame": func(ctx context.Context, _ *nats.Conn, s jetstream.Stream) error {
			return s.Purge(ctx)
		},
		"no frame of ours": func(ctx context.Context, nc *nats.Conn, _ jetstream.Stream) error {
			_, err := nc.RequestWithContext(ctx, "nova.demo.events.r", []byte("\x01junk"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a leader looks for frames for seconds
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			t.Cleanup(cancel)
			s := natstest.New(t)
			r := serve(t, s, server.Options{})
			r.create(ctx)
			r.want(ctx, 200, "", "POST", records, `{"records":[{"body":"YQ=="}]}`)
			r.shutdown()
			nc, err := s.Connect()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := js.Stream(ctx, "NOVA=demo=events")
			if err == nil {
				err = damage(ctx, nc, stream)
			}
			if err != nil {
				t.Fatal(err)
			}
			r = serve(t, s, server.Options{UnaryTimeout: 10 * time.Second})
			r.want(ctx, 500, `{"code":"data_loss"`, "POST", records, `{"records":[{"body":"YQ=="}]}`)
			r.want(ctx, 500, `{"code":"data_loss"`, "GET", records, "")
			session := r.rpc().AppendSession(ctx)
			_ = session.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr}}})
			if _, err := session.Receive(); connect.CodeOf(err) != connect.CodeDataLoss {
				t.Errorf("a session: %v", err)
			}
			_ = session.CloseRequest()
			_ = session.CloseResponse()
		})
	}
}
