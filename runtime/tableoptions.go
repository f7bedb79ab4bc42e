package fold

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// TableOption shapes one table at Register. Options that carry a table's types, such as generated hooks, are refused by
// any other table.
type TableOption interface{ applyTable(*tableOptions) }

type tableOptions struct {
	resident  bool
	hooks     any // Hooks[K, V] of the table
	validator Validator
}

type tableOption func(*tableOptions)

func (f tableOption) applyTable(o *tableOptions) { f(o) }

// Resident keeps every row of the table decoded in memory, for Peek: reads without I/O and without allocation, at the
// cost of the decoded messages.
func Resident() TableOption { return tableOption(func(o *tableOptions) { o.resident = true }) }

// WithHooks has the table call hooks; generated code wraps it with the table's own types.
func WithHooks[K Key, V proto.Message](h Hooks[K, V]) TableOption {
	return tableOption(func(o *tableOptions) { o.hooks = h })
}

func (o *tableOptions) apply(opts []TableOption) {
	for _, opt := range opts {
		if opt != nil {
			opt.applyTable(o)
		}
	}
}

func hooksOf[K Key, V proto.Message](o tableOptions, table string) (Hooks[K, V], error) {
	if o.hooks == nil {
		return Hooks[K, V]{}, nil
	}
	h, ok := o.hooks.(Hooks[K, V])
	if !ok {
		return h, fmt.Errorf("register table %s: hooks are of another table: %T", table, o.hooks)
	}
	return h, nil
}

// ReadOption shapes one List, Range or Keys.
type ReadOption interface{ applyRead(*readOptions) }

type readOptions struct {
	reverse  bool
	keysOnly bool
	limit    int
}

type readOption func(*readOptions)

func (f readOption) applyRead(o *readOptions) { f(o) }

// Reverse goes from the last key to the first.
func Reverse() ReadOption { return readOption(func(o *readOptions) { o.reverse = true }) }

// Limit ends after n rows; n below 1 is no limit.
func Limit(n int) ReadOption { return readOption(func(o *readOptions) { o.limit = n }) }

// KeysOnly leaves Row.Value nil, and decodes nothing.
func KeysOnly() ReadOption { return readOption(func(o *readOptions) { o.keysOnly = true }) }

func readOptionsOf(opts []ReadOption) readOptions {
	var o readOptions
	for _, opt := range opts {
		if opt != nil {
			opt.applyRead(&o)
		}
	}
	return o
}
