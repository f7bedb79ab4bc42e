package jslog

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/nova/frame"
)

// A log has begun when it has its first frame; its stream denies from then on that messages are deleted. JetStream never
// takes that back, its cluster's leader decides about it, and it is kept in files also where the messages are not. The next
// one who finds the log empty knows by it that the log has lost them.

// Begun reports whether the log has begun. It may say that it has not when another node has just begun it.
func (l *Log) Begun(ctx context.Context) (bool, error) {
	if l.begun.Load() {
		return true, nil
	}
	now, err := l.newborn(ctx)
	if err != nil {
		return false, fmt.Errorf("state of %s: %w", l.addr, err)
	}
	if now.DenyDelete {
		l.begun.Store(true)
	}
	return now.DenyDelete, nil
}

// newborn is the stream's configuration; ErrNotFound when the stream was made anew.
func (l *Log) newborn(ctx context.Context) (jetstream.StreamConfig, error) {
	now, err := asked(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return l.stream.Info(ctx) })
	if err != nil {
		return jetstream.StreamConfig{}, translate(err)
	}
	if now.Config.Metadata[metaCreation] != l.creation {
		return jetstream.StreamConfig{}, fmt.Errorf("%w: it was deleted, and made anew", ErrNotFound)
	}
	return now.Config, nil
}

// Begin begins a log whose creation was cut off: it writes the first frame, if the log is empty, and notes it. A log that has
// begun is left as it is; the answer to Begun may have been older than that, so JetStream is asked to take it back first,
// which it refuses.
func (l *Log) Begin(ctx context.Context) error {
	config, err := l.newborn(ctx)
	if err != nil {
		return fmt.Errorf("begin %s: %w", l.addr, err)
	}
	if config.DenyDelete {
		l.begun.Store(true)
		return nil
	}
	if err := l.update(ctx, config); err != nil {
		return fmt.Errorf("begin %s: is it newborn: %w", l.addr, err)
	}
	return l.begin(ctx, config)
}

// begin writes the first frame of a log that has not begun, and notes that it has.
func (l *Log) begin(ctx context.Context, config jetstream.StreamConfig) error {
	if err := l.first(ctx, config); err != nil {
		return err
	}
	config.DenyDelete = true
	if err := l.update(ctx, config); err != nil {
		return fmt.Errorf("begin %s: %w", l.addr, err)
	}
	l.begun.Store(true)
	return nil
}

func (l *Log) update(ctx context.Context, config jetstream.StreamConfig) error {
	_, err := asked(ctx, func(ctx context.Context) (jetstream.Stream, error) { return l.js.UpdateStream(ctx, config) })
	return translate(err)
}

// first writes the frame that a new log begins with. Only an empty log takes it, whose sequence has never moved.
func (l *Log) first(ctx context.Context, config jetstream.StreamConfig) error {
	m := &nats.Msg{Subject: l.record, Data: frame.Append(nil, &frame.Frame{}), Header: nats.Header{
		hdrStream: {l.name}, hdrLast: {strconv.FormatUint(max(config.FirstSeq, 1)-1, 10)},
	}}
	reply, err := asked(ctx, func(ctx context.Context) (*nats.Msg, error) { return l.nc.RequestMsgWithContext(ctx, m) })
	if err == nil {
		_, err = parseAck(reply)
	}
	if err != nil && !errors.Is(err, ErrRefused) {
		return fmt.Errorf("first frame of %s: %w", l.addr, err)
	}
	return nil
}
