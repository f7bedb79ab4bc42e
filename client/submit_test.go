package client

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"golang.org/x/sync/semaphore"
)

// TestSubmitAllocs bounds what a Submit of one record costs: its ticket with a channel, and the batch's slices as they grow.
func TestSubmitAllocs(t *testing.T) {
	p := &Producer{room: semaphore.NewWeighted(1 << 40), wake: make(chan struct{}, 1), merge: mergeLimit(0)}
	ctx := context.Background()
	records := Bodies(make([]byte, 128))
	if n := testing.AllocsPerRun(5000, func() { p.Submit(ctx, records...) }); n > 3 {
		t.Fatalf("%v allocations", n)
	}
}

// counted answers nothing, and notes whether a transport could send a request again.
type counted struct{ requests, again int }

func (c *counted) Do(q *http.Request) (*http.Response, error) {
	c.requests++
	if q.GetBody != nil {
		c.again++
	}
	return nil, errors.New("the connection is lost")
}

func TestNoTransportSendsAnythingAgain(t *testing.T) {
	h := &counted{}
	c, err := New("http://nowhere", WithHTTPClient(h))
	if err != nil {
		t.Fatal(err)
	}
	_, one := c.AppendMatch(t.Context(), "nova://a/b", 1, Bodies([]byte("x"))...)
	_, fence := c.Fence(t.Context(), "nova://a/b", "t")
	if !errors.Is(one, ErrOutcomeUnknown) || !errors.Is(fence, ErrOutcomeUnknown) || h.requests != 2 || h.again != 0 {
		t.Fatalf("%v; %v; %+v", one, fence, h)
	}
}
