package natstest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Cluster is servers that replicate JetStream among each other, on the loopback.
type Cluster struct {
	Servers []*Server
	routes  []int // each server's route port, fixed after its first start
}

// portTries is how often a cluster is begun: somebody else may take a port between its choice and its use.
const portTries = 3

// NewCluster runs n servers, and waits until they can make replicated streams.
func NewCluster(tb testing.TB, n int, options ...Options) *Cluster {
	tb.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 10 * time.Second
	}
	c := &Cluster{}
	tb.TempDir() // has the folders' removal registered before, so that it comes after the servers have stopped
	tb.Cleanup(func() { c.stop() })
	var err error
	for range portTries {
		if err = c.start(tb, n, o); err == nil {
			break
		}
		c.stop()
	}
	if err == nil {
		err = c.Wait(30 * time.Second)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (c *Cluster) stop() {
	for _, s := range c.Servers {
		s.Stop()
	}
}

// start runs n new servers on new ports.
func (c *Cluster) start(tb testing.TB, n int, o Options) error {
	tb.Helper()
	c.Servers, c.routes = nil, nil
	for i := range n {
		c.routes = append(c.routes, freePort(tb))
		own := o
		own.StoreDir = tb.TempDir()
		own.Tune = func(s *server.Options) { c.tune(i, s, o.Tune) }
		c.Servers = append(c.Servers, &Server{opts: own, dir: own.StoreDir, port: server.RANDOM_PORT})
	}
	for _, s := range c.Servers {
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

// tune makes server i one of the cluster, and has the caller's tune the last word.
func (c *Cluster) tune(i int, s *server.Options, tune func(*server.Options)) {
	s.ServerName = "natstest-" + strconv.Itoa(i)
	s.Cluster = server.ClusterOpts{Name: "natstest", Host: "127.0.0.1", Port: c.routes[i]}
	s.Routes = nil
	for j, port := range c.routes {
		if j != i {
			s.Routes = append(s.Routes, server.RoutesFromStr("nats://127.0.0.1:"+strconv.Itoa(port))...)
		}
	}
	if tune != nil {
		tune(s)
	}
}

// freePort is a port that was free a moment ago: routes must be known before the servers that they lead to run.
func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Wait waits until JetStream has a leader that all running servers follow, and that has heard from each of them what it has room
// for: until then it places no replica there.
func (c *Cluster) Wait(timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if c.ready() {
			return nil
		}
	}
	return fmt.Errorf("natstest: no JetStream leader within %v", timeout)
}

func (c *Cluster) ready() bool {
	running, known := 0, 0
	for _, s := range c.Servers {
		srv := s.Server()
		if srv == nil {
			continue
		}
		if running++; !srv.JetStreamIsCurrent() {
			return false
		}
		if srv.JetStreamIsLeader() {
			known = len(srv.JetStreamClusterPeers())
		}
	}
	return known >= max(running, 1)
}

// Connect dials the servers, in this order beginning with one of them.
func (c *Cluster) Connect(first int, options ...nats.Option) (*nats.Conn, error) {
	var urls string
	for i := range c.Servers {
		if i > 0 {
			urls += ","
		}
		urls += c.Servers[(first+i)%len(c.Servers)].URL()
	}
	return nats.Connect(urls, append([]nats.Option{nats.DontRandomize()}, options...)...)
}

// StepDown has the leader of a stream give its lead up.
func (c *Cluster) StepDown(stream string) error {
	for _, s := range c.Servers {
		if srv := s.Server(); srv != nil && srv.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return srv.JetStreamStepdownStream(server.DEFAULT_GLOBAL_ACCOUNT, stream)
		}
	}
	return errors.New("natstest: the stream has no leader")
}
