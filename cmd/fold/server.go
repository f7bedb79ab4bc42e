package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/natskv"
)

// serverFlags say how to reach a server. Secrets come by environment, a file, or the URL, never by a flag of their own.
type serverFlags struct {
	server, creds, user, domain string
}

func (f *serverFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.server, "server", "", "`URLs` of the server, with commas between (default $NATS_URL, or "+nats.DefaultURL+")")
	c.Flags().StringVar(&f.creds, "creds", "", "path of a .creds `file` (default $NATS_CREDS; $NATS_CREDS_BASE64 holds the content of one instead)")
	c.Flags().StringVar(&f.user, "user", "", "user `name` (default $NATS_USER); the password is $NATS_PASSWORD")
	c.Flags().StringVar(&f.domain, "domain", "", "JetStream `domain` (default $NATS_DOMAIN)")
}

func (f *serverFlags) options(env func(string) string) natskv.ConnectOptions {
	o := natskv.ConnectOptions{
		URL:    cmp.Or(f.server, env("NATS_URL"), nats.DefaultURL),
		Name:   "fold-cli",
		Domain: cmp.Or(f.domain, env("NATS_DOMAIN")),
	}
	switch user := cmp.Or(f.user, env("NATS_USER")); {
	case f.creds != "":
		o.CredsFile = f.creds
	case f.user != "":
		o.Extra = append(o.Extra, nats.UserInfo(user, env("NATS_PASSWORD")))
	case env("NATS_CREDS_BASE64") != "":
		o.Creds = env("NATS_CREDS_BASE64")
	case env("NATS_CREDS") != "":
		o.CredsFile = env("NATS_CREDS")
	case user != "":
		o.Extra = append(o.Extra, nats.UserInfo(user, env("NATS_PASSWORD")))
	}
	return o
}

// bind connects and opens a bucket that exists; the connection is the caller's to shut down, also after an error.
func (f *serverFlags) bind(ctx context.Context, env func(string) string, name string) (*natskv.Conn, *natskv.Bucket, error) {
	conn := natskv.NewConn(f.options(env))
	if err := conn.Connect(ctx); err != nil {
		return conn, nil, &codeError{code: exitUnreachable, err: err, hint: "check --server and the credentials; the server must be reachable, since only it knows what its log holds"}
	}
	js, err := conn.JetStream()
	if err != nil {
		return conn, nil, err
	}
	b, err := natskv.Bind(ctx, js, name, natskv.BucketConfig{})
	if err != nil {
		return conn, nil, fmt.Errorf("open bucket: %w", err)
	}
	return conn, b, nil
}
