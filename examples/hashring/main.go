// Hashring maps requests to origins that come and go in a NATS bucket, with as little movement as there can be.
//
//	go run ./examples/hashring               serve, with a NATS server and four origins inside the process
//	go run ./examples/hashring serve --server nats://host --data ./ring-data
//	go run ./examples/hashring join --server nats://host cdn o5 10.0.0.5:80
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

const usage = `usage: hashring [command] [flags] [arguments]

  serve                     the fold and its HTTP face (the default command)
  join RING ID ADDRESS ...  add origins, or change them: all at once
  leave RING ID ...         remove origins

Each command has -h.
`

func main() {
	// The first signal asks for an orderly end, a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "hashring:", err)
		var h interface{ Hint() string }
		if errors.As(err, &h) && h.Hint() != "" {
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
	case "join", "leave":
		return control(ctx, name, args, stdout, stderr)
	case "help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return fmt.Errorf("no command %q\n%s", name, usage)
}
