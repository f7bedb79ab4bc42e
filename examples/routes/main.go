// Routes is a small edge router: an HTTP reverse proxy whose routing table is a NATS bucket, held locally.
//
//	go run ./examples/routes                 serve, with a NATS server and two origins inside the process
//	go run ./examples/routes serve --server nats://host --data ./routes-data
//	go run ./examples/routes put --server nats://host acme www.example.com 127.0.0.1:9000
//
// README.md has the tour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: routes [command] [flags] [arguments]

  serve                           the router (the default command)
  put TENANT DOMAIN ORIGIN        write a route; DOMAIN may be *.name, or *
  move TENANT DOMAIN ORIGIN       send an existing route to another origin
  delete TENANT DOMAIN            remove a route
  list [TENANT]                   what the bucket holds

Each command has -h.
`

func main() {
	// The first signal asks for an orderly end, a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "routes:", err)
		var h interface{ Hint() string }
		if errors.As(err, &h) {
			fmt.Fprintln(os.Stderr, "hint:", h.Hint())
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
		args = []string{"help"}
	}
	name := "serve"
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	switch name {
	case "serve":
		return serve(ctx, args, stdout, stderr)
	case "put", "move", "delete", "list":
		return control(ctx, name, args, stdout, stderr)
	case "help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return fmt.Errorf("no command %q\n%s", name, usage)
}
