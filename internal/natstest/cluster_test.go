package natstest

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestClusterTakesOtherPorts: a route's port that somebody takes before the server does costs one try.
func TestClusterTakesOtherPorts(t *testing.T) {
	var taken []net.Listener
	c := NewCluster(t, 3, Options{StartTimeout: 3 * time.Second, Tune: func(o *server.Options) {
		if len(taken) > 0 {
			return
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Cluster.Port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		taken = append(taken, l)
	}})
	for _, port := range c.routes {
		if port == taken[0].Addr().(*net.TCPAddr).Port {
			t.Errorf("the cluster has port %d, which is taken", port)
		}
	}
	nc, err := c.Connect(0)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}
