package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/typedfold/fold/server"
)

// serveFlags say what a server is.
type serveFlags struct {
	listen, auth, cert, key         string
	clientCA, metrics               string
	data, sync, natsListen          string
	nats, creds, natsCA             string
	logFormat, logLevel             string
	drain                           time.Duration
	json                            bool
	dataGiven, syncGiven, credGiven bool

	always bool
	every  time.Duration
	level  slog.Level
}

// defaultSync is how often the embedded log syncs its files.
const defaultSync = 2 * time.Minute

func (p *program) serveVerb() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve streams: with a log of its own in --data, or with that of a NATS cluster at --nats",
		Args:  exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			p.json = f.json
			f.dataGiven, f.syncGiven, f.credGiven = c.Flags().Changed("data"), c.Flags().Changed("sync"), c.Flags().Changed("creds")
			f.nats = cmp.Or(f.nats, p.env("NOVA_NATS"))
			f.creds = cmp.Or(f.creds, p.env("NATS_CREDS"))
			if err := f.validate(); err != nil {
				return err
			}
			return p.serve(c.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:4225", "`address` to serve on; beyond the loopback it needs --auth")
	fl.StringVar(&f.auth, "auth", "", "JSON `file` of bearer tokens, and what each may do in which namespace")
	fl.StringVar(&f.cert, "tls-cert", "", "PEM `file` of the certificate")
	fl.StringVar(&f.key, "tls-key", "", "PEM `file` of its key")
	fl.StringVar(&f.clientCA, "tls-client-ca", "", "PEM `file` of the authorities that a client's certificate must come from; default none is asked for")
	fl.StringVar(&f.metrics, "metrics", "", "`address` of /metrics for Prometheus; beyond the loopback it needs --auth; default none")
	fl.StringVar(&f.data, "data", "nova-data", "`folder` of the log, when it runs by itself")
	fl.StringVar(&f.sync, "sync", defaultSync.String(), "how often the log is synced to the disk: an `interval`, or always, before each acknowledgement")
	fl.StringVar(&f.natsListen, "nats-listen", "", "loopback `address` on which the log's own nats-server can be reached, without a password; default none")
	fl.StringVar(&f.nats, "nats", "", "`URLs` of a NATS cluster that holds the log (default $NOVA_NATS, else it runs by itself)")
	fl.StringVar(&f.creds, "creds", "", "path of a .creds `file` for --nats (default $NATS_CREDS)")
	fl.StringVar(&f.natsCA, "nats-ca", "", "PEM `file` with the authorities of --nats (default the system's)")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fl.DurationVar(&f.drain, "drain", 30*time.Second, "how long calls under way may take after it was asked to end")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

func (f *serveFlags) validate() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usageError("", "--tls-cert and --tls-key come together")
	case f.clientCA != "" && f.cert == "":
		return usageError("", "--tls-client-ca asks for certificates over TLS, which needs --tls-cert and --tls-key")
	case f.nats != "" && (f.dataGiven || f.syncGiven || f.natsListen != ""):
		return usageError("", "--data, --sync and --nats-listen are for a log of its own, and --nats names another")
	case f.nats == "" && (f.credGiven || f.natsCA != ""):
		return usageError("", "--creds and --nats-ca are for --nats")
	case f.logFormat != "text" && f.logFormat != "json":
		return usageError("", "--log-format is text or json, not %q", f.logFormat)
	case f.drain <= 0:
		return usageError("", "a --drain of %v leaves no time", f.drain)
	case f.level.UnmarshalText([]byte(f.logLevel)) != nil:
		return usageError("", "--log-level is debug, info, warn or error, not %q", f.logLevel)
	}
	for part := range strings.SplitSeq(f.nats, ",") {
		if u, err := url.Parse(part); f.nats != "" && (err != nil || u.Host == "") {
			return usageError("such as nats://host:4222, with commas between several", "--nats has something that is no URL") // it may hold a password
		}
	}
	if f.natsListen != "" && !loopback(f.natsListen) {
		return usageError("a NATS cluster of your own has users and passwords: give its URL by --nats", "--nats-listen is on the loopback only, such as 127.0.0.1:4222")
	}
	if f.always = f.sync == "always"; f.always {
		f.every = defaultSync
		return nil
	}
	var err error
	if f.every, err = time.ParseDuration(f.sync); err != nil || f.every <= 0 {
		return usageError("such as 2m, 1s or always", "--sync is an interval or always, not %q", f.sync)
	}
	return nil
}

// loopback reports whether an address is a port of the loopback.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// durability is what an acknowledged record survives.
type durability struct {
	// Log is "embedded" or "cluster".
	Log string `json:"log"`
	// Copies says how many servers hold a record.
	Copies string `json:"copies"`
	// Sync is how often the log's files are synced to the disk: "always", an interval, or "unproven".
	Sync string `json:"sync"`
	// PowerLoss is what a loss of power can take: "nothing", or "unsynced".
	PowerLoss string `json:"power_loss"`
	Text      string `json:"text"`
}

func (f *serveFlags) durability() durability {
	switch {
	case f.nats != "":
		return durability{
			Log: "cluster", Copies: "as each stream was made", Sync: "unproven", PowerLoss: "unsynced",
			Text: "the log is that of a NATS cluster, with as many copies as each stream was made with (--replicas). " +
				"How often its servers sync to the disk can't be read from here, so that is unproven: with one copy, or if all lose power at once, " +
				"acknowledged records can be lost unless their configuration says sync_interval: always",
		}
	case f.always:
		return durability{
			Log: "embedded", Copies: "1", Sync: "always", PowerLoss: "nothing",
			Text: "one copy, synced to the disk before each acknowledgement: acknowledged records survive a loss of power, and not the loss of the disk",
		}
	}
	return durability{
		Log: "embedded", Copies: "1", Sync: f.every.String(), PowerLoss: "unsynced",
		Text: fmt.Sprintf("one copy, synced to the disk every %v: acknowledged records survive the end of this process, also by kill -9; a loss of power can take those of the last %v (--sync always keeps them)", f.every, f.every),
	}
}

