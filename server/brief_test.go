package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestABriefReadIsTheSameRead: over every protocol, from every start, with every limit, in a stream of records of all forms
// whose times stand still and move, a brief read gives what another one does.
func TestABriefReadIsTheSameRead(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := rand.New(rand.NewPCG(13, 0))
	var now atomic.Int64 // from 0 on: records without a time, too
	s := serve(t, natstest.New(t), server.Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	s.create(ctx)
	all := mixed(ctx, t, s.rpc(), r, &now)
	for name, options := range protocols {
		t.Run(name, func(t *testing.T) {
			c, left := s.rpc(options...), 0
			for range 12 {
				q := someRead(r, uint64(len(all)), now.Load())
				plain, _, err := readAll(ctx, c, q)
				if err != nil {
					t.Fatalf("%v: %v", q, err)
				}
				q.Brief = true
				got, n, err := readAll(ctx, c, q)
				if err != nil {
					t.Fatalf("%v: %v", q, err)
				}
				if left += n; !slices.EqualFunc(got, plain, same) {
					t.Fatalf("%v: %d records, not the %d that it is without brief", q, len(got), len(plain))
				}
				for i, rec := range got {
					if !same(rec, all[rec.GetSeqNum()]) || i > 0 && rec.GetSeqNum() != got[i-1].GetSeqNum()+1 {
						t.Fatalf("%v: record %d at place %d is not what was appended, or out of order", q, rec.GetSeqNum(), i)
					}
				}
			}
			if (left > 0) != (name != "connect json") {
				t.Errorf("%d times were left out", left)
			}
		})
	}
}

func same(a, b *novav1.SequencedRecord) bool { return proto.Equal(a, b) }

// mixed appends records of all forms, and is what a read has to give.
func mixed(ctx context.Context, t *testing.T, c novav1connect.DataPlaneServiceClient, r *rand.Rand, now *atomic.Int64) (all []*novav1.SequencedRecord) {
	t.Helper()
	for range 40 {
		b := &novav1.Batch{}
		for range 1 + r.IntN(60) {
			rec := &novav1.Record{}
			switch r.IntN(15) {
			case 0: // neither body nor header
			case 1:
				rec.Body = bytes.Repeat([]byte{1}, []int{127, 128, 16383, 16384, 20000}[r.IntN(5)])
			case 2, 3:
				rec.Headers = []*novav1.Header{{Name: "n", Value: []byte("v")}, {}}
				fallthrough
			default:
				rec.Body = fmt.Append(nil, r.Uint64())
			}
			b.Records = append(b.Records, rec)
		}
		for _, rec := range b.GetRecords() {
			all = append(all, &novav1.SequencedRecord{SeqNum: uint64(len(all)), Timestamp: now.Load(), Body: rec.GetBody(), Headers: rec.GetHeaders()})
		}
		if _, err := c.Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: b})); err != nil {
			t.Fatal(err)
		}
		now.Add(int64(max(r.IntN(4)-1, 0)))
	}
	return all
}

// someRead is a read of some place, which does not follow, or follows up to a limit.
func someRead(r *rand.Rand, tail uint64, now int64) *novav1.ReadRequest {
	q := &novav1.ReadRequest{Addr: addr, Clamp: r.IntN(2) == 0}
	from := r.Uint64N(tail)
	switch r.IntN(4) {
	case 0: // from the beginning
		from = 0
	case 1:
		q.Start = &novav1.ReadRequest_SeqNum{SeqNum: from}
	case 2:
		q.Start, from = &novav1.ReadRequest_TailOffset{TailOffset: from}, tail-from
	default:
		q.Start, from = &novav1.ReadRequest_Timestamp{Timestamp: r.Int64N(now)}, tail // no limit that it could miss
	}
	if r.IntN(2) == 0 {
		q.Limit = 1 + r.Uint64N(tail/2)
		q.Follow = q.Limit <= tail-from
	}
	return q
}

// readAll is what a read gives, with what was left out of it, and how many records had no time of their own.
func readAll(ctx context.Context, c novav1connect.DataPlaneServiceClient, q *novav1.ReadRequest) (all []*novav1.SequencedRecord, left int, err error) {
	stream, err := c.Read(ctx, connect.NewRequest(q))
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	for stream.Receive() {
		records := stream.Msg().GetRecords()
		for i, rec := range records {
			if i > 0 && rec.GetSeqNum() == 0 {
				rec.SeqNum = records[i-1].GetSeqNum() + 1
			}
			if i > 0 && rec.GetTimestamp() == 0 && records[i-1].GetTimestamp() != 0 {
				rec.Timestamp = records[i-1].GetTimestamp()
				left++
			}
		}
		all = append(all, records...)
	}
	return all, left, stream.Err()
}
