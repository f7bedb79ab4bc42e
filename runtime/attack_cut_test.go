package fold_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
)

// cable is a way to a server that can be cut.
type cable struct {
	net.Listener
	to    string
	mu    sync.Mutex
	isCut bool
	ends  []net.Conn
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l, to: strings.TrimPrefix(to, "nats://")}
	go c.serve()
	t.Cleanup(func() {
		_ = l.Close()
		c.cut(true)
	})
	return c
}

func (c *cable) serve() {
	for {
		near, err := c.Accept()
		if err != nil {
			return
		}
		c.join(near)
	}
}

func (c *cable) join(near net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	far, err := net.Dial("tcp", c.to)
	if err != nil || c.isCut {
		_ = near.Close()
		return
	}
	c.ends = append(c.ends, near, far)
	go func() { _, _ = io.Copy(near, far) }()
	go func() { _, _ = io.Copy(far, near) }()
}

func (c *cable) cut(isCut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = isCut
	for _, end := range c.ends {
		_ = end.Close()
	}
	c.ends = nil
}

// TestMarkerGoneWhileAScopeWasCutOff: the connection is back before the watch is given up, so nothing but the cut itself
// says that a delete in scope may have come and gone.
func TestMarkerGoneWhileAScopeWasCutOff(t *testing.T) {
	l := newLive(t, backends[0], natskv.BucketConfig{})
	c := newCable(t, l.srv.URL())
	far := openBucket(t, connect(t, "nats://"+c.Addr().String(), natskv.ConnectOptions{}), l.cfg)
	for _, domain := range []string{"long-lived", "zombie", "last"} {
		l.put(t, domain, "1")
	}
	scope, err := fold.Prefixes("route.t.")
	if err != nil {
		t.Fatal(err)
	}
	b := fold.NewBuilder(far, l.store(t, "node"), fold.Options{Scope: scope, Repair: fold.RepairOptions{AuditEvery: -1}, Logger: quiet})
	routes, err := ft.RegisterRoute(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	tb := &tables{f: f, routes: routes}
	tb.hydrated(t)
	c.cut(true)
	l.del(t, "zombie")
	l.purgeMarkers(t)
	rev := l.put(t, "c", "1")
	c.cut(false)
	applied(t, tb, fold.Seq(rev))
	wantRoute(t, tb, "t", "zombie", "1")
	if st := f.Status(); st.Owed != "markers" {
		t.Errorf("it owes %q", st.Owed)
	}
}
