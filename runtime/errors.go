package fold

import (
	"errors"
	"fmt"
	"strings"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// Sentinels for the branches that callers take; typed errors that match them carry the numbers.
var (
	// ErrCursorExpired: the bucket's log no longer holds everything after the fold's cursor.
	ErrCursorExpired = kv.ErrCursorExpired
	// ErrLogReplaced: the bucket was deleted and created anew.
	ErrLogReplaced = kv.ErrLogReplaced
	// ErrLogRewound: the bucket's log lost its end.
	ErrLogRewound = kv.ErrLogRewound
	// ErrRepairRefused: what ended the watch can't be repaired safely; the error says what is missing.
	ErrRepairRefused = repair.ErrRefused
	// ErrStopped: the fold has stopped; reads still serve what it holds until Close.
	ErrStopped = errors.New("fold stopped")
	// ErrSchemaChanged: the store holds rows of another schema.
	ErrSchemaChanged = errors.New("schema changed")
	// ErrWrongBucket: the store, or the table, belongs to another bucket.
	ErrWrongBucket = errors.New("wrong bucket")
	// ErrNotStarted: the table's fold has not been started, so there is nothing to read yet.
	ErrNotStarted = errors.New("fold not started")
	// ErrLagged: a Watch fell further behind than its buffer.
	ErrLagged = errors.New("watch lagged")
	// ErrOverlap: two tables of a bucket can match one key.
	ErrOverlap = errors.New("tables overlap")
	// ErrNotUnique: several rows have the same values in a unique index.
	ErrNotUnique = errors.New("not unique")
)

// BucketError is a store or a table of another bucket.
type BucketError struct {
	// What is the store's path, or the table's name.
	What string
	// Has is the bucket that it belongs to, Want the one that it was to be used with.
	Has, Want string

	hint string
}

func (e *BucketError) Error() string {
	return fmt.Sprintf("%s belongs to bucket %q, not to bucket %q", e.What, e.Has, e.Want)
}

func (e *BucketError) Is(target error) bool { return target == ErrWrongBucket }

// Hint says what a person can do.
func (e *BucketError) Hint() string { return e.hint }

// What a person can do about a table, and about a store, of another bucket.
const (
	hintTableOfFold   = "give each bucket its own builder, or say with Options.Bucket which logical bucket this one serves"
	hintTableOfWriter = "write to the table's bucket, or say with WithLogicalBucket which logical bucket this one serves"
	hintStore         = "give each bucket its own store directory"
)

// SchemaError is a store whose rows were folded under another schema of a table.
type SchemaError struct {
	Table string
	// Stored and Now are the canonical records of the two schemas.
	Stored, Now string
	// Diff is what changed line by line, '-' for the stored one and '+' for now, each with its class and the reason.
	Diff string
	// Verdict has the lines that changed.
	Verdict schema.Verdict
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("table %s: schema changed since the store was written:\n%s", e.Table, strings.TrimRight(e.Diff, "\n"))
}

func (e *SchemaError) Is(target error) bool { return target == ErrSchemaChanged }

// Hint says what a person can do.
func (e *SchemaError) Hint() string { return e.Verdict.Hint() }

// OverlapError is two tables that can match one key.
type OverlapError struct {
	A, B               string
	PatternA, PatternB string
	Witness            string
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("tables %s (%s) and %s (%s) both match key %q", e.A, e.PatternA, e.B, e.PatternB, e.Witness)
}

func (e *OverlapError) Is(target error) bool { return target == ErrOverlap }

// StoppedError says that the fold has stopped, and why. It matches ErrStopped and its cause.
type StoppedError struct {
	Cursor Cursor
	// Err is the cause; nil after Close.
	Err error
}

func (e *StoppedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("fold stopped at cursor %v", e.Cursor)
	}
	return fmt.Sprintf("fold stopped at cursor %v: %v", e.Cursor, e.Err)
}

func (e *StoppedError) Is(target error) bool { return target == ErrStopped }

func (e *StoppedError) Unwrap() error { return e.Err }

// HaltError stops a fold whose table asks to halt on a rejection. The update is not applied.
type HaltError struct {
	Rejection *Rejection
	// Stored: the value was in the store already, and Start judged it by another schema than the fold did.
	Stored bool
}

