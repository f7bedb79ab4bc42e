package natskv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

// listStall is how long a listing waits for its next delivery or word of the server.
const listStall = 30 * time.Second

// Keys lists the keys in scope that have a value and are not kv.Reserved, without their values. A key that is written while it is listed may
// come again, with the later version later.
func (b *Bucket) Keys(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		err := b.list(ctx, scope, openKeys, func(u *kv.Update) bool {
			return u.Op != kv.OpPut || kv.Reserved(u.Key) || yield(kv.KeyVersion{Key: u.Key, Version: u.Version, Op: u.Op, UnixNano: u.UnixNano}, nil)
		})
		if err != nil {
			yield(kv.KeyVersion{}, fmt.Errorf("list keys: %w", err))
		}
	}
}

// LastVersions lists the last message of each key in scope, tombstones too, without values.
func (b *Bucket) LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		err := b.list(ctx, scope, openKeys, func(u *kv.Update) bool {
			return yield(kv.KeyVersion{Key: u.Key, Version: u.Version, Op: u.Op, UnixNano: u.UnixNano}, nil)
		})
		if err != nil {
			yield(kv.KeyVersion{}, fmt.Errorf("list last versions: %w", err))
		}
	}
}

// Scan lists the entries in scope that have a value and are not kv.Reserved. A key that is written while it is listed may come again, with the
// later version later.
func (b *Bucket) Scan(ctx context.Context, scope kv.Scope) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		err := b.list(ctx, scope, openEntries, func(u *kv.Update) bool {
			return u.Op != kv.OpPut || kv.Reserved(u.Key) || yield(kv.Entry{Update: *u}, nil)
		})
		if err != nil {
			yield(kv.Entry{}, fmt.Errorf("scan: %w", err))
		}
	}
}

// list is a re-list that stops where it is complete: the head was read first, everything up to it was received without
// a hole, and then nothing was pending. Nothing pending alone never ends it.
func (b *Bucket) list(ctx context.Context, scope kv.Scope, kind openKind, visit func(*kv.Update) bool) (err error) {
	w, err := b.open(ctx, kv.OpenRequest{Scope: scope}, kind)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := b.deadline(context.WithoutCancel(ctx))
		defer cancel()
		err = errors.Join(err, w.Close(ctx))
	}()
	var d kv.Delivery
	for head := w.info.Last; head > 0 && (d.Frontier < head || d.Pending > 0); {
		if d, err = w.listed(ctx, d); err != nil {
			return err
		}
		for i := range d.Updates {
			u := &d.Updates[i]
			if !visit(u) {
				return nil
			}
			*u = kv.Update{}
		}
	}
	return nil
}

// listed is Next with a bound on silence.
func (w *watch) listed(ctx context.Context, d kv.Delivery) (kv.Delivery, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listStall, fmt.Errorf("no delivery for %v", listStall))
	defer cancel()
	d.Updates = d.Updates[:0]
	d, err := w.Next(ctx, d, 1000, 8<<20)
	if err != nil {
		return d, errors.Join(err, context.Cause(ctx))
	}
	return d, nil
}
