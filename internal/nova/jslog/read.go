package jslog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Frames are a log's frames in order, from one place on; they go on as long as the log does. A consumer of the log that is
// lost, or that left something out, is replaced by one that begins behind the last frame. It is used by one goroutine.
type Frames struct {
	l    *Log
	next uint64 // the sequence of the log that the next frame has at least
	ahead

	status chan nats.Status
	quiet  *time.Timer

	// The rest is the consumer's at hand.
	consumer  string
	sub       *nats.Subscription
	in        chan *nats.Msg
	delivered uint64
}

// errNotHeard is a consumer that does not say any more that it is there.
var errNotHeard = errors.New("the consumer is silent")

// Frames reads from a sequence of the log on. Close it.
func (l *Log) Frames(ctx context.Context, seq uint64) (*Frames, error) {
	f := &Frames{l: l, next: max(seq, 1), ahead: ahead{most: max(readAhead, 4*l.maxMessage)}, quiet: time.NewTimer(time.Hour)}
	f.status = l.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	if err := f.begin(ctx); err != nil {
		f.Close()
		return nil, fmt.Errorf("read %s: %w", l.addr, err)
	}
	return f, nil
}

// Next waits for the next frame.
func (f *Frames) Next(ctx context.Context) (Stored, error) {
	for {
		s, ok, err := f.Ready(ctx)
		if err != nil || ok {
			return s, err
		}
		f.quiet.Reset(maxQuiet)
		select {
		case m := <-f.in:
			if s, ok, err = f.message(ctx, m); err != nil || ok {
				return s, err
			}
		case status, open := <-f.status:
			switch {
			case !open || status == nats.CLOSED:
				err = fmt.Errorf("read %s: %w", f.l.addr, nats.ErrConnectionClosed)
			default:
				err = f.again(ctx, nats.ErrDisconnected) // what was asked for over the connection before is gone
			}
		case <-f.quiet.C:
			err = f.again(ctx, errNotHeard)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return Stored{}, err
		}
	}
}

// Ready is the next frame, if it is here already; it does not wait for the log, unless the consumer has to be replaced. It
// gives none any more once ctx has ended, however many are here.
func (f *Frames) Ready(ctx context.Context) (s Stored, ok bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return s, false, err
		}
		if err := f.ask(); err != nil {
			if err = f.again(ctx, err); err != nil {
				return s, false, err
			}
		}
		select {
		case m := <-f.in:
			if s, ok, err = f.message(ctx, m); err != nil || ok {
				return s, ok, err
			}
		default:
			return s, false, nil
		}
	}
}

// message reads one message of the consumer; ok says that it is a frame.
func (f *Frames) message(ctx context.Context, m *nats.Msg) (s Stored, ok bool, err error) {
	if status := m.Header["Status"]; len(status) > 0 && len(m.Data) == 0 {
		if err := f.told(m, status[0], f.delivered); err != nil {
			return s, false, f.again(ctx, err)
		}
		return s, false, nil
	}
	d, ok := deliveryOf(m.Reply)
	if !ok {
		return s, false, fmt.Errorf("read %s: %w: a delivery has the reply subject %q", f.l.addr, ErrDamaged, m.Reply)
	}
	if d.consumerSeq != f.delivered+1 || d.streamSeq < f.next {
		return s, false, f.again(ctx, fmt.Errorf("delivery %d comes after %d", d.consumerSeq, f.delivered))
	}
	f.delivered, f.next = d.consumerSeq, d.streamSeq+1
	f.took(m.Size())
	return Stored{Seq: d.streamSeq, Payload: m.Data, Time: time.Unix(0, d.unixNano)}, true, nil
}

// begin makes a consumer that begins at the next frame.
func (f *Frames) begin(ctx context.Context) error {
	f.consumer, f.delivered, f.in = nuid.Next(), 0, make(chan *nats.Msg, aheadMessages+aheadStatuses)
	f.none()
	_, err := asked(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return f.l.js.CreateConsumer(ctx, f.l.name, jetstream.ConsumerConfig{
			Name: f.consumer, FilterSubject: f.l.record,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.next,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactive,
		})
	})
	if err != nil {
		return translate(err)
	}
	f.sub, err = f.l.nc.ChanSubscribe(f.l.nc.NewInbox(), f.in)
	return err
}

// again replaces the consumer, which was lost for a reason; it tries until ctx ends, or the log is gone.
func (f *Frames) again(ctx context.Context, why error) error {
	f.drop()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := f.l.Current(ctx)
		if err == nil {
			err = f.begin(ctx)
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("read %s: %w; begun again because of: %w", f.l.addr, err, why)
		}
		f.quiet.Reset(pause)
		select {
		case <-f.quiet.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drop gives the consumer up. One that can't be told goes after a while.
func (f *Frames) drop() {
	if f.sub != nil {
		_ = f.sub.Unsubscribe()
		f.sub = nil
	}
	if f.consumer != "" {
		_ = f.l.nc.PublishRequest(f.l.api("CONSUMER.DELETE", f.consumer), f.l.nc.NewInbox(), nil)
		f.consumer = ""
	}
}

// Close ends the reading.
func (f *Frames) Close() {
	f.quiet.Stop()
	f.l.nc.RemoveStatusListener(f.status)
	f.drop()
}
