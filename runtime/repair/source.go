package repair

import (
	"context"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Source supplies artifacts to restore from.
type Source interface {
	// Candidates describes the artifacts that can be had, the one to prefer first, without their payload. None is no
	// error.
	Candidates(ctx context.Context) ([]Manifest, error)
	// Fetch brings an artifact here, checks it, and opens it. An error that matches ErrArtifactInvalid says that this one
	// is no good; any other may be gone at the next try.
	Fetch(ctx context.Context, m Manifest) (Artifact, error)
}

// Manifest is what an artifact says of itself before it is fetched.
type Manifest struct {
	// ID names it to its source, and in logs and reports.
	ID      string
	Created time.Time
	// Cursor is the position that its contents are exactly consistent with.
	Cursor kv.Cursor
	// Scope is what its fold followed; HasScope is false when that was not recorded.
	Scope    kv.Scope
	HasScope bool
	// Log is the log that it was folded from, Owed the audit that it owes.
	Log  kv.Incarnation
	Owed kv.Owed
	// Err, when not nil, is why its source can't read it. It is refused with that.
	Err error
}

// Artifact is a fetched artifact, opened.
type Artifact interface {
	// Snapshot reads it. Its cursor is what has arrived, whatever the manifest said.
	Snapshot() (store.Snapshot, error)
	// Manifest is what it says of itself now that it is here.
	Manifest() Manifest
	// Close closes it and removes what Fetch brought.
	Close() error
}
