package fold

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/zeebo/blake3" // the digest of a fold: one fast, wide hash

	"github.com/typedfold/fold/runtime/store"
)

// Snapshot is a read view of all tables at one cursor. Close it; the fold can't close its store before.
type Snapshot struct{ s store.Snapshot }

// Snapshot opens a read view of now.
func (f *Fold) Snapshot() (*Snapshot, error) {
	s, err := f.snapshot()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return &Snapshot{s: s}, nil
}

func (f *Fold) snapshot() (store.Snapshot, error) {
	if f.shut.Load() {
		return nil, store.ErrClosed
	}
	return f.store.Snapshot()
}

// Cursor is what the view is exactly consistent with.
func (s *Snapshot) Cursor() Cursor { return s.s.Cursor() }

// Close frees the view.
func (s *Snapshot) Close() error { return s.s.Close() }

// Digest is a hash over every key with its newest raw value and revision, in key order. Two folds of one bucket that
// have the same scope and the same truth have the same digest, whatever their tables accepted.
type Digest [32]byte

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Digest hashes what the view holds, in one pass.
func (s *Snapshot) Digest(ctx context.Context) (Digest, error) { return DigestOf(ctx, s.s) }

// DigestOf is the digest of what a store holds: that of a fold which is stopped, or of an artifact.
func DigestOf(ctx context.Context, g store.Getter) (Digest, error) {
	lower := []byte{byte(store.SpaceData)}
	it, err := g.Iter(store.IterOptions{Lower: lower, Upper: store.PrefixEnd(lower)})
	if err != nil {
		return Digest{}, fmt.Errorf("digest: %w", err)
	}
	h := blake3.New()
	var head []byte
	for it.Next() {
		if err = ctx.Err(); err != nil {
			break
		}
		var value []byte
		if value, err = it.Value(); err != nil {
			break
		}
		var rec store.Record
		if rec, err = store.ParseRecord(value); err != nil {
			break
		}
		key := it.Key()[1:]
		head = binary.AppendUvarint(head[:0], uint64(len(key)))
		head = append(head, key...)
		head = append(head, byte(rec.Version.Len()))
		head = rec.Version.AppendBytes(head)
		head = binary.AppendUvarint(head, uint64(len(rec.Value)))
		_, _ = h.Write(head) // a hash takes everything
		_, _ = h.Write(rec.Value)
	}
	if err == nil {
		err = it.Err()
	}
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return Digest{}, fmt.Errorf("digest: %w", err)
	}
	var d Digest
	h.Sum(d[:0])
	return d, nil
}
