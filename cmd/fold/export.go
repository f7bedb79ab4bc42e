package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

type exportFlags struct {
	commonFlags
	logFlags
	store, to, publish, key, scratch string
	nonAtomic                        bool
}

// exported is an export, and its publication if there was one.
type exported struct {
	To        string        `json:"to,omitempty"`
	Artifact  artifactFacts `json:"artifact"`
	Published *published    `json:"published,omitempty"`
}

type published struct {
	URL string `json:"url"`
	Key string `json:"key"`
	// Newest: the artifact is the newest one now. Else Superseded is the revision of the one that is.
	Newest     bool   `json:"newest"`
	Superseded uint64 `json:"superseded_by,string,omitempty"`
}

func (p *program) exportVerb() *cobra.Command {
	f := &exportFlags{}
	c := p.verb("export DIR", "Export a stopped fold as an artifact, and publish it",
		`Opens a stopped fold's store under its lock and exports it, exactly as it is at its cursor, to a folder, into an object store, or both. A
fold that runs exports itself.

It exits with 4 when the object store has a newer artifact, which stays the newest.`, 1, &f.json, func(ctx context.Context, args []string) error {
			return p.work(ctx, &f.commonFlags, func(ctx context.Context, told *progress) error { return p.export(ctx, f, args[0], told) })
		})
	c.Flags().StringVar(&f.to, "to", "", "the artifact's `folder`, which must be absent or empty")
	c.Flags().StringVar(&f.publish, "publish", "", "`URL` of an object store to publish the artifact to")
	addKey(c, &f.key)
	c.Flags().StringVar(&f.store, "store", storeAuto, "the store's `kind`: auto, pebble or log")
	c.Flags().StringVar(&f.scratch, "scratch", "", "without --to, the `folder` for the artifact until it is published (default beside the store)")
	c.Flags().BoolVar(&f.nonAtomic, "allow-non-atomic", false, "publish where the object store has no conditional write, and nobody else publishes")
	f.logFlags.add(c, "the bucket's `name`, whose log decides what is newer (default the store's own record)")
	f.commonFlags.add(c, time.Hour)
	return c
}

func (f *exportFlags) check() error {
	switch {
	case f.to == "" && f.publish == "":
		return usageError("name a folder with --to, or an object store with --publish", "there is nowhere to export to")
	case f.publish == "" && f.key != "":
		return usageError("name the object store with --publish", "--key is for publishing")
	case !knownStore(f.store):
		return usageError("it is auto, pebble or log", "--store %q is none", f.store)
	case f.publish != "":
		return checkRemote(f.publish, f.key)
	}
	return nil
}

func (p *program) export(ctx context.Context, f *exportFlags, dir string, told *progress) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	to := f.to
	if to == "" {
		parent := f.scratch
		if parent == "" {
			parent = filepath.Dir(filepath.Clean(dir))
		}
		scratch, scratchErr := artifact.NewScratch(parent)
		if scratchErr != nil {
			return scratchErr
		}
		defer func() { err = errors.Join(err, scratch.Remove()) }()
		to = filepath.Join(scratch.Dir(), "artifact")
	}
	m, err := exportStore(ctx, dir, f.store, to, told)
	if err != nil {
		return err
	}
	done := exported{To: f.to, Artifact: artifactOf(&m)}
	if f.publish != "" {
		if done.Published, err = f.send(ctx, p.env, to, m, told); err != nil {
			return err
		}
	}
	p.printExported(f.json, done)
	if done.Published != nil && !done.Published.Newest {
		return errSuperseded
	}
	return nil
}

// exportStore opens a store under its lock and exports it.
func exportStore(ctx context.Context, dir, kind, to string, told *progress) (m artifact.Manifest, err error) {
	told.now("opening the store")
	s, err := openWritable(dir, kind)
	if err != nil {
		return m, lockedError(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	told.now("exporting")
	return artifact.Export(ctx, s, to, artifact.ExportOptions{})
}

// openWritable opens a store that is there as its fold would.
func openWritable(dir, kind string) (store.Store, error) {
	if _, err := os.Stat(filepath.Join(dir, artifact.ManifestName)); err == nil {
		return nil, usageError("fold import makes a store of it", "%s is an artifact already", dir)
	}
	found, err := storeKind(dir)
	if err != nil {
		return nil, err
	}
	if kind == storeLog || kind == storeAuto && found == storeLog {
		s, err := logstore.Open(dir, logstore.Options{})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	s, err := pebblestore.Open(dir, pebblestore.Options{BallastBytes: ballastIn(dir)})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ballastIn is the option that leaves a Pebble store's reserve of disk space as it is.
func ballastIn(dir string) int64 {
	if i, err := os.Stat(filepath.Join(dir, "ballast")); err == nil && i.Size() > 0 {
		return i.Size()
	}
	return -1
}

// send publishes the artifact in a folder.
func (f *exportFlags) send(ctx context.Context, env func(string) string, dir string, m artifact.Manifest, told *progress) (_ *published, err error) {
	live, err := f.connect(ctx, env, m.Bucket, told)
	if err != nil {
		return nil, err
	}
	defer live.close()
	told.now("opening the object store")
	opened, err := openers.Open(ctx, f.publish, objects.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	s, err := objects.ForPublishing(ctx, opened, f.key, f.nonAtomic)
	if err != nil {
		return nil, err
	}
	t, err := transportOf(s, f.key, told)
	if err != nil {
		return nil, err
	}
	told.now("publishing")
	out, err := t.Publish(ctx, dir, m, live.Live)
	if err != nil {
		return nil, err
	}
	done := &published{URL: objects.RedactURL(f.publish), Key: f.key, Newest: out.Published}
	if !out.Published {
		done.Superseded = out.By.Revision
	}
	return done, nil
}

func (p *program) printExported(json bool, done exported) {
	if json {
		p.printJSON(done)
		return
	}
	a := done.Artifact
	fmt.Fprintf(p.out, "The artifact %s of bucket %q is at cursor %s: %d files, %d bytes.\n", a.Name, a.Bucket, a.Cursor, a.Files, a.Bytes)
	if done.To != "" {
		fmt.Fprintf(p.out, "It is in %s.\n", done.To)
	}
	switch pub := done.Published; {
	case pub == nil:
	case pub.Newest:
		fmt.Fprintf(p.out, "It is the newest one under %q in %s.\n", pub.Key, pub.URL)
	default:
		fmt.Fprintf(p.out, "It was not published: the newest one under %q in %s is at revision %d.\n", pub.Key, pub.URL, pub.Superseded)
	}
}
