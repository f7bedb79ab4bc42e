package repair

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
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// folders is a source of exports of stores, each in a folder of dir, that says of them what they hold themselves. It opens
// them where they are.
type folders struct {
	dir  string
	kind store.Kind
}

func (s *folders) Candidates(ctx context.Context) ([]Manifest, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Manifest
	for _, e := range entries {
		a, err := s.Fetch(ctx, Manifest{ID: e.Name()})
		if err != nil {
			all = append(all, Manifest{ID: e.Name(), Err: err})
			continue
		}
		all = append(all, a.Manifest())
		if err := a.Close(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b Manifest) int { return cmp.Compare(b.Cursor.Revision(), a.Cursor.Revision()) })
	return all, nil
}

func (s *folders) Fetch(_ context.Context, m Manifest) (Artifact, error) {
	opened, err := s.kind.Open(filepath.Join(s.dir, m.ID))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArtifactInvalid, err)
	}
	m, err = manifestOf(m.ID, opened)
	if err != nil {
		return nil, errors.Join(ErrArtifactInvalid, err, opened.Close())
	}
	return folder{opened, m}, nil
}

type folder struct {
	store.Store
	manifest Manifest
}

func (a folder) Manifest() Manifest { return a.manifest }

// manifestOf reads from a store what a manifest says.
func manifestOf(id string, s store.Store) (m Manifest, err error) {
	m = Manifest{ID: id, Cursor: s.Cursor()}
	text, err := store.Meta(s, store.MetaScope)
	if err != nil {
		return m, err
	}
	if m.HasScope = text != nil; m.HasScope {
		if m.Scope, err = kv.ParseScope(string(text)); err != nil {
			return m, err
		}
	}
	if m.Log, err = store.LogOf(s); err != nil {
		return m, err
	}
	m.Owed, err = store.OwedOf(s)
	return m, err
}

// damage makes an export that does not open.
func damage(t *testing.T, f *fleet, id string) {
	t.Helper()
	f.export(t, id)
	all, err := filepath.Glob(filepath.Join(f.dir, id, "*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("an export without files: %v", err)
	}
	for _, name := range all {
		if err := os.Remove(name); err != nil { // an export may be hard links, so nothing is written into them
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Repeat("torn", 50)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusalSaysWhyASourceCanNotRead(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.write("n.a")
	f.bothAt(t)
	f.write("n.b", "n.c")
	f.sim.EvictTo(3)
	damage(t, f, "torn")
	refused := f.wantRefused(t, contents(t, f.store), `artifact "torn" at cursor none can't be read`, 0)
	if len(refused.Candidates) != 1 || !errors.Is(refused.Candidates[0].Err, ErrArtifactInvalid) {
		t.Errorf("candidates %+v", refused.Candidates)
	}
}
