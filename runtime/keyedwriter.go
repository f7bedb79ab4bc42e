package fold

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/kv"
)

// KeyedWriter writes rows of a table that has a variable in the key only, so that each write is given the key beside
// the value. What the value says of the key too has to agree with it, else it is a *Rejection KEY_VALUE_MISMATCH and
// nothing is sent. In all else it is as Writer.
type KeyedWriter[K Key, V proto.Message] struct{ w *Writer[K, V] }

// NewKeyedWriter is a writer of the table; generated code wraps it. What does not fit, such as a table of another
// logical bucket, is reported by each write.
func NewKeyedWriter[K Key, V proto.Message](b Bucket, d *Desc[K, V], opts ...WriterOption) *KeyedWriter[K, V] {
	return &KeyedWriter[K, V]{w: NewWriter(b, d, opts...)}
}

// CreateAt writes the row when it does not exist; else it is an *ExistsError.
func (w *KeyedWriter[K, V]) CreateAt(ctx context.Context, k K, v V) (Rev[K], error) {
	return w.w.write(ctx, v, w.keyed(k), w.w.create(ctx))
}

// PutAt writes the row, whatever is there.
func (w *KeyedWriter[K, V]) PutAt(ctx context.Context, k K, v V) (Rev[K], error) {
	return w.w.write(ctx, v, w.keyed(k), w.w.put(ctx))
}

// UpdateAt writes the row when its revision is at; else it is a *ConflictError, and nothing was written. A revision of
// another key is refused without asking the server.
func (w *KeyedWriter[K, V]) UpdateAt(ctx context.Context, k K, v V, at Rev[K]) (Rev[K], error) {
	return w.w.update(ctx, v, w.keyed(k), at)
}

// Delete removes the row. Deleting what is not there is no error, except with At.
func (w *KeyedWriter[K, V]) Delete(ctx context.Context, k K, opts ...DeleteOption) error {
	return w.w.Delete(ctx, k, opts...)
}

// Mutate reads the row from the bucket's leader, has f make its new value, and writes that if nobody else wrote
// meanwhile; else it begins again, as Writer.Mutate does.
func (w *KeyedWriter[K, V]) Mutate(ctx context.Context, k K, f func(V, bool) (V, error)) (Rev[K], error) {
	return w.w.Mutate(ctx, k, f)
}

// keyed takes the key that the caller gave, if the value does not gainsay it.
func (w *KeyedWriter[K, V]) keyed(k K) func(V) (K, error) {
	return func(v V) (K, error) {
		of, err := w.w.desc.keyOf(v, k)
		if err != nil || of == k {
			return k, err
		}
		key, err := w.w.key(k)
		if err != nil {
			return k, err
		}
		c, err := w.w.desc.compile()
		if err != nil {
			return k, err
		}
		return k, c.mismatch(&kv.Update{Key: key}, of)
	}
}
