package server

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// rpc is the service over gRPC and Connect. Errors become Connect errors in guard.
type rpc struct{ s *Server }

func (r rpc) Append(ctx context.Context, q *connect.Request[novav1.AppendRequest]) (*connect.Response[novav1.AppendResponse], error) {
	st, err := r.s.stream(ctx, VerbAppend, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	a := sequencer.Append{Records: recordsOf(q.Msg.GetBatch())}
	a.Token = q.Msg.GetFencingToken()
	if b := q.Msg.GetBatch(); b != nil && b.MatchSeqNum != nil {
		a.HasMatch, a.Match = true, b.GetMatchSeqNum()
	}
	got, err := r.s.append(ctx, st, a)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&novav1.AppendResponse{Start: positionOf(got.Start), End: positionOf(got.End), Tail: positionOf(got.Tail)}), nil
}

func recordsOf(b *novav1.Batch) []nova.Record {
	records := make([]nova.Record, len(b.GetRecords()))
	for i, r := range b.GetRecords() {
		records[i].Body = r.GetBody()
		if hs := r.GetHeaders(); len(hs) > 0 {
			records[i].Headers = make([]nova.Header, len(hs))
			for j, h := range hs {
				records[i].Headers[j] = nova.Header{Name: h.GetName(), Value: h.GetValue()}
			}
		}
	}
	return records
}

func (r rpc) Tail(ctx context.Context, q *connect.Request[novav1.TailRequest]) (*connect.Response[novav1.TailResponse], error) {
	st, err := r.s.stream(ctx, VerbRead, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	now, err := st.Stands(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&novav1.TailResponse{Tail: positionOf(now.Tail)}), nil
}

func (r rpc) Fence(ctx context.Context, q *connect.Request[novav1.FenceRequest]) (*connect.Response[novav1.FenceResponse], error) {
	st, err := r.s.stream(ctx, VerbFence, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	tail, err := st.Fence(ctx, q.Msg.GetFencingToken())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&novav1.FenceResponse{Tail: positionOf(tail)}), nil
}

func (r rpc) FencingToken(ctx context.Context, q *connect.Request[novav1.FencingTokenRequest]) (*connect.Response[novav1.FencingTokenResponse], error) {
	st, err := r.s.stream(ctx, VerbRead, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	now, err := st.Stands(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&novav1.FencingTokenResponse{FencingToken: now.Token}), nil
}

func (r rpc) Trim(ctx context.Context, q *connect.Request[novav1.TrimRequest]) (*connect.Response[novav1.TrimResponse], error) {
	st, err := r.s.stream(ctx, VerbAdmin, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	first, err := st.Trim(ctx, q.Msg.GetSeqNum())
	if err != nil {
		return nil, changing(err)
	}
	return connect.NewResponse(&novav1.TrimResponse{First: positionOf(first)}), nil
}

func (r rpc) CreateStream(ctx context.Context, q *connect.Request[novav1.CreateStreamRequest]) (*connect.Response[novav1.CreateStreamResponse], error) {
	a, err := r.s.allowed(ctx, VerbAdmin, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	c := jslog.Config{Replicas: int(q.Msg.GetReplicas()), Memory: q.Msg.GetMemory(), Retention: retentionOf(q.Msg.GetRetention())}
	if err := r.s.node.Create(ctx, a, c); err != nil {
		return nil, changing(err)
	}
	return connect.NewResponse(&novav1.CreateStreamResponse{}), nil
}

func retentionOf(r *novav1.Retention) jslog.Retention {
	return jslog.Retention{MaxAge: r.GetMaxAge().AsDuration(), MaxBytes: r.GetMaxBytes(), MaxRecords: r.GetMaxRecords()}
}

func (r rpc) ListStreams(ctx context.Context, q *connect.Request[novav1.ListStreamsRequest]) (*connect.Response[novav1.ListStreamsResponse], error) {
	all, err := r.s.list(ctx, q.Msg.GetNamespace())
	if err != nil {
		return nil, err
	}
	out := &novav1.ListStreamsResponse{}
	for _, d := range all {
		out.Streams = append(out.Streams, streamOf(d))
	}
	return connect.NewResponse(out), nil
}

func streamOf(d jslog.Description) *novav1.Stream {
	s := &novav1.Stream{
		Addr: d.Addr.String(), Created: timestamppb.New(d.Created), Replicas: uint32(max(d.Replicas, 0)), Memory: d.Memory, Bytes: d.Bytes,
		Retention: &novav1.Retention{MaxBytes: d.Retention.MaxBytes, MaxRecords: d.Retention.MaxRecords},
	}
	if d.Retention.MaxAge > 0 {
		s.Retention.MaxAge = durationpb.New(d.Retention.MaxAge)
	}
	return s
}

func (r rpc) DescribeStream(ctx context.Context, q *connect.Request[novav1.DescribeStreamRequest]) (*connect.Response[novav1.DescribeStreamResponse], error) {
	st, err := r.s.stream(ctx, VerbRead, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	d, err := describe(ctx, st)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&novav1.DescribeStreamResponse{
		Stream: streamOf(d.Description), First: positionOf(d.first), Tail: positionOf(d.tail), FencingToken: d.token, Leader: d.leader,
	}), nil
}

func (r rpc) DeleteStream(ctx context.Context, q *connect.Request[novav1.DeleteStreamRequest]) (*connect.Response[novav1.DeleteStreamResponse], error) {
	a, err := r.s.allowed(ctx, VerbAdmin, q.Msg.GetAddr())
	if err != nil {
		return nil, err
	}
	if err := r.s.node.Delete(ctx, a); err != nil {
		return nil, changing(err)
	}
	return connect.NewResponse(&novav1.DeleteStreamResponse{}), nil
}

func (r rpc) Read(ctx context.Context, q *connect.Request[novav1.ReadRequest], out *connect.ServerStream[novav1.ReadResponse]) error {
	st, err := r.s.stream(ctx, VerbRead, q.Msg.GetAddr())
	if err != nil {
		return err
	}
	start := reader.Start{Clamp: q.Msg.GetClamp()}
	switch from := q.Msg.GetStart().(type) {
	case *novav1.ReadRequest_SeqNum:
		start.N = from.SeqNum
	case *novav1.ReadRequest_TailOffset:
		start.Kind, start.N = reader.FromTail, from.TailOffset
	case *novav1.ReadRequest_Timestamp:
		start.Kind, start.N = reader.FromTime, uint64(max(from.Timestamp, 0))
	}
	p := pagesTo(out, directOf(ctx), q.Msg.GetBrief())
	next, err := r.s.read(ctx, st, start, q.Msg.GetLimit(), q.Msg.GetFollow(), r.s.counted(st.Log().Addr().Namespace, p))
	if err != nil {
		_ = p.Pause() // what was read before counts; of why it ended the other error tells more
		return err
	}
	return p.end(next)
}
