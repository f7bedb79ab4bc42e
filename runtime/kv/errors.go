package kv

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels for the branches that callers take; the typed errors below match them and carry the numbers.
var (
	ErrKeyNotFound   = errors.New("key not found")
	ErrKeyExists     = errors.New("key exists")
	ErrConflict      = errors.New("revision conflict")
	ErrInvalidKey    = errors.New("invalid key")
	ErrCursorExpired = errors.New("cursor expired")
	ErrLogReplaced   = errors.New("log replaced")
	ErrLogRewound    = errors.New("log rewound")
	// ErrWatchLost: this watch has ended, for a reason that a new one may not have. It is never the end of the data.
	ErrWatchLost = errors.New("watch lost")
	// ErrBucketNotFound: there is no bucket of that name.
	ErrBucketNotFound = errors.New("bucket not found")
	// ErrUnsupported: the server or the bucket's settings can't do this.
	ErrUnsupported = errors.New("unsupported")
	// ErrOutcomeUnknown: a write was sent and no answer came, so it may or may not have been stored.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// ConflictError is a write that was refused because the key's version was not the expected one. Nothing was written.
type ConflictError struct {
	Key string
	// Expected is the version that the write asked for; unknown means "the key is absent".
	Expected Version
	// Current is the version that the leader showed afterwards; unknown when the key had never been written.
	Current Version
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q: expected revision %v, is %v", e.Key, e.Expected, e.Current)
}

func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// ExistsError is a create of a key that has a value. Nothing was written.
type ExistsError struct {
	Key     string
	Current Version
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("key %q exists at revision %v", e.Key, e.Current)
}

func (e *ExistsError) Is(target error) bool { return target == ErrKeyExists || target == ErrConflict }

// ExpiredError: the log no longer holds everything after the cursor.
type ExpiredError struct {
	Bucket string
	Cursor Cursor
	// First is the log's first retained revision.
	First uint64
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("bucket %q: cursor %v expired: the log starts at revision %d", e.Bucket, e.Cursor, e.First)
}

func (e *ExpiredError) Is(target error) bool { return target == ErrCursorExpired }

// Hint says what a person can do.
func (e *ExpiredError) Hint() string {
	return "the log moved on while this reader was away; a fold repairs that by itself where its options allow it (fold.Options.Repair), and messages should be kept for longer than readers are away"
}

// LogChangedError: the bucket's log is not the one that the cursor came from. It matches ErrLogReplaced or
// ErrLogRewound.
type LogChangedError struct {
	Bucket string
	// Replaced: another log under the same name; else the same log lost its end.
	Replaced bool
	Cursor   Cursor
	// Last is the log's last revision.
	Last uint64
	// NotedCreated and Created are the log's creation times, beside the cursor and now.
	NotedCreated, Created time.Time
}

func (e *LogChangedError) Error() string {
	if e.Replaced {
		return fmt.Sprintf("bucket %q: log replaced: cursor %v is of the log created %s, now there is one created %s, at revision %d",
			e.Bucket, e.Cursor, e.NotedCreated.UTC().Format(time.RFC3339Nano), e.Created.UTC().Format(time.RFC3339Nano), e.Last)
	}
	return fmt.Sprintf("bucket %q: log rewound: cursor %v, log ends at revision %d or holds other messages before the cursor", e.Bucket, e.Cursor, e.Last)
}

func (e *LogChangedError) Is(target error) bool {
	return e.Replaced && target == ErrLogReplaced || !e.Replaced && target == ErrLogRewound
}

// Hint says what a person can do.
func (e *LogChangedError) Hint() string {
	return "the bucket was re-created, restored from a backup, or lost writes; reads still serve what was folded before; to follow the bucket as it is now, start once with fold.Options.Repair.AdoptNewLog"
}

// UnsupportedError names the setting or the capability that is missing.
type UnsupportedError struct {
	Op      string
	Setting string
	Detail  string
	// Advice is what a person can do; "" when the text says all.
	Advice string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: unsupported: %s: %s", e.Op, e.Setting, e.Detail)
}

func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// Hint says what a person can do; "" for nothing.
func (e *UnsupportedError) Hint() string { return e.Advice }

// KeyError is a key that the bucket can't have.
type KeyError struct {
	Key    string
	Detail string
}

func (e *KeyError) Error() string { return fmt.Sprintf("key %q: %s", e.Key, e.Detail) }

func (e *KeyError) Is(target error) bool { return target == ErrInvalidKey }
