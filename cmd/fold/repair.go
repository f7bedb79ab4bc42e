package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/store"
)

type repairFlags struct {
	serverFlags
	explain, audit, adopt, json bool
	dir, store, bucket, mode    string
	artifacts                   []string
	scratch                     string
	timeout                     time.Duration
}

func (p *program) repairVerb() *cobra.Command {
	f := &repairFlags{}
	c := &cobra.Command{
		Use:   "repair --explain --dir DIR",
		Short: "Explain what a stopped fold would do about its cursor at its next start",
		Long: `Opens a stopped fold's store to read it only, asks the bucket whether the fold's cursor is still a resume position, and
where it is not goes through the repair that the fold would do, without a change to store or bucket.

Give it the repair options that the fold is started with. It exits with 0 when the fold would go on, with 1 when it would
refuse or something could not be found out, with 2 when the command is wrong, with 3 when the server can't be reached.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("see fold repair --help", "fold repair takes no arguments, got %q", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			p.json = f.json
			return p.repair(c.Context(), f)
		},
	}
	c.Flags().BoolVar(&f.explain, "explain", false, "say what would be done, and do nothing")
	c.Flags().BoolVar(&f.audit, "audit", false, "say, too, what an audit would find where the fold would resume")
	c.Flags().StringVar(&f.dir, "dir", "", "the store: a folder, or a log `file`")
	c.Flags().StringVar(&f.store, "store", storeAuto, "its `kind`: auto, pebble or log")
	c.Flags().StringVar(&f.bucket, "bucket", "", "the bucket's `name` (default the store's own record)")
	c.Flags().StringVar(&f.mode, "mode", fold.RepairAuto.String(), "the repair `mode`: auto, relist, restore or off")
	c.Flags().StringArrayVar(&f.artifacts, "artifact", nil, "`folder` of an exported fold to restore from; may be given more than once")
	c.Flags().BoolVar(&f.adopt, "adopt-new-log", false, "follow a bucket that was re-created, restored or lost writes")
	c.Flags().StringVar(&f.scratch, "scratch", "", "`folder` for temporary files (default the system's)")
	c.Flags().DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long all of it may take")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	f.serverFlags.add(c)
	return c
}

// check refuses flags that can't work, before anything is opened.
func (f *repairFlags) check() (o fold.RepairOptions, err error) {
	switch {
	case !f.explain:
		return o, usageError("fold repair --explain says what it would do", "a fold repairs itself when it starts, and there is nothing to repair from outside")
	case f.dir == "":
		return o, usageError("name the fold's store", "--dir is missing")
	case !knownStore(f.store):
		return o, usageError("it is auto, pebble or log", "--store %q is none", f.store)
	case f.timeout <= 0:
		return o, usageError("give it a time, such as 1m", "--timeout %v is none", f.timeout)
	}
	if err := checkFolders(append(f.artifacts, f.dir, f.scratch)...); err != nil {
		return o, err
	}
	o = fold.RepairOptions{Mode: fold.RepairOff + 1, AdoptNewLog: f.adopt, Scratch: f.scratch}
	for m := fold.RepairAuto; m <= fold.RepairOff; m++ {
		if m.String() == f.mode {
			o.Mode = m
		}
	}
	if o.Mode > fold.RepairOff {
		return o, usageError("it is auto, relist, restore or off", "--mode %q is none", f.mode)
	}
	if len(f.artifacts) > 0 {
		o.Source = &artifacts{dirs: f.artifacts, scratch: f.scratch}
	}
	if err := o.Validate(); err != nil {
		return o, usageError("name an exported fold with --artifact", "%w", err)
	}
	return o, nil
}

func (p *program) repair(ctx context.Context, f *repairFlags) (err error) {
	o, err := f.check()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	told := &progress{to: p.err, every: p.progressAfter}
	defer told.start()()
	told.now("opening the store")
	s, err := openStore(f.dir, f.store)
	if err != nil {
		return lockedError(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	x, err := p.explain(ctx, f, s, o, told)
	if err != nil {
		return err
	}
	if f.json {
		p.printJSON(x)
	} else {
		printExplanation(p.out, f.dir, x)
	}
	if x.Verdict == fold.WouldRefuse || x.Audit != nil && x.Audit.Verdict == fold.AuditContradicts {
		return errSaid
	}
	return nil
}

// lockedError says what to do about a store that is in use.
func lockedError(err error) error {
	if errors.Is(err, store.ErrLocked) {
		return &codeError{code: exitFailed, err: err, hint: "the fold is running: its Status tells what it does; stop it, or look at an export of it"}
	}
	return err
}

func (p *program) explain(ctx context.Context, f *repairFlags, s store.Store, o fold.RepairOptions, told *progress) (*fold.Explanation, error) {
	name := f.bucket
	if name == "" {
		recorded, err := store.Meta(s, store.MetaBucket)
		if err != nil {
			return nil, err
		}
		if name = string(recorded); name == "" {
			return nil, usageError("name it with --bucket", "the store does not say which bucket it is a fold of")
		}
	}
	told.now("connecting")
	conn, bucket, err := f.bind(ctx, p.env, name)
	defer func() { _ = conn.Shutdown(context.WithoutCancel(ctx)) }()
	if err != nil {
		return nil, err
	}
	told.now("asking the bucket")
	x, err := fold.Explain(ctx, watchedBucket{Bucket: bucket, p: told}, s, fold.ExplainOptions{Repair: o, Audit: f.audit})
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", name, err)
	}
	return x, nil
}
