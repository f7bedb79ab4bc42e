package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// Attempts and waits of a write that the leader did not store for reasons of its own.
const (
	writeAttempts  = 10
	writeWaitFirst = 5 * time.Millisecond
	writeWaitMost  = 500 * time.Millisecond
)

// expectAny is a write that does not ask for a revision.
const expectAny = ^uint64(0)

// Put writes the key's value whatever is there.
func (b *Bucket) Put(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error) {
	return b.write(ctx, "put", key, value, putHeader(o), atAny, o.Fence)
}

// Create writes only when the key has no value: never written, deleted, purged, or aged out.
func (b *Bucket) Create(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error) {
	if fence := o.Fence; fence != 0 {
		o.Fence = 0
		return b.writeBoth(ctx, "create", kv.BatchOp{Kind: kv.BatchCreate, Key: key, Value: value, Put: o}, fence)
	}
	return b.write(ctx, "create", key, value, putHeader(o), createOf(key), 0)
}

// Update writes only when the key's version is at; unknown asks that the key was never written.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, at kv.Version, o kv.PutOptions) (kv.Version, error) {
	if fence := o.Fence; fence != 0 {
		o.Fence = 0
		return b.writeBoth(ctx, "update", kv.BatchOp{Kind: kv.BatchUpdate, Key: key, Value: value, At: at, Put: o}, fence)
	}
	return b.write(ctx, "update", key, value, putHeader(o), expectAt(key, at), 0)
}

// Delete writes a delete marker, under the version that o asks for.
func (b *Bucket) Delete(ctx context.Context, key string, o kv.DeleteOptions) (kv.Version, error) {
	op, h := deleteHeader(o.Purge)
	switch {
	case o.At.IsUnknown():
		return b.write(ctx, op, key, nil, h, atAny, o.Fence)
	case o.Fence != 0:
		return b.writeBoth(ctx, op, kv.BatchOp{Kind: kv.BatchDelete, Key: key, At: o.At, Purge: o.Purge}, o.Fence)
	}
	return b.write(ctx, op, key, nil, h, expectAt(key, o.At), 0)
}

// deleteHeader is what a delete is on the wire, and its name.
func deleteHeader(purge bool) (op string, h nats.Header) {
	if purge {
		return "purge", nats.Header{headerOperation: {operationPurge}, headerRollup: {rollupSubject}}
	}
	return "delete", nats.Header{headerOperation: {operationDel}}
}

// decision says under which revision to write, given the one that was refused and what the leader then showed (nil for
// no message at all; both are zero at first). An error ends the write: nothing was stored.
type decision func(refused uint64, now *kv.Entry) (expect uint64, err error)

// atAny writes whatever is there.
var atAny decision = func(uint64, *kv.Entry) (uint64, error) { return expectAny, nil }

// createOf writes where there is no value: on nothing, or on the tombstone that is there.
func createOf(key string) decision {
	return func(_ uint64, now *kv.Entry) (uint64, error) {
		if now == nil {
			return 0, nil
		}
		if !now.IsTombstone() {
			return 0, &kv.ExistsError{Key: key, Current: now.Version}
		}
		return now.Version.Rank(), nil
	}
}

func expectAt(key string, at kv.Version) decision {
	return func(refused uint64, now *kv.Entry) (uint64, error) {
		want := at.Rank()
		if want == 0 && !at.IsUnknown() {
			return 0, fmt.Errorf("key %q: version %v is not a revision of this bucket", key, at)
		}
		var current kv.Version
		if now != nil {
			current = now.Version
		}
		if first := now == nil && refused == expectAny; !first && current != at {
			return 0, &kv.ConflictError{Key: key, Expected: at, Current: current}
		}
		return want, nil
	}
}

// write sends one message until the leader stores it or refuses it for good. A refusal by revision is never believed
// by itself: the leader is read again, and only a revision that has moved is a conflict. A message asks for one revision at
// most: that of its key, or with a fence that of the fence record.
func (b *Bucket) write(ctx context.Context, op, key string, value []byte, h nats.Header, decide decision, fence uint64) (kv.Version, error) {
	if err := kv.WritableKey(key); err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	return b.writeAt(ctx, op, key, value, h, decide, fence)
}

