package pebblestore

import (
	"fmt"

	"github.com/typedfold/fold/runtime/store"
)

// DamageError is an Open that was refused because something that was durable is gone. It matches store.ErrCorrupt. No
// crash leads to it.
type DamageError struct {
	// Path is the damaged file, or the store's directory where no single file is to blame.
	Path string
	// Offset is where in the file the first bad record begins; -1 where Path is the directory.
	Offset int64
	Reason string
}

func (e *DamageError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: %v: %s", e.Path, store.ErrCorrupt, e.Reason)
	}
	return fmt.Sprintf("%s: %v at offset %d: %s", e.Path, store.ErrCorrupt, e.Offset, e.Reason)
}

func (e *DamageError) Unwrap() error { return store.ErrCorrupt }

// Hint says what a person can do.
func (e *DamageError) Hint() string {
	return "look at the disk; restore an artifact, or start an empty directory, into which a fold reads the whole bucket, which is complete if the bucket never evicted a value"
}
