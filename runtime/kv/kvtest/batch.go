package kvtest

import (
	"context"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

var _ kv.Batcher = (*Log)(nil)

// WriteBatch writes all operations or none, in one step of the log for reads and writes. A watch may be given the first of
// them before the last one is there.
func (l *Log) WriteBatch(ctx context.Context, b kv.Batch) (kv.Version, error) {
	v, err := l.writeBatch(ctx, b)
	if err != nil {
		return kv.Version{}, fmt.Errorf("write batch: %w", err)
	}
	return v, nil
}

func (l *Log) writeBatch(ctx context.Context, b kv.Batch) (kv.Version, error) {
	if err := b.Validate(); err != nil {
		return kv.Version{}, err
	}
	if n := len(b.Ops); n > kv.MaxBatch {
		return kv.Version{}, &kv.BatchSizeError{Ops: n, Limit: kv.MaxBatch}
	}
	e, err := l.enter(ctx, PointWrite, "batch")
	if err != nil || len(b.Ops) == 0 {
		return kv.Version{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if err := l.checkFence(b.Fence); err != nil {
		return kv.Version{}, err
	}
	if b.Match != nil && *b.Match != l.last() {
		return kv.Version{}, &kv.MatchError{Bucket: l.opts.Bucket, Want: *b.Match, Got: l.last()}
	}
	for i := range b.Ops {
		if err := l.allows(&b.Ops[i]); err != nil {
			return kv.Version{}, &kv.BatchError{Index: i, Key: b.Ops[i].Key, Err: err}
		}
	}
	var rev uint64
	for i := range b.Ops {
		op := &b.Ops[i]
		h := putHeader(op.Put)
		switch {
		case op.Purge:
			h = header{op: protocol.KVOperationPurge, rollup: true}
		case op.Kind == kv.BatchDelete:
			h = header{op: protocol.KVOperationDel}
		}
		rev = l.write(op.Key, op.Value, h)
	}
	if e.answerLost {
		return kv.Version{}, fmt.Errorf("%w: %w", kv.ErrOutcomeUnknown, context.DeadlineExceeded)
	}
	return kv.Revision(rev), nil
}

// allows is why an operation can't be done; nil when it can.
func (l *Log) allows(op *kv.BatchOp) error {
	last := l.lastOf(op.Key)
	switch {
	case op.Put.TTL > 0 && !l.limits.AllowTTL:
		return &kv.UnsupportedError{Op: "write batch", Setting: "allow_msg_ttl", Detail: "the bucket does not take a TTL per message"}
	case op.Purge && l.limits.Sealed:
		return &kv.UnsupportedError{Op: "write batch", Setting: "Sealed", Detail: fmt.Sprintf("bucket %q refuses purges, use a delete", l.opts.Bucket)}
	case op.Kind == kv.BatchCreate && last != nil && last.update.Op == kv.OpPut:
		return &kv.ExistsError{Key: op.Key, Current: last.update.Version}
	case op.Kind == kv.BatchUpdate, op.Kind == kv.BatchDelete && !op.At.IsUnknown():
		return expect(op.Key, op.At, last)
	}
	return nil
}
