package main

import (
	"context"
	"errors"
	"fmt"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

const (
	bigKey = "big"
	// bigBatch is how many keys a batch has: enough to be ingested, as those of a hydrate are.
	bigBatch = pebblestore.DefaultBulkMinUpdates
)

// bigFill writes a store of o.payload MiB in values of heavyValue bytes that don't compress, spread over the keys.
func bigFill(ctx context.Context, o options) (_ result, err error) {
	return watched(o, heavyKeys(o), func() (*artifactPart, error) {
		return nil, inStore(o.dir, func(s store.Store) error { return bigApply(ctx, o, s) })
	})
}

func bigApply(ctx context.Context, o options, s store.Store) error {
	n := heavyKeys(o)
	key := fillOrder(n)
	for at := 0; at < n; {
		b := store.Batch{Bulk: true}
		for ; at < n && len(b.Updates) < bigBatch; at++ {
			i := key(at)
			b.Updates = append(b.Updates, kv.Update{Key: fmt.Sprintf("t%08d.d%08d", i/1000, i), Value: noise(i, heavyValue), Version: kv.Revision(uint64(at + 1)), Op: kv.OpPut})
		}
		if err := s.Apply(ctx, &b, kv.CursorAt(uint64(at))); err != nil {
			return err
		}
	}
	return s.Settle(ctx)
}

// inStore has f use the store in dir.
func inStore(dir string, f func(store.Store) error) error {
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// watched measures f with the heap at its largest.
func watched(o options, keys int, f func() (*artifactPart, error)) (result, error) {
	stop, err := watchHeap(o)
	if err != nil {
		return result{}, err
	}
	m := startMeter()
	part, err := f()
	r := m.done(keys)
	heap, stopErr := stop()
	r.HeapMB, r.Artifact = heap, part
	return r, errors.Join(err, stopErr)
}

func partOf(m artifact.Manifest) *artifactPart {
	return &artifactPart{Files: len(m.Files), Manifest: len(m.Bytes()), Bytes: m.Size()}
}

func bigExport(ctx context.Context, o options) (result, error) {
	return watched(o, heavyKeys(o), func() (part *artifactPart, err error) {
		return part, inStore(o.dir, func(s store.Store) error {
			m, err := artifact.Export(ctx, s, o.artifacts, artifact.ExportOptions{})
			part = partOf(m)
			return err
		})
	})
}

// bigTransport publishes to and imports from o.place.
func bigTransport(ctx context.Context, o options, f func(*transport.Transport) (artifact.Manifest, error)) (result, error) {
	return watched(o, heavyKeys(o), func() (*artifactPart, error) {
		s, err := openers.Open(ctx, o.place, objects.Options{})
		if err != nil {
			return nil, err
		}
		t, err := transport.New(transport.Options{Store: s, Key: bigKey})
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		m, err := f(t)
		return partOf(m), errors.Join(err, s.Close())
	})
}

func bigPublish(ctx context.Context, o options) (result, error) {
	return bigTransport(ctx, o, func(t *transport.Transport) (artifact.Manifest, error) {
		m, err := readManifest(o.artifacts)
		if err != nil {
			return m, err
		}
		return m, publishArtifact(ctx, t, o.artifacts, m, liveOf(m))
	})
}

func bigImport(ctx context.Context, o options) (result, error) {
	return bigTransport(ctx, o, func(t *transport.Transport) (artifact.Manifest, error) {
		live := func(context.Context) (kv.LogInfo, error) {
			return kv.LogInfo{First: 1, Last: uint64(heavyKeys(o))}, nil
		}
		return t.Bootstrap(ctx, o.dir, live, artifact.Options{Kinds: []store.Kind{pebblestore.Kind()}})
	})
}

// bigDigest walks a store: it must have every key, at the cursor of the last one.
func bigDigest(ctx context.Context, o options) (result, error) {
	return watched(o, heavyKeys(o), func() (part *artifactPart, err error) {
		return part, inStore(o.dir, func(s store.Store) error {
			if has, want := s.Cursor(), kv.CursorAt(uint64(heavyKeys(o))); has != want {
				return fmt.Errorf("cursor %v, want %v", has, want)
			}
			d, err := fold.DigestOf(ctx, s)
			part = &artifactPart{Digest: d.String()}
			return err
		})
	})
}
