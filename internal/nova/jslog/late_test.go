package jslog

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
)

// TestNoAnswerIsNotTheCallersDeadline: a log without a leader answers nothing. Whoever asks is told that, and by his own
// deadline only when that has come.
func TestNoAnswerIsNotTheCallersDeadline(t *testing.T) {
	s := natstest.New(t, natstest.Options{Tune: func(o *natsserver.Options) { o.JetStream = false }})
	nc := connect(t, s.Connect)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var silent atomic.Bool
	for subject, answer := range map[string]string{
		"$JS.API.STREAM.INFO.>":    `{"config":{"name":"NOVA=demo=events","metadata":{"nova.controls":"1"}}}`,
		"$JS.API.STREAM.MSG.GET.>": "", "$JS.API.CONSUMER.CREATE.>": "", "nova.demo.events.>": "",
	} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if answer != "" && !silent.Load() {
				_ = m.Respond([]byte(answer))
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	l, err := Open(ctx, nc, js, nova.Addr{Namespace: "demo", Stream: "events"})
	if err != nil {
		t.Fatal(err)
	}
	ask := map[string]func(context.Context) error{
		"last":     func(ctx context.Context) error { _, err := l.Last(ctx); return err },
		"from":     func(ctx context.Context) error { _, err := l.From(ctx, 1); return err },
		"leader":   func(ctx context.Context) error { _, err := l.Leader(ctx); return err },
		"takeover": func(ctx context.Context) error { _, err := l.TakeOver(ctx, "one"); return err },
		"sequence": func(ctx context.Context) error { _, err := l.LastSeq(ctx); return err },
		"current":  l.Current,
		"describe": func(ctx context.Context) error { _, err := l.Describe(ctx); return err },
		"frames":   func(ctx context.Context) error { _, err := l.Frames(ctx, 1); return err },
		"open":     func(ctx context.Context) error { _, err := Open(ctx, nc, js, l.addr); return err },
	}
	wait := func(names ...string) {
		answers := make(chan error)
		for _, name := range names {
			go func() {
				err := ask[name](ctx)
				if errors.Is(err, nats.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
					err = nil
				} else {
					err = errors.Join(errors.New(name), err)
				}
				answers <- err
			}()
		}
		for range names {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
	}
	wait("takeover")
	silent.Store(true)
	wait("last", "from", "leader", "sequence", "current", "describe", "frames", "open")
	short, cancelShort := context.WithTimeout(ctx, time.Millisecond)
	defer cancelShort()
	if _, err := l.Last(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's own deadline: %v", err)
	}
}
