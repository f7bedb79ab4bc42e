// Demo shows a fold survive kill -9: an embedded NATS server, a writer, and two routers as processes of their own. One
// is killed in the middle of a batch and started again, and what it then receives is compared with a full replay. It
// ends by itself; its exit code says whether everything held.
//
//	go run ./internal/demo
//	go run ./internal/demo --json
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// childCommand is the first argument of a router process.
const childCommand = "router"

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == childCommand {
		return runChild(ctx, args[1:], stdin, stdout, stderr)
	}
	c := config{}
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&c.routes, "routes", 20_000, "routes in the bucket")
	fs.IntVar(&c.rate, "rate", 1_000, "updates a second")
	fs.IntVar(&c.before, "before", 2_000, "updates before the kill")
	fs.IntVar(&c.down, "down", 4_000, "updates while the router is down")
	fs.IntVar(&c.after, "after", 1_000, "updates after it is back")
	fs.DurationVar(&c.timeout, "timeout", 55*time.Second, "how long it may take")
	fs.BoolVar(&c.json, "json", false, "print the results as one JSON document")
	fs.BoolVar(&c.verbose, "verbose", false, "show what the routers log")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := c.validate(); err != nil {
		return err
	}
	return c.run(ctx, stdout, stderr)
}

// config is the demo's size.
type config struct {
	routes, rate        int
	before, down, after int
	timeout             time.Duration
	json, verbose       bool
}

// inBatch is how many updates follow the request to stop in the middle of a batch, and during how many come while the
// killed router starts.
func (c config) inBatch() int { return 1 + c.before/4 }
func (c config) during() int  { return 1 + c.down/4 }

// missed is the most that the killed router can have to catch up with: all but what it had on disk from the seeding.
func (c config) missed() int { return c.before + c.inBatch() + c.down + c.during() }

// updates is how many there are in all, after the seeding.
func (c config) updates() int { return c.missed() + c.after }

func (c config) validate() error {
	switch {
	case c.rate < 1 || c.before < 1 || c.down < 1 || c.after < 1 || c.timeout <= 0:
		return errors.New("--rate, --before, --down, --after and --timeout are positive")
	case c.routes < 2*stable || c.routes <= c.missed():
		return fmt.Errorf("--routes is %d; more than %d, so that a full replay is more than the delta", c.routes, max(2*stable-1, c.missed()))
	}
	return nil
}
