package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// Source restores folds from published artifacts. It is safe for concurrent use, when its fields are not changed.
type Source struct {
	Transport *Transport
	// Artifact says what is taken. Its Kinds are needed; leave its Scope to the repair, which takes any that covers the
	// fold's.
	Artifact artifact.Options
	// Scratch is the folder in which an artifact lies while it is restored; it is made when it is not there. Default
	// os.TempDir(). It needs room for one.
	Scratch string
}

var _ repair.Source = (*Source)(nil)

// Candidates describes all generations, the newest cursor first.
func (s *Source) Candidates(ctx context.Context) ([]repair.Manifest, error) {
	all, err := s.Transport.Manifests(ctx, protocol.Position{})
	if err != nil {
		return nil, err
	}
	out := make([]repair.Manifest, len(all))
	for i, g := range all {
		out[i] = announce(g)
	}
	return out, nil
}

func announce(g Generation) repair.Manifest {
	if g.Err != nil {
		return repair.Manifest{ID: g.Name, Err: g.Err}
	}
	m := &g.Manifest
	return repair.Manifest{ID: g.Name, Created: m.Created, Cursor: m.Cursor, Scope: m.Scope, HasScope: m.HasScope, Log: m.Log, Owed: m.Owed}
}

// Fetch downloads the artifact into Scratch, with all checks of an import, and opens it to be read only. One that was
// pruned since Candidates is ErrGone, so that the repair lists again.
func (s *Source) Fetch(ctx context.Context, m repair.Manifest) (repair.Artifact, error) {
	a, err := s.fetch(ctx, m.ID)
	if errors.Is(err, artifact.ErrInvalid) {
		return nil, fmt.Errorf("%w: %w", repair.ErrArtifactInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (s *Source) fetch(ctx context.Context, name string) (_ *artifact.Opened, err error) {
	m, err := s.Transport.find(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("artifact %q: %w", name, err)
	}
	parent := s.Scratch
	if parent == "" {
		parent = os.TempDir()
	}
	scratch, err := artifact.NewScratch(parent)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, scratch.Remove())
		}
	}()
	dir := filepath.Join(scratch.Dir(), "store")
	if err := s.Transport.Import(ctx, m, dir, s.Artifact); err != nil {
		return nil, err
	}
	opened, err := open(s.Artifact.Kinds, m.Backend, dir)
	if err != nil {
		return nil, fmt.Errorf("artifact %q: %w", name, err)
	}
	return artifact.NewOpened(opened, scratch, announce(Generation{Name: name, Manifest: m})), nil
}

func open(kinds []store.Kind, backend, dir string) (store.Store, error) {
	for _, k := range kinds {
		if k.Backend == backend {
			return k.Open(dir)
		}
	}
	return nil, fmt.Errorf("%w: a store of %q is not taken here", store.ErrFormat, backend)
}