func (e *HaltError) Error() string {
	if e.Stored {
		return fmt.Sprintf("table %s halts on a rejected value that is in the store: %v", e.Rejection.Table, e.Rejection)
	}
	return fmt.Sprintf("table %s halts on a rejected update: %v", e.Rejection.Table, e.Rejection)
}

func (e *HaltError) Unwrap() error { return e.Rejection }

// Hint says what a person can do.
func (e *HaltError) Hint() string {
	if e.Stored {
		return "set on_reject to KEEP_OLD or DROP_ROW; or start with the earlier schema, write a valid value to the key, and change the schema then"
	}
	return "set on_reject to KEEP_OLD or DROP_ROW; in a bucket of history 1, writing a valid value to the key and a restart will do"
}

// HookError is a hook that returned an error, or panicked.
type HookError struct {
	Table string
	// First and Last are the revisions of the batch's events.
	First, Last uint64
	// Panicked: Err is the panic's value and stack.
	Panicked bool
	Err      error
}

func (e *HookError) Error() string {
	verb := "returned"
	if e.Panicked {
		verb = "panicked"
	}
	return fmt.Sprintf("hook of table %s %s on revisions %d to %d: %v", e.Table, verb, e.First, e.Last, e.Err)
}

func (e *HookError) Unwrap() error { return e.Err }

// LaggedError ends a Watch whose reader fell behind. It matches ErrLagged.
type LaggedError struct {
	Table  string
	Buffer int
}

func (e *LaggedError) Error() string {
	return fmt.Sprintf("watch of table %s fell more than %d events behind", e.Table, e.Buffer)
}

func (e *LaggedError) Is(target error) bool { return target == ErrLagged }

// Hint says what a person can do.
func (e *LaggedError) Hint() string {
	return "read the table again and watch anew, or give the watch a larger buffer (WithBuffer)"
}

// NotUniqueError is a tuple that several rows have in an index which is declared unique: a fold can't refuse a write that
// the bucket took. It matches ErrNotUnique.
type NotUniqueError struct {
	Table, Index string
	// Keys are the NATS keys of the rows, in order, MaxNotUniqueKeys at most; More says that there are others.
	Keys []string
	More bool
}

func (e *NotUniqueError) Error() string {
	more := ""
	if e.More {
		more = " and others"
	}
	return fmt.Sprintf("index %s of table %s: not unique: rows %q%s have the same values", e.Index, e.Table, e.Keys, more)
}

func (e *NotUniqueError) Is(target error) bool { return target == ErrNotUnique }

// Hint says what a person can do.
func (e *NotUniqueError) Hint() string {
	return "give all of these rows but one another value, or declare the index without unique"
}

// IndexProblem is how an index and the rows disagree.
type IndexProblem string

const (
	// IndexMissing: the row has no entry, or not this one. IndexExtra: the entry stands for no row that has its values.
	IndexMissing IndexProblem = "missing"
	IndexExtra   IndexProblem = "extra"
	// IndexUnbuilt: the store does not say that the index is built.
	IndexUnbuilt IndexProblem = "unbuilt"
)

// IndexError is an index that disagrees with the rows, which no crash leads to. It matches store.ErrCorrupt.
type IndexError struct {
	Table, Index string
	// Key is the row's NATS key; "" for the index as a whole.
	Key     string
	Problem IndexProblem
}

func (e *IndexError) Error() string {
	text := fmt.Sprintf("index %s of table %s", e.Index, e.Table)
	switch e.Problem {
	case IndexMissing:
		return fmt.Sprintf("%s: row %q lacks an entry", text, e.Key)
	case IndexExtra:
		return fmt.Sprintf("%s: an entry stands for row %q, which is not there or has other values", text, e.Key)
	}
	return text + ": not built"
}

func (e *IndexError) Is(target error) bool { return target == store.ErrCorrupt }

// Hint says what a person can do.
func (e *IndexError) Hint() string {
	if e.Problem == IndexUnbuilt {
		return "start a fold with the table, which builds it"
	}
	return "fold the bucket into an empty store, or restore an artifact, and keep this store to find out why"
}

// Hint is what a person can do about an error: the first hint among it and what it wraps; "" when there is none.
func Hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
