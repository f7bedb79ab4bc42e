package fold

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// WithIndexes is a table's description with other indexes, as a later version of its schema has them.
func WithIndexes[K Key, V proto.Message](d *Desc[K, V], edit func([]schema.Index) []schema.Index) *Desc[K, V] {
	e := &Desc[K, V]{cfg: d.cfg, message: d.message}
	e.compile = sync.OnceValues(func() (*compiled, error) {
		c, err := d.compile()
		if err != nil {
			return nil, err
		}
		edited, table := *c, *c.table
		table.Indexes = edit(slices.Clone(table.Indexes))
		edited.table = &table
		return &edited, nil
	})
	return e
}

// BuildIndexes is the part of the builder's Start that makes the indexes, in batches of so many ops.
func BuildIndexes(ctx context.Context, b *Builder, limit int, told func(RebuildProgress)) error {
	build := indexBuild{store: b.store, tables: b.tables, log: b.o.Logger, told: told, limit: limit}
	return build.run(ctx)
}

// EntrySet is a set of entries, for tests of their difference.
type EntrySet struct{ s entrySet }

func (e *EntrySet) Add(entry string) { e.s.end(append(e.s.begin(), entry...)) }

func (e *EntrySet) List() (list []string) {
	e.s.sort()
	for i := range e.s.len() {
		list = append(list, string(e.s.at(i)))
	}
	return list
}

func (e *EntrySet) Has(entry string) bool { return e.s.has([]byte(entry)) }

// Diff is what diffEntries tells.
func (e *EntrySet) Diff(after *EntrySet) (gone, came []string) {
	e.s.sort()
	after.s.sort()
	diffEntries(&e.s, &after.s, func(b []byte) { gone = append(gone, string(b)) }, func(b []byte) { came = append(came, string(b)) })
	return gone, came
}

// EffectOf is effectOf in words.
func EffectOf(op Op, rejected bool) string {
	return map[rowEffect]string{rowStays: "stays", rowSet: "set", rowEnds: "ends"}[effectOf(op, rejected)]
}

// IndexKeys are the store keys of all index entries.
func IndexKeys(g store.Getter) (keys []string, err error) {
	prefix := []byte{byte(store.SpaceIndex)}
	it, err := g.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return nil, err
	}
	for it.Next() {
		keys = append(keys, string(it.Key()))
	}
	return keys, it.Close()
}

// NewKeys is the filter of keys that the store need not be asked for.
type NewKeys struct{ k *newKeys }

func MakeNewKeys() *NewKeys { return &NewKeys{newNewKeys()} }

func (k *NewKeys) Add(key string) bool { return k.k.add(key) }

func (k *NewKeys) IsNew(key string) bool { return k.k.isNew(key) }

// NewKeysRoom is how many keys fit into the filter, NewKeysBlock how many into a part of it.
const (
	NewKeysRoom  = newKeysBlock * newKeysBlocks
	NewKeysBlock = newKeysBlock
)

// Fill makes the filter as if so many keys had been added.
func (k *NewKeys) Fill(n int) {
	for len(k.k.blocks) < (n+newKeysBlock-1)/newKeysBlock {
		k.k.blocks = append(k.k.blocks, make([]uint64, newKeysWords))
	}
	k.k.n = n - (len(k.k.blocks)-1)*newKeysBlock
}
