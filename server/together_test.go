package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// packets counts the flushes of a response.
type packets struct {
	*httptest.ResponseRecorder
	n int
}

func (p *packets) Flush() { p.n++ }

// TestAnswersOfASessionAreSentTogether: not at each flush of what writes them, but when the session has no more to say.
func TestAnswersOfASessionAreSentTogether(t *testing.T) {
	out := &packets{ResponseRecorder: httptest.NewRecorder()}
	q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, novav1connect.DataPlaneServiceAppendSessionProcedure, strings.NewReader("batches"))
	together(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if b, err := io.ReadAll(q.Body); string(b) != "batches" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		h := heldOf(q.Context())
		h.send()
		if out.n != 0 {
			t.Error("nothing was written, and something sent")
		}
		for range 3 {
			_, _ = io.WriteString(w, "answer ")
			w.(http.Flusher).Flush()
		}
		if out.n != 0 {
			t.Errorf("%d packets before the session waits", out.n)
		}
		h.send()
		h.send()
		if out.n != 1 {
			t.Errorf("%d packets when it waits", out.n)
		}
	})).ServeHTTP(out, q)
	if got := out.Body.String(); got != "answer answer answer " {
		t.Errorf("%q", got)
	}
}

// TestOtherCallsAreSentAtOnce: a reader is told of each record as it comes.
func TestOtherCallsAreSentAtOnce(t *testing.T) {
	out := &packets{ResponseRecorder: httptest.NewRecorder()}
	q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, novav1connect.DataPlaneServiceReadProcedure, nil)
	together(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.(http.Flusher).Flush()
		heldOf(q.Context()).send()
		if d := directOf(q.Context()); d == nil || d.w != w {
			t.Errorf("a read's messages can't be written to its response: %v", d)
		}
	})).ServeHTTP(out, q)
	if out.n != 1 {
		t.Errorf("%d packets", out.n)
	}
}

// TestAcknowledgmentsAllocateNothing: one message serves a whole session, and has all of each result.
func TestAcknowledgmentsAllocateNothing(t *testing.T) {
	a := newAcknowledgment()
	for i := range uint64(2) {
		r := sequencer.Result{
			Start: nova.Position{SeqNum: 1 + i, Timestamp: 2}, End: nova.Position{SeqNum: 3 + i, Timestamp: 4}, Tail: nova.Position{SeqNum: 5 + i, Timestamp: 6},
		}
		want := &novav1.AppendSessionResponse{Message: &novav1.AppendSessionResponse_Ack_{Ack: &novav1.AppendSessionResponse_Ack{
			Start: positionOf(r.Start), End: positionOf(r.End), Tail: positionOf(r.Tail),
		}}}
		if got := a.of(r); !proto.Equal(got, want) {
			t.Errorf("%v, not %v", got, want)
		}
		if n := testing.AllocsPerRun(100, func() { a.of(r) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
