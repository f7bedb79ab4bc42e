package server

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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
