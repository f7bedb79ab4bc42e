package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	natsserver "github.com/nats-io/nats-server/v2/server"
)

// maxPayload is the largest message of the embedded log: a frame of several batches of 1 MiB.
const maxPayload = 8 << 20

const startTimeout = 30 * time.Second

// embedded is a nats-server with JetStream inside the process. Nobody else reaches it, unless it was told to listen.
type embedded struct {
	srv  *natsserver.Server
	lock io.Closer
}

// startEmbedded runs a server on a folder, which it locks. listen is host:port on the loopback, or "" for none. With always
// each write is synced to the disk before it is acknowledged.
func startEmbedded(dir, listen string, always bool, every time.Duration, log *slog.Logger) (_ *embedded, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return nil, &codeError{code: exitFailed, err: fmt.Errorf("lock %s: %w", dir, err), hint: "another nova serve has this folder; each needs its own"}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	o := &natsserver.Options{
		ServerName: "nova", DontListen: true, NoSigs: true, JetStream: true, StoreDir: dir, MaxPayload: maxPayload,
		SyncAlways: always, SyncInterval: every,
	}
	if listen != "" {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return nil, err
		}
		o.DontListen, o.Host = false, host
		if o.Port, err = strconv.Atoi(port); err != nil {
			return nil, err
		}
		if o.Port == 0 {
			o.Port = natsserver.RANDOM_PORT
		}
	}
	srv, err := natsserver.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("embedded nats-server: %w", err)
	}
	srv.SetLoggerV2(natsLog{log}, false, false, false)
	e := &embedded{srv: srv, lock: lock}
	srv.Start()
	if !srv.ReadyForConnections(startTimeout) {
		return nil, errors.Join(fmt.Errorf("embedded nats-server: not ready within %v", startTimeout), e.end())
	}
	return e, nil
}

// end stops the server, and keeps the folder locked.
func (e *embedded) end() error {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	return nil
}

func (e *embedded) close() error {
	return errors.Join(e.end(), e.lock.Close())
}

// natsLog takes the embedded server's log. Its notices are of interest to whoever looks for a fault in it.
type natsLog struct{ log *slog.Logger }

func (l natsLog) say(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "nats: "+fmt.Sprintf(format, v...))
	}
}

func (l natsLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l natsLog) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l natsLog) Fatalf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l natsLog) Errorf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l natsLog) Debugf(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l natsLog) Tracef(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
