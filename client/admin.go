package client

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
)

// Retention is what is removed from a stream's beginning. Zero removes nothing.
type Retention struct {
	MaxAge     time.Duration
	MaxBytes   uint64
	MaxRecords uint64
}

// StreamConfig makes a stream.
type StreamConfig struct {
	// Replicas are copies in the cluster; 0 is 1.
	Replicas uint32
	// Memory keeps the stream in memory; else it is on disk.
	Memory    bool
	Retention Retention
}

// Stream is what servers tell of a stream.
type Stream struct {
	Addr    string
	Created time.Time
	StreamConfig
	// Bytes are what the log holds.
	Bytes uint64
}

// Description is all that is told of one stream.
type Description struct {
	Stream
	// First is the first record that is kept.
	First, Tail  Tail
	FencingToken string
	// Leader is the node that leads the stream; "" for none.
	Leader string
}

// CreateStream makes the stream nova://namespace/stream. One that is there already is ErrExists: so it
// may be after ErrOutcomeUnknown, of an attempt before.
func (c *Client) CreateStream(ctx context.Context, addr string, s StreamConfig) error {
	ctx, cancel, err := c.writing(ctx)
	defer cancel()
	if err != nil {
		return fmt.Errorf("create %s: %w", addr, err)
	}
	q := &novav1.CreateStreamRequest{
		Addr: addr, Replicas: s.Replicas, Memory: s.Memory,
		Retention: &novav1.Retention{MaxBytes: s.Retention.MaxBytes, MaxRecords: s.Retention.MaxRecords},
	}
	if s.Retention.MaxAge > 0 {
		q.Retention.MaxAge = durationpb.New(s.Retention.MaxAge)
	}
	if _, err := c.rpc.CreateStream(ctx, connect.NewRequest(q)); err != nil {
		return fmt.Errorf("create %s: %w", addr, writeError(err, false))
	}
	return nil
}

// ListStreams are the streams of a namespace, or of all for "".
func (c *Client) ListStreams(ctx context.Context, namespace string) ([]Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.timeout)
	defer cancel()
	out, err := c.rpc.ListStreams(ctx, connect.NewRequest(&novav1.ListStreamsRequest{Namespace: namespace}))
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", readError(err))
	}
	all := make([]Stream, len(out.Msg.GetStreams()))
	for i, s := range out.Msg.GetStreams() {
		all[i] = streamOf(s)
	}
	return all, nil
}

func streamOf(s *novav1.Stream) Stream {
	r := s.GetRetention()
	return Stream{
		Addr: s.GetAddr(), Created: s.GetCreated().AsTime(), Bytes: s.GetBytes(),
		StreamConfig: StreamConfig{Replicas: s.GetReplicas(), Memory: s.GetMemory(), Retention: Retention{
			MaxAge: r.GetMaxAge().AsDuration(), MaxBytes: r.GetMaxBytes(), MaxRecords: r.GetMaxRecords(),
		}},
	}
}

// DescribeStream tells of one stream.
func (c *Client) DescribeStream(ctx context.Context, addr string) (*Description, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.timeout)
	defer cancel()
	out, err := c.rpc.DescribeStream(ctx, connect.NewRequest(&novav1.DescribeStreamRequest{Addr: addr}))
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", addr, readError(err))
	}
	m := out.Msg
	return &Description{
		Stream: streamOf(m.GetStream()), First: tailOf(m.GetFirst()), Tail: tailOf(m.GetTail()), FencingToken: m.GetFencingToken(), Leader: m.GetLeader(),
	}, nil
}

// DeleteStream removes a stream and all its records. After ErrOutcomeUnknown, ErrNotFound may be of an attempt before.
func (c *Client) DeleteStream(ctx context.Context, addr string) error {
	ctx, cancel, err := c.writing(ctx)
	defer cancel()
	if err != nil {
		return fmt.Errorf("delete %s: %w", addr, err)
	}
	if _, err := c.rpc.DeleteStream(ctx, connect.NewRequest(&novav1.DeleteStreamRequest{Addr: addr})); err != nil {
		return fmt.Errorf("delete %s: %w", addr, writeError(err, false))
	}
	return nil
}
