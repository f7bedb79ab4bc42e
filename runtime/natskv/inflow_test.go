package natskv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// idleWatch takes in messages without a server: so many are outstanding that it never asks for more.
func idleWatch(cfg BucketConfig, scope kv.Scope) *watch {
	b := &Bucket{name: "b", stream: "KV_b", prefix: "$KV.b.", cfg: cfg.withDefaults()}
	w := &watch{b: b, req: kv.OpenRequest{Scope: scope}, inbox: "_INBOX.x", wake: make(chan struct{}, 1), relist: true, listing: true}
	_, w.exact = scope.Filters()
	w.outstanding = math.MaxInt
	w.probed = unprobed
	return w
}

func delivery(rev, seq, pending int) *nats.Msg {
	return &nats.Msg{
		Subject: fmt.Sprintf("$KV.b.key.%d", rev),
		Reply:   fmt.Sprintf("$JS.ACK.KV_b.c.1.%d.%d.1700000000000000000.%d", rev, seq, pending),
		Data:    []byte("value"),
	}
}

func status(code, text string, more ...string) *nats.Msg {
	m := &nats.Msg{Subject: "_INBOX.x.0", Header: nats.Header{"Status": {code}, "Description": {text}}}
	for i := 0; i < len(more); i += 2 {
		m.Header[more[i]] = []string{more[i+1]}
	}
	return m
}

func next(t *testing.T, w *watch) (kv.Delivery, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return w.Next(ctx, kv.Delivery{}, 100, 1<<20)
}

func TestUnparsableReplyIsNoPosition(t *testing.T) {
	w := idleWatch(BucketConfig{}, kv.AllKeys())
	w.onMessage(delivery(5, 1, 2))
	bad := delivery(6, 2, 1)
	bad.Reply = "$JS.ACK.garbage"
	w.onMessage(bad)
	d, err := next(t, w)
	if err != nil || len(d.Updates) != 2 || d.Frontier != 5 {
		t.Fatalf("%+v, %v", d, err)
	}
	if u := d.Updates[1]; !u.Version.IsUnknown() || u.Key != "key.6" || string(u.Value) != "value" || u.Op != kv.OpPut {
		t.Fatalf("%+v", u)
	}
	w.onMessage(delivery(7, 3, 0)) // it counted as a delivery
	if d, err = next(t, w); err != nil || d.Frontier != 7 {
		t.Fatalf("%+v, %v", d, err)
	}
}

