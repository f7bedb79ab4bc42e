package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/protocol"
)

// pointerTries is how often the pointer is read and swapped at most; each loss but the last means that another one won.
const pointerTries = 8

// Outcome is how a publication ended.
type Outcome struct {
	// Published: the pointer names the artifact, or did a moment ago. Else it is superseded: the pointer is at By, and the
	// artifact is of no use as the newest one.
	Published bool
	By        protocol.Position
	// Unread is why the log could not be read; the decision was made without it then.
	Unread error
}

// Publish makes the artifact in the folder dir, whose manifest is m, the newest one: payload, manifest, pointer. The
// payload is streamed. After an error or a crash at any point, the pointer is what it was or names the whole artifact, and
// Publish can be called again. What of it was removed before the pointer could move is a *LostError; of an artifact that
// the pointer names already it is uploaded again. A pointer of another bucket, or of a scope that the artifact's does not
// cover, is a *ForeignError: it is another fold's, and stays.
func (t *Transport) Publish(ctx context.Context, dir string, m artifact.Manifest, live Live) (Outcome, error) {
	out, err := t.publish(ctx, dir, m, live)
	if err != nil {
		return Outcome{}, fmt.Errorf("publish %q as %s: %w", t.base, Name(m), err)
	}
	return out, nil
}

func (t *Transport) publish(ctx context.Context, dir string, m artifact.Manifest, live Live) (Outcome, error) {
	// What would be refused is not worth an upload.
	p, err := t.propose(ctx, m, live)
	if err == nil && p.settled && p.out.Published {
		err = t.whole(ctx, m)
		p.settled = !errors.Is(err, ErrLost)
	}
	if p.settled || err != nil && !errors.Is(err, ErrLost) {
		return p.out, err
	}
	if err := t.upload(ctx, dir, m); err != nil {
		return Outcome{}, err
	}
	if err := t.store.Put(ctx, t.manifestKey(Name(m)), bytes.NewReader(m.Bytes())); err != nil {
		return Outcome{}, err
	}
	for range pointerTries {
		p, err := t.propose(ctx, m, live)
		if err != nil || p.settled {
			return p.out, err
		}
		// A prune may have taken what is older than its grace; the pointer must not name it then. One that decides after the
		// swap finds it named. One that decided before it, and deletes between here and the swap, took what was uploaded four
		// of its TTLs ago, by when a round has ended; and it reads the pointer again before each thing that it deletes.
		if err := t.whole(ctx, m); err != nil {
			return t.overtaken(ctx, m, live, err)
		}
		err = t.store.SwapPointer(ctx, t.pointerKey(), m.Bytes(), p.token)
		if err == nil {
			return Outcome{Published: true, Unread: p.out.Unread}, nil
		}
		if !errors.Is(err, objects.ErrConflict) {
			return Outcome{}, err
		}
	}
	return Outcome{}, fmt.Errorf("%w: %d tries", ErrContended, pointerTries)
}

// overtaken is how a publication ends whose upload is not whole. When the pointer has gone past it meanwhile, a prune may
// have taken it for that, and it is superseded.
func (t *Transport) overtaken(ctx context.Context, m artifact.Manifest, live Live, cause error) (Outcome, error) {
	if !errors.Is(cause, ErrLost) {
		return Outcome{}, cause
	}
	p, err := t.propose(ctx, m, live)
	switch {
	case err != nil:
		return Outcome{}, err
	case !p.settled:
		return Outcome{}, cause
	case p.out.Published: // by another one, which uploaded it again
		err = t.whole(ctx, m)
	}
	return p.out, err
}

// proposal is what the pointer and the log, read in this order, say of an artifact. When it is settled, out is all there
// is to do; else the pointer that has the token may be replaced.
type proposal struct {
	settled bool
	out     Outcome
	token   objects.Token
}

func (t *Transport) propose(ctx context.Context, m artifact.Manifest, live Live) (p proposal, err error) {
	raw, token, state, err := t.readPointer(ctx)
	if err != nil {
		return p, err
	}
	p.token = token
	if bytes.Equal(raw, m.Bytes()) {
		p.settled, p.out.Published = true, true
		return p, nil
	}
	if err := t.ours(raw, state, &m); err != nil {
		return p, err
	}
	end, unread, fatal := live.end(ctx)
	if fatal != nil {
		return p, fatal
	}
	p.out.Unread = unread
	if !protocol.PointerPublishAllowed(state, positionOf(&m), end) {
		p.settled, p.out.By = true, state.At
	}
	return p, nil
}

// ours refuses a pointer that is another fold's: of another bucket, or of a scope that the artifact does not cover, so
// that those who restore from it would find none any more. What a manifest does not say is not held against it.
func (t *Transport) ours(raw []byte, state protocol.PointerState, m *artifact.Manifest) error {
	if !state.Readable {
		return nil
	}
	there := current(raw)
	has := &there.Manifest
	e := &ForeignError{Key: t.base, Name: there.Name}
	switch {
	case has.Bucket != "" && m.Bucket != "" && has.Bucket != m.Bucket:
		e.What, e.Has, e.Want = "bucket", has.Bucket, m.Bucket
	case has.HasScope && m.HasScope && !m.Scope.Covers(has.Scope):
		e.What, e.Has, e.Want = "scope", has.Scope.String(), m.Scope.String()
	default:
		return nil
	}
	return e
}

// whole checks that the store has what the pointer is to name. What it lacks is a *LostError.
func (t *Transport) whole(ctx context.Context, m artifact.Manifest) error {
	name := Name(m)
	for _, part := range []struct {
		what, key string
		size      int64
	}{
		{"payload", t.payloadKey(name), m.PackedSize()},
		{"manifest", t.manifestKey(name), int64(len(m.Bytes()))},
	} {
		info, err := t.store.Stat(ctx, part.key)
		switch {
		case errors.Is(err, objects.ErrNotFound):
			return &LostError{Name: name, What: part.what, Want: part.size, Have: -1}
		case err != nil:
			return err
		case info.Size != part.size:
			return &LostError{Name: name, What: part.what, Want: part.size, Have: info.Size}
		}
	}
	return nil
}

func (t *Transport) upload(ctx context.Context, dir string, m artifact.Manifest) error {
	total, name := m.PackedSize(), Name(m)
	r := &packed{ctx: ctx, dir: dir, m: m}
	if t.progress != nil {
		r.moved = func(done int64) { t.progress(Progress{Name: name, Upload: true, Done: done, Total: total}) }
	}
	defer r.Close()
	return t.store.Put(ctx, t.payloadKey(name), r)
}
