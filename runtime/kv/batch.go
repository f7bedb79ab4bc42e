package kv

import (
	"context"
	"errors"
	"fmt"
)

// MaxBatch is how many operations a server takes in one batch, unless its configuration says otherwise.
const MaxBatch = 1000

// BatchKind is what one operation of a batch does.
type BatchKind uint8

const (
	// BatchPut writes the key's value, whatever is there.
	BatchPut BatchKind = iota + 1
	// BatchCreate writes only when the key has no value: else an *ExistsError.
	BatchCreate
	// BatchUpdate writes only when the key's version is At: else a *ConflictError.
	BatchUpdate
	// BatchDelete removes the key, as Writer.Delete does.
	BatchDelete
)

// BatchOp is one operation of a batch.
type BatchOp struct {
	Kind BatchKind
	Key  string
	// Value is what is written; it is neither kept nor changed.
	Value []byte
	// At is the version that an update expects; unknown means that the key was never written. A delete expects it too, unless
	// it is unknown.
	At Version
	// Put are the extras of all but a delete.
	Put PutOptions
	// Purge has a delete remove the key's history too.
	Purge bool
}

// Batch is several writes that are done as one. Each key is written once.
type Batch struct {
	Ops []BatchOp
	// Match, when not nil, is the revision that the log's last message must have, of whatever key: else a *MatchError.
	// 0 is a log that never held a message.
	Match *uint64
	// Fence, when not 0, is the revision of the fence record that has to stand: else a *FenceMovedError, before anything
	// else that is refused. It needs a Fencer. The operations have none of their own.
	Fence uint64
}

// Batcher writes batches. A Bucket that can do so has it too; it is not a part of Bucket, since not each can.
type Batcher interface {
	// WriteBatch writes all operations or none. They get consecutive revisions in their order, with nothing else between
	// them, and the last one's is returned. A reader that follows the log may for a moment have the first of them and not yet
	// the last. An operation that can't be done gives a *BatchError, which says which one it was. Unless an error matches
	// ErrOutcomeUnknown, nothing was written. A batch without operations writes nothing, and its Match is not checked.
	WriteBatch(ctx context.Context, b Batch) (Version, error)
}

// ErrBatchAbandoned: the server gave up a batch before its end came, since it waited too long for it, a message was lost
// on the way, or another server took over. Nothing was written.
var ErrBatchAbandoned = errors.New("batch abandoned by the server")

// Validate checks what can be known without the bucket. Its errors are *BatchError.
func (b Batch) Validate() error {
	at := make(map[string]int, len(b.Ops))
	for i := range b.Ops {
		op := &b.Ops[i]
		err := op.validate()
		if first, twice := at[op.Key]; err == nil && twice {
			err = &DuplicateKeyError{Key: op.Key, First: first, Second: i}
		}
		if err != nil {
			return &BatchError{Index: i, Key: op.Key, Err: err}
		}
		at[op.Key] = i
	}
	return nil
}

func (o *BatchOp) validate() error {
	if err := WritableKey(o.Key); err != nil {
		return err
	}
	if o.Put.Fence != 0 {
		return errors.New("a fence is the batch's, not an operation's")
	}
	switch o.Kind {
	case BatchPut, BatchCreate, BatchUpdate:
		if o.Purge {
			return errors.New("only a delete purges")
		}
	case BatchDelete:
		if o.Value != nil || o.Put != (PutOptions{}) {
			return errors.New("a delete has no value")
		}
	default:
		return fmt.Errorf("no such kind of operation: %d", o.Kind)
	}
	return nil
}

// BatchError is the operation for which nothing of a batch was written.
type BatchError struct {
	// Index counts the batch's operations from 0.
	Index int
	// Key is the operation's; "" when it has none that can be written.
	Key string
	// Err is why: an *ExistsError, a *ConflictError, or what else was wrong with it.
	Err error
}

func (e *BatchError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("operation %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("operation %d on key %q: %v", e.Index, e.Key, e.Err)
}

func (e *BatchError) Unwrap() error { return e.Err }

// DuplicateKeyError is a batch that writes a key twice.
type DuplicateKeyError struct {
	Key string
	// First and Second are the operations, counted from 0.
	First, Second int
}

func (e *DuplicateKeyError) Error() string {
	return fmt.Sprintf("key %q is written by operation %d already; a batch writes each key once", e.Key, e.First)
}

// BatchSizeError is a batch of more operations than the server takes. Nothing was written.
type BatchSizeError struct {
	// Ops is how many there are. Limit is how many there may be; 0 when the server refused it and did not say.
	Ops, Limit int
}

func (e *BatchSizeError) Error() string {
	if e.Limit == 0 {
		return fmt.Sprintf("batch of %d operations is more than the server takes", e.Ops)
	}
	return fmt.Sprintf("batch of %d operations: at most %d", e.Ops, e.Limit)
}

// Hint says what a person can do.
func (e *BatchSizeError) Hint() string {
	return "split it, if it need not be one; or raise the server's limit (jetstream { limits { batch { max_msgs } } }) and the bucket's BucketConfig.MaxBatch with it"
}

// MatchError is a batch that was to follow one revision of the log and would have followed another. Nothing was written.
type MatchError struct {
	Bucket string
	// Want is the revision that the batch asked for, Got the log's last one as its leader showed it afterwards.
	Want, Got uint64
}

func (e *MatchError) Error() string {
	return fmt.Sprintf("bucket %q: the batch was to follow revision %d, the log is at %d", e.Bucket, e.Want, e.Got)
}

func (e *MatchError) Is(target error) bool { return target == ErrConflict }

// Hint says what a person can do.
func (e *MatchError) Hint() string {
	return "read what was written since and decide anew; in a bucket that was fenced it may be no row at all, but what a writer that was locked out left with its refused write"
}
