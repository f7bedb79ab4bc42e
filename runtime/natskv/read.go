package natskv

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// Get is the key's value, read from the leader; kv.ErrKeyNotFound when it has none.
func (b *Bucket) Get(ctx context.Context, key string) (kv.Entry, error) {
	e, found, err := b.entry(ctx, key)
	if err != nil {
		return kv.Entry{}, fmt.Errorf("get: %w", err)
	}
	if !found || e.IsTombstone() {
		return kv.Entry{}, fmt.Errorf("get %q: %w", key, kv.ErrKeyNotFound)
	}
	return e, nil
}

// Entry is the key's last message, tombstones included, read from the leader; kv.ErrKeyNotFound when there is none.
func (b *Bucket) Entry(ctx context.Context, key string) (kv.Entry, error) {
	e, found, err := b.entry(ctx, key)
	if err != nil {
		return kv.Entry{}, fmt.Errorf("entry: %w", err)
	}
	if !found {
		return kv.Entry{}, fmt.Errorf("entry %q: %w", key, kv.ErrKeyNotFound)
	}
	return e, nil
}

// entry reads with STREAM.MSG.GET, never with direct get, which any replica answers.
func (b *Bucket) entry(ctx context.Context, key string) (e kv.Entry, found bool, err error) {
	if err := kv.ValidKey(key); err != nil {
		return kv.Entry{}, false, err
	}
	if err := b.ready(ctx); err != nil {
		return kv.Entry{}, false, err
	}
	msg, found, err := b.api.message(ctx, b.stream, msgGetRequest{LastFor: b.prefix + key})
	if err != nil {
		return kv.Entry{}, false, fmt.Errorf("%q: %w", key, asBucketError(b.name, err))
	}
	if !found {
		return kv.Entry{}, false, nil
	}
	e.Update, err = b.decodeStored(msg)
	if err != nil {
		return kv.Entry{}, false, fmt.Errorf("%q at revision %d: %w", key, msg.Seq, err)
	}
	return e, true, nil
}

func (b *Bucket) decodeStored(msg storedMsg) (kv.Update, error) {
	u := kv.Update{
		Key:      strings.TrimPrefix(msg.Subject, b.prefix),
		Value:    msg.Data,
		Version:  kv.Revision(msg.Seq),
		UnixNano: msg.Time.UnixNano(),
	}
	var h nats.Header
	if len(msg.Header) > 0 {
		var err error
		if h, err = nats.DecodeHeadersMsg(msg.Header); err != nil {
			return kv.Update{}, fmt.Errorf("headers: %w", err)
		}
	}
	applyHeaders(&u, h, len(msg.Data), b.cfg.EmptyPut)
	return u, nil
}