// writeAt is write to a bucket that is open, reserved keys too.
func (b *Bucket) writeAt(ctx context.Context, op, key string, value []byte, h nats.Header, decide decision, fence uint64) (kv.Version, error) {
	expect, err := decide(expectAny, nil)
	if err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	check := b.checkOf(fence)
	wait := writeWaitFirst
	for attempt := 1; ; attempt++ {
		seq, err := b.publish(ctx, op, key, value, check.header(b, h, expect))
		if err == nil {
			b.storedUnder(fence, seq)
			return kv.Revision(seq), nil
		}
		switch apiCode(err) {
		case codeWrongLastSeq:
			var stop error
			if check.asked() {
				stop = b.checkMoved(ctx, check)
			} else {
				expect, stop = b.decideOne(ctx, key, decide, expect)
			}
			if stop != nil {
				return kv.Version{}, fmt.Errorf("%s: %w", op, stop)
			}
		case codeWrongLastSeqConstant, codeLastSeqNotReady:
		default:
			return kv.Version{}, b.writeRefused(op, key, err)
		}
		if attempt == writeAttempts {
			return kv.Version{}, &kv.NotWrittenError{Op: op, Key: key, Attempts: attempt, Err: err}
		}
		if err := pause(ctx, wait); err != nil {
			return kv.Version{}, fmt.Errorf("%s %q: nothing stored: %w", op, key, err)
		}
		wait = min(2*wait, writeWaitMost)
		check = b.checkOf(fence)
	}
}

// decideOne reads the key that a write was refused on, and has the write decided anew.
func (b *Bucket) decideOne(ctx context.Context, key string, decide decision, refused uint64) (expect uint64, err error) {
	now, found, err := b.entry(ctx, key)
	switch {
	case err != nil:
		return refused, fmt.Errorf("refused by revision, and the key can't be read: %w", err)
	case !found:
		return decide(refused, nil)
	}
	return decide(refused, &now)
}

// publish sends the message once and reads the acknowledgement.
func (b *Bucket) publish(ctx context.Context, op, key string, value []byte, h nats.Header) (uint64, error) {
	reply, err := b.api.exchange(ctx, &nats.Msg{Subject: b.putPrefix + key, Data: value, Header: h})
	if err != nil {
		if isNoAnswer(err) {
			return 0, &OutcomeUnknownError{Op: op, Key: key, Err: err}
		}
		return 0, err
	}
	var ack struct {
		Error  *APIError `json:"error"`
		Stream string    `json:"stream"`
		Seq    uint64    `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, &OutcomeUnknownError{Op: op, Key: key, Err: fmt.Errorf("%w: %w", errUnparsable, err)}
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Seq == 0 {
		return 0, &OutcomeUnknownError{Op: op, Key: key, Err: errUnparsable}
	}
	return ack.Seq, nil
}

func (b *Bucket) writeRefused(op, key string, err error) error {
	var unknown *OutcomeUnknownError
	if errors.As(err, &unknown) {
		return err
	}
	switch apiCode(err) {
	case codeTTLDisabled, codeTTLInvalid:
		return &kv.UnsupportedError{Op: op, Setting: "MessageTTL", Detail: fmt.Sprintf("bucket %q, key %q: %v", b.name, key, err)}
	case codeRollupRefused:
		return &kv.UnsupportedError{Op: op, Setting: "Sealed", Detail: fmt.Sprintf("bucket %q refuses purges, use a delete: %v", b.name, err)}
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%s %q: nothing stored: no stream listens: %w", op, key, errors.Join(kv.ErrBucketNotFound, err))
	}
	return fmt.Errorf("%s %q: nothing stored: %w", op, key, asBucketError(b.name, err))
}

// putHeader is what a put's extras are on the wire; nil for none. The server counts a TTL in whole seconds and cuts the
// rest off, so it is rounded up here: a value never goes early.
func putHeader(o kv.PutOptions) nats.Header {
	var h nats.Header
	if o.TTL != 0 {
		seconds := (o.TTL + time.Second - 1) / time.Second
		h = nats.Header{headerTTL: {strconv.FormatInt(int64(seconds), 10) + "s"}}
	}
	if o.ContentType != "" {
		if h == nil {
			h = nats.Header{}
		}
		h[headerContentType] = []string{o.ContentType}
	}
	return h
}
