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
	"github.com/typedfold/fold/runtime/artifact/transport"
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
	if err := errors.Join(f.check(), checkFolders(dir, f.to, f.scratch)); err != nil {
		return err
	}
	var d *destination
	if f.publish != "" {
		if d, err = f.destination(ctx, told); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.close()) }()
	}
	to := f.to
	if to == "" {
		parent := f.scratch
		if parent == "" {
			if parent, err = folderOf(dir); err != nil {
				return err
			}
		}
		scratch, scratchErr := artifact.NewScratch(parent)
		if scratchErr != nil {
			return scratchErr
		}
		defer func() { err = errors.Join(err, scratch.Remove()) }()
		to = filepath.Join(scratch.Dir(), "artifact")
	}
	m, err := f.exportStore(ctx, p.env, dir, to, d, told)
	if err != nil {
		return err
	}
	done := exported{To: f.to, Artifact: artifactOf(&m)}
	if d != nil {
		if done.Published, err = f.send(ctx, to, m, d, told); err != nil {
			return err
		}
	}
	p.printExported(f.json, done)
	if done.Published != nil && !done.Published.Newest {
		return errSuperseded
	}
	return nil
}

// folderOf is the folder that a path is in, also where the path is the working folder.
func folderOf(path string) (string, error) {
	abs, err := filepath.Abs(path)
	return filepath.Dir(abs), err
}

// exportStore opens a store under its lock and exports it, once the server can be reached if d needs it.
func (f *exportFlags) exportStore(ctx context.Context, env func(string) string, dir, to string, d *destination, told *progress) (m artifact.Manifest, err error) {
	told.now("opening the store")
	s, err := openWritable(dir, f.store)
	if err != nil {
		return m, lockedError(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if d != nil {
		bucket, err := store.Meta(s, store.MetaBucket)
		if err != nil {
			return m, err
		}
		if d.log, err = f.connect(ctx, env, string(bucket), told); err != nil {
			return m, err
		}
		if _, err := d.log.Live(ctx); err != nil {
			return m, err
		}
	}
	told.now("exporting")
	return artifact.Export(ctx, s, to, artifact.ExportOptions{})
}

// openWritable opens a store that is there as its fold would.
func openWritable(dir, kind string) (store.Store, error) {
	if _, err := os.Stat(filepath.Join(dir, artifact.ManifestName)); err == nil {
		return nil, usageError("fold import makes a store of it", "%s is an artifact already", dir)
	}
	kind, err := checkedKind(dir, kind)
	if err != nil {
		return nil, err
	}
	if kind == storeLog {
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

// destination is where an artifact is published.
type destination struct {
	*transport.Transport
	store objects.Store
	log   *liveLog // nil until the bucket is known
}

// destination opens the object store and proves its conditional write.
func (f *exportFlags) destination(ctx context.Context, told *progress) (_ *destination, err error) {
	told.now("opening the object store")
	opened, err := openers.Open(ctx, f.publish, objects.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close())
		}
	}()
	s, err := objects.ForPublishing(ctx, opened, f.key, f.nonAtomic)
	if err != nil {
		return nil, err
	}
	t, err := transportOf(s, f.key, told)
	if err != nil {
		return nil, err
	}
	return &destination{Transport: t, store: opened}, nil
}

func (d *destination) close() error {
	if d.log != nil {
		d.log.close()
	}
	return d.store.Close()
}

// send publishes the artifact in a folder.
func (f *exportFlags) send(ctx context.Context, dir string, m artifact.Manifest, d *destination, told *progress) (*published, error) {
	told.now("publishing")
	out, err := d.Publish(ctx, dir, m, d.log.Live)
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
