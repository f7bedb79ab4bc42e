package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/protocol"
)

// Generation is one artifact that the store has.
type Generation struct {
	// Name is what its objects are named by; "" for a pointer that can't be read.
	Name string
	// Current: the pointer names it.
	Current bool
	// Stored is when its manifest was put beside the others; the zero time when it is the pointer's only.
	Stored time.Time
	// Manifest is valid when Err is nil.
	Manifest artifact.Manifest
	// Err is why its manifest can't be used.
	Err error
}

// newest orders those that can be read before the others, as GenerationIsNewer does; of two at one position the current
// one is first, then the one that was exported later.
func newest(live protocol.Position) func(a, b Generation) int {
	return func(a, b Generation) int {
		if bad := cmp.Compare(asInt(a.Err != nil), asInt(b.Err != nil)); bad != 0 || a.Err != nil {
			return cmp.Or(bad, strings.Compare(b.Name, a.Name))
		}
		at, bt := positionOf(&a.Manifest), positionOf(&b.Manifest)
		switch {
		case protocol.GenerationIsNewer(at, bt, live):
			return -1
		case protocol.GenerationIsNewer(bt, at, live):
			return 1
		}
		return cmp.Or(cmp.Compare(asInt(b.Current), asInt(a.Current)), b.Manifest.Created.Compare(a.Manifest.Created), strings.Compare(b.Name, a.Name))
	}
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Pointer is the generation that the pointer names; ok is false when there is none. One that can't be read has an Err.
func (t *Transport) Pointer(ctx context.Context) (g Generation, ok bool, err error) {
	raw, _, state, err := t.readPointer(ctx)
	if err != nil {
		return Generation{}, false, fmt.Errorf("read the newest artifact of %q: %w", t.base, err)
	}
	if !state.Present {
		return Generation{}, false, nil
	}
	return current(raw), true, nil
}

func current(raw []byte) Generation {
	g := Generation{Current: true}
	if g.Manifest, g.Err = artifact.Parse(raw); g.Err == nil {
		g.Name = Name(g.Manifest)
	}
	return g
}

// Manifests are all generations, the newest one first and those that can't be read last. live is the log that is there
// and its last revision, by which artifacts of logs that are gone come after the others; zero where that is not known.
func (t *Transport) Manifests(ctx context.Context, live protocol.Position) ([]Generation, error) {
	all, err := t.manifests(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the artifacts of %q: %w", t.base, err)
	}
	slices.SortFunc(all, newest(live))
	return all, nil
}

func (t *Transport) manifests(ctx context.Context) ([]Generation, error) {
	all, _, err := t.generations(ctx)
	return all, err
}

// generations are all that is announced, and the pointer's bytes.
func (t *Transport) generations(ctx context.Context) (all []Generation, pointer []byte, err error) {
	listed, err := t.list(ctx, t.manifestFolder(), manifestSuffix)
	if err != nil {
		return nil, nil, err
	}
	raw, _, state, err := t.readPointer(ctx)
	if err != nil {
		return nil, nil, err
	}
	if state.Present {
		all = append(all, current(raw))
	}
	for name, o := range listed {
		if state.Readable && name == all[0].Name {
			all[0].Stored = o.ModTime
			continue
		}
		m, err := t.manifest(ctx, name)
		switch {
		case errors.Is(err, objects.ErrNotFound): // pruned since it was listed
			continue
		case err != nil && !errors.Is(err, artifact.ErrInvalid):
			return nil, nil, err
		}
		all = append(all, Generation{Name: name, Stored: o.ModTime, Manifest: m, Err: err})
	}
	return all, raw, nil
}

// list are the objects in a folder that are named as artifacts are, by that name.
func (t *Transport) list(ctx context.Context, folder, suffix string) (map[string]objects.Object, error) {
	found := map[string]objects.Object{}
	for o, err := range t.store.List(ctx, folder) {
		if err != nil {
			return nil, err
		}
		name, ok := strings.CutSuffix(strings.TrimPrefix(o.Key, folder), suffix)
		if _, ranked := rankOf(name); ok && ranked {
			found[name] = o
		}
	}
	return found, nil
}

// manifest reads the manifest of a generation. One that is not what its name says is invalid.
func (t *Transport) manifest(ctx context.Context, name string) (m artifact.Manifest, err error) {
	body, info, err := t.store.Get(ctx, t.manifestKey(name))
	if err != nil {
		return m, err
	}
	defer body.Close()
	if info.Size > artifact.MaxManifest {
		return m, &artifact.InvalidError{What: name, Reason: fmt.Sprintf("a manifest of %d bytes, the limit is %d", info.Size, artifact.MaxManifest)}
	}
	raw, err := io.ReadAll(io.LimitReader(body, artifact.MaxManifest+1))
	if err != nil {
		return m, err
	}
	if m, err = artifact.Parse(raw); err != nil {
		return m, err
	}
	if is := Name(m); is != name {
		return m, &artifact.InvalidError{What: name, Reason: fmt.Sprintf("its manifest is that of %s", is)}
	}
	return m, nil
}

// find reads the manifest of a generation by its name, be it the pointer's only. One that is not there is a *GoneError.
func (t *Transport) find(ctx context.Context, name string) (artifact.Manifest, error) {
	if _, ok := rankOf(name); !ok {
		return artifact.Manifest{}, &artifact.InvalidError{What: fmt.Sprintf("%.100q", name), Reason: "not the name of an artifact"}
	}
	m, err := t.manifest(ctx, name)
	if err == nil || !errors.Is(err, objects.ErrNotFound) {
		return m, err
	}
	raw, _, state, pointerErr := t.readPointer(ctx)
	if pointerErr != nil {
		return m, pointerErr
	}
	if g := current(raw); state.Readable && g.Name == name {
		return g.Manifest, nil
	}
	return m, &GoneError{Name: name, Err: err}
}

// announced reports whether the pointer or a generation's manifest names the artifact now.
func (t *Transport) announced(ctx context.Context, m *artifact.Manifest) (bool, error) {
	there, err := t.find(ctx, Name(*m))
	switch {
	case errors.Is(err, ErrGone), errors.Is(err, artifact.ErrInvalid):
		return false, nil
	case err != nil:
		return false, err
	}
	return bytes.Equal(there.Bytes(), m.Bytes()), nil
}
