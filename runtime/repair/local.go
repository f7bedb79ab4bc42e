package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// LocalSource has the artifacts that lie on a local disk: each folder in Dir is one, as an Export of a fold or of its
// store left it. A name that begins with "." is none: write an export under such a name, and rename it when it is whole.
//
// An export says nothing of itself before it is opened, and opening a store may write to it. So Candidates copies each
// folder into Scratch, opens the copy, and removes it again, and Fetch copies the one that was chosen once more: it
// costs the reading and writing of all of them, so keep few. The folders themselves are only read.
type LocalSource struct {
	// Dir is the folder of artifacts, by absolute path or from the working directory.
	Dir string
	// Open opens a copy of an artifact as a store.
	Open func(dir string) (store.Store, error)
	// Scratch is the folder for copies; it is made when it is not there. Default os.TempDir().
	Scratch string
}

var _ Source = (*LocalSource)(nil)

// Candidates describes the artifacts, the newest cursor first. One that can't be opened comes last, with the reason in
// its manifest's Err. No Dir, or an empty one, is no candidates.
func (s *LocalSource) Candidates(ctx context.Context) ([]Manifest, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list artifacts: %w", err)
	}
	var found []Manifest
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		a, err := s.open(ctx, e.Name())
		switch {
		case errors.Is(err, ErrArtifactInvalid):
			found = append(found, Manifest{ID: e.Name(), Err: err})
		case err != nil:
			return nil, err
		default:
			found = append(found, a.manifest)
			if err := a.Close(); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Manifest) int { return cmp.Compare(b.Cursor.Revision(), a.Cursor.Revision()) })
	return found, nil
}

// Fetch copies an artifact and opens the copy. One that can't be opened, or is gone, matches ErrArtifactInvalid.
func (s *LocalSource) Fetch(ctx context.Context, m Manifest) (Artifact, error) {
	a, err := s.open(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// ofMachine reports whether this machine is short of something: a copy that does not open for it says nothing of its
// artifact.
func ofMachine(err error) bool {
	for _, short := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

// localArtifact is an opened copy in a folder of its own.
type localArtifact struct {
	store.Store
	dir      string
	manifest Manifest
}

func (a *localArtifact) Manifest() Manifest { return a.manifest }

// Close closes the copy and removes it. While it is in use, it is store.ErrBusy and stays.
func (a *localArtifact) Close() error {
	if err := a.Store.Close(); errors.Is(err, store.ErrBusy) {
		return fmt.Errorf("artifact %q: %w", a.manifest.ID, err)
	}
	if err := os.RemoveAll(a.dir); err != nil {
		return fmt.Errorf("artifact %q: remove the copy: %w", a.manifest.ID, err)
	}
	return nil
}

// open copies the artifact into a new folder and opens it there; on an error nothing of it stays.
func (s *LocalSource) open(ctx context.Context, id string) (_ *localArtifact, err error) {
	if !filepath.IsLocal(id) || filepath.Base(id) != id {
		return nil, fmt.Errorf("artifact %q: %w: it is no name of a folder", id, ErrArtifactInvalid)
	}
	scratch := s.Scratch
	if scratch == "" {
		scratch = os.TempDir()
	}
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, fmt.Errorf("artifact %q: scratch folder: %w", id, err)
	}
	dir, err := os.MkdirTemp(scratch, "fold-artifact-")
	if err != nil {
		return nil, fmt.Errorf("artifact %q: %w", id, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	into := filepath.Join(dir, "store")
	if err := copyFolder(ctx, filepath.Join(s.Dir, id), into); err != nil {
		return nil, fmt.Errorf("artifact %q: copy: %w", id, err)
	}
	opened, err := s.Open(into)
	if ofMachine(err) {
		return nil, fmt.Errorf("artifact %q: open the copy: %w", id, err)
	}
	if err != nil {
		return nil, fmt.Errorf("artifact %q: %w: %w", id, ErrArtifactInvalid, err)
	}
	m, err := manifestOf(id, opened)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("artifact %q: %w: %w", id, ErrArtifactInvalid, err), opened.Close())
	}
	if i, err := os.Stat(filepath.Join(s.Dir, id)); err == nil {
		m.Created = i.ModTime()
	}
	return &localArtifact{Store: opened, dir: dir, manifest: m}, nil
}

// manifestOf reads from a store what a manifest says.
func manifestOf(id string, s store.Store) (Manifest, error) {
	m := Manifest{ID: id, Cursor: s.Cursor()}
	if m.Cursor.IsNone() {
		return m, errors.New("it holds no cursor")
	}
	text, err := store.Meta(s, store.MetaScope)
	if err != nil {
		return m, err
	}
	if text != nil {
		if m.Scope, err = kv.ParseScope(string(text)); err != nil {
			return m, err
		}
		m.HasScope = true
	}
	if m.Log, err = store.LogOf(s); err != nil {
		return m, err
	}
	m.Owed, err = store.OwedOf(s)
	return m, err
}

// copyFolder copies a folder of regular files and folders. What is wrong with the original matches ErrArtifactInvalid.
func copyFolder(ctx context.Context, from, into string) error {
	root, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrArtifactInvalid, err)
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %w", ErrArtifactInvalid, err)
		case err != nil:
			return err
		case e.IsDir():
			return os.Mkdir(filepath.Join(into, name), 0o700)
		case !e.Type().IsRegular():
			return fmt.Errorf("%w: %s is no regular file", ErrArtifactInvalid, name)
		}
		return copyFile(ctx, root, name, filepath.Join(into, name))
	})
}

func copyFile(ctx context.Context, root *os.Root, name, into string) (err error) {
	from, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrArtifactInvalid, err)
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(into, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, reading{ctx: ctx, Reader: from})
	return errors.Join(err, to.Close())
}

// reading ends with its context.
type reading struct {
	io.Reader
	ctx context.Context
}

func (r reading) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}
