package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/typedfold/fold/client"
	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
)

// shortener is a server of a stream that was trimmed, which leaves out of its records what a reader may be able to do without, or
// nothing, as one does that does not know of it, and which fails now and then.
type shortener struct {
	novav1connect.UnimplementedDataPlaneServiceHandler
	r     *rand.Rand
	brief bool
	fails int // one of so many messages; 0 is never
	all   []*novav1.SequencedRecord
	calls int
}

// first is the number of the first record that is kept.
func (s *shortener) first() uint64 { return s.all[0].GetSeqNum() }

func (s *shortener) Read(_ context.Context, q *connect.Request[novav1.ReadRequest], out *connect.ServerStream[novav1.ReadResponse]) error {
	s.calls++
	at := uint64(0)
	switch from := q.Msg.GetStart().(type) {
	case *novav1.ReadRequest_SeqNum:
		at = max(from.SeqNum, s.first()) - s.first()
	case *novav1.ReadRequest_TailOffset:
		at = uint64(len(s.all)) - min(from.TailOffset, uint64(len(s.all)))
	case *novav1.ReadRequest_Timestamp:
		for at < uint64(len(s.all)) && s.all[at].GetTimestamp() < from.Timestamp {
			at++
		}
	}
	left := s.all[at:]
	if n := q.Msg.GetLimit(); n > 0 {
		left = left[:min(n, uint64(len(left)))]
	}
	for len(left) > 0 {
		if s.fails > 0 && s.r.IntN(s.fails) == 0 {
			return unavailable()
		}
		n := 1 + s.r.IntN(min(len(left), []int{5, 300}[s.r.IntN(2)]))
		m := &novav1.ReadResponse{Next: &novav1.Position{SeqNum: left[n-1].GetSeqNum() + 1}}
		for i, rec := range left[:n] {
			sent := &novav1.SequencedRecord{SeqNum: rec.GetSeqNum(), Timestamp: rec.GetTimestamp(), Body: rec.GetBody(), Headers: rec.GetHeaders()}
			if s.brief && q.Msg.GetBrief() && i > 0 {
				if s.r.IntN(4) > 0 {
					sent.SeqNum = 0
				}
				if s.r.IntN(4) > 0 && rec.GetTimestamp() == left[i-1].GetTimestamp() {
					sent.Timestamp = 0
				}
			}
			m.Records = append(m.Records, sent)
		}
		if left = left[n:]; s.r.IntN(8) == 0 {
			m.Next = nil
		}
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// TestAReadOfBriefRecords: what a read yields does not depend on what the server leaves out, on how it cuts the records into
// messages, or on how often the connection is lost.
func TestAReadOfBriefRecords(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 13))
			s := &shortener{r: r, brief: seed%4 > 0, fails: []int{0, 3, 10}[r.IntN(3)]}
			first, now := []uint64{0, 1, 1 << 40}[r.IntN(3)], int64(r.IntN(3))
			for i := range 1 + r.Uint64N(300) {
				rec := &novav1.SequencedRecord{SeqNum: first + i, Timestamp: now, Body: make([]byte, r.IntN(3)*r.IntN(300))}
				if r.IntN(5) == 0 {
					rec.Headers = []*novav1.Header{{Name: "n"}}
				}
				if r.IntN(50) == 0 {
					rec.Body = make([]byte, 40_000) // more than what a client keeps in one piece
				}
				s.all, now = append(s.all, rec), now+int64(max(r.IntN(5)-3, 0))
			}
			o, want := options(r, s.all)
			mux := http.NewServeMux()
			mux.Handle(novav1connect.NewDataPlaneServiceHandler(s))
			c, err := client.New("http://fake", client.WithHTTPClient(inProcess{mux}))
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for rec, err := range c.Read(t.Context(), "nova://a/b", o) {
				if err != nil || got == len(want) {
					t.Fatalf("seed %d, %+v: after %d of %d records: %v", seed, o, got, len(want), err)
				}
				if w := want[got]; tell(rec.SeqNum, rec.Timestamp, rec.Body, len(rec.Headers)) != tell(w.GetSeqNum(), w.GetTimestamp(), w.GetBody(), len(w.GetHeaders())) {
					t.Fatalf("seed %d, %+v: record %d of %d, want %d of %d", seed, o, rec.SeqNum, rec.Timestamp, w.GetSeqNum(), w.GetTimestamp())
				}
				got++
			}
			if got != len(want) {
				t.Fatalf("seed %d, %+v: %d records of %d in %d attempts", seed, o, got, len(want), s.calls)
			}
		})
	}
}

// late is a server whose tail is older than the time that a read begins at. It loses the connection there at first.
type late struct {
	novav1connect.UnimplementedDataPlaneServiceHandler
	since int64
	calls int
}

func (s *late) Read(_ context.Context, q *connect.Request[novav1.ReadRequest], out *connect.ServerStream[novav1.ReadResponse]) error {
	if at, ok := q.Msg.GetStart().(*novav1.ReadRequest_Timestamp); !ok || at.Timestamp != s.since {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("it begins at %v", q.Msg.GetStart()))
	}
	if err := out.Send(&novav1.ReadResponse{Next: &novav1.Position{SeqNum: 2}}); err != nil {
		return err
	}
	if s.calls++; s.calls == 1 {
		return unavailable()
	}
	return out.Send(&novav1.ReadResponse{Records: []*novav1.SequencedRecord{{SeqNum: 5, Timestamp: s.since}, {}, {}}})
}

// TestAFollowerFromALaterTime waits for the first record that is not older, by the clock of the server: those that come before it
// are no gap, and are not there after a reconnect either.
func TestAFollowerFromALaterTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := time.Now().Add(time.Second)
		mux := http.NewServeMux()
		mux.Handle(novav1connect.NewDataPlaneServiceHandler(&late{since: since.UnixMilli()}))
		c, err := client.New("http://fake", client.WithHTTPClient(inProcess{mux}))
		if err != nil {
			t.Fatal(err)
		}
		next := uint64(5)
		for rec, err := range c.Read(t.Context(), "nova://a/b", client.ReadOptions{Since: since, Follow: true}) {
			if err != nil || rec.SeqNum != next || rec.Timestamp != since.UnixMilli() {
				t.Fatalf("record %d of %d comes where %d was due: %v", rec.SeqNum, rec.Timestamp, next, err)
			}
			next++
		}
		if next != 8 {
			t.Errorf("it ends before record %d", next)
		}
	})
}

func tell(seq uint64, at int64, body []byte, headers int) string {
	return fmt.Sprint(seq, at, len(body), headers)
}

// options are those of some read, and what it has to yield.
func options(r *rand.Rand, all []*novav1.SequencedRecord) (o client.ReadOptions, want []*novav1.SequencedRecord) {
	n := uint64(len(all))
	from := r.Uint64N(n)
	switch r.IntN(4) {
	case 0:
		o.SeqNum = all[from].GetSeqNum()
	case 1:
		o.Clamp, from = true, 0
	case 2:
		back := n - from
		o.TailOffset = &back
	default:
		at := all[from].GetTimestamp()
		for from > 0 && all[from-1].GetTimestamp() == at {
			from--
		}
		o.Since = time.UnixMilli(at)
	}
	want = all[from:]
	if r.IntN(2) == 0 {
		o.Limit = 1 + r.Uint64N(n)
		want = want[:min(o.Limit, uint64(len(want)))]
	}
	return o, want
}
