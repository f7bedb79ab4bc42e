package fold

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/store"
)

// Event is one accepted change of one row.
type Event[K Key, V proto.Message] struct {
	Op     Op
	Reason Reason
	Key    K
	// New is the row's new value; nil unless Op is OpPut. It is shared with other readers, and the row's index entries are
	// made of it after the hooks: don't change it.
	New V
	Rev Rev[K]
	// Time is the server's time of the change.
	Time time.Time
	// Hydrating: the fold had not yet caught up for the first time.
	Hydrating bool

	old oldSource[K, V]
	at  int
}

// ErrNoOld: this event was not asked to know the row's earlier value; Watch does so under WithOld.
var ErrNoOld = errors.New("old value not kept")

// Old is the row's value before this event; false when it had none. In a hook it may be called until the hook
// returns, and reads the store as it was before the batch, plus the batch so far. In a Watch it needs WithOld.
func (e Event[K, V]) Old() (V, bool, error) {
	if e.old == nil {
		var zero V
		return zero, false, ErrNoOld
	}
	return e.old.oldOf(e.at)
}

// oldSource finds the value before the event at a place of its batch.
type oldSource[K Key, V proto.Message] interface {
	oldOf(at int) (V, bool, error)
}

// Hooks are what a table calls in the fold's own order. Each func may be nil.
type Hooks[K Key, V proto.Message] struct {
	// Load is called once at Start, before anything is applied, with the rows that were on disk.
	Load func(context.Context, iter.Seq2[Row[K, V], error]) error
	// Apply is called for each batch that has events of the table, in revision order, before the batch is committed. An
	// error or a panic has the same batch come again, after a while; after 16 in a row the fold stops. After a crash a
	// batch may come again too: hooks are at-least-once. The slice is valid until it returns. ctx ends when the fold
	// stops.
	Apply func(context.Context, []Event[K, V]) error
}

// hookBatch is the events of one call to Apply, and what came before each.
type hookBatch[K Key, V proto.Message] struct {
	t      *tableState[K, V]
	g      store.Getter
	events []Event[K, V]
	byKey  map[K][]int
}

func (b *hookBatch[K, V]) oldOf(at int) (V, bool, error) {
	k := b.events[at].Key
	if b.byKey == nil {
		b.byKey = make(map[K][]int, len(b.events))
		for i := range b.events {
			b.byKey[b.events[i].Key] = append(b.byKey[b.events[i].Key], i)
		}
	}
	places := b.byKey[k]
	for i := len(places) - 1; i >= 0; i-- {
		if places[i] >= at {
			continue
		}
		switch e := &b.events[places[i]]; {
		case e.Op == OpPut:
			return proto.Clone(e.New).(V), true, nil
		case b.t.removes(e.Op):
			var zero V
			return zero, false, nil
		}
	}
	if b.g == nil {
		var zero V
		return zero, false, nil
	}
	row, ok, err := b.t.readRow(b.g, k)
	return row.Value, ok, err
}
