// Package quickstart gives the examples a NATS server: a real one when the user names it, else one inside the process.
// A service of one's own has natskv.Connect instead, and nothing of this.
package quickstart

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/natskv"
)

// NATS says which server to use.
type NATS struct {
	// Server is one or more URLs, with commas between; "" starts a server inside the process.
	Server string
	// CredsFile is the path of a .creds file.
	CredsFile string
	// Name is what the server's lists show this client as.
	Name string
	// Background starts without the server too, and connects when it is there.
	Background bool
}

// Flags adds --server and --creds.
func (n *NATS) Flags(fs *flag.FlagSet) {
	fs.StringVar(&n.Server, "server", "", "NATS `URL`; without it a server runs inside this process, and ends with it")
	fs.StringVar(&n.CredsFile, "creds", "", "NATS credentials `file`")
}

// Session is a connection, and the embedded server if there is one.
type Session struct {
	*natskv.Conn
	// URL is the embedded server's, "" for a real one, whose URL may hold a password.
	URL string

	embedded *natstest.Server
}

// Start starts the embedded server if no other is named, and connects.
func (n NATS) Start(ctx context.Context, log *slog.Logger) (*Session, error) {
	s := &Session{}
	url := n.Server
	if url == "" {
		srv, err := natstest.Start(natstest.Options{})
		if err != nil {
			return nil, fmt.Errorf("start embedded nats-server: %w", err)
		}
		s.embedded, s.URL, url = srv, srv.URL(), srv.URL()
	}
	conn, err := natskv.Connect(ctx, natskv.ConnectOptions{
		URL: url, CredsFile: n.CredsFile, Name: n.Name, Background: n.Background,
		Hooks: natskv.ConnectHooks{
			Disconnected: func(err error) {
				if err != nil {
					log.Warn("nats: disconnected", "err", err)
				}
			},
			Reconnected: func() { log.Info("nats: connected again") },
		},
	})
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.Conn = conn
	return s, nil
}

// JetStream is the session's JetStream.
func (s *Session) JetStream() (jetstream.JetStream, error) { return s.Conn.JetStream() }

// Close ends the connection within ctx, then the embedded server.
func (s *Session) Close(ctx context.Context) error {
	return errors.Join(s.Conn.Shutdown(ctx), s.stop())
}

func (s *Session) stop() error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Shutdown()
}
