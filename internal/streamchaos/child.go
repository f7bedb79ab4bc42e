package streamchaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/server"
)

// childEnv tells a process what to be in place of all else.
const childEnv = "FOLD_STREAMCHAOS_CHILD"

// role is what a child is: a nats-server with this configuration file, or a node on these servers.
type role struct {
	Config string `json:",omitempty"`
	NATS   string `json:",omitempty"`
}

// readyWord begins the line by which a child says where it answers.
const readyWord = "ready"

// startLimit bounds the start of one child.
const startLimit = 60 * time.Second

// Child is a process of a run, if this one was started as such. It ends when the process that started it has ended, and is
// killed by it otherwise.
func Child(ctx context.Context) (is bool, err error) {
	env := os.Getenv(childEnv)
	if env == "" {
		return false, nil
	}
	var r role
	if err := json.Unmarshal([]byte(env), &r); err != nil {
		return true, fmt.Errorf("streamchaos child: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent, however that ended
		cancel()
	}()
	if r.Config != "" {
		return true, runNATS(ctx, r.Config, os.Stdout)
	}
	return true, runNova(ctx, r.NATS, os.Stdout)
}

func runNATS(ctx context.Context, config string, out io.Writer) error {
	o, err := natsserver.ProcessConfigFile(config)
	if err != nil {
		return fmt.Errorf("nats-server: %w", err)
	}
	o.NoSigs = true
	if err := isFree(o.Cluster.Port); err != nil {
		return err
	}
	s, err := natsserver.NewServer(o)
	if err != nil {
		return fmt.Errorf("nats-server: %w", err)
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(startLimit) {
		return errors.New("nats-server: not ready in time")
	}
	fmt.Fprintln(out, readyWord, s.Addr())
	<-ctx.Done()
	return nil
}

// errPort is a port that somebody else has.
var errPort = errors.New("the port is taken")

// isFree looks whether a port can be listened on; a nats-server says so only by never being ready.
func isFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w: %w", errPort, err)
	}
	return l.Close()
}

// runNova serves as nova serve --nats does.
func runNova(ctx context.Context, urls string, out io.Writer) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	opening, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s, err := server.Open(opening, server.Config{URL: urls, Connect: []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("nats: disconnected", "err", err) }),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("nats: connected again", "to", c.ConnectedUrl()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("nats: error", "err", err) }),
	}}, server.Options{Logger: log})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, readyWord, l.Addr())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
	}
	closing, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	if err = s.Shutdown(closing); errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.DeadlineExceeded) {
		err = nil // nobody listens any more
	}
	return err
}
