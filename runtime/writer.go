package fold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/kv"
)

// DefaultMutateAttempts is how often Mutate tries before it gives a lost race back.
const DefaultMutateAttempts = 16

// WriterOption shapes a Writer.
type WriterOption interface{ applyWriter(*writerOptions) }

type writerOptions struct {
	bucket    string
	ttl       time.Duration
	attempts  int
	validator Validator
	token     string
}

type writerOption func(*writerOptions)

func (f writerOption) applyWriter(o *writerOptions) { f(o) }

// WithTTL has the server remove each written value after d. It needs a bucket that allows it.
func WithTTL(d time.Duration) WriterOption { return writerOption(func(o *writerOptions) { o.ttl = d }) }

// WithLogicalBucket says which logical bucket the given one serves, when that is not its own name.
func WithLogicalBucket(name string) WriterOption {
	return writerOption(func(o *writerOptions) { o.bucket = name })
}

// WithMutateAttempts is how often Mutate tries; default 16.
func WithMutateAttempts(n int) WriterOption {
	return writerOption(func(o *writerOptions) { o.attempts = n })
}

// Writer writes rows of one table to the bucket. Its key comes from the value, so that the two never disagree. It
// reads from the bucket's leader where it has to read, never from a fold. It is safe for concurrent use, and never
// changes or keeps a caller's message.
//
// On a bucket that is fenced each write is stored only while the writer's token is installed (WithFencingToken; a writer
// without one presents none): else it is a *FencedError. Other errors of a fence are *NoFenceError, *FenceRecordError, and
// *NotWrittenError, a spurious conflict. Nothing was written after any of them.
type Writer[K Key, V proto.Message] struct {
	bucket kv.Bucket
	desc   *Desc[K, V]
	o      writerOptions
	fence  *fencing
}

// NewWriter is a writer of the table; generated code wraps it. What does not fit, such as a table of another logical
// bucket, is reported by each write.
func NewWriter[K Key, V proto.Message](b Bucket, d *Desc[K, V], opts ...WriterOption) *Writer[K, V] {
	w := &Writer[K, V]{bucket: b, desc: d}
	for _, opt := range opts {
		if opt != nil {
			opt.applyWriter(&w.o)
		}
	}
	w.o.attempts = cmp.Or(max(w.o.attempts, 0), DefaultMutateAttempts)
	w.fence = &fencing{token: w.o.token}
	return w
}

// Create writes the row when it does not exist; else it is an *ExistsError. A row whose message in the bucket was
// deleted, or aged out, does not exist.
func (w *Writer[K, V]) Create(ctx context.Context, v V) (Rev[K], error) {
	return w.write(ctx, v, w.keyOfValue, w.create(ctx))
}

// Put writes the row, whatever is there.
func (w *Writer[K, V]) Put(ctx context.Context, v V) (Rev[K], error) {
	return w.write(ctx, v, w.keyOfValue, w.put(ctx))
}

// Update writes the row when its revision is at; else it is a *ConflictError, and nothing was written. A revision of
// another key is refused without asking the server.
func (w *Writer[K, V]) Update(ctx context.Context, v V, at Rev[K]) (Rev[K], error) {
	return w.update(ctx, v, w.keyOfValue, at)
}

func (w *Writer[K, V]) update(ctx context.Context, v V, keyOf func(V) (K, error), at Rev[K]) (Rev[K], error) {
	k, key, value, err := w.encode(v, keyOf)
	if err != nil {
		return Rev[K]{}, err
	}
	if at.key != k || at.seq == 0 {
		return Rev[K]{}, &RevError[K]{Table: w.name(), Key: k, At: at}
	}
	return w.fenced(ctx, k, key, value, w.updateAt(ctx, kv.Revision(at.seq)))
}

// sender sends a value to the bucket.
type sender func(key string, value []byte, o kv.PutOptions) (kv.Version, error)

func (w *Writer[K, V]) put(ctx context.Context) sender {
	return func(key string, value []byte, o kv.PutOptions) (kv.Version, error) {
		return w.bucket.Put(ctx, key, value, o)
	}
}

func (w *Writer[K, V]) create(ctx context.Context) sender {
	return func(key string, value []byte, o kv.PutOptions) (kv.Version, error) {
		return w.bucket.Create(ctx, key, value, o)
	}
}

func (w *Writer[K, V]) updateAt(ctx context.Context, at kv.Version) sender {
	return func(key string, value []byte, o kv.PutOptions) (kv.Version, error) {
		return w.bucket.Update(ctx, key, value, at, o)
	}
}

// RevError is a revision that is not one of the key that is written.
type RevError[K Key] struct {
	Table string
	Key   K
	At    Rev[K]
}

func (e *RevError[K]) Error() string {
	if e.At.seq == 0 {
		return fmt.Sprintf("table %s: key %q: no revision given; use Create or Put", e.Table, KeyString(e.Key))
	}
	return fmt.Sprintf("table %s: key %q is to be written at revision %d of key %q", e.Table, KeyString(e.Key), e.At.seq, KeyString(e.At.key))
}

