package fold

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/typedfold/fold/runtime/kv"
)

type (
	// BatchError is the operation for which nothing of a batch was written, and why: a *ConflictError, an *ExistsError, a
	// *Rejection, or what else was wrong with it.
	BatchError = kv.BatchError
	// BatchSizeError is a batch of more operations than the server takes.
	BatchSizeError = kv.BatchSizeError
	// DuplicateKeyError is a batch that writes a row twice.
	DuplicateKeyError = kv.DuplicateKeyError
	// MatchError is a batch whose Match was not the bucket's last revision.
	MatchError = kv.MatchError
	// UnsupportedError names the setting that a bucket or a server lacks.
	UnsupportedError = kv.UnsupportedError
)

var (
	// ErrBatchUsed: the batch was committed before, whatever came of it.
	ErrBatchUsed = errors.New("batch was committed before")
	// ErrBatchAbandoned: the server gave up the batch before it had all of it. Nothing was written.
	ErrBatchAbandoned = kv.ErrBatchAbandoned
	// ErrOutcomeUnknown: no answer came to a write, so it may or may not have been stored.
	ErrOutcomeUnknown = kv.ErrOutcomeUnknown

	errBatchBucket = errors.New("the writer's bucket is another one than the batch's")
	errEmptyMatch  = errors.New("commit batch: a batch with Match has nothing to write, so nothing would check it")
	errNilTail     = errors.New("Match was given no revision")
)

// Batch gathers writes of several rows, of one table or several of one bucket, that are done as one: all of them or none.
// Writers put operations in (Writer.PutIn and the others), Commit sends them. What is wrong with an operation is noted
// and given by Commit, which then sends nothing. A batch is for one goroutine, and is committed once.
//
// All or none is what the bucket's log and reads of the bucket promise. A fold applies the operations as the updates that
// they are, in their order and with nothing else in between, but it may show the first of them a moment before the last:
// after WaitApplied with the batch's Revision it shows all.
type Batch struct {
	bucket kv.Bucket
	batch  kv.Batch
	index  map[string]int // of the operation on a key
	count  int            // of operations, those with errors too
	errs   []error
	fence  *fencing // of the first writer

	used      bool
	committed bool
	last      uint64
}

// NewBatch is an empty batch for the bucket. The bucket has to be able to store batches, as natskv's are on nats-server
// 2.12 and later; Commit says so when it is not.
func NewBatch(b Bucket) *Batch { return &Batch{bucket: b, index: map[string]int{}} }

// Match has the batch written only when the log's last revision is tail, so when nobody has written anything to the bucket
// since, be it of another table: else Commit gives a *MatchError. Seq(0) is a bucket that was never written.
func (b *Batch) Match(tail Revision) {
	if tail == nil {
		b.errs = append(b.errs, errNilTail)
		return
	}
	seq := tail.Seq()
	b.batch.Match = &seq
}

// Len is how many operations were put in.
func (b *Batch) Len() int { return b.count }

// Commit writes all operations, or none and says why.
//
// Each operation that can't be done by itself, such as a value that the table refuses, is a *BatchError, and all of them
// are given; the bucket is not asked then. Of operations that the bucket refuses the first one is given, as a *BatchError
// with a *ConflictError or an *ExistsError in it. Other errors are a *MatchError, a *BatchSizeError, an *UnsupportedError,
// and ErrBatchAbandoned. Nothing was written after any of them. After an error that matches ErrOutcomeUnknown the batch
// may have been written, all of it, or not.
//
// Under a fence it is a *FencedError when another token is installed than the batch's writers present, which comes before all
// else that the bucket may refuse; see Fence for the other errors of fenced writes.
//
// A batch without operations is done without asking the bucket; with Match it is an error.
func (b *Batch) Commit(ctx context.Context) error {
	switch {
	case b.used:
		return fmt.Errorf("commit batch: %w", ErrBatchUsed)
	case b.bucket == nil:
		return errors.New("commit batch: no bucket")
	}
	b.used = true
	switch {
	case len(b.errs) > 0:
		return fmt.Errorf("commit batch: %w", errors.Join(b.errs...))
	case b.count == 0 && b.batch.Match != nil:
		return errEmptyMatch
	case b.count == 0:
		return nil
	}
	batcher, ok := b.bucket.(kv.Batcher)
	if !ok {
		return fmt.Errorf("commit batch: %w", &kv.UnsupportedError{
			Op: "write batch", Setting: "kv.Batcher", Detail: fmt.Sprintf("bucket %q (a %T) can't write batches", b.bucket.Name(), b.bucket),
		})
	}
	var version kv.Version
	err := b.fence.write(ctx, b.bucket, func(fence uint64) (err error) {
		b.batch.Fence = fence
		version, err = batcher.WriteBatch(ctx, b.batch)
		return err
	})
	if err != nil {
		return fmt.Errorf("commit batch: %w", err)
	}
	b.committed, b.last = true, version.Rank()
	return nil
}

// Revision is that of the last operation, once the batch is committed; before, and of an empty batch, it is Seq(0). A fold
// that has applied it has applied the whole batch.
func (b *Batch) Revision() Revision { return Seq(b.last) }

