package jslog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
)

// readable is a log into whose subject of frames a test writes what it likes.
type readable struct {
	t   *testing.T
	ctx context.Context
	srv *natstest.Server
	nc  *nats.Conn
	js  jetstream.JetStream
	log *Log
	n   int // messages written
}

func newReadable(t *testing.T) *readable {
	t.Helper()
	r := &readable{t: t, srv: natstest.New(t)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r.nc = connect(t, func(o ...nats.Option) (*nats.Conn, error) {
		return r.srv.Connect(append(o, nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))...)
	})
	var err error
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	if r.log, err = Create(r.ctx, r.nc, r.js, nova.Addr{Namespace: "demo", Stream: "events"}, Config{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// write writes n messages, each of which says which one it is, also while the server is not there.
func (r *readable) write(n int) {
	r.t.Helper()
	for range n {
		m := &nats.Msg{Subject: r.log.record, Data: fmt.Append(nil, r.n)}
		for {
			ctx, cancel := context.WithTimeout(r.ctx, requestTimeout) // an answer may be lost with the connection
			_, err := r.js.PublishMsg(ctx, m, jetstream.WithMsgID(fmt.Sprint(r.n)))
			cancel()
			if err == nil {
				break
			}
			if r.ctx.Err() != nil {
				r.t.Fatal(err)
			}
		}
		r.n++
	}
}

func (r *readable) frames() *Frames {
	r.t.Helper()
	seq, err := r.log.LastSeq(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := r.log.Frames(r.ctx, seq+1) // behind what creation wrote
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(f.Close)
	return f
}

// read reads messages from one number up to another.
func (r *readable) read(f *Frames, from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		s, err := f.Next(r.ctx)
		if err != nil {
			r.t.Fatalf("message %d: %v", i, err)
		}
		if string(s.Payload) != fmt.Sprint(i) || s.Seq == 0 || time.Since(s.Time) > time.Hour {
			r.t.Fatalf("message %d is %q, at %d of %v", i, s.Payload, s.Seq, s.Time)
		}
	}
}

// TestACancelledReadEnds: also while frames are at hand.
func TestACancelledReadEnds(t *testing.T) {
	r := newReadable(t)
	f := r.frames()
	r.write(3)
	r.read(f, 0, 1)
	for { // until the next one is here
		if s, ok, err := f.Ready(r.ctx); err != nil {
			t.Fatal(err)
		} else if ok && string(s.Payload) == "1" {
			break
		}
	}
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if s, ok, err := f.Ready(ctx); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v, %v after the cancel", s.Payload, ok, err)
	}
}

func (r *readable) consumers() []string {
	r.t.Helper()
	st, err := r.js.Stream(r.ctx, r.log.name)
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	l := st.ConsumerNames(r.ctx)
	for name := range l.Name() {
		names = append(names, name)
	}
	if err := l.Err(); err != nil {
		r.t.Fatal(err)
	}
	return names
}

// TestFramesOutliveTheirConsumer: whatever becomes of the consumer, no frame is left out, and none comes twice.
func TestFramesOutliveTheirConsumer(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(r *readable, f *Frames)
	}{
		{"deleted", func(r *readable, f *Frames) {
			if err := r.js.DeleteConsumer(r.ctx, r.log.name, f.consumer); err != nil {
				r.t.Fatal(err)
			}
		}},
		{"connection lost", func(r *readable, _ *Frames) {
			if err := r.srv.DropClients(); err != nil {
				r.t.Fatal(err)
			}
		}},
		{"server restarted", func(r *readable, _ *Frames) {
			r.srv.Stop()
			if err := r.srv.Restart(); err != nil {
				r.t.Fatal(err)
			}
		}},
		{"a message lost", func(r *readable, f *Frames) {
			select {
			case <-f.in:
			case <-r.ctx.Done():
				r.t.Fatal("nothing came")
			}
		}},
		{"the last messages lost", func(r *readable, f *Frames) {
			for range 7 {
				select {
				case <-f.in:
				case <-r.ctx.Done():
					r.t.Fatal("nothing came")
				}
			}
			f.in <- &nats.Msg{Header: nats.Header{"Status": {"100"}, "Nats-Last-Consumer": {"10"}}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReadable(t)
			f := r.frames()
			r.write(10)
			r.read(f, 0, 3)
			c.harm(r, f)
			r.read(f, 3, 10)
			r.write(5)
			r.read(f, 10, 15)
			if s, ok, err := f.Ready(r.ctx); ok || err != nil {
				t.Errorf("after the last one comes %q, %v", s.Payload, err)
			}
		})
	}
}

// TestAReaderIsSentWhatItAskedFor: one that takes nothing is sent a bounded number of messages, of which none is lost.
func TestAReaderIsSentWhatItAskedFor(t *testing.T) {
	r := newReadable(t)
	f := r.frames()
	if _, ok, err := f.Ready(r.ctx); ok || err != nil {
		t.Fatal("it has something", err)
	}
	r.write(aheadMessages + 500)
	for len(f.in) < aheadMessages {
		if r.ctx.Err() != nil {
			t.Fatalf("%d messages came", len(f.in))
		}
	}
	consumer := f.consumer
	r.read(f, 0, aheadMessages+500)
	if f.consumer != consumer {
		t.Error("the consumer was replaced")
	}
}

// TestClosedFramesLeaveNoConsumer: neither do those that were replaced.
func TestClosedFramesLeaveNoConsumer(t *testing.T) {
	r := newReadable(t)
	f := r.frames()
	if err := f.again(r.ctx, errNotHeard); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for {
		left := r.consumers()
		if len(left) == 0 {
			return
		}
		if r.ctx.Err() != nil {
			t.Fatalf("left: %q", left)
		}
	}
}

// TestFramesOfALogThatIsGone: reading ends, also when there is another log of its name by then.
func TestFramesOfALogThatIsGone(t *testing.T) {
	for _, anew := range []bool{false, true} {
		r := newReadable(t)
		f := r.frames()
		r.write(1)
		r.read(f, 0, 1)
		if err := r.js.DeleteStream(r.ctx, r.log.name); err != nil {
			t.Fatal(err)
		}
		if anew {
			if _, err := Create(r.ctx, r.nc, r.js, r.log.addr, Config{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Next(r.ctx); !errors.Is(err, ErrNotFound) {
			t.Errorf("made anew %v: %v", anew, err)
		}
	}
}

func TestFramesEndWithTheirContext(t *testing.T) {
	r := newReadable(t)
	f := r.frames()
	ctx, cancel := context.WithCancel(r.ctx)
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.srv.Stop()
	ctx, cancel = context.WithCancel(r.ctx)
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := f.Next(ctx); !errors.Is(err, context.Canceled) { // without a server to begin again at
		t.Fatal(err)
	}
}

// TestAhead: what is asked for stays within bounds, whatever comes, and there is always some.
func TestAhead(t *testing.T) {
	const most = 4 << 20
	type request struct{ messages, bytes int }
	for _, size := range []int{1, 300, 1000, 1500, 5000, 200_000, most / 4} {
		a := ahead{most: most}
		var open []request // at the server, which serves one after the other
		for range 50_000 {
			if m, b := a.want(); m > 0 {
				if b < most/4 {
					t.Fatalf("size %d: asks for %d messages, %d bytes", size, m, b)
				}
				a.messages, a.bytes = a.messages+m, a.bytes+b
				open = append(open, request{m, b})
			}
			if a.messages > aheadMessages || a.bytes > most+most/2 || len(open) == 0 {
				t.Fatalf("size %d: %d messages, %d bytes in %d requests", size, a.messages, a.bytes, len(open))
			}
			q := &open[0]
			if q.bytes < size { // the server ends it
				a.gone(q.messages, q.bytes)
				open = open[1:]
				continue
			}
			a.took(size)
			q.messages, q.bytes = q.messages-1, q.bytes-size
			if q.messages == 0 {
				a.gone(0, q.bytes)
				open = open[1:]
			}
		}
	}
}

func TestRequestsThatEnd(t *testing.T) {
	status := func(s string, pairs ...string) *nats.Msg {
		m := &nats.Msg{Header: nats.Header{"Status": {s}}}
		for i := 0; i < len(pairs); i += 2 {
			m.Header[pairs[i]] = []string{pairs[i+1]}
		}
		return m
	}
	for _, c := range []struct {
		m               *nats.Msg
		lost            bool
		messages, bytes int // that are left
	}{
		{status("408", "Nats-Pending-Messages", "10", "Nats-Pending-Bytes", "100"), false, 90, 900},
		{status("409", "Nats-Pending-Messages", "0", "Nats-Pending-Bytes", "5000"), false, 100, 0},
		{status("409", "Description", "Consumer Deleted"), true, 100, 1000},
		{status("503"), true, 100, 1000},
		{status("100"), false, 100, 1000},
		{status("100", "Nats-Last-Consumer", "7"), false, 100, 1000},
		{status("100", "Nats-Last-Consumer", "8"), true, 100, 1000},
	} {
		a := ahead{most: 1000, messages: 100, bytes: 1000}
		err := a.told(c.m, c.m.Header.Get("Status"), 7)
		if (err != nil) != c.lost || a.messages != c.messages || a.bytes != c.bytes {
			t.Errorf("%v: %v, %d messages and %d bytes left", c.m.Header, err, a.messages, a.bytes)
		}
	}
}

// TestDeliveries: a reply subject is read in its old and its new form.
func TestDeliveries(t *testing.T) {
	for _, s := range []string{
		"$JS.ACK.NOVA=demo=events.c.1.12.3.1790000000000000000.5",
		"$JS.ACK.hub.account.NOVA=demo=events.c.1.12.3.1790000000000000000.5",
		"$JS.ACK.hub.account.NOVA=demo=events.c.1.12.3.1790000000000000000.5.random",
		"$JS.ACK._.account.S.c.1.18446744073709551616.3.4.5.random",
		"$JS.ACK.S.c.1.12.3.4", "$JS.ACK.S.c.1.0.3.4.5", "$JS.ACK.S.c.1.x.3.4.5", "$JS.ACK.a.S.c.1.2.3.4.5", "inbox", "",
	} {
		d, ok := deliveryOf(s)
		want := strings.Contains(s, "=events")
		if ok != want || ok && d != (delivery{12, 3, 1790000000000000000}) {
			t.Errorf("%q is %+v, %v", s, d, ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { deliveryOf("$JS.ACK.hub.account.S.c.1.12.3.1790000000000000000.5.random") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
