package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/typedfold/fold/runtime/repair"
)

// LocalSource restores folds from the artifacts that lie on a local disk: each folder in Dir is one. A name that begins
// with "." is none, as that of an artifact that is not whole yet. The folders are only read.
type LocalSource struct {
	// Dir is the folder of artifacts.
	Dir string
	// Artifact says what is taken. Its Kinds are needed; leave its Scope to the repair, which takes any that covers the
	// fold's.
	Artifact Options
	// Scratch is the folder in which an artifact's copy lies while it is restored; it is made when it is not there.
	// Default os.TempDir(). It needs room for one.
	Scratch string
}

var _ repair.Source = (*LocalSource)(nil)

// Candidates describes the artifacts by their manifests, the newest cursor first. One that can't be used comes last, with
// the reason in its manifest's Err. No Dir, or an empty one, is no candidates.
func (s *LocalSource) Candidates(ctx context.Context) ([]repair.Manifest, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list artifacts: %w", err)
	}
	var found []repair.Manifest
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("list artifacts: %w", err)
		}
		m, err := s.Describe(e.Name())
		if err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	slices.SortStableFunc(found, func(a, b repair.Manifest) int { return cmp.Compare(b.Cursor.Revision(), a.Cursor.Revision()) })
	return found, nil
}

// Describe reads the manifest of the artifact in the folder of that name. Why it can't be used is in its Err.
func (s *LocalSource) Describe(name string) (repair.Manifest, error) {
	m, err := s.manifest(name)
	if err == nil && m.Cursor.IsNone() {
		err = invalid(ManifestName, "it holds no cursor")
	}
	switch {
	case errors.Is(err, ErrInvalid):
		return repair.Manifest{ID: name, Err: restorable(name, err)}, nil
	case err != nil:
		return repair.Manifest{}, restorable(name, err)
	}
	return announced(name, &m), nil
}

func (s *LocalSource) manifest(name string) (Manifest, error) {
	if err := s.Artifact.Validate(); err != nil {
		return Manifest{}, err
	}
	if !filepath.IsLocal(name) || filepath.Base(name) != name || name == "." {
		return Manifest{}, invalid(fmt.Sprintf("%.80q", name), "it is no name of a folder")
	}
	root, m, err := openFolder(filepath.Join(s.Dir, name))
	if err != nil {
		return m, err
	}
	_, err = s.Artifact.kind(&m)
	return m, errors.Join(err, root.Close())
}

func announced(name string, m *Manifest) repair.Manifest {
	return repair.Manifest{ID: name, Created: m.Created, Cursor: m.Cursor, Scope: m.Scope, HasScope: m.HasScope, Log: m.Log, Owed: m.Owed}
}

// restorable says to a repair whose error it is, and whether another try may help.
func restorable(name string, err error) error {
	if errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%w: %w", repair.ErrArtifactInvalid, err)
	}
	return fmt.Errorf("artifact %q: %w", name, err)
}

// Fetch imports an artifact into Scratch, and opens it to be read only. One that is no good, or is gone, matches
// repair.ErrArtifactInvalid.
func (s *LocalSource) Fetch(ctx context.Context, m repair.Manifest) (repair.Artifact, error) {
	a, err := s.fetch(ctx, m.ID)
	if err != nil {
		return nil, restorable(m.ID, err)
	}
	return a, nil
}

func (s *LocalSource) fetch(ctx context.Context, name string) (_ *Opened, err error) {
	if _, err := s.manifest(name); err != nil {
		return nil, err
	}
	parent := s.Scratch
	if parent == "" {
		parent = os.TempDir()
	}
	scratch, err := NewScratch(parent)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, scratch.Remove())
		}
	}()
	dir := filepath.Join(scratch.Dir(), "store")
	m, err := Import(ctx, filepath.Join(s.Dir, name), dir, s.Artifact)
	if err != nil {
		return nil, err
	}
	k, err := s.Artifact.kind(&m)
	if err != nil {
		return nil, err
	}
	opened, err := k.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the copy: %w", err)
	}
	return NewOpened(opened, scratch, announced(name, &m)), nil
}
