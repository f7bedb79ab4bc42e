package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// commonFlags are those of each verb that works on folders.
type commonFlags struct {
	json    bool
	timeout time.Duration
}

func (f *commonFlags) add(c *cobra.Command, timeout time.Duration) {
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().DurationVar(&f.timeout, "timeout", timeout, "how long all of it may take")
}

// work runs a verb: within its time, with progress told.
func (p *program) work(ctx context.Context, f *commonFlags, do func(context.Context, *progress) error) error {
	if f.timeout <= 0 {
		return usageError("give it a time, such as 1m", "--timeout %v is none", f.timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	told := &progress{to: p.err, every: p.progressAfter}
	defer told.start()()
	return do(ctx, told)
}

// verb is a command with n arguments, called as its use says.
func (p *program) verb(use, short, long string, n int, json *bool, run func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != n {
				return usageError("see "+c.CommandPath()+" --help", "it is called as fold %s, got %d arguments", use, len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			p.json = *json
			return run(c.Context(), args)
		},
	}
}

type inspectFlags struct {
	commonFlags
	store string
}

func (p *program) inspectVerb() *cobra.Command {
	f := &inspectFlags{}
	c := p.verb("inspect DIR", "Tell what a stopped fold, or an artifact, holds",
		`Opens a stopped fold's store to read it only, and tells what it is a fold of, up to where, and what is in it. No file is
changed.`, 1, &f.json, func(ctx context.Context, args []string) error {
			return p.work(ctx, &f.commonFlags, func(ctx context.Context, told *progress) error { return p.inspect(ctx, f, args[0], told) })
		})
	c.Flags().StringVar(&f.store, "store", storeAuto, "its `kind`: auto, pebble or log")
	f.commonFlags.add(c, 30*time.Minute)
	return c
}

func (p *program) inspect(ctx context.Context, f *inspectFlags, path string, told *progress) error {
	if !knownStore(f.store) {
		return usageError("it is auto, pebble or log", "--store %q is none", f.store)
	}
	if err := checkFolders(path); err != nil {
		return err
	}
	facts, err := inspected(ctx, path, f.store, told)
	if err != nil {
		return err
	}
	if f.json {
		p.printJSON(facts)
		return nil
	}
	fmt.Fprintf(p.out, "The store in %s.\n\n", path)
	facts.print(p.out)
	return nil
}

func knownStore(kind string) bool {
	return kind == storeAuto || kind == storePebble || kind == storeLog
}

// inspected opens a store to read it only, and reads all of it.
func inspected(ctx context.Context, path, kind string, told *progress) (f storeFacts, err error) {
	told.now("opening the store")
	s, err := openStore(path, kind)
	if err != nil {
		return f, lockedError(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return readStore(ctx, path, s, told)
}