// DeleteOption shapes one Delete.
type DeleteOption interface{ applyDelete(*deleteOptions) }

type deleteOptions struct {
	purge bool
	at    bool
	seq   uint64
	key   any // of the revision, to compare
}

type deleteOption func(*deleteOptions)

func (f deleteOption) applyDelete(o *deleteOptions) { f(o) }

// At deletes only when the row's revision is rev; else it is a *ConflictError, and nothing was written.
func At[K Key](rev Rev[K]) DeleteOption {
	return deleteOption(func(o *deleteOptions) { o.at, o.seq, o.key = true, rev.seq, rev.key })
}

// Purge removes the key's history in the bucket too.
func Purge() DeleteOption { return deleteOption(func(o *deleteOptions) { o.purge = true }) }

// Delete removes the row. Deleting what is not there is no error, except with At.
func (w *Writer[K, V]) Delete(ctx context.Context, k K, opts ...DeleteOption) error {
	key, do, err := w.deletion(k, opts)
	if err != nil {
		return err
	}
	err = w.fence.write(ctx, w.bucket, func(fence uint64) error {
		do.Fence = fence
		_, err := w.bucket.Delete(ctx, key, do)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", w.name(), err)
	}
	return nil
}

// deletion is a delete as the bucket takes it.
func (w *Writer[K, V]) deletion(k K, opts []DeleteOption) (key string, do kv.DeleteOptions, err error) {
	if _, err := w.compiled(); err != nil {
		return "", do, err
	}
	var o deleteOptions
	for _, opt := range opts {
		if opt != nil {
			opt.applyDelete(&o)
		}
	}
	if key, err = w.key(k); err != nil {
		return "", do, err
	}
	do.Purge = o.purge
	if o.at {
		at, ok := o.key.(K)
		if !ok || at != k || o.seq == 0 {
			return key, do, &RevError[K]{Table: w.name(), Key: k, At: Rev[K]{key: at, seq: o.seq}}
		}
		do.At = kv.Revision(o.seq)
	}
	return key, do, nil
}

// Mutate reads the row from the bucket's leader, has f make its new value, and writes that if nobody else wrote
// meanwhile; else it begins again, up to a bound. f gets the current value and true, or a new message with the key's
// fields unset and false; it may change what it gets and return it. The key of what it returns must be k. A validator
// judges what f returns, and not what it gets, so that a value which it refuses can be mended.
func (w *Writer[K, V]) Mutate(ctx context.Context, k K, f func(V, bool) (V, error)) (Rev[K], error) {
	c, err := w.compiled()
	if err != nil {
		return Rev[K]{}, err
	}
	if _, err := w.validating(); err != nil {
		return Rev[K]{}, err
	}
	key, err := w.key(k)
	if err != nil {
		return Rev[K]{}, err
	}
	for attempt := 0; ; attempt++ {
		rev, raced, err := w.mutateOnce(ctx, c, k, key, f)
		if err == nil || !raced {
			return rev, err
		}
		if attempt+1 >= w.o.attempts {
			return rev, fmt.Errorf("mutate %s: lost %d races: %w", w.name(), attempt+1, err)
		}
		if err := pause(ctx, attempt); err != nil {
			return rev, fmt.Errorf("mutate %s: %w", w.name(), err)
		}
	}
}

// pause waits a little before the next try, longer each time, and never the same for two writers.
func pause(ctx context.Context, attempt int) error {
	t := time.NewTimer(rand.N(time.Millisecond << min(attempt, 7)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mutateOnce is one try; raced says that somebody else wrote between its read and its write.
func (w *Writer[K, V]) mutateOnce(ctx context.Context, c *compiled, k K, key string, f func(V, bool) (V, error)) (rev Rev[K], raced bool, err error) {
	entry, err := w.bucket.Entry(ctx, key)
	absent := errors.Is(err, kv.ErrKeyNotFound)
	if err != nil && !absent {
		return rev, false, fmt.Errorf("mutate %s: %w", w.name(), err)
	}
	v, exists := w.desc.newValue(), !absent && !entry.IsTombstone()
	if exists {
		var rej *Rejection
		if _, v, rej = w.desc.parse(c, &entry.Update); rej != nil {
			return rev, false, fmt.Errorf("mutate %s: the current value: %w", w.name(), rej)
		}
	}
	if v, err = f(v, exists); err != nil {
		return rev, false, err
	}
	got, key, value, err := w.encode(v, func(v V) (K, error) { return w.desc.keyOf(v, k) })
	if err != nil {
		return rev, false, err
	}
	if got != k {
		return rev, false, fmt.Errorf("mutate %s: the new value belongs to key %q, not to %q", w.name(), KeyString(got), KeyString(k))
	}
	send := w.create(ctx)
	if exists {
		send = w.updateAt(ctx, entry.Version)
	}
	rev, err = w.fenced(ctx, k, key, value, send)
	return rev, errors.Is(err, kv.ErrConflict), err
}

func (w *Writer[K, V]) write(ctx context.Context, v V, keyOf func(V) (K, error), send sender) (Rev[K], error) {
	k, key, value, err := w.encode(v, keyOf)
	if err != nil {
		return Rev[K]{}, err
	}
	return w.fenced(ctx, k, key, value, send)
}

// fenced sends a value under the bucket's fence.
func (w *Writer[K, V]) fenced(ctx context.Context, k K, key string, value []byte, send sender) (Rev[K], error) {
	o := w.putOptions()
	var version kv.Version
	err := w.fence.write(ctx, w.bucket, func(fence uint64) (err error) {
		o.Fence = fence
		version, err = send(key, value, o)
		return err
	})
	if err != nil {
		return Rev[K]{}, fmt.Errorf("write %s: %w", w.name(), err)
	}
	return Rev[K]{key: k, seq: version.Rank()}, nil
}

func (w *Writer[K, V]) putOptions() kv.PutOptions {
	o := kv.PutOptions{TTL: w.o.ttl}
	if c, err := w.desc.compile(); err == nil {
		o.ContentType = c.codecs.contentType
	}
	return o
}

func (w *Writer[K, V]) name() string { return string(w.desc.message().Descriptor().Name()) }

// compiled is the table, once it is known to fit the bucket.
func (w *Writer[K, V]) compiled() (*compiled, error) {
	c, err := w.desc.compile()
	if err != nil {
		return nil, err
	}
	if w.bucket == nil {
		return nil, fmt.Errorf("write %s: no bucket", c.name)
	}
	if logical := cmp.Or(w.o.bucket, w.bucket.Name()); c.table.Bucket != logical {
		return nil, &BucketError{What: "table " + c.name, Has: c.table.Bucket, Want: logical, hint: hintTableOfWriter}
	}
	return c, nil
}

var (
	errNilMessage = errors.New("nil message")
	errKeyOnly    = errors.New("a message does not say the whole key; use a KeyedWriter")
)

// keyOfValue is the key that a value belongs to.
func (w *Writer[K, V]) keyOfValue(v V) (k K, err error) {
	if w.desc.cfg.KeyOf == nil {
		return k, errKeyOnly
	}
	return w.desc.cfg.KeyOf(v)
}

// validating is compiled for writes of values, which the table's validator judges.
func (w *Writer[K, V]) validating() (*compiled, error) {
	c, err := w.compiled()
	if err != nil {
		return nil, err
	}
	return c.validating(w.o.validator, hintWriterValidator)
}

// encode is the value's key and its bytes, as a table accepts them. Everything wrong with them is a *Rejection.
func (w *Writer[K, V]) encode(v V, keyOf func(V) (K, error)) (k K, key string, value []byte, err error) {
	c, err := w.validating()
	if err != nil {
		return k, "", nil, err
	}
	if !v.ProtoReflect().IsValid() {
		return k, "", nil, c.refuse("", ValueDecode, errNilMessage)
	}
	if k, err = keyOf(v); err != nil {
		return k, "", nil, c.refuse("", KeySegment, err)
	}
	if key, err = w.key(k); err != nil {
		return k, "", nil, err
	}
	var m proto.Message = v
	if c.fills() {
		// A key that can be written may still be one that no value can be filled from.
		if err = w.desc.cfg.Fill(w.desc.newValue(), k); err != nil {
			return k, key, nil, c.refuse(key, KeySegment, err)
		}
		m = withoutKeyFields(c, v)
	}
	if value, err = c.codecs.encode(m); err != nil {
		return k, key, nil, c.refuse(key, ValueDecode, err)
	}
	u := kv.Update{Key: key, Value: value}
	if rej := c.tooLarge(&u); rej != nil {
		return k, key, nil, rej
	}
	if rej := c.validate(&u, v); rej != nil {
		return k, key, nil, rej
	}
	return k, key, value, nil
}

func (w *Writer[K, V]) key(k K) (string, error) {
	c, err := w.desc.compile()
	if err != nil {
		return "", err
	}
	key, err := keyText(k)
	if err != nil {
		return "", c.refuse("", KeySegment, err)
	}
	if len(key) > MaxKeyBytes {
		return "", c.refuse("", KeyTooLong, fmt.Errorf("%d bytes, at most %d", len(key), MaxKeyBytes))
	}
	return key, nil
}

// refuse is reject for a write, which has no revision.
func (c *compiled) refuse(key string, code RejectCode, err error) *Rejection {
	return c.reject(&kv.Update{Key: key}, code, err)
}

// withoutKeyFields is a copy of the value that lacks what its key says already.
func withoutKeyFields(c *compiled, v proto.Message) proto.Message {
	m := proto.Clone(v)
	for i := range c.table.Vars {
		if v := &c.table.Vars[i]; !v.KeyOnly() {
			clearPath(m.ProtoReflect(), v.Path)
		}
	}
	return m
}

func clearPath(m protoreflect.Message, path []protoreflect.FieldDescriptor) {
	for _, fd := range path[:len(path)-1] {
		if !m.Has(fd) {
			return
		}
		m = m.Mutable(fd).Message()
	}
	m.Clear(path[len(path)-1])
}
