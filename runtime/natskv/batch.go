package natskv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

var _ kv.Batcher = (*Bucket)(nil)

// batchReads is how many keys are read at once after a refusal by revision.
const batchReads = 16

// WriteBatch writes all operations or none, with the server's atomic publish. What a server of several refuses for
// reasons of its own is tried again, as with a single write. A batch whose answer is lost is looked up by its id while
// ctx lasts; where that finds nothing the error is an *OutcomeUnknownError.
func (b *Bucket) WriteBatch(ctx context.Context, batch kv.Batch) (kv.Version, error) {
	last, err := b.writeBatch(ctx, batch)
	if err != nil {
		return kv.Version{}, fmt.Errorf("write batch: %w", err)
	}
	return last, nil
}

func (b *Bucket) writeBatch(ctx context.Context, batch kv.Batch) (kv.Version, error) {
	if err := ctx.Err(); err != nil {
		return kv.Version{}, err
	}
	if err := batch.Validate(); err != nil {
		return kv.Version{}, err
	}
	n := len(batch.Ops)
	s := sending{name: "write batch", batch: batch, expect: make([]uint64, n)}
	for i := range batch.Ops {
		var err error
		if s.expect[i], err = decisionOf(&batch.Ops[i])(expectAny, nil); err != nil {
			return kv.Version{}, &kv.BatchError{Index: i, Key: batch.Ops[i].Key, Err: err}
		}
	}
	if limit := b.cfg.MaxBatch - s.lead(); n > limit {
		return kv.Version{}, &kv.BatchSizeError{Ops: n, Limit: limit}
	}
	if n == 0 {
		return kv.Version{}, nil
	}
	lookup := ctx // outlives the deadline of the operation
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		return kv.Version{}, err
	}
	if err := b.takesBatches(ctx); err != nil {
		return kv.Version{}, err
	}
	return b.send(ctx, lookup, &s)
}

// sending is a batch that is sent until it is stored or refused for good.
type sending struct {
	name  string
	batch kv.Batch
	// expect is the revision that each operation's key must have, or expectAny.
	expect []uint64
	check  fenceCheck
	// forever: the messages outlive the bucket's max age.
	forever bool
}

// carrier is the operation whose message carries the check of the fence: one that asks for no revision of its key, since
// a message asks for one at most. -1 is that all do.
func (s *sending) carrier() int { return slices.Index(s.expect, expectAny) }

// lead is how many messages come before those of the operations: one that carries the check where none of them can. It is
// written to a key of its own, that nobody reads.
func (s *sending) lead() int {
	if s.batch.Fence != 0 && len(s.batch.Ops) > 0 && s.carrier() < 0 {
		return 1
	}
	return 0
}

// send sends the batch to a bucket that is open and takes batches. lookup bounds the look for a batch whose answer is lost.
func (b *Bucket) send(ctx, lookup context.Context, s *sending) (kv.Version, error) {
	wait := writeWaitFirst
	for attempt := 1; ; attempt++ {
		s.check = b.checkOf(s.batch.Fence)
		last, err := b.publishBatch(ctx, lookup, s)
		if err == nil {
			b.storedUnder(s.batch.Fence, last)
			return kv.Revision(last), nil
		}
		again, err := b.batchRefused(ctx, s, err)
		if !again {
			return kv.Version{}, err
		}
		if attempt == writeAttempts {
			return kv.Version{}, &kv.NotWrittenError{Op: s.name, Attempts: attempt, Err: err}
		}
		if err := pause(ctx, wait); err != nil {
			return kv.Version{}, fmt.Errorf("nothing stored: %w", err)
		}
		wait = min(2*wait, writeWaitMost)
	}
}

// decisionOf is under which revision an operation writes.
func decisionOf(op *kv.BatchOp) decision {
	switch {
	case op.Kind == kv.BatchCreate:
		return createOf(op.Key)
	case op.Kind == kv.BatchUpdate, op.Kind == kv.BatchDelete && !op.At.IsUnknown():
		return expectAt(op.Key, op.At)
	}
	return atAny
}

// takesBatches makes sure that the bucket's stream knows batches: a server that does not would store their messages one
// by one. It asks once for each connection, since the server behind a new one may be another.
func (b *Bucket) takesBatches(ctx context.Context) error {
	connection := b.api.nc.Stats().Reconnects + 1
	if b.batchesOn.Load() == connection {
		return nil
	}
	info, err := b.api.streamInfo(ctx, b.stream)
	if err != nil {
		return asBucketError(b.name, err)
	}
	if m := info.Config.Mirror; m != nil {
		return &kv.UnsupportedError{
			Op: "write batch", Setting: "AtomicPublish", Detail: fmt.Sprintf("bucket %q is a mirror of stream %s", b.name, m.Name),
			Advice: "write batches to the bucket that it mirrors",
		}
	}
	if !info.Config.AllowAtomicPublish {
		return b.noBatches("write batch", nil)
	}
	b.batchesOn.Store(connection)
	return nil
}

func (b *Bucket) noBatches(op string, cause error) error {
	detail := fmt.Sprintf("bucket %q does not take atomic batches", b.name)
	if cause != nil {
		detail += ": " + cause.Error()
	}
	return &kv.UnsupportedError{
		Op: op, Setting: "AtomicPublish", Detail: detail,
		Advice: "open the bucket with natskv.BucketConfig.TurnOnAtomicPublish, or run `nats stream edit " + b.stream +
			" --allow-batch`; it needs nats-server 2.12",
	}
}