func (p *program) serve(ctx context.Context, f serveFlags) (err error) {
	o := server.Options{Logger: p.logger(f)}
	if o.Auth, o.TLS, err = f.secrets(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return &codeError{code: exitFailed, err: err, hint: "--listen takes another address"}
	}
	served := false
	defer func() {
		if !served {
			err = errors.Join(err, l.Close())
		}
	}()
	if o.Auth == nil && !onLoopback(l) {
		return usageError("--auth FILE says who may do what", "without --auth it serves on the loopback only, and %s is beyond", f.listen)
	}
	if !onLoopback(l) && o.TLS == nil {
		o.Logger.Warn("nova: bearer tokens and records go over the network as they are; --tls-cert and --tls-key protect them")
	}
	page, err := f.metricsPage(o)
	if err != nil {
		return err
	}
	if page != nil {
		o.Events = page.metrics.Events()
		defer func() {
			if !served {
				err = errors.Join(err, page.l.Close())
			}
		}()
	}
	c, natsAt, stop, err := f.log(o.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	opening, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s, err := server.Open(opening, c, o)
	if err != nil {
		return openError(err, f.nats != "")
	}
	ended := make(chan error, 1)
	served = true // the server closes the listener
	go func() { ended <- s.Serve(l) }()
	metricsAt := ""
	if page != nil {
		page.begin(s)
		metricsAt = page.at
	}
	d := f.durability()
	o.Logger.Info("nova: serves", "listen", l.Addr().String(), "tls", o.TLS != nil, "auth", o.Auth != nil,
		"log", d.Log, "copies", d.Copies, "sync", d.Sync, "power_loss", d.PowerLoss)
	err = p.sayServing(urlOf(l, o.TLS != nil), natsAt, metricsAt, d)
	if err == nil {
		select {
		case <-ctx.Done():
			o.Logger.Info("nova: ends; calls under way are finished, and streams handed over", "drain", f.drain)
		case err = <-ended:
			ended <- err
		}
	}
	draining, cancelDrain := context.WithTimeout(context.WithoutCancel(ctx), f.drain)
	defer cancelDrain()
	if e := s.Shutdown(draining); e != nil {
		err = errors.Join(err, fmt.Errorf("not everything was finished within --drain: %w", e))
	}
	if page != nil {
		err = errors.Join(err, page.end(draining))
	}
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) && !errors.Is(err, e) {
		err = errors.Join(err, e)
	}
	return err
}

func openError(err error, cluster bool) error {
	if !cluster {
		return err
	}
	return &codeError{code: exitUnreachable, err: err, hint: "check --nats and the credentials; the account needs JetStream"}
}

// secrets reads the table of bearer tokens and the certificate.
func (f *serveFlags) secrets() (auth *server.Auth, t *tls.Config, err error) {
	if f.auth != "" {
		if auth, err = server.LoadAuth(f.auth); err != nil {
			return nil, nil, usageError("", "--auth: %w", err)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, nil, usageError("", "--tls-cert: %w", err)
		}
		t = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if f.clientCA != "" {
		if t.ClientCAs, err = authorities(f.clientCA); err != nil {
			return nil, nil, usageError("", "--tls-client-ca: %w", err)
		}
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return auth, t, nil
}

// log is how to reach the log, where its own nats-server listens if it does, and how to end it.
func (f *serveFlags) log(logger *slog.Logger) (c server.Config, natsAt string, stop func() error, err error) {
	stop = func() error { return nil }
	c.Connect = []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				logger.Warn("nats: disconnected", "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { logger.Info("nats: connected again") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { logger.Warn("nats: error", "err", err) }),
	}
	if f.nats != "" {
		c.URL = f.nats
		if f.creds != "" {
			c.Connect = append(c.Connect, nats.UserCredentials(f.creds))
		}
		if f.natsCA != "" {
			c.Connect = append(c.Connect, nats.RootCAs(f.natsCA))
		}
		return c, "", stop, nil
	}
	e, err := startEmbedded(f.data, f.natsListen, f.always, f.every, logger)
	if err != nil {
		return c, "", stop, err
	}
	c.Connect = append(c.Connect, nats.InProcessServer(e.srv))
	if f.natsListen != "" {
		natsAt = e.srv.ClientURL()
	}
	return c, natsAt, e.close, nil
}

func (p *program) logger(f serveFlags) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.level}
	if f.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(p.err, o))
	}
	return slog.New(slog.NewTextHandler(p.err, o))
}

// sayServing prints where it serves, at once: scripts wait for it.
func (p *program) sayServing(at, natsAt, metricsAt string, d durability) error {
	var err error
	if p.json {
		err = json.NewEncoder(p.live).Encode(struct {
			URL        string     `json:"url"`
			NATS       string     `json:"nats,omitempty"`
			Metrics    string     `json:"metrics,omitempty"`
			Durability durability `json:"durability"`
		}{at, natsAt, metricsAt, d})
	} else {
		text := fmt.Sprintf("nova serves on %s\n", at)
		if natsAt != "" {
			text += fmt.Sprintf("its nats-server: %s\n", natsAt)
		}
		if metricsAt != "" {
			text += fmt.Sprintf("metrics: %s\n", metricsAt)
		}
		_, err = io.WriteString(p.live, text+"durability: "+d.Text+"\n")
	}
	if err != nil {
		return &printError{err}
	}
	return nil
}
