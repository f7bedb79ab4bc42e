package sequencer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
)

var addr = nova.Addr{Namespace: "demo", Stream: "events"}

func connect(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := natstest.New(t, natstest.Options{}).Connect(nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// TestStreamMadeAnew: a leader whose stream was deleted and made anew writes nothing into the new one, though everything
// lies there as it lay in its own.
func TestStreamMadeAnew(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc, js := connect(t)
	begin := func(node string) (*jslog.Log, *Leader) {
		log, err := jslog.Create(ctx, nc, js, addr, jslog.Config{Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		return log, start(t, log, node)
	}
	_, one := begin("one")
	if _, err := one.Fence(ctx, "old"); err != nil {
		t.Fatal(err)
	}
	if err := jslog.Delete(ctx, js, addr); err != nil {
		t.Fatal(err)
	}
	log, two := begin("two")
	if _, err := two.Append(ctx, Append{Records: bodies("a")}); err != nil {
		t.Fatal(err)
	}
	if st, err := one.Stands(ctx); err == nil {
		t.Errorf("the leader of the stream that is gone stands at %+v", st)
	}
	if _, err := one.Append(ctx, Append{Records: bodies("b")}); !errors.As(err, new(*UnavailableError)) {
		t.Errorf("it appends: %v", err)
	}
	if _, err := two.Append(ctx, Append{Records: bodies("c")}); err != nil {
		t.Error(err)
	}
	frames(t, log)
}

// TestLogMadeAnew: a log that was opened before its stream was made anew, with other control subjects, takes nothing over.
func TestLogMadeAnew(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc, js := connect(t)
	old, err := jslog.Create(ctx, nc, js, addr, jslog.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := jslog.Delete(ctx, js, addr); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(ctx, OfJetStream(old), Options{Node: "one"}); !errors.Is(err, jslog.ErrNotFound) {
		t.Errorf("a leader of a stream that is gone: %v", err)
	}
	log, err := jslog.Create(ctx, nc, js, addr, jslog.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(ctx, OfJetStream(old), Options{Node: "one"}); !errors.Is(err, jslog.ErrNotFound) {
		t.Errorf("a leader of a stream that was made anew: %v", err)
	}
	if _, err := start(t, log, "two").Append(ctx, Append{Records: bodies("a")}); err != nil {
		t.Error(err)
	}
}
