package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// artifacts damages the files of an artifact, its manifest first.
type artifacts struct {
	damage
	store string
}

const artifactBatches = 6

func (a *artifacts) run(ctx context.Context) {
	dir, err := os.MkdirTemp("", "fold-crash-")
	if err == nil {
		err = errors.Join(a.inDir(ctx, dir), os.RemoveAll(dir))
	}
	a.tally.failed(a.name, err, a.line)
}

func (a *artifacts) inDir(ctx context.Context, dir string) error {
	k := backends[a.store]
	from := filepath.Join(dir, "artifact")
	m, err := a.write(ctx, k, filepath.Join(dir, liveName), from)
	if err != nil {
		return err
	}
	if err := a.manifest(ctx, k, from, m.Bytes()); err != nil {
		return err
	}
	for _, f := range m.Files {
		if err := a.file(ctx, k, filepath.Join(from, f.Path)); err != nil {
			return err
		}
	}
	_, err = artifact.Verify(ctx, from, k.imports()) // all is as it was
	return err
}

// write makes an artifact of a small store that has all records of a fold.
func (a *artifacts) write(ctx context.Context, k backend, live, to string) (m artifact.Manifest, err error) {
	s, err := k.open(live, storetest.ModeNone)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Apply(ctx, &store.Batch{Ops: a.records()}, kv.Cursor{}); err != nil {
		return m, err
	}
	t := newTruth(a.seed, false)
	for n := uint64(1); n <= artifactBatches; n++ {
		b, c := t.script.Batch(n)
		if err := s.Apply(ctx, b, c); err != nil {
			return m, err
		}
	}
	return artifact.Export(ctx, s, to, artifact.ExportOptions{})
}

func (a *artifacts) records() []store.Op {
	log := kv.Incarnation{CreatedUnixNano: 1_700_000_000_123_456_789, AgeLimit: 3_600_000_000_000, Samples: []kv.Sample{{Revision: 4, UnixNano: 1_700_000_001_000_000_001}}}
	owed := kv.Owed{Why: kv.OwesMarkers | kv.OwesIdentity, At: 3}
	return []store.Op{
		{Key: store.MetaKey(store.MetaBucket), Value: []byte("hosts")},
		{Key: store.MetaKey(store.MetaScope), Value: []byte("n.,w.")},
		{Key: store.MetaKey(store.MetaSchema + "x.v1.Host"), Value: []byte("message: x.v1.Host\nkey: n.{id}\n")},
		{Key: store.MetaKey(store.MetaLog), Value: log.AppendBytes(nil)},
		{Key: store.MetaKey(store.MetaOwed), Value: owed.AppendBytes(nil)},
	}
}

// manifest cuts the manifest at every byte and flips bits of every byte.
func (a *artifacts) manifest(ctx context.Context, k backend, dir string, whole []byte) error {
	name := filepath.Join(dir, artifact.ManifestName)
	for n := range whole {
		a.count("manifest, cut", placeOf("manifest-cut", n), func() error { return a.oneManifest(ctx, k, dir, whole, whole[:n]) })
		for bit := range 8 {
			if !a.deep && bit != n%8 {
				continue
			}
			bad := bytes.Clone(whole)
			bad[n] ^= 1 << bit
			a.count("manifest, flip", placeOf("manifest-flip", n, bit), func() error { return a.oneManifest(ctx, k, dir, whole, bad) })
		}
	}
	return os.WriteFile(name, whole, 0o600)
}

func (a *artifacts) count(what, place string, look func() error) {
	if a.skips(place) {
		return
	}
	err := look()
	if err != nil {
		err = fmt.Errorf("%s: %w", place, err)
	}
	a.tally.clone(a.name+", "+what, err, a.replay(place))
}

// oneManifest tells whether a damaged manifest is refused. What JSON takes for the same, and the time of the export and
// the format's name, which no store has, may pass; but never under the artifact's own hash.
func (a *artifacts) oneManifest(ctx context.Context, k backend, dir string, whole, bad []byte) error {
	want, err := artifact.Parse(whole)
	if err != nil {
		return err
	}
	got, err := artifact.Parse(bad)
	if err != nil {
		if !errors.Is(err, artifact.ErrInvalid) {
			return fmt.Errorf("refused by no reason of a damaged manifest: %w", err)
		}
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, artifact.ManifestName), bad, 0o600); err != nil {
		return err
	}
	if _, err = artifact.Verify(ctx, dir, k.imports()); err != nil {
		if !errors.Is(err, artifact.ErrInvalid) {
			return fmt.Errorf("refused by no reason of a damaged artifact: %w", err)
		}
		return nil
	}
	a.tally.note(a.name + ", taken with the same meaning")
	if got.Hash() == want.Hash() || !sameMeaning(&got, &want) {
		return fmt.Errorf("taken: %s", bad)
	}
	return nil
}

func sameMeaning(a, b *artifact.Manifest) bool {
	return a.Backend == b.Backend && a.Cursor == b.Cursor && a.Bucket == b.Bucket && a.HasScope == b.HasScope && a.Scope.String() == b.Scope.String() &&
		a.Log.CreatedUnixNano == b.Log.CreatedUnixNano && a.Log.AgeLimit == b.Log.AgeLimit && slices.Equal(a.Log.Samples, b.Log.Samples) &&
		a.Owed == b.Owed && maps.Equal(a.Schemas, b.Schemas) && slices.Equal(a.Files, b.Files)
}

// file cuts one file and flips bits of it: the artifact is refused.
func (a *artifacts) file(ctx context.Context, k backend, name string) error {
	whole, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	step := 29
	if a.deep {
		step = 1
	}
	for n := 0; n < len(whole); n += step {
		bad := bytes.Clone(whole)
		bad[n] ^= 1 << (n % 8)
		for what, data := range map[string][]byte{"cut": whole[:n], "flip": bad} {
			a.count("file, "+what, placeOf(filepath.Base(name), what, n), func() error { return a.oneFile(ctx, k, name, data) })
		}
	}
	return os.WriteFile(name, whole, 0o600)
}

// oneFile tells whether an artifact with a damaged file is refused.
func (a *artifacts) oneFile(ctx context.Context, k backend, name string, data []byte) error {
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	_, err := artifact.Verify(ctx, artifactOf(name), k.imports())
	switch {
	case errors.Is(err, artifact.ErrInvalid):
		return nil
	case err == nil:
		return errors.New("it was taken")
	}
	return err
}

// artifactOf is the folder of the artifact that a file is in.
func artifactOf(name string) string {
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, artifact.ManifestName)); !errors.Is(err, fs.ErrNotExist) {
			return dir
		}
	}
}
