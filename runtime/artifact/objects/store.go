// Package objects is the port to the stores that artifacts are published to: payloads that are there whole or not at
// all, and pointers that move by a real conditional write. Each store has its package below this one; none of them is
// linked in by importing this one.
package objects

import (
	"context"
	"io"
	"iter"
	"time"
)

// Store holds objects under keys. It is safe for concurrent use. Implementations of this module are a Guarded, which
// bounds every wait, retries, checks keys and types the errors.
//
// Keys are what CheckKey takes. A prefix is any beginning of a key, or "".
type Store interface {
	// Put stores what r holds up to io.EOF under key, over what was there. The new object is there whole or not at all,
	// whatever fails: the reader, ctx, the store, this process. When ctx ends while r.Read blocks, Put returns, and that
	// Read is the last one.
	Put(ctx context.Context, key string, r io.Reader) error

	// Get opens an object, or returns ErrNotFound. ctx bounds the reading too. A reader that ends early fails; it never
	// ends with io.EOF before Info.Size bytes.
	Get(ctx context.Context, key string) (io.ReadCloser, Info, error)

	// Stat says what Get would say of an object, without opening it, or returns ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// List yields the objects whose key begins with prefix, in the order of their keys' bytes. It yields at most one
	// error, as the last thing. What is written or deleted meanwhile may be there or not.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]

	// Delete removes an object. One that is not there is no error.
	Delete(ctx context.Context, key string) error

	// ReadPointer returns a pointer's value and its token, both from one answer of the store, or ErrNotFound.
	ReadPointer(ctx context.Context, key string) (value []byte, t Token, err error)

	// SwapPointer stores value under key if the pointer there is still the one that had the token old; the zero token
	// says that there must be none. ErrConflict says that another pointer stands there, or none where one was expected.
	// ErrUnavailable, like the end of ctx, says that it is unknown whether the value was stored: read the pointer before
	// the next step.
	// ErrUnsupported says that the store can't do this atomically, and that nothing was stored.
	//
	// A value that is there already is a success, whoever wrote it: give each writer's values a mark of their own if the
	// winner matters.
	SwapPointer(ctx context.Context, key string, value []byte, old Token) error

	// CleanUploads removes what uploads under prefix left behind that died more than olderThan ago, where the store has
	// such: multipart uploads, temporary files. An upload that lives and is older than that may be broken off; it fails
	// then, and leaves nothing.
	CleanUploads(ctx context.Context, prefix string, olderThan time.Duration) error

	// Close releases what the store holds in this process. Later calls fail with ErrClosed.
	Close() error
}

// Token names one version of a pointer to the store that gave it. The zero Token is that of a pointer that is not
// there. Equal bytes may have equal tokens.
type Token string

// Info is what a store says of an object that it opens.
type Info struct {
	Size    int64
	ModTime time.Time
	// Version is the store's mark of what the object holds now: an entity tag, a generation. It is "" where the store has
	// none, or does not tell it.
	Version string
}

// same reports whether both are said of one version of an object.
func (i Info) same(o Info) bool {
	if i.Version != "" && o.Version != "" {
		return i.Size == o.Size && i.Version == o.Version
	}
	return i.Size == o.Size && i.ModTime.Equal(o.ModTime)
}

// Sized is a reader that says how many bytes it has in all, as those of bytes and strings do. Put takes it as a hint by
// which an object in parts gets no more parts than the store allows.
type Sized interface {
	Size() int64
}

// Ranged is a Store that can open an object in its middle. A Guarded is one when its driver is: it then reads on where a
// stream broke off.
type Ranged interface {
	// GetFrom is Get without the first offset bytes, or ErrNoRanges. Info is that of the whole object, which has more bytes
	// than offset.
	GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, Info, error)
}

// Object is what a store says of an object that it lists.
type Object struct {
	Key     string
	Size    int64
	ModTime time.Time
}
