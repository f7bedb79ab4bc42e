package server

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/reader"
)

// TestALinkThatIsDeadIsNoticed: the connection is asked often, unless whoever opens the server wants it otherwise; and nothing is
// kept for later in any case.
func TestALinkThatIsDeadIsNoticed(t *testing.T) {
	for _, c := range []struct {
		own      []nats.Option
		interval time.Duration
		pings    int
	}{
		{nil, 10 * time.Second, 2},
		{[]nats.Option{nats.PingInterval(time.Minute), nats.MaxPingsOutstanding(5), nats.ReconnectBufSize(1 << 20)}, time.Minute, 5},
	} {
		o := nats.GetDefaultOptions()
		for _, set := range (Config{Connect: c.own}).options() {
			if err := set(&o); err != nil {
				t.Fatal(err)
			}
		}
		if o.PingInterval != c.interval || o.MaxPingsOut != c.pings || o.ReconnectBufSize != -1 || o.MaxReconnect != -1 {
			t.Errorf("%v and %d pings, a buffer of %d, %d reconnects", o.PingInterval, o.MaxPingsOut, o.ReconnectBufSize, o.MaxReconnect)
		}
	}
}

// TestACallerThatNobodyNamedMayDoNothing: with Auth, a path that forgets to ask who calls is refused.
func TestACallerThatNobodyNamedMayDoNothing(t *testing.T) {
	a, err := NewAuth(Grant{Name: "n", Token: "t", Namespaces: map[string][]Verb{"*": verbs}})
	if err != nil {
		t.Fatal(err)
	}
	guarded, open := newServer(nil, Options{Auth: a}), newServer(nil, Options{})
	known, err := a.who("Bearer t")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verbs {
		if guarded.may(context.Background(), v, "demo") == nil || (caller{}).may(v, "demo") {
			t.Errorf("nobody may %s", v)
		}
		if err := guarded.may(context.WithValue(context.Background(), callerKey{}, known), v, "demo"); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		if err := open.may(context.Background(), v, "demo"); err != nil {
			t.Errorf("without Auth, %s: %v", v, err)
		}
	}
}

// TestAnEventStreamsErrorIsAWholeProblem, as an answer would have had.
func TestAnEventStreamsErrorIsAWholeProblem(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set(RequestIDHeader, "r1")
	e := &events{w: w}
	e.fail(problemOf(&reader.OutOfRangeError{SeqNum: 1, First: nova.Position{SeqNum: 3, Timestamp: 4}, Tail: nova.Position{SeqNum: 7, Timestamp: 8}}))
	const want = "event: error\ndata: {\"code\":\"out_of_range\",\"message\":\"record 1 is out of range: the stream has records from 3 on, and its tail is 7\"," +
		"\"tail\":{\"seq_num\":7,\"timestamp\":8},\"first\":{\"seq_num\":3,\"timestamp\":4},\"request_id\":\"r1\"}\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("%q\nnot\n%q", got, want)
	}
}
