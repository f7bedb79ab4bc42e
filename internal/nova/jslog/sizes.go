package jslog

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// kept is what JetStream counts for a message beside its parts: 34 bytes in files, 16 in memory.
	kept = 34
	// headOfMost bounds the headers of a control message, beside the names in them.
	headOfMost = 512
	// sizesAtOnce is how many messages are asked for together.
	sizesAtOnce = 512
)

// ControlBytes bounds what JetStream counts for the messages of the log that are no frames.
func (l *Log) ControlBytes() uint64 {
	return uint64((l.k + 1) * (kept + headOfMost + len(l.name) + 3*len(l.control(l.k))))
}

// Sizes calls take for the frames in their order, with the sequence of each and at least as many bytes as JetStream counts
// for it, until that is false, or all that the log has now were taken. No payload is read.
func (l *Log) Sizes(ctx context.Context, take func(seq, bytes uint64) bool) error {
	c, err := l.js.CreateConsumer(ctx, l.name, jetstream.ConsumerConfig{
		FilterSubject: l.record, DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactive,
	})
	if err != nil {
		return fmt.Errorf("sizes of %s: %w", l.addr, translate(err))
	}
	info := c.CachedInfo()
	defer func() { // a consumer that can't be told goes after a while
		_ = l.nc.PublishRequest(l.api("CONSUMER.DELETE", info.Name), l.nc.NewInbox(), nil)
	}()
	for left := info.NumPending; left > 0; {
		n := min(left, sizesAtOnce)
		if more, err := l.someSizes(ctx, c, int(n), take); err != nil || !more {
			return err
		}
		left -= n
	}
	return nil
}

// someSizes takes the sizes of n messages.
func (l *Log) someSizes(ctx context.Context, c jetstream.Consumer, n int, take func(seq, bytes uint64) bool) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	batch, err := c.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return false, fmt.Errorf("sizes of %s: %w", l.addr, err)
	}
	for m := range batch.Messages() {
		n--
		seq, bytes, err := l.sizeOf(m)
		if err != nil || !take(seq, bytes) {
			return false, err
		}
	}
	if n > 0 {
		return false, fmt.Errorf("sizes of %s: %d messages did not come: %w", l.addr, n, cmp.Or(batch.Error(), ctx.Err(), nats.ErrTimeout))
	}
	return true, nil
}

func (l *Log) sizeOf(m jetstream.Msg) (seq, bytes uint64, err error) {
	at, err := m.Metadata()
	if err != nil {
		return 0, 0, fmt.Errorf("sizes of %s: %w", l.addr, err)
	}
	payload, err := strconv.ParseUint(m.Headers().Get(nats.MsgSize), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("sizes of %s: log sequence %d: %w", l.addr, at.Sequence.Stream, err)
	}
	return at.Sequence.Stream, kept + uint64(len(l.record)) + headerBytes(m.Headers()) + payload, nil
}

// headerBytes are those of encoded headers.
func headerBytes(h nats.Header) uint64 {
	n := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		if name == nats.MsgSize {
			continue
		}
		for _, value := range values {
			n += len(name) + len(": \r\n") + len(value)
		}
	}
	return uint64(n)
}
