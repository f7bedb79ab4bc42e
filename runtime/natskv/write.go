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
	return b.write(ctx, "put", key, value, putHeader(o), func(uint64, *kv.Entry) (uint64, error) { return expectAny, nil })
}

// Create writes only when the key has no value: never written, deleted, purged, or aged out.
func (b *Bucket) Create(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error) {
	return b.write(ctx, "create", key, value, putHeader(o), createOf(key))
}

// Update writes only when the key's version is at; unknown asks that the key was never written.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, at kv.Version, o kv.PutOptions) (kv.Version, error) {
	return b.write(ctx, "update", key, value, putHeader(o), expectAt(key, at))
}

// Delete writes a delete marker, under the version that o asks for.
func (b *Bucket) Delete(ctx context.Context, key string, o kv.DeleteOptions) (kv.Version, error) {
	op, h := deleteHeader(o.Purge)
	decide := atAny
	if !o.At.IsUnknown() {
		decide = expectAt(key, o.At)
	}
	return b.write(ctx, op, key, nil, h, decide)
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
// by itself: the leader is read again, and only a revision that has moved is a conflict.
func (b *Bucket) write(ctx context.Context, op, key string, value []byte, h nats.Header, decide decision) (kv.Version, error) {
	if err := kv.ValidKey(key); err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	expect, err := decide(expectAny, nil)
	if err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	wait := writeWaitFirst
	for attempt := 1; ; attempt++ {
		seq, err := b.publish(ctx, op, key, value, h, expect)
		if err == nil {
			return kv.Revision(seq), nil
		}
		switch apiCode(err) {
		case codeWrongLastSeq:
			now, found, readErr := b.entry(ctx, key)
			if readErr != nil {
				return kv.Version{}, fmt.Errorf("%s: refused by revision, and the key can't be read: %w", op, errors.Join(err, readErr))
			}
			current := &now
			if !found {
				current = nil
			}
			if expect, err = decide(expect, current); err != nil {
				return kv.Version{}, fmt.Errorf("%s: %w", op, err)
			}
		case codeWrongLastSeqConstant, codeLastSeqNotReady:
		default:
			return kv.Version{}, b.writeRefused(op, key, err)
		}
		if attempt == writeAttempts {
			return kv.Version{}, fmt.Errorf("%s %q: nothing stored after %d attempts: %w", op, key, attempt, err)
		}
		if err := pause(ctx, wait); err != nil {
			return kv.Version{}, fmt.Errorf("%s %q: nothing stored: %w", op, key, err)
		}
		wait = min(2*wait, writeWaitMost)
	}
}

// publish sends the message once and reads the acknowledgement.
func (b *Bucket) publish(ctx context.Context, op, key string, value []byte, h nats.Header, expect uint64) (uint64, error) {
	msg := &nats.Msg{Subject: b.putPrefix + key, Data: value, Header: h}
	if expect != expectAny {
		msg.Header = make(nats.Header, len(h)+1)
		for name, v := range h {
			msg.Header[name] = v
		}
		msg.Header[headerExpectedSeq] = []string{strconv.FormatUint(expect, 10)}
	}
	reply, err := b.api.exchange(ctx, msg)
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
