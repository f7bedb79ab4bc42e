package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/typedfold/fold/internal/s3test"
)

// artifacts measures exports beside their parts, and transfers beside plain ones. Each child takes in turn, round by
// round, what is compared.
func (b *bench) artifacts(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp(b.o.dir, "artifacts-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(os.Stderr, "artifacts of %d MiB, %d rounds\n", b.o.payload, b.o.rounds)
	exported := filepath.Join(dir, "exported")
	if err := b.exports(ctx, dir, exported); err != nil {
		return err
	}
	return b.transfers(ctx, dir, exported)
}

// exports leaves the artifact of the fold in Pebble in the folder exported.
func (b *bench) exports(ctx context.Context, dir, exported string) error {
	stop, err := b.startServer(ctx, filepath.Join(dir, "server"))
	if err != nil {
		return err
	}
	defer stop()
	more := []string{"-payload", fmt.Sprint(b.o.payload), "-rounds", fmt.Sprint(b.o.rounds), "-artifacts", exported}
	if _, err := b.child(ctx, "fill-heavy", dir, more...); err != nil {
		return err
	}
	for _, kind := range []struct{ role, suffix string }{{"live-export", ""}, {"live-export-log", "-log"}} {
		live := filepath.Join(dir, kind.role)
		r, err := b.child(ctx, kind.role, live, more...)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(live); err != nil {
			return err
		}
		b.ratio("held/checkpoint"+kind.suffix, quotient(r.Times["held"], r.Times["checkpoint"]), 1.5, true)
		b.ratio("export/parts"+kind.suffix, quotient(r.Times["export"], r.Times["parts"]), 1.3, true)
	}
	return nil
}

// transfers moves the artifact in the folder exported to and from an S3 server and a directory.
func (b *bench) transfers(ctx context.Context, dir, exported string) error {
	buckets := filepath.Join(dir, "s3")
	if err := os.Mkdir(buckets, 0o700); err != nil {
		return err
	}
	s, err := s3test.Start(ctx, buckets)
	if err != nil {
		return err
	}
	defer s.Stop()
	place, err := s.NewBucket(ctx)
	if err != nil {
		return err
	}
	for name, value := range s.Env(filepath.Join(dir, "none")) {
		b.env = append(b.env, name+"="+value)
	}
	defer func() { b.env = nil }()
	r, err := b.child(ctx, "transfer", dir, "-rounds", fmt.Sprint(b.o.rounds), "-artifacts", exported, "-place", place)
	if err != nil {
		return err
	}
	b.ratio("upload/ceiling", quotient(r.Times["ceiling"], r.Times["upload"]), 0.85, false)
	b.ratio("download/get", quotient(r.Times["get"], r.Times["download"]), 0.65, false)
	b.ratio("download/get-synced", quotient(r.Times["get-synced"], r.Times["download-synced"]), 0.65, false)
	b.ratio("publish/copy", quotient(r.Times["copy"], r.Times["publish"]), 0.75, false)
	return nil
}

// quotient is the median over the rounds.
func quotient(over, under []float64) float64 {
	values := make([]float64, min(len(over), len(under)))
	for i := range values {
		values[i] = over[i] / under[i]
	}
	return median(values)
}