// refusedBatch is an answer that says that nothing of a batch was stored.
type refusedBatch struct {
	index int  // of the operation whose message it was; -1 is the one before them
	begun bool // the server had taken the first message
	err   error
}

func (e *refusedBatch) Error() string { return e.err.Error() }

func (e *refusedBatch) Unwrap() error { return e.err }

// batchRefused says what became of a batch, and whether to send it again, under the revisions that it sets in s.expect. A
// refusal by revision is never believed by itself, see Bucket.write.
func (b *Bucket) batchRefused(ctx context.Context, s *sending, err error) (again bool, _ error) {
	batch := s.batch
	var refused *refusedBatch
	if !errors.As(err, &refused) {
		return false, err
	}
	switch apiCode(err) {
	case codeWrongLastSeq:
		if now := b.decideAgain(ctx, s); now != nil {
			return false, now
		}
		return true, err
	case codeWrongLastSeqConstant, codeLastSeqNotReady, codeTooManyBatches:
		return true, err
	case codeBatchIncomplete:
		if !refused.begun { // 2.12 says so when too many are in flight
			return true, err
		}
		return false, fmt.Errorf("%w: %w", kv.ErrBatchAbandoned, err)
	case codeBatchesOff:
		b.batchesOn.Store(0)
		return false, b.noBatches(s.name, err)
	case codeBatchTooLarge:
		return false, &kv.BatchSizeError{Ops: len(batch.Ops), Limit: statedLimit(err)}
	case codeTTLDisabled, codeTTLInvalid:
		return false, b.blame(batch, err, func(op *kv.BatchOp) bool { return op.Put.TTL != 0 })
	case codeRollupRefused:
		return false, b.blame(batch, err, func(op *kv.BatchOp) bool { return op.Purge })
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return false, fmt.Errorf("nothing stored: no stream listens: %w", errors.Join(kv.ErrBucketNotFound, err))
	}
	if refused.index >= 0 && refused.index < len(batch.Ops)-1 {
		err = fmt.Errorf("nothing stored: %w", asBucketError(b.name, refused.err))
		return false, &kv.BatchError{Index: refused.index, Key: batch.Ops[refused.index].Key, Err: err}
	}
	// The answer to the last message is about all of them.
	if refused.index >= 0 && refused.mayBeStored() {
		return false, outcomeUnknown(batch.Ops, asBucketError(b.name, refused.err))
	}
	return false, fmt.Errorf("nothing stored: %w", asBucketError(b.name, refused.err))
}

// mayBeStored reports whether the server may have failed while it stored a batch that it had accepted, which it may go on
// with when it starts again. A log that is full it finds out before.
func (e *refusedBatch) mayBeStored() bool {
	code := apiCode(e.err)
	return e.begun && (code == codeInsufficient || code == codeStoreFailed && !strings.Contains(e.err.Error(), "maximum"))
}

func outcomeUnknown(ops []kv.BatchOp, err error) error {
	what := "write"
	if len(ops) > 1 {
		what = fmt.Sprintf("%d operations from", len(ops))
	}
	return &OutcomeUnknownError{Op: what, Key: ops[0].Key, Err: err}
}

// blame is a refusal whose operation the server does not name: the first of the kind that it checks for.
func (b *Bucket) blame(batch kv.Batch, err error, is func(*kv.BatchOp) bool) error {
	for i := range batch.Ops {
		if op := &batch.Ops[i]; is(op) {
			return &kv.BatchError{Index: i, Key: op.Key, Err: b.writeRefused("write batch", op.Key, err)}
		}
	}
	return fmt.Errorf("nothing stored: %w", asBucketError(b.name, err))
}

// statedLimit is the number at the end of the server's text; 0 for none.
func statedLimit(err error) int {
	var api *APIError
	if !errors.As(err, &api) {
		return 0
	}
	n, err := strconv.Atoi(api.Description[strings.LastIndexByte(api.Description, ' ')+1:])
	if err != nil {
		return 0
	}
	return n
}

// decideAgain reads what the batch asked of the log and of its keys. An error says what has moved; nil is that the batch
// may be sent again. The fence comes first: who is locked out is never told to try another revision.
func (b *Bucket) decideAgain(ctx context.Context, s *sending) error {
	if s.check.asked() {
		if err := b.checkMoved(ctx, s.check); err != nil {
			return err
		}
	}
	ops := s.batch.Ops
	if want := s.batch.Match; want != nil {
		info, err := b.api.streamInfo(ctx, b.stream)
		if err != nil {
			return fmt.Errorf("refused by revision, and the log can't be read: %w", asBucketError(b.name, err))
		}
		if got := info.State.LastSeq; got != *want {
			return &kv.MatchError{Bucket: b.name, Want: *want, Got: got}
		}
	}
	errs := make([]error, len(ops))
	free := make(chan struct{}, batchReads)
	var wg sync.WaitGroup
	for i := range ops {
		if s.expect[i] == expectAny {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			s.expect[i], errs[i] = b.decideOne(ctx, ops[i].Key, decisionOf(&ops[i]), s.expect[i])
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return &kv.BatchError{Index: i, Key: ops[i].Key, Err: err}
		}
	}
	return nil
}
