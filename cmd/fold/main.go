// Command fold looks at folds from outside: what a stopped one holds, what it would do at its next start, and why. It moves
// folds as artifacts, too: to folders, to object stores, and back.
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
