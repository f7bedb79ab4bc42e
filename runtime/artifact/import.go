package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// defaultMinFree is what an import leaves free on the disk: what a fold on it needs to go on writing.
const defaultMinFree = 256 << 20

// Options say what artifacts are taken.
type Options struct {
	// Kinds are the kinds of store that are taken; at least one.
	Kinds []store.Kind
	// Bucket, Scope and Log, where they are given, are what the artifact must be of, and must say so itself: the bucket's
	// name, the scope that the fold follows, and the log's creation time in Unix nanoseconds.
	Bucket string
	Scope  *kv.Scope
	Log    int64
	// MaxBytes is the most that the files may add up to; 0 is no limit but the disk's.
	MaxBytes int64
	// MinFreeBytes is what must be left free on the disk afterwards; 0 is 256 MiB, negative does not look at the disk.
	MinFreeBytes int64

	steps steps
}

// Validate reports what can't be used.
func (o *Options) Validate() error {
	if len(o.Kinds) == 0 {
		return errors.New("no kinds of store that an artifact may be of")
	}
	if o.MaxBytes < 0 {
		return fmt.Errorf("at most %d bytes", o.MaxBytes)
	}
	return nil
}

// kind is the kind of store of an artifact that these options take.
func (o *Options) kind(m *Manifest) (store.Kind, error) {
	for _, k := range o.Kinds {
		if k.Backend != m.Backend {
			continue
		}
		if !k.Reads(m.Format) {
			return k, invalidFor(store.ErrFormat, ManifestName, "%s files of format %q", m.Backend, m.Format)
		}
		return k, o.expects(m)
	}
	return store.Kind{}, invalidFor(store.ErrFormat, ManifestName, "a store of %q is not taken here", m.Backend)
}

func (o *Options) expects(m *Manifest) error {
	switch {
	case o.Bucket != "" && m.Bucket != o.Bucket:
		return invalidFor(ErrUnexpected, ManifestName, "bucket %q, not %q", m.Bucket, o.Bucket)
	case o.Scope != nil && (!m.HasScope || m.Scope.String() != o.Scope.String()):
		return invalidFor(ErrUnexpected, ManifestName, "scope %s, not %v", scopeText(m), o.Scope)
	case o.Log != 0 && m.Log.CreatedUnixNano != o.Log:
		return invalidFor(ErrUnexpected, ManifestName, "log created at %d, not at %d", m.Log.CreatedUnixNano, o.Log)
	case o.MaxBytes > 0 && m.Size() > o.MaxBytes:
		return invalidFor(ErrTooLarge, ManifestName, "files of %d bytes, at most %d are taken", m.Size(), o.MaxBytes)
	}
	return nil
}

// fits refuses files that the disk has no room for.
func (o *Options) fits(m *Manifest, dir string) error {
	least := uint64(defaultMinFree)
	switch {
	case o.MinFreeBytes < 0:
		return nil
	case o.MinFreeBytes > 0:
		least = uint64(o.MinFreeBytes)
	}
	free, ok := diskFree(dir)
	if need := uint64(m.Size()); ok && (free < least || free-least < need) {
		return fmt.Errorf("%w: the artifact has %d bytes, %s has %d free, of which %d must stay free", store.ErrDiskFull, need, dir, free, least)
	}
	return nil
}

// Import copies the store of the artifact in dir to dest, which must be absent or an empty folder, in a folder that is
// there; the store's own Open opens dest. Everything is checked before the copy gets that name. On any error, and after a
// crash, dest is as it was. An *InvalidError says that the artifact is no good, any other error may pass.
func Import(ctx context.Context, dir, dest string, o Options) (Manifest, error) {
	m, err := importFolder(ctx, dir, dest, o)
	if err != nil {
		return Manifest{}, fmt.Errorf("import %s: %w", dir, told(err))
	}
	return m, nil
}

