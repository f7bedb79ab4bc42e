package transport

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/store"
)

// Download brings the artifact that m announces to the folder dir, which must be absent or empty, and checks all of it
// before the folder gets that name. What is not as announced is artifact.ErrInvalid, as is a payload that is announced
// and not there; one that was pruned is ErrGone. Any other error may be gone at the next try.
func (t *Transport) Download(ctx context.Context, m artifact.Manifest, dir string, o artifact.Options) error {
	err := t.fetch(ctx, m, nil, func(r io.Reader) error { return artifact.Unpack(ctx, r, m, dir, o) })
	return t.downloadFailed(m, err)
}

// Import brings the artifact that m announces to the folder dest as a store, as Download does.
func (t *Transport) Import(ctx context.Context, m artifact.Manifest, dest string, o artifact.Options) error {
	return t.downloadFailed(m, t.importWhile(ctx, m, dest, o, nil))
}

// importWhile asks good, when it is not nil, once all bytes have arrived and before dest gets its name.
func (t *Transport) importWhile(ctx context.Context, m artifact.Manifest, dest string, o artifact.Options, good func() error) error {
	return t.fetch(ctx, m, good, func(r io.Reader) error { return artifact.ImportPacked(ctx, r, m, dest, o) })
}

func (t *Transport) downloadFailed(m artifact.Manifest, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("download %q as %s: %w", t.base, Name(m), err)
}

// fetch has take read the payload, and tells the store's failures from the artifact's.
func (t *Transport) fetch(ctx context.Context, m artifact.Manifest, good func() error, take func(io.Reader) error) error {
	name := Name(m)
	body, info, err := t.store.Get(ctx, t.payloadKey(name))
	if errors.Is(err, objects.ErrNotFound) {
		return t.missing(ctx, &m, err)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	if want := m.PackedSize(); info.Size != want {
		return &artifact.InvalidError{What: name, Reason: fmt.Sprintf("its payload has %d bytes, its manifest says %d", info.Size, want)}
	}
	r := &arriving{body: body, total: info.Size, good: good}
	if t.progress != nil {
		r.moved = func(done int64) { t.progress(Progress{Name: name, Done: done, Total: info.Size}) }
	}
	err = take(r)
	if err == nil || r.failed == nil || errors.Is(err, store.ErrDiskFull) {
		return err
	}
	// The stream broke off, which says nothing of the artifact, whatever the reader of the stream made of it.
	if _, err := t.store.Stat(ctx, t.payloadKey(name)); errors.Is(err, objects.ErrNotFound) {
		return t.missing(ctx, &m, r.failed)
	}
	return r.failed
}

// missing is the verdict on an artifact without a payload.
func (t *Transport) missing(ctx context.Context, m *artifact.Manifest, cause error) error {
	announced, err := t.announced(ctx, m)
	switch {
	case err != nil:
		return err
	case announced:
		return &artifact.InvalidError{What: Name(*m), Reason: "its payload is not there", Err: cause}
	}
	return &GoneError{Name: Name(*m), Err: cause}
}

// arriving is a payload on its way. It remembers how reading it failed.
type arriving struct {
	body        io.Reader
	done, total int64
	moved       func(done int64) // nil hears nothing
	good        func() error     // nil is always good
	failed      error
}

func (r *arriving) Read(b []byte) (int, error) {
	if r.failed != nil {
		return 0, r.failed
	}
	n, err := r.body.Read(b)
	r.done += int64(n)
	if n > 0 && r.moved != nil {
		r.moved(r.done)
	}
	if err == io.EOF {
		if r.done == r.total && r.good != nil {
			good := r.good
			r.good = nil
			if r.failed = good(); r.failed != nil {
				return n, r.failed
			}
		}
		return n, io.EOF
	}
	r.failed = err
	return n, err
}
