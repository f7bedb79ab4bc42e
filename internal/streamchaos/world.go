package streamchaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// size is how many nats-servers and how many nodes there are.
const size = 3

// world is the processes and the connections among them. Nats-servers reach each other through routes, nodes reach them through
// lines, and clients reach nodes through fronts; what this process asks the nats-servers itself goes through doors, which nothing
// breaks.
type world struct {
	dir    string
	nats   [size]*process
	nova   [size]*process
	routes [size][size]*proxy // of a nats-server, to another one
	wall   *proxy             // what nats-servers are told of each other; nobody gets through
	lines  [size][size]*proxy // of a node, to a nats-server
	fronts [size]*proxy
	doors  [size]*proxy
	nc     *nats.Conn
	js     jetstream.JetStream
	system *nats.Conn // of the system account

	mu     sync.Mutex
	ports  [size]int // of the nats-servers' routes
	broken []error   // processes that ended by themselves
}

// newWorld starts everything, within ctx.
func newWorld(ctx context.Context, o Options) (_ *world, err error) {
	w := &world{dir: o.Dir}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if err := w.wire(o); err != nil {
		return nil, err
	}
	for i := range size {
		if w.ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	w.define()
	if err := eachOf(func(i int) error { return w.nats[i].start(ctx) }); err != nil {
		return nil, err
	}
	if err := w.connect(); err != nil {
		return nil, err
	}
	if err := w.ready(ctx); err != nil {
		return nil, err
	}
	return w, eachOf(func(i int) error { return w.nova[i].start(ctx) })
}

// wire makes the proxies.
func (w *world) wire(o Options) error {
	var change []swap
	for _, header := range o.unchecked {
		change = append(change, swap{[]byte(header), []byte("Gone" + header[4:])})
	}
	var errs []error
	made := func(change ...swap) *proxy {
		p, err := newProxy(change...)
		errs = append(errs, err)
		return p
	}
	for i := range size {
		w.fronts[i], w.doors[i] = made(), made()
		for j := range size {
			w.lines[i][j], w.routes[i][j] = made(change...), made()
		}
	}
	w.wall = made()
	return errors.Join(errs...)
}

// define says what the processes are.
func (w *world) define() {
	ended := func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.broken = append(w.broken, err)
	}
	for i := range size {
		n, v := fmt.Sprint("nats-", i), fmt.Sprint("nova-", i)
		w.nats[i] = &process{name: n, log: filepath.Join(w.dir, n+".log"), ended: ended, role: func() (role, error) { return w.natsRole(i) }, at: func(addr string) {
			w.doors[i].point(addr)
			for k := range size {
				w.lines[k][i].point(addr)
			}
		}}
		w.nova[i] = &process{name: v, log: filepath.Join(w.dir, v+".log"), ended: ended, role: func() (role, error) { return w.novaRole(i) }, at: w.fronts[i].point}
	}
}

func natsName(i int) string { return fmt.Sprint("nats-", i) }

// between are the proxies between a nats-server and the others.
func (w *world) between(i int) (all []*proxy) {
	for j := range size {
		if j != i {
			all = append(all, w.routes[i][j], w.routes[j][i])
		}
	}
	return all
}

// natsRole writes the configuration of a nats-server. A port for routes that somebody has taken meanwhile is chosen anew.
func (w *world) natsRole(i int) (role, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if isFree(w.ports[i]) != nil {
		port, err := freePort()
		if err != nil {
			return role{}, err
		}
		w.ports[i] = port
	}
	var routes []string
	for j := range size {
		if j != i {
			routes = append(routes, "nats://"+w.routes[i][j].addr())
			w.routes[j][i].point(fmt.Sprintf("127.0.0.1:%d", w.ports[i]))
		}
	}
	config := fmt.Sprintf(`
server_name: %s
listen: "127.0.0.1:-1"
logfile: %q
logtime: true
jetstream { store_dir: %q, sync_interval: always }
cluster { name: chaos, listen: "127.0.0.1:%d", advertise: %q, no_advertise: true, routes: [%s] }
accounts {
  SYS { users: [{user: system, password: system}] }
  STREAMS { jetstream: enabled, users: [{user: nova, password: nova}] }
}
system_account: SYS
no_auth_user: nova
`, natsName(i), filepath.Join(w.dir, natsName(i)+".server.log"), filepath.Join(w.dir, natsName(i)), w.ports[i], w.wall.addr(), strings.Join(routes, ", "))
	file := filepath.Join(w.dir, natsName(i)+".conf")
	return role{Config: file}, os.WriteFile(file, []byte(config), 0o600)
}

func (w *world) novaRole(i int) (role, error) {
	var urls []string
	for j := range size {
		urls = append(urls, "nats://"+w.lines[i][(i+j)%size].addr())
	}
	return role{NATS: strings.Join(urls, ",")}, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// connect dials the nats-servers for this process's own questions.
func (w *world) connect() (err error) {
	var urls []string
	for i := range size {
		urls = append(urls, "nats://"+w.doors[i].addr())
	}
	at := strings.Join(urls, ",")
	often := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.RetryOnFailedConnect(true)}
	if w.nc, err = nats.Connect(at, often...); err != nil {
		return err
	}
	if w.js, err = jetstream.New(w.nc); err != nil {
		return err
	}
	w.system, err = nats.Connect(at, append(often, nats.UserInfo("system", "system"))...)
	return err
}

// ready waits until the nats-servers have formed a cluster.
func (w *world) ready(ctx context.Context) error {
	return until(ctx, "JetStream", func(ctx context.Context) error {
		_, err := w.js.AccountInfo(ctx)
		return err
	})
}

// until calls f until it goes well or ctx ends. Each call has 5 s.
func until(ctx context.Context, what string, f func(context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := f(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		}
	}
}

// heal ends whatever a fault may have left, and has every process run.
func (w *world) heal(ctx context.Context) error {
	return eachOf(func(i int) error {
		return cmp.Or(w.nats[i].start(ctx), w.nova[i].start(ctx))
	})
}

// ended are the processes that ended by themselves.
func (w *world) ended() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]error(nil), w.broken...)
}

func (w *world) close() {
	for _, c := range []*nats.Conn{w.nc, w.system} {
		if c != nil {
			c.Close()
		}
	}
	for i := range size {
		for _, p := range []*process{w.nova[i], w.nats[i]} {
			if p != nil {
				p.kill()
			}
		}
		for _, p := range slices.Concat(w.lines[i][:], w.routes[i][:], []*proxy{w.fronts[i], w.doors[i], w.wall}) {
			if p != nil {
				p.close()
			}
		}
	}
}

// eachOf does something for each index at once, and joins what goes wrong.
func eachOf(f func(i int) error) error {
	var wg sync.WaitGroup
	var errs [size]error
	for i := range size {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}