func importFolder(ctx context.Context, dir, dest string, o Options) (Manifest, error) {
	root, m, err := openFolder(dir)
	if err != nil {
		return m, err
	}
	defer root.Close()
	in := intake{m: &m, o: &o}
	return m, in.run(ctx, dest, func(into *os.Root) error {
		if err := checkNames(ctx, root, &m); err != nil {
			return err
		}
		for _, f := range m.Files {
			if err := in.take(into, f, func(w io.Writer) error { return pourFile(ctx, w, root, f) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// Verify checks the artifact in dir as Import does, and opens it where it is, without a change to it.
func Verify(ctx context.Context, dir string, o Options) (Manifest, error) {
	m, err := verify(ctx, dir, o)
	if err != nil {
		return Manifest{}, fmt.Errorf("verify %s: %w", dir, err)
	}
	return m, nil
}

func verify(ctx context.Context, dir string, o Options) (Manifest, error) {
	if err := o.Validate(); err != nil {
		return Manifest{}, err
	}
	root, m, err := openFolder(dir)
	if err != nil {
		return m, err
	}
	defer root.Close()
	k, err := o.kind(&m)
	if err != nil {
		return m, err
	}
	if err := checkNames(ctx, root, &m); err != nil {
		return m, err
	}
	for _, f := range m.Files {
		if err := pourFile(ctx, io.Discard, root, f); err != nil {
			return m, err
		}
	}
	return m, opensAs(k, &m, filepath.Join(dir, DataName))
}

// opensAs opens an artifact's files, whose hashes were checked, and compares what they say with the manifest.
func opensAs(k store.Kind, m *Manifest, dir string) error {
	has, err := look(k, dir)
	if short(err) {
		return fmt.Errorf("open the copy: %w", err)
	}
	if err != nil {
		return invalidFor(err, DataName, "it does not open")
	}
	if d := differs(m, &has); d != "" {
		return invalid(DataName, "%s", d)
	}
	return nil
}

// intake brings one artifact's files to a destination.
type intake struct {
	m     *Manifest
	o     *Options
	stage *stage
	syncs *syncing
	// whole: the destination is to be an artifact, not a store.
	whole bool
}

// run has fill write the files below a stage's folder, and publishes them when they are what the manifest says.
func (in *intake) run(ctx context.Context, dest string, fill func(into *os.Root) error) (err error) {
	if err := in.o.Validate(); err != nil {
		return err
	}
	if len(in.m.raw) == 0 {
		return invalid(ManifestName, "it was not read by Parse")
	}
	k, err := in.o.kind(in.m)
	if err != nil {
		return err
	}
	if in.stage, err = newStage(dest, in.o.steps); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.stage.remove()) }()
	s := in.stage
	if err := in.o.fits(in.m, s.dir); err != nil {
		return err
	}
	if err := in.fill(fill); err != nil {
		return err
	}
	if err := s.syncTree(s.new()); err != nil {
		return err
	}
	if err := s.step.at("verify"); err != nil {
		return err
	}
	data := filepath.Join(s.new(), DataName)
	if err := opensAs(k, in.m, data); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if in.whole {
		return s.publish(s.new())
	}
	return s.publish(data)
}

func (in *intake) fill(fill func(into *os.Root) error) error {
	if err := os.Mkdir(in.stage.new(), 0o700); err != nil {
		return err
	}
	into, err := os.OpenRoot(in.stage.new())
	if err != nil {
		return err
	}
	defer into.Close()
	in.syncs = newSyncing(in.stage)
	err = fill(into)
	if failed := in.syncs.end(); err == nil {
		err = failed
	}
	if err != nil || !in.whole {
		return err
	}
	return in.stage.writeManifest(in.stage.new(), in.m)
}

// take has write write one file, which is synced while the next one is written. That the bytes are the right ones is write's to say.
func (in *intake) take(into *os.Root, f File, write func(io.Writer) error) error {
	if err := in.stage.step.at("file"); err != nil {
		return err
	}
	if err := into.MkdirAll(path.Dir(f.Path), 0o700); err != nil {
		return err
	}
	file, err := into.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		return errors.Join(err, file.Close())
	}
	return in.syncs.add(file)
}
