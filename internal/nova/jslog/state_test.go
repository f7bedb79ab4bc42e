package jslog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
)

// LastSeq is the log's last sequence, of whatever message.
func (l *Log) LastSeq(ctx context.Context) (uint64, error) {
	info, err := asked(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return l.stream.Info(ctx) })
	if err != nil {
		return 0, fmt.Errorf("state of %s: %w", l.addr, translate(err))
	}
	return info.State.LastSeq, nil
}

// TestPurgeOfALogMadeAnew: what was found out about a stream removes nothing from another one that was made anew under its
// name in between.
func TestPurgeOfALogMadeAnew(t *testing.T) {
	nc := connect(t, natstest.New(t).Connect)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	a := nova.Addr{Namespace: "demo", Stream: "events"}
	old, err := Create(t.Context(), nc, js, a, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), js, a); err != nil {
		t.Fatal(err)
	}
	log, err := Create(t.Context(), nc, js, a, Config{})
	if err != nil {
		t.Fatal(err)
	}
	last, err := log.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := old.purge(t.Context(), last.Seq+1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a purge of the stream that is gone: %v", err)
	}
	if still, err := log.Last(t.Context()); err != nil || still.Seq != last.Seq {
		t.Errorf("the newest frame was at %d, and is at %d, %v", last.Seq, still.Seq, err)
	}
}
