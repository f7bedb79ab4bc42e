package jslog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// readAhead bounds the bytes of frames that a reader is sent before it asks.
const readAhead = 4 << 20

// Frames are a log's frames in order, from one place on; they go on as long as the log does. It is used by one goroutine.
type Frames struct {
	l    *Log
	msgs jetstream.MessagesContext
}

// Frames reads from a sequence of the log on. Close it.
func (l *Log) Frames(ctx context.Context, seq uint64) (*Frames, error) {
	c, err := l.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{l.record},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    max(seq, 1),
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", l.addr, translate(err))
	}
	msgs, err := c.Messages(jetstream.PullMaxBytes(max(readAhead, 4*l.maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", l.addr, translate(err))
	}
	return &Frames{l: l, msgs: msgs}, nil
}

// Next waits for the next frame.
func (f *Frames) Next(ctx context.Context) (Stored, error) {
	m, err := f.msgs.Next(jetstream.NextContext(ctx))
	if err != nil {
		if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
			return Stored{}, cause
		}
		return Stored{}, fmt.Errorf("read %s: %w", f.l.addr, translate(err))
	}
	meta, err := m.Metadata()
	if err != nil {
		return Stored{}, fmt.Errorf("read %s: %w", f.l.addr, err)
	}
	return Stored{Seq: meta.Sequence.Stream, Payload: m.Data(), Time: meta.Timestamp}, nil
}

// Close ends the reading.
func (f *Frames) Close() { f.msgs.Stop() }
