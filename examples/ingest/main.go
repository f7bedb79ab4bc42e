// Ingest takes items from a source to a stream, each exactly once, by one of several workers at a time.
//
//	go run ./examples/ingest     a server, two workers, and a kill of the one that works
//	go run ./examples/ingest -server http://127.0.0.1:4225 -worker a     one worker on a server of one's own
//
// README.md says how it works.
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
	"time"

	"github.com/typedfold/fold/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ingest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("ingest", flag.ContinueOnError)
	url := fs.String("server", "", "`URL` of a nova serve; without it, the demonstration runs")
	name := fs.String("worker", "", "`name` of this worker")
	items := fs.Uint64("items", 3000, "how many items the source has")
	ttl := fs.Duration("ttl", time.Second, "how long an owner may be silent")
	pace := fs.Duration("pace", time.Millisecond, "pause between two items")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case *url == "" && *name == "":
		return demo(ctx, *items, &lines{w: out})
	case *url == "" || *name == "":
		return errors.New("-server and -worker come together")
	}
	c, err := client.New(*url)
	if err != nil {
		return err
	}
	for _, addr := range []string{readings, owners} {
		if err := c.CreateStream(ctx, addr, client.StreamConfig{}); err != nil && !errors.Is(err, client.ErrExists) {
			return err
		}
	}
	w := &worker{
		c: c, addr: readings, items: *items, pace: *pace, say: out,
		elect: &election{c: c, addr: owners, name: *name, ttl: *ttl},
	}
	return w.run(ctx)
}
