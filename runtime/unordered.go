package fold

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"
)

// UnorderedTable is a Table some of whose key is encoded in a way that does not keep the order of values. It has no
// Range, Ceil and Floor, which would give wrong rows; List goes by the text of the keys. In all else it is as Table.
type UnorderedTable[K Key, V proto.Message] struct{ t *Table[K, V] }

// RegisterUnordered is Register for such a table; generated code wraps it.
func RegisterUnordered[K Key, V proto.Message](b *Builder, d *Desc[K, V], opts ...TableOption) (*UnorderedTable[K, V], error) {
	t, err := Register(b, d, opts...)
	if err != nil {
		return nil, err
	}
	return &UnorderedTable[K, V]{t: t}, nil
}

// At is the table as of the snapshot. It is valid until the snapshot is closed.
func (t *UnorderedTable[K, V]) At(s *Snapshot) *UnorderedTable[K, V] {
	return &UnorderedTable[K, V]{t: t.t.At(s)}
}

// Get is the value at k: a new message, which is the caller's own; false when there is no such row.
func (t *UnorderedTable[K, V]) Get(ctx context.Context, k K) (V, bool, error) { return t.t.Get(ctx, k) }

// GetRow is the row at k; false when there is none.
func (t *UnorderedTable[K, V]) GetRow(ctx context.Context, k K) (Row[K, V], bool, error) {
	return t.t.GetRow(ctx, k)
}

// GetInto decodes the value at k into dst, as Table.GetInto does.
func (t *UnorderedTable[K, V]) GetInto(ctx context.Context, k K, dst V) (bool, error) {
	return t.t.GetInto(ctx, k, dst)
}

// Has reports whether there is a row at k, without decoding it.
func (t *UnorderedTable[K, V]) Has(ctx context.Context, k K) (bool, error) { return t.t.Has(ctx, k) }

// Peek is the value at k from memory, for tables registered with Resident; see Table.Peek.
func (t *UnorderedTable[K, V]) Peek(k K) (V, bool) { return t.t.Peek(k) }

// List yields the rows of a prefix by the text of their keys.
func (t *UnorderedTable[K, V]) List(ctx context.Context, p Prefix[K], opts ...ReadOption) iter.Seq2[Row[K, V], error] {
	return t.t.List(ctx, p, opts...)
}

// Keys yields the keys of a prefix by their text, and decodes no values.
func (t *UnorderedTable[K, V]) Keys(ctx context.Context, p Prefix[K], opts ...ReadOption) iter.Seq2[K, error] {
	return t.t.Keys(ctx, p, opts...)
}

// First is the first row of a prefix by the text of the keys.
func (t *UnorderedTable[K, V]) First(ctx context.Context, p Prefix[K]) (Row[K, V], bool, error) {
	return t.t.First(ctx, p)
}

// Last is the last row of a prefix by the text of the keys.
func (t *UnorderedTable[K, V]) Last(ctx context.Context, p Prefix[K]) (Row[K, V], bool, error) {
	return t.t.Last(ctx, p)
}

// Count is how many rows a prefix has; see Table.Count.
func (t *UnorderedTable[K, V]) Count(ctx context.Context, p Prefix[K]) (uint64, error) {
	return t.t.Count(ctx, p)
}

// Watch yields the changes under the prefixes after they are committed; see Table.Watch.
func (t *UnorderedTable[K, V]) Watch(ctx context.Context, prefixes []Prefix[K], opts ...WatchOption) iter.Seq2[Event[K, V], error] {
	return t.t.Watch(ctx, prefixes, opts...)
}

// Rejected yields why each key of the table whose newest message was rejected was so, in key order.
func (t *UnorderedTable[K, V]) Rejected(ctx context.Context) iter.Seq2[*Rejection, error] {
	return t.t.Rejected(ctx)
}

// ordered is nil when rows go by the values of their keys, else it says which variable's don't.
func (c *compiled) ordered() error {
	for i := range c.table.Vars {
		if v := &c.table.Vars[i]; !v.Enc.Ordered() {
			return fmt.Errorf("table %s: keys have no order: {%s} is encoded as %v, which does not keep that of its values", c.name, v.Name, v.Enc)
		}
	}
	return nil
}
