package novametrics

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestMetrics: what a server does is in its metrics.
func TestMetrics(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := New()
	if err := prometheus.NewPedanticRegistry().Register(m); err != nil {
		t.Fatal(err)
	}
	s, err := server.Open(ctx, server.Config{URL: natstest.New(t).URL()}, server.Options{Events: m.Events(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	c, err := client.New("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const addr = "nova://demo/events"
	if err := c.CreateStream(ctx, addr, client.StreamConfig{Memory: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(ctx, addr, client.Bodies([]byte("a"), []byte("bc"))...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AppendMatch(ctx, addr, 9, client.Bodies([]byte("x"))...); !errors.As(err, new(*client.SequenceError)) {
		t.Fatal(err)
	}
	if _, err := c.Fence(ctx, addr, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(ctx, addr, client.Bodies([]byte("x"))...); !errors.Is(err, client.ErrFencedOut) {
		t.Fatal(err)
	}
	p, err := c.OpenStream(ctx, addr, client.WithFencingToken("t"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Append(ctx, client.Bodies([]byte("d"))...); err != nil {
		t.Fatal(err)
	}
	read, readBytes := 0, 0
	for rec, err := range c.Read(ctx, addr, client.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		read++
		readBytes += 8 + len(rec.Body)
	}
	a, err := http.Get("http://" + l.Addr().String() + "/v1/demo/events/records?count=2")
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	gauges := `
# HELP nova_in_flight_bytes Bytes of batches that have no answer yet.
# TYPE nova_in_flight_bytes gauge
nova_in_flight_bytes 0
# HELP nova_sessions Append sessions that are open.
# TYPE nova_sessions gauge
nova_sessions 1
# HELP nova_streams_led Streams that this node leads.
# TYPE nova_streams_led gauge
nova_streams_led 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(gauges), "nova_sessions", "nova_streams_led", "nova_in_flight_bytes"); err != nil {
		t.Error(err)
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	const rpc = "/nova.v1.DataPlaneService/"
	for name, c := range map[string]struct {
		got  prometheus.Collector
		want float64
	}{
		"records":   {m.records.WithLabelValues("demo"), 3},
		"bytes":     {m.bytes.WithLabelValues("demo"), 8 + 1 + 8 + 2 + 8 + 1},
		"batches":   {m.batches.WithLabelValues("demo"), 2},
		"frames":    {m.frames.WithLabelValues("demo"), 2},
		"misses":    {m.misses.WithLabelValues("demo"), 1},
		"refusals":  {m.refusals.WithLabelValues("demo"), 1},
		"fences":    {m.fences.WithLabelValues("demo"), 1},
		"takeovers": {m.takeovers.WithLabelValues("demo"), 1},
		"recovered": {m.recoveries.WithLabelValues("demo"), 0},
		"created":   {m.requests.WithLabelValues(rpc+"CreateStream", "ok"), 1},
		"appended":  {m.requests.WithLabelValues(rpc+"Append", "ok"), 1},
		"refused":   {m.requests.WithLabelValues(rpc+"Append", "failed_precondition"), 2},
		"read":      {m.readRecords.WithLabelValues("demo"), float64(read + 2)},
		"readBytes": {m.readBytes.WithLabelValues("demo"), float64(readBytes + 8 + 1 + 8 + 2)},
	} {
		if got := testutil.ToFloat64(c.got); got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestEventsAreCounted: those that no quiet server has.
func TestEventsAreCounted(t *testing.T) {
	m := New()
	e := m.Events()
	e.Indefinite("demo", 3)
	e.Recovering("demo", errors.New("away"))
	e.Recovered("demo", time.Second)
	e.LeadEnded("demo", errors.New("superseded"))
	e.Call(server.Call{Method: "x", Code: "unavailable", Outcome: "unknown"})
	for name, c := range map[string]struct {
		got  prometheus.Collector
		want float64
	}{
		"given up": {m.givenUp.WithLabelValues("demo"), 3}, "recoveries": {m.recoveries.WithLabelValues("demo"), 1},
		"lost": {m.lost.WithLabelValues("demo"), 1}, "indefinite": {m.indefinite.WithLabelValues("x"), 1},
	} {
		if got := testutil.ToFloat64(c.got); got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
	if n := testutil.CollectAndCount(m.recovery); n != 1 {
		t.Errorf("%d series", n)
	}
}
