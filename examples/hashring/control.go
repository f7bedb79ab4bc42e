package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"

	ringv1 "github.com/typedfold/fold/examples/hashring/gen/ring/v1"
	"github.com/typedfold/fold/examples/hashring/gen/ring/v1/ringv1fold"
	"github.com/typedfold/fold/examples/hashring/ring"
	"github.com/typedfold/fold/examples/internal/quickstart"
)

// control adds and removes origins, several at once or one. It needs no fold.
func control(ctx context.Context, name string, args []string, stdout, stderr io.Writer) (err error) {
	nats := quickstart.NATS{Name: "hashring-" + name}
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	nats.Flags(fs)
	fs.Lookup("server").Usage = "NATS `URL` (required)"
	timeout := fs.Duration("timeout", 10*time.Second, "how long the command may take")
	weight := uint(1)
	if name == "join" {
		fs.UintVar(&weight, "weight", 1, "share of each in relation to the others'; 0 takes the origin out and keeps its row")
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	args = fs.Args()
	switch {
	case nats.Server == "":
		return errors.New("--server is required; a ring without one prints the address of its own")
	case name == "join" && (len(args) < 3 || len(args)%2 == 0):
		return errors.New("join: want RING ID ADDRESS, and further pairs of ID ADDRESS, after the flags")
	case name == "leave" && len(args) < 2:
		return errors.New("leave: want RING ID, and further IDs, after the flags")
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	session, err := nats.Start(ctx, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close(ctx)) }()
	js, err := session.JetStream()
	if err != nil {
		return err
	}
	bucket, err := natskv.Open(ctx, js, ring.Bucket, natskv.BucketConfig{})
	if err != nil {
		return err
	}
	w := ringv1fold.NewOriginWriter(bucket)
	b := fold.NewBatch(bucket) // all of them or none
	ringName, rest := args[0], args[1:]
	if name == "leave" {
		for _, id := range rest {
			w.DeleteIn(b, ringv1fold.OriginKey{Ring: ringName, OriginID: id})
		}
	} else {
		for i := 0; i < len(rest); i += 2 {
			w.PutIn(b, &ringv1.Origin{Ring: ringName, OriginId: rest[i], Address: rest[i+1], Weight: uint32(min(weight, 1<<16))})
		}
	}
	if err := b.Commit(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "ring %s: %s of %d, at revision %d\n", ringName, name, b.Len(), b.Revision().Seq())
	return nil
}
