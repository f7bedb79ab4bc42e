package kv

import (
	"context"
	"iter"
	"time"

	"github.com/typedfold/fold/runtime/protocol"
)

// Retention is what a log can evict, read live from the stream's settings.
type Retention struct {
	// EvictsCurrentValues: max_age, per-message TTLs, or discard old under a limit.
	EvictsCurrentValues bool
	// EvictsInside: per-message TTLs take values from inside the log, where First does not show it.
	EvictsInside bool
	// First is the first retained revision; 0 for a log that never held a message.
	First uint64
	// AgeLimit is how long a message is kept, where age is the only way in which the log can take a current value; else 0.
	AgeLimit time.Duration
	// Unknown: the log can't say whether it evicts, so nothing is concluded from a key that is not listed.
	Unknown bool
}

// Kernel is the retention as the decisions take it.
func (r Retention) Kernel() protocol.Retention {
	return protocol.Retention{Known: !r.Unknown, Evicts: r.EvictsCurrentValues, Inside: r.EvictsInside, First: r.First}
}

// LogInfo is a log's identity and bounds, as its leader gave them.
type LogInfo struct {
	// Bucket is the bucket's name.
	Bucket string
	// Created is when the log was created: with another value it is another log.
	Created time.Time
	First   uint64
	Last    uint64
	// Messages and Subjects are counts of what is retained.
	Messages uint64
	Subjects uint64
	// Bytes is what the messages take at the server. MaxBytes and MaxMessages are where the log begins to discard its oldest
	// messages, 0 for no such limit; both are 0 where it may discard some for another reason, or that is not known.
	Bytes, MaxBytes, MaxMessages uint64
	// ServerTime is the server's clock at the answer; the zero time when it does not say.
	ServerTime time.Time
	Retention  Retention
	// Markers are the settings that decide how long a delete marker stays.
	Markers protocol.MarkerRules
	// Identity is what an open could say of the log against its request's Known; only a watch's Info has it.
	// LogUnknown owes an audit.
	Identity protocol.LogAnswer
}

// OpenRequest asks for one watch.
type OpenRequest struct {
	Scope Scope
	// After is the cursor to resume after. None asks for the current value of each key in scope first (a re-list,
	// in revision order), then live updates.
	After Cursor
	// Known is what the fold remembers of the log, checked before anything is delivered.
	Known Incarnation
	// Lost is how long ago the caller's last live watch of this log, which stood at After, ended; 0 when it had none in
	// this process. See protocol.ReopenIsWhole.
	Lost time.Duration
	// Stood is the last that a watch of this process told; it is of use where it is about After.
	Stood Stood
}

// Stood is a revision and a time of the server, in Unix nanoseconds, before which nothing later was written: that of its
// message, or one at which it still was the log's last. The zero value is that nothing is known.
type Stood struct {
	Revision uint64
	UnixNano int64
}

// Delivery is what one Next call took from a watch.
type Delivery struct {
	// Updates are in revision order. Keys and values stay valid; the slice belongs to the caller.
	Updates []Update
	// Frontier, when not 0, says that every update in scope at or below this revision has been delivered by this
	// watch or before it, up to and including Updates. It may be past the last update.
	Frontier uint64
	// Pending is the server's estimate of matching messages still to come.
	Pending uint64
	// Behind: for a while before this the watch was given nothing, whatever was written. What was written and vanished then
	// leaves no trace in a scope.
	Behind bool
	// Stood is about Frontier. A quiet watch tells it from time to time, with nothing else.
	Stood Stood
}

// Watch is one consumer's generation. It is used by one goroutine, except Close. Each call ends when its context does.
type Watch interface {
	// Info is the log as it was when the watch began; everything at or below Info().Last was there before it.
	Info() LogInfo
	// Next blocks until there is something to tell, then appends what is there to into.Updates (at most max updates or
	// maxBytes of keys and values, and at least one update if there is one; a max below 1 is 1) and returns it. Once all
	// that the log held at the beginning was delivered, be that nothing, it tells a Frontier of at least Info().Last
	// without waiting for another write; a log that never held a message has none to tell. Any error ends the watch:
	// ErrWatchLost, an ExpiredError when the watch was overrun, or the context's.
	Next(ctx context.Context, into Delivery, max, maxBytes int) (Delivery, error)
	// Close ends the watch and frees what the server holds for it, within ctx.
	Close(ctx context.Context) error
}

// Watcher opens watches.
type Watcher interface {
	// Info reads the log's identity and bounds from its leader.
	Info(ctx context.Context) (LogInfo, error)
	// Open begins a watch. Every one passes the window and identity kernels of package protocol: an ExpiredError or a
	// LogChangedError means that nothing was consumed.
	Open(ctx context.Context, req OpenRequest) (Watch, error)
}

// KeyVersion is one listed key.
type KeyVersion struct {
	Key     string
	Version Version
	// Op is what the key's last message did: OpPut for a key that has a value.
	Op Op
	// UnixNano is the server's time of that message; 0 when it is not known.
	UnixNano int64
}

// Reader reads a bucket's current state from its leader.
type Reader interface {
	// Get is the key's value; ErrKeyNotFound when it has none (never written, deleted, or aged out).
	Get(ctx context.Context, key string) (Entry, error)
	// Entry is the key's last message, tombstones included, for writers that need its version; ErrKeyNotFound when the
	// log holds none.
	Entry(ctx context.Context, key string) (Entry, error)
	// Keys lists the keys in scope that have a value, in no order and without those that are Reserved; at most one error, last.
	Keys(ctx context.Context, scope Scope) iter.Seq2[KeyVersion, error]
	// LastVersions lists the last message of each key in scope, tombstones too, without values and in no order; at most one
	// error, last. It is complete: everything that the log held when it began, and still holds, is in it. A key that is
	// written meanwhile may come again, with the later version later.
	LastVersions(ctx context.Context, scope Scope) iter.Seq2[KeyVersion, error]
	// Scan lists the entries in scope that have a value, in no order and without those that are Reserved; at most one error,
	// last.
	Scan(ctx context.Context, scope Scope) iter.Seq2[Entry, error]
}

// PutOptions are a write's extras.
type PutOptions struct {
	// TTL is how long the server keeps the value; 0 is for good. It needs a bucket that allows it.
	TTL time.Duration
	// ContentType is sent as the message's Content-Type header when not "".
	ContentType string
	// Fence, when not 0, is the revision of the fence record that has to stand: else a *FenceMovedError. It needs a Fencer.
	Fence uint64
}

// DeleteOptions are a delete's extras.
type DeleteOptions struct {
	// At deletes only when the key's version is this one; unknown deletes whatever is there.
	At Version
	// Purge removes the key's history too.
	Purge bool
	// Fence is as that of PutOptions.
	Fence uint64
}

// Writer writes a bucket. Each call is one message, acknowledged by the leader; on a timeout it may or may not have
// been written, and the error says so. A key that is Reserved is refused.
type Writer interface {
	Put(ctx context.Context, key string, value []byte, o PutOptions) (Version, error)
	// Create writes only when the key has no value: else an *ExistsError.
	Create(ctx context.Context, key string, value []byte, o PutOptions) (Version, error)
	// Update writes only when the key's version is at: else a *ConflictError.
	Update(ctx context.Context, key string, value []byte, at Version, o PutOptions) (Version, error)
	// Delete removes the key; a delete of an absent key is written all the same.
	Delete(ctx context.Context, key string, o DeleteOptions) (Version, error)
}

// Bucket is all of a bucket's ports under its name.
type Bucket interface {
	Name() string
	Reader
	Watcher
	Writer
}
