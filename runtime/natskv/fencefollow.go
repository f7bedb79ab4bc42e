package natskv

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// A write that asks for its key's revision and for a fence record has one place in its message for two checks. Where the
// log is one server's, it asks that nothing was written since a write of this process under the same record: one message,
// and it succeeds while nobody else writes in between. Else, and after some misses, it is a batch of two messages.

// followTries is how often a write asks for the log's end before it becomes a batch: others write all the time then.
const followTries = 3

// storedUnder notes where a write under a record was stored.
func (b *Bucket) storedUnder(fence, seq uint64) {
	if fence == 0 || !b.single {
		return
	}
	next := &protocol.FenceTail{Fence: fence, Tail: seq}
	for {
		now := b.tail.Load()
		if now != nil && (now.Fence > fence || now.Fence == fence && now.Tail >= seq) {
			return
		}
		if b.tail.CompareAndSwap(now, next) {
			return
		}
	}
}

// writeBoth is a write that asks for its key's revision and for a fence record.
func (b *Bucket) writeBoth(ctx context.Context, name string, op kv.BatchOp, fence uint64) (kv.Version, error) {
	v, again, err := b.writeNext(ctx, name, op, fence)
	if !again {
		return v, err
	}
	v, err = b.writeBatch(ctx, kv.Batch{Ops: []kv.BatchOp{op}, Fence: fence})
	if err == nil {
		return v, nil
	}
	var of *kv.BatchError
	if errors.As(err, &of) {
		err = of.Err
	}
	return kv.Version{}, fmt.Errorf("%s: %w", name, err)
}

// writeNext tries to write right behind the log's end. again is that nothing is stored and nothing is known to be in the way.
func (b *Bucket) writeNext(ctx context.Context, name string, op kv.BatchOp, fence uint64) (_ kv.Version, again bool, _ error) {
	if err := kv.WritableKey(op.Key); err != nil {
		return kv.Version{}, false, fmt.Errorf("%s: %w", name, err)
	}
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		return kv.Version{}, false, fmt.Errorf("%s: %w", name, err)
	}
	if !b.single {
		return kv.Version{}, true, nil
	}
	decide := decisionOf(&op)
	expect, err := decide(expectAny, nil)
	if err != nil {
		return kv.Version{}, false, fmt.Errorf("%s: %w", name, err)
	}
	for attempt := range followTries {
		tail, err := b.endUnder(ctx, fence, attempt > 0)
		if err == nil && attempt > 0 { // the fence stands, so it is the key, or somebody else has written
			expect, err = b.decideOne(ctx, op.Key, decide, expect)
		}
		if err != nil {
			return kv.Version{}, false, fmt.Errorf("%s: %w", name, err)
		}
		h := opHeader(&op)
		h[headerExpectedSeq] = []string{strconv.FormatUint(expect, 10)}
		h[headerExpectedLast] = []string{strconv.FormatUint(tail, 10)}
		seq, err := b.publish(ctx, name, op.Key, op.Value, h)
		switch {
		case err == nil:
			b.storedUnder(fence, seq)
			return kv.Revision(seq), false, nil
		case apiCode(err) != codeWrongLastSeq && apiCode(err) != codeWrongLastSeqConstant:
			return kv.Version{}, false, b.writeRefused(name, op.Key, err)
		}
	}
	return kv.Version{}, true, nil
}

// endUnder is a revision at which a write under the record was stored, the log's end if nobody has written since: one that is
// known, or a new one, by a write of nothing.
func (b *Bucket) endUnder(ctx context.Context, fence uint64, anew bool) (uint64, error) {
	if t := b.tail.Load(); !anew && t != nil && protocol.FenceFollows(*t, fence) {
		return t.Tail, nil
	}
	v, err := b.proveAt(ctx, fence)
	if err != nil {
		return 0, err
	}
	if t := (protocol.FenceTail{Fence: fence, Tail: v.Rank()}); !protocol.FenceFollows(t, fence) {
		return 0, fmt.Errorf("a write under fence record %d was stored at %d: %w", fence, v.Rank(), kv.ErrFenceRecord)
	}
	return v.Rank(), nil
}

// proveAt is ProveFence on a bucket that is open. That its answer is lost says nothing of the write that it is for.
func (b *Bucket) proveAt(ctx context.Context, fence uint64) (kv.Version, error) {
	key := kv.CheckKey(int(b.checks.Load() % protocol.FenceKeys))
	v, err := b.writeAt(ctx, "prove fence", key, proofValue, nil, atAny, fence)
	var lost *OutcomeUnknownError
	if errors.As(err, &lost) {
		return v, fmt.Errorf("nothing stored: what stands can't be proved: %w", lost.Err)
	}
	return v, err
}
