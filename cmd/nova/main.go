// Command nova serves streams, and works with them: it appends, fences, reads, trims and measures.
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
	context.AfterFunc(ctx, stop)   // the second signal ends what does not end by the first
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away is an error of the print
	p := &program{env: os.Getenv, in: os.Stdin, out: os.Stdout, err: os.Stderr, progressAfter: progressAfter}
	os.Exit(p.run(ctx, os.Args[1:]))
}
