package node

import (
	"context"
	"errors"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// TestALogThatIsAwayIsUnavailable: a node that has not served a stream yet, and can't ask for its log, says that nothing was
// written; a stream that is not there is another thing.
func TestALogThatIsAwayIsUnavailable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, _ := testNode(t, natstest.New(t))
	if _, err := n.Stream(ctx, addr); !errors.Is(err, jslog.ErrNotFound) {
		t.Errorf("a stream that is not there: %v", err)
	}
	s := natstest.New(t, natstest.Options{Tune: func(o *natsserver.Options) { o.JetStream = false }})
	n, nc := testNode(t, s)
	if _, err := nc.Subscribe("$JS.API.STREAM.INFO.>", func(*nats.Msg) {}); err != nil { // it never answers
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := n.Stream(ctx, addr)
	var away *sequencer.UnavailableError
	if !errors.As(err, &away) || away.Indefinite {
		t.Errorf("a log that does not answer: %v", err)
	}
}