// add puts an operation in, or notes what is wrong with it.
func (b *Batch) add(of kv.Bucket, by *fencing, op kv.BatchOp, err error) {
	if b.used {
		return // Commit will say so
	}
	i := b.count
	b.count++
	first, twice := b.index[op.Key]
	switch {
	case err != nil:
	case !sameBucket(of, b.bucket):
		err = errBatchBucket
		if b.bucket != nil && of.Name() != b.bucket.Name() {
			err = &BucketError{What: "the writer", Has: of.Name(), Want: b.bucket.Name(), hint: "make a batch for each bucket; a batch can't span two"}
		}
	case b.fence != nil && b.fence.token != by.token:
		err = errMixedTokens
	case twice:
		err = &kv.DuplicateKeyError{Key: op.Key, First: first, Second: i}
	}
	if err != nil {
		b.errs = append(b.errs, &kv.BatchError{Index: i, Key: op.Key, Err: err})
		return
	}
	if b.fence == nil {
		b.fence = by
	}
	b.index[op.Key] = i
	b.batch.Ops = append(b.batch.Ops, op)
}

// sameBucket reports whether the two are one bucket: the same value, or of the same name where that can't be told.
func sameBucket(a, b kv.Bucket) bool {
	if a == nil || b == nil || !reflect.ValueOf(a).Comparable() || !reflect.ValueOf(b).Comparable() {
		return a != nil && b != nil && a.Name() == b.Name()
	}
	return a == b
}

// PutIn has the batch write the row, whatever is there.
func (w *Writer[K, V]) PutIn(b *Batch, v V) { w.putIn(b, kv.BatchPut, v, w.keyOfValue) }

// CreateIn has the batch write the row when it does not exist; else Commit gives an *ExistsError. A row whose message in the
// bucket was deleted, or aged out, does not exist.
func (w *Writer[K, V]) CreateIn(b *Batch, v V) { w.putIn(b, kv.BatchCreate, v, w.keyOfValue) }

// UpdateIn has the batch write the row when its revision is at; else Commit gives a *ConflictError.
func (w *Writer[K, V]) UpdateIn(b *Batch, v V, at Rev[K]) { w.updateIn(b, v, w.keyOfValue, at) }

// DeleteIn has the batch remove the row. Deleting what is not there is no error, except with At.
func (w *Writer[K, V]) DeleteIn(b *Batch, k K, opts ...DeleteOption) {
	key, do, err := w.deletion(k, opts)
	b.add(w.bucket, w.fence, kv.BatchOp{Kind: kv.BatchDelete, Key: key, At: do.At, Purge: do.Purge}, err)
}

// RevIn is the revision that a committed batch has given the row, by a write or a delete; false when the batch is not
// committed, or has no operation on the row.
func (w *Writer[K, V]) RevIn(b *Batch, k K) (Rev[K], bool) {
	key, err := w.key(k)
	i, ok := b.index[key]
	if err != nil || !ok || !b.committed {
		return Rev[K]{}, false
	}
	return Rev[K]{key: k, seq: b.last - uint64(len(b.batch.Ops)-1-i)}, true
}

func (w *Writer[K, V]) putIn(b *Batch, kind kv.BatchKind, v V, keyOf func(V) (K, error)) {
	_, key, value, err := w.encode(v, keyOf)
	b.add(w.bucket, w.fence, kv.BatchOp{Kind: kind, Key: key, Value: value, Put: w.putOptions()}, err)
}

func (w *Writer[K, V]) updateIn(b *Batch, v V, keyOf func(V) (K, error), at Rev[K]) {
	k, key, value, err := w.encode(v, keyOf)
	if err == nil && (at.key != k || at.seq == 0) {
		err = &RevError[K]{Table: w.name(), Key: k, At: at}
	}
	b.add(w.bucket, w.fence, kv.BatchOp{Kind: kv.BatchUpdate, Key: key, Value: value, At: kv.Revision(at.seq), Put: w.putOptions()}, err)
}

// PutInAt has the batch write the row, whatever is there.
func (w *KeyedWriter[K, V]) PutInAt(b *Batch, k K, v V) { w.w.putIn(b, kv.BatchPut, v, w.keyed(k)) }

// CreateInAt has the batch write the row when it does not exist; else Commit gives an *ExistsError.
func (w *KeyedWriter[K, V]) CreateInAt(b *Batch, k K, v V) {
	w.w.putIn(b, kv.BatchCreate, v, w.keyed(k))
}

// UpdateInAt has the batch write the row when its revision is at; else Commit gives a *ConflictError.
func (w *KeyedWriter[K, V]) UpdateInAt(b *Batch, k K, v V, at Rev[K]) {
	w.w.updateIn(b, v, w.keyed(k), at)
}

// DeleteIn has the batch remove the row. Deleting what is not there is no error, except with At.
func (w *KeyedWriter[K, V]) DeleteIn(b *Batch, k K, opts ...DeleteOption) {
	w.w.DeleteIn(b, k, opts...)
}

// RevIn is the revision that a committed batch has given the row, as Writer.RevIn.
func (w *KeyedWriter[K, V]) RevIn(b *Batch, k K) (Rev[K], bool) { return w.w.RevIn(b, k) }
