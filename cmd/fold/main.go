// Command fold looks at folds from outside: what a stopped one holds, what it would do at its next start, and why. It moves
// folds as artifacts, too: to folders, to object stores, and back. And it fences their buckets.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends what does not end by the first
	// A reader that goes away is an error of the print, by when nothing is left to be removed.
	signal.Ignore(syscall.SIGPIPE)
	p := &program{env: os.Getenv, out: os.Stdout, err: os.Stderr, progressAfter: progressAfter}
	os.Exit(p.run(ctx, os.Args[1:]))
}
