package server_test

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestOpenAsksAgain: a cluster that just chooses a leader leaves a question without an answer; the node begins all the same,
// and does not wait for that one answer for as long as it may take to begin.
func TestOpenAsksAgain(t *testing.T) {
	ctx := timed(t)
	s := natstest.New(t, natstest.Options{Tune: func(o *natsserver.Options) { o.JetStream = false }})
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	var asked atomic.Int32
	if _, err := nc.Subscribe("$JS.API.INFO", func(m *nats.Msg) {
		if asked.Add(1) > 1 {
			_ = m.Respond([]byte(`{"type":"io.nats.jetstream.api.v1.account_info_response"}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	node, err := server.Open(ctx, server.Config{URL: s.URL()}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if asked.Load() < 2 {
		t.Errorf("it asked %d times", asked.Load())
	}
}
