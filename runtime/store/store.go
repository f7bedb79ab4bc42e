// Package store is the port between a fold and the disk: an ordered map of byte keys in which a batch and the cursor
// that it leads to are committed together, or not at all. pebblestore and logstore implement it; storetest holds the
// conformance and crash suites for every implementation.
package store

import (
	"context"
	"errors"

	"github.com/typedfold/fold/runtime/kv"
)

// Sentinels; typed errors below match them.
var (
	ErrClosed = errors.New("store closed")
	// ErrLocked: another process, or another place in this one, has the store open.
	ErrLocked = errors.New("store is open already")
	// ErrCorrupt: the files hold what no crash of this program leaves behind.
	ErrCorrupt = errors.New("store corrupt")
	// ErrFormat: the files are of a format or generation that this build does not read.
	ErrFormat = errors.New("store format not supported")
	// ErrPoisoned: an earlier write failed half-way; reads go on, writes need a re-open.
	ErrPoisoned = errors.New("store refuses writes after a failed one")
	// ErrBusy: snapshots, iterators or values are open, so the store can't close; it goes on.
	ErrBusy = errors.New("store in use")
	// ErrReadOnly: the store was opened to be read only, which every call that would write says.
	ErrReadOnly = errors.New("store is read-only")
	// ErrDiskFull: too little space is left to write safely; reads go on.
	ErrDiskFull = errors.New("disk full")
)

// Space is the first byte of every store key: what the key is for.
type Space byte

const (
	// SpaceMeta holds the cursor and the fold's own records, under short names.
	SpaceMeta Space = 'M'
	// SpaceAccepted holds the last accepted record of a key whose newest one was rejected (KEEP_OLD).
	SpaceAccepted Space = 'a'
	// SpaceData holds the newest record of each key.
	SpaceData Space = 'd'
	// SpaceIndex holds secondary index entries.
	SpaceIndex Space = 'i'
	// SpaceRejected holds why a key's newest record was rejected.
	SpaceRejected Space = 'r'
)

// AppendKey appends the store key of a NATS key in a space: the space's byte, then the key with '.' as 0x00, so that
// iteration is in tuple order and a token is never a prefix of its sibling.
func AppendKey(dst []byte, s Space, key string) []byte {
	dst = append(dst, byte(s))
	n := len(dst)
	dst = append(dst, key...)
	Ordered(dst[n:])
	return dst
}

// Ordered turns a NATS key into its ordered form in place.
func Ordered(key []byte) {
	for i, c := range key {
		if c == '.' {
			key[i] = 0
		}
	}
}

// NATSKey is the NATS key of a store key in SpaceData, SpaceAccepted or SpaceRejected.
func NATSKey(storeKey []byte) string {
	b := make([]byte, len(storeKey)-1)
	for i, c := range storeKey[1:] {
		if c == 0 {
			c = '.'
		}
		b[i] = c
	}
	return string(b)
}

// PrefixEnd is the first key after all that begin with prefix; nil when there is none.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

// Op is one write of a store key beside the updates.
type Op struct {
	Key    []byte // space byte first
	Value  []byte
	Delete bool
}

// Batch is what one Apply commits. The store keeps nothing of it after Apply returns.
type Batch struct {
	// Updates change SpaceData, in order: a put writes the key's record, a delete or purge removes it, OpAgedOut
	// leaves it as it is. A later update of the same key wins.
	Updates []kv.Update
	// Ops are applied after Updates, in order.
	Ops []Op
	// Bulk says that the fold is hydrating and the batch is large: a store may take a path that is cheaper for many
	// keys at once, with the same atomicity.
	Bulk bool
}

// Value is one stored value. Bytes are valid until Release, and must not be written to.
type Value struct {
	Bytes  []byte
	closer interface{ Close() error }
}

// Hold sets v to bytes that stay valid until closer is closed; for implementations of Getter. A nil closer is for
// bytes that stay valid by themselves.
func (v *Value) Hold(b []byte, closer interface{ Close() error }) { v.Bytes, v.closer = b, closer }

// Release gives the bytes back. It may be called more than once.
func (v *Value) Release() {
	v.Bytes = nil
	if c := v.closer; c != nil {
		v.closer = nil
		_ = c.Close()
	}
}

// IterOptions shape one iteration.
type IterOptions struct {
	// Lower is the first key, included; nil begins at the first of all.
	Lower []byte
	// Upper ends the iteration before itself; nil never ends it.
	Upper []byte
	// Reverse goes from the last key to the first.
	Reverse bool
}

// Iterator walks keys in order. It is used by one goroutine; Key and Value are valid until the next call.
type Iterator interface {
	// Next moves to the next key, the first one at first; false at the end or on an error.
	Next() bool
	// SeekTo moves to the first key at or past k in the iteration's direction, within its bounds.
	SeekTo(k []byte) bool
	Key() []byte
	Value() ([]byte, error)
	Err() error
	Close() error
}

// Getter reads. Implementations are safe for concurrent use.
type Getter interface {
	// Get fills v with the value of key (space byte first); the caller releases v. key is not kept.
	Get(key []byte, v *Value) (bool, error)
	// Iter opens an iterator over a fixed view of the store, which the caller closes.
	Iter(o IterOptions) (Iterator, error)
}

// Snapshot is a read view of one moment. Close it; a store can't close before.
type Snapshot interface {
	Getter
	// Cursor is the cursor that the view is exactly consistent with.
	Cursor() kv.Cursor
	Close() error
}

// Info describes a store for people and for refusals.
type Info struct {
	// Backend is the implementation's name ("pebble", "append-log"), Format its format's generation.
	Backend string
	Format  string
	Path    string
}

// Stats are a store's own figures.
type Stats struct {
	DiskBytes   uint64
	MemoryBytes uint64
}

// Store is a durable fold: an ordered map whose contents and cursor move together.
type Store interface {
	Getter
	// Apply commits the batch and the cursor in one atomic step. On an error nothing of it is visible, now or after a
	// re-open, unless the error matches ErrPoisoned, after which only a re-open tells. One Apply runs at a time.
	Apply(ctx context.Context, b *Batch, c kv.Cursor) error
	// Cursor is the cursor of the last Apply: what reads see.
	Cursor() kv.Cursor
	// Durable is the cursor that survives the loss of the process and of the machine's power.
	Durable() kv.Cursor
	// Sync makes Cursor durable.
	Sync(ctx context.Context) error
	// Snapshot opens a read view of now.
	Snapshot() (Snapshot, error)
	// Settle brings the store into the shape in which reads are cheap (compaction done), within ctx.
	Settle(ctx context.Context) error
	// Export writes a consistent copy of the store's files into dir, which must not exist or be empty, and which opens
	// as a store at exactly Cursor. Apply must not run meanwhile.
	Export(ctx context.Context, dir string) error
	Info() Info
	// Kind is what an artifact needs to know of the implementation.
	Kind() Kind
	Stats() Stats
	// Close syncs and closes. While snapshots, iterators or values are open it is ErrBusy, and the store goes on.
	Close() error
}

// CursorKey is where a store that keeps its cursor as a key has it.
func CursorKey() []byte { return []byte{byte(SpaceMeta), 'c', 'u', 'r', 's', 'o', 'r'} }

// MetaKey is the store key of one of the fold's own records.
func MetaKey(name string) []byte { return append([]byte{byte(SpaceMeta), '.'}, name...) }
