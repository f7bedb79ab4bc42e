// Command fold looks at folds from outside: what a stopped one would do at its next start, and why.
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
	p := &program{env: os.Getenv, out: os.Stdout, err: os.Stderr, progressAfter: progressAfter}
	os.Exit(p.run(ctx, os.Args[1:]))
}
