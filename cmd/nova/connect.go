package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/client"
)

const defaultServer = "http://127.0.0.1:4225"

// clientFlags say how to reach a server. The bearer token comes by environment or by a file, never by a flag of its own:
// other users of a machine can read a command's flags.
type clientFlags struct {
	server, tokenFile, ca string
	cert, key             string
	timeout               time.Duration
	json                  bool
}

func (f *clientFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.server, "server", "", "`URL` of the server (default $NOVA_SERVER, or "+defaultServer+")")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "`file` with the bearer token (default the token in $NOVA_TOKEN)")
	c.Flags().StringVar(&f.ca, "ca", "", "PEM `file` with the authorities that the server's certificate may come from (default the system's)")
	c.Flags().StringVar(&f.cert, "cert", "", "PEM `file` of a certificate, for a server that asks for one")
	c.Flags().StringVar(&f.key, "key", "", "PEM `file` of its key")
	c.Flags().DurationVar(&f.timeout, "timeout", 15*time.Second, "how long the server may take to answer")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

// client is a client of the server. Nothing is sent yet.
func (f *clientFlags) client(p *program) (*client.Client, error) {
	p.json = f.json
	if f.timeout <= 0 {
		return nil, usageError("", "a --timeout of %v leaves no time", f.timeout)
	}
	target := cmp.Or(f.server, p.env("NOVA_SERVER"), defaultServer)
	u, err := url.Parse(target)
	if err != nil || u.User != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// What is wrong is not shown: it may hold a password.
		return nil, usageError("--server or NOVA_SERVER is http://host:port or https://host:port; a bearer token goes into a file or NOVA_TOKEN",
			"the server's URL is no http:// or https:// URL of a host without a user")
	}
	token := p.env("NOVA_TOKEN")
	if f.tokenFile != "" {
		b, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, usageError("", "--token-file: %w", err)
		}
		if token = strings.TrimSpace(string(b)); token == "" {
			return nil, usageError("", "--token-file: %s is empty", f.tokenFile)
		}
	}
	opts := []client.Option{client.WithTimeout(f.timeout), client.WithBearerToken(token)}
	if f.ca != "" || f.cert != "" || f.key != "" {
		secure, err := f.tls()
		if err != nil {
			return nil, err
		}
		if u.Scheme != "https" {
			return nil, usageError("--server or NOVA_SERVER is https://host:port then", "--ca, --cert and --key are for TLS, and the server's URL is http://")
		}
		opts = append(opts, client.WithTLS(secure))
	}
	return client.New(target, opts...)
}

func (f *clientFlags) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if f.ca != "" {
		if t.RootCAs, err = authorities(f.ca); err != nil {
			return nil, usageError("", "--ca: %w", err)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usageError("", "--cert and --key come together")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, usageError("", "--cert: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func authorities(file string) (*x509.CertPool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, errors.New(file + " has no PEM certificate")
	}
	return pool, nil
}

// position is a place in a stream.
type position struct {
	SeqNum uint64 `json:"seq_num"`
	// Timestamp is in milliseconds of Unix time.
	Timestamp int64 `json:"timestamp"`
}

func positionOf(t client.Tail) position { return position(t) }

func records(n uint64) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

func line(w io.Writer, name, text string) {
	if text != "" {
		fmt.Fprintf(w, "%s:\t%s\n", name, text)
	}
}
