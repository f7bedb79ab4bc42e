package kvtest

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Get is the key's value.
func (l *Log) Get(ctx context.Context, key string) (kv.Entry, error) {
	e, err := l.read(ctx, "get", key)
	if err == nil && e.IsTombstone() {
		return kv.Entry{}, fmt.Errorf("get %q: %w", key, kv.ErrKeyNotFound)
	}
	return e, err
}

// Entry is the key's last message, tombstones included.
func (l *Log) Entry(ctx context.Context, key string) (kv.Entry, error) {
	return l.read(ctx, "entry", key)
}

func (l *Log) read(ctx context.Context, op, key string) (kv.Entry, error) {
	if err := kv.ValidKey(key); err != nil {
		return kv.Entry{}, fmt.Errorf("%s: %w", op, err)
	}
	if _, err := l.enter(ctx, PointRead, op); err != nil {
		return kv.Entry{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	m := l.lastOf(key)
	if m == nil {
		return kv.Entry{}, fmt.Errorf("%s %q: %w", op, key, kv.ErrKeyNotFound)
	}
	return kv.Entry{Update: m.update}, nil
}

// Keys lists the keys in scope that have a value, as they are when iteration begins.
func (l *Log) Keys(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		for e, err := range l.list(ctx, "keys", scope) {
			if !yield(kv.KeyVersion{Key: e.Key, Version: e.Version, Op: e.Op, UnixNano: e.UnixNano}, err) {
				return
			}
		}
	}
}

// LastVersions lists the last message of each key in scope, as it is when iteration begins.
func (l *Log) LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		for e, err := range l.listAll(ctx, "list last versions", scope) {
			if !yield(kv.KeyVersion{Key: e.Key, Version: e.Version, Op: e.Op, UnixNano: e.UnixNano}, err) {
				return
			}
		}
	}
}

// Scan lists the entries in scope that have a value, as they are when iteration begins.
func (l *Log) Scan(ctx context.Context, scope kv.Scope) iter.Seq2[kv.Entry, error] {
	return l.list(ctx, "scan", scope)
}

// list lists the entries that have a value and are not reserved.
func (l *Log) list(ctx context.Context, op string, scope kv.Scope) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		for e, err := range l.listAll(ctx, op, scope) {
			if (err != nil || !e.IsTombstone() && !kv.Reserved(e.Key)) && !yield(e, err) {
				return
			}
		}
	}
}

func (l *Log) listAll(ctx context.Context, op string, scope kv.Scope) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		e, err := l.enter(ctx, PointList, op)
		if err != nil {
			yield(kv.Entry{}, err)
			return
		}
		entries := l.current(scope)
		for n := range len(entries) + 1 {
			err := l.listed(ctx, n, &e)
			if err == nil && n < len(entries) {
				err = ctx.Err()
			}
			if err != nil {
				yield(kv.Entry{}, fmt.Errorf("%s: %w", op, err))
				return
			}
			if e.short || n == len(entries) || !yield(entries[n], nil) {
				return
			}
		}
	}
}

func (l *Log) current(scope kv.Scope) []kv.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	var out []kv.Entry
	for _, rev := range l.currentRevisions(scope) {
		out = append(out, kv.Entry{Update: l.msgs[rev-1].update})
	}
	return out
}

// Put writes the key's value.
func (l *Log) Put(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error) {
	return l.change(ctx, "put", key, o, func(*message) (uint64, error) {
		return l.write(key, value, putHeader(o)), nil
	})
}

// Create writes only when the key has no value.
func (l *Log) Create(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error) {
	return l.change(ctx, "create", key, o, func(last *message) (uint64, error) {
		if last != nil && last.update.Op == kv.OpPut {
			return 0, &kv.ExistsError{Key: key, Current: last.update.Version}
		}
		return l.write(key, value, putHeader(o)), nil
	})
}

// Update writes only when the key's version is at.
func (l *Log) Update(ctx context.Context, key string, value []byte, at kv.Version, o kv.PutOptions) (kv.Version, error) {
	return l.change(ctx, "update", key, o, func(last *message) (uint64, error) {
		if err := expect(key, at, last); err != nil {
			return 0, err
		}
		return l.write(key, value, putHeader(o)), nil
	})
}

// Delete removes the key.
func (l *Log) Delete(ctx context.Context, key string, o kv.DeleteOptions) (kv.Version, error) {
	return l.change(ctx, "delete", key, kv.PutOptions{Fence: o.Fence}, func(last *message) (uint64, error) {
		if !o.At.IsUnknown() {
			if err := expect(key, o.At, last); err != nil {
				return 0, err
			}
		}
		if o.Purge && l.limits.Sealed {
			return 0, &kv.UnsupportedError{Op: "delete", Setting: "Sealed", Detail: fmt.Sprintf("bucket %q refuses purges, use a delete", l.opts.Bucket)}
		}
		if o.Purge {
			return l.write(key, nil, header{op: protocol.KVOperationPurge, rollup: true}), nil
		}
		return l.write(key, nil, header{op: protocol.KVOperationDel}), nil
	})
}

func putHeader(o kv.PutOptions) header { return header{ttl: o.TTL, contentType: o.ContentType} }

func expect(key string, at kv.Version, last *message) error {
	var current kv.Version
	if last != nil {
		current = last.update.Version
	}
	if current != at {
		return &kv.ConflictError{Key: key, Expected: at, Current: current}
	}
	return nil
}

// change checks a write, decides it on the key's last message, and does it, in one step of the log.
func (l *Log) change(ctx context.Context, op, key string, o kv.PutOptions, do func(last *message) (uint64, error)) (kv.Version, error) {
	if err := kv.WritableKey(key); err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	e, err := l.enter(ctx, PointWrite, op)
	if err != nil {
		return kv.Version{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if o.TTL > 0 && !l.limits.AllowTTL {
		return kv.Version{}, &kv.UnsupportedError{Op: op, Setting: "allow_msg_ttl", Detail: "the bucket does not take a TTL per message"}
	}
	if err := l.checkFence(o.Fence); err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	rev, err := do(l.lastOf(key))
	if err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	if e.answerLost {
		return kv.Version{}, fmt.Errorf("%s %q: %w: %w", op, key, kv.ErrOutcomeUnknown, context.DeadlineExceeded)
	}
	return kv.Revision(rev), nil
}

// Truth is what a complete fold holds at revision at: every write minus every real delete, whatever retention took
// since. Values that aged out are there.
func (l *Log) Truth(scope kv.Scope, at uint64) map[string]kv.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]kv.Entry{}
	for _, m := range l.msgs[:min(at, l.last())] {
		switch u := m.update; {
		case !scope.Contains(u.Key):
		case u.Op == kv.OpPut:
			out[u.Key] = kv.Entry{Update: u}
		case u.Op.Removes():
			delete(out, u.Key)
		}
	}
	return out
}

// Retained are the log's messages, oldest first.
func (l *Log) Retained() []kv.Update {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	out := make([]kv.Update, 0, l.live)
	for _, m := range l.msgs {
		if m.fate == alive {
			out = append(out, m.update)
		}
	}
	return slices.Clip(out)
}