func TestAHoleEndsTheWatchAfterWhatCameBefore(t *testing.T) {
	for name, m := range map[string]*nats.Msg{
		"delivery left out":      delivery(9, 3, 0),
		"delivery again":         delivery(5, 1, 0),
		"revision going back":    delivery(4, 2, 0),
		"heartbeat ahead":        status("100", "Idle Heartbeat", "Nats-Last-Consumer", "2"),
		"consumer deleted":       status("409", "Consumer Deleted"),
		"server shutdown":        status("409", "Server Shutdown", "Nats-Pending-Messages", "3"),
		"leadership change":      status("409", "Leadership Change"),
		"no responders":          status("503", ""),
		"bad request":            status("400", "Bad Request"),
		"a status nobody knows":  status("777", "?"),
		"something without head": {Subject: "_INBOX.x.0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := idleWatch(BucketConfig{}, kv.AllKeys())
			w.onMessage(delivery(5, 1, 0))
			w.onMessage(m)
			w.onMessage(delivery(6, 2, 0)) // too late
			d, err := next(t, w)
			if err != nil || len(d.Updates) != 1 || d.Frontier != 5 {
				t.Fatalf("%+v, %v", d, err)
			}
			if _, err := next(t, w); !errors.Is(err, kv.ErrWatchLost) {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestHarmlessStatuses(t *testing.T) {
	w := idleWatch(BucketConfig{}, kv.AllKeys())
	w.onMessage(delivery(5, 1, 0))
	w.onMessage(status("100", "Idle Heartbeat", "Nats-Last-Consumer", "1"))
	before := w.outstanding
	w.onMessage(status("408", "Request Timeout", "Nats-Pending-Messages", "7"))
	w.onMessage(status("404", "No Messages", "Nats-Pending-Messages", "2"))
	w.onMessage(status("409", "Batch Completed", "Nats-Pending-Messages", "1"))
	if got := before - w.outstanding; got != 10 {
		t.Fatalf("%d messages were given back, want 10", got)
	}
	w.epoch++
	w.onMessage(status("408", "Request Timeout", "Nats-Pending-Messages", "7")) // of a request before the reconnect
	if got := before - w.outstanding; got != 10 {
		t.Fatalf("%d messages were given back, want 10", got)
	}
	w.onMessage(delivery(6, 2, 0))
	if d, err := next(t, w); err != nil || len(d.Updates) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
}

func TestHeadersDecideTheKind(t *testing.T) {
	for _, c := range []struct {
		header   nats.Header
		data     string
		emptyPut EmptyPut
		op       kv.Op
		reason   kv.Reason
	}{
		{nil, "v", EmptyPutIsTombstone, kv.OpPut, kv.ReasonUser},
		{nil, "", EmptyPutIsValue, kv.OpPut, kv.ReasonUser},
		{nil, "", EmptyPutIsTombstone, kv.OpDelete, kv.ReasonUser},
		{nats.Header{"X": {"y"}}, "", EmptyPutIsTombstone, kv.OpDelete, kv.ReasonUser},
		{nats.Header{"KV-Operation": {"DEL"}}, "", EmptyPutIsValue, kv.OpDelete, kv.ReasonUser},
		{nats.Header{"KV-Operation": {"PURGE"}}, "", EmptyPutIsValue, kv.OpPurge, kv.ReasonUser},
		{nats.Header{"Nats-Marker-Reason": {"MaxAge"}}, "", EmptyPutIsTombstone, kv.OpAgedOut, kv.ReasonMaxAge},
		{nats.Header{"Nats-Marker-Reason": {"Purge"}}, "", EmptyPutIsValue, kv.OpPurge, kv.ReasonPurge},
		{nats.Header{"Nats-Marker-Reason": {"Remove"}}, "", EmptyPutIsValue, kv.OpDelete, kv.ReasonRemove},
		{nats.Header{"Nats-Msg-Size": {"5"}}, "", EmptyPutIsTombstone, kv.OpPut, kv.ReasonUser},
		{nats.Header{"Nats-Msg-Size": {"0"}}, "", EmptyPutIsTombstone, kv.OpDelete, kv.ReasonUser},
	} {
		w := idleWatch(BucketConfig{EmptyPut: c.emptyPut}, kv.AllKeys())
		m := delivery(1, 1, 0)
		m.Header, m.Data = c.header, []byte(c.data)
		w.onMessage(m)
		d, err := next(t, w)
		if err != nil || d.Updates[0].Op != c.op || d.Updates[0].Reason != c.reason {
			t.Errorf("%v %q: %+v, %v", c.header, c.data, d, err)
		}
	}
}

func TestSilenceEndsTheWatch(t *testing.T) {
	w := idleWatch(BucketConfig{Watch: WatchConfig{Heartbeat: 20 * time.Millisecond}}, kv.AllKeys())
	w.heardAt, w.arrivedAt, w.dataAt, w.probedAt = time.Now(), time.Now(), time.Now(), time.Now()
	if _, err := next(t, w); !errors.Is(err, kv.ErrWatchLost) {
		t.Fatalf("error %v", err)
	}
}

func TestDeliveriesThatTheServerCountsMustArrive(t *testing.T) {
	w := idleWatch(BucketConfig{Watch: WatchConfig{Heartbeat: 20 * time.Millisecond}}, kv.AllKeys())
	past := time.Now().Add(-time.Minute)
	w.outstanding = 0
	w.pullBody = nil
	w.heardAt, w.arrivedAt, w.dataAt, w.probedAt = past, past, time.Now(), time.Now()
	w.claim = &claim{head: 9, delivered: 3, at: past}
	if err := w.checkAlive(); err != nil || !errors.Is(w.lost, kv.ErrWatchLost) {
		t.Fatalf("lost %v, %v", w.lost, err)
	}
}

// BenchmarkTakeIn is what this package adds to each delivery, both goroutines' shares.
func BenchmarkTakeIn(b *testing.B) {
	const n = 5000
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = delivery(i+1, i+1, n-i-1)
	}
	w := idleWatch(BucketConfig{}, kv.AllKeys())
	d := kv.Delivery{Updates: make([]kv.Update, 0, n)}
	b.ReportAllocs()
	defer reportCPU(b, n, cpuTime(b))
	for b.Loop() {
		w.inflow = inflow{parser: w.parser, in: w.in, outstanding: math.MaxInt}
		w.handed, w.told = mark{}, 0
		for _, m := range msgs {
			w.onMessage(m)
		}
		d.Updates = d.Updates[:0]
		var err error
		if d, err = w.Next(b.Context(), d, n, 1<<30); err != nil || len(d.Updates) != n {
			b.Fatal(len(d.Updates), err)
		}
	}
}
