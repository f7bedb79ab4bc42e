package fold

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// ScopeError is a store that was filled under another scope: what lies in only one of the two would be wrong.
type ScopeError struct{ Path, Stored, Want string }

func (e *ScopeError) Error() string {
	return fmt.Sprintf("store %s was folded under scope %q, this fold has scope %q", e.Path, e.Stored, e.Want)
}

// Hint says what a person can do.
func (e *ScopeError) Hint() string { return "start an empty store directory for the new scope" }

// checkStore refuses a store of another bucket, scope or schema, and notes what is new in it.
func checkStore(ctx context.Context, s store.Store, bucket string, scope kv.Scope, tables []anyTable) error {
	batch := store.Batch{}
	err := checkMeta(s, &batch, store.MetaBucket, bucket, func(stored string) error {
		return &BucketError{What: "store " + s.Info().Path, Has: stored, Want: bucket, hint: hintStore}
	})
	if err != nil {
		return err
	}
	err = checkMeta(s, &batch, store.MetaScope, scope.String(), func(stored string) error {
		return &ScopeError{Path: s.Info().Path, Stored: stored, Want: scope.String()}
	})
	if err != nil {
		return err
	}
	for _, t := range tables {
		now := t.base().c.table
		err := checkMeta(s, &batch, store.MetaSchema+string(now.Message), now.Record(), func(stored string) error {
			return &SchemaError{Table: string(now.Message), Stored: stored, Now: now.Record(), Diff: diffLines(stored, now.Record())}
		})
		if err != nil {
			return err
		}
	}
	stale, err := staleCounts(s, tables)
	if err != nil {
		return err
	}
	if batch.Ops = append(batch.Ops, stale...); len(batch.Ops) == 0 {
		return nil
	}
	return s.Apply(ctx, &batch, s.Cursor())
}

// checkMeta compares one record with what it must say, or adds it to the batch when the store has none.
func checkMeta(s store.Store, batch *store.Batch, name, want string, refuse func(stored string) error) error {
	stored, err := store.Meta(s, name)
	switch {
	case err != nil:
		return err
	case stored == nil:
		batch.Ops = append(batch.Ops, store.Op{Key: store.MetaKey(name), Value: []byte(want)})
	case string(stored) != want:
		return refuse(string(stored))
	}
	return nil
}

func diffLines(stored, now string) string {
	var b strings.Builder
	for _, c := range schema.Diff(stored, now) {
		fmt.Fprintf(&b, "- %s: %s\n+ %s: %s\n", c.Name, c.Old, c.Name, c.New)
	}
	return b.String()
}

// staleCounts removes the row counts of tables that this fold does not have: it would not keep them up to date.
func staleCounts(s store.Store, tables []anyTable) ([]store.Op, error) {
	known := map[string]bool{}
	for _, t := range tables {
		known[string(t.base().c.table.Message)] = true
	}
	prefix := store.MetaKey(metaCount)
	it, err := s.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return nil, err
	}
	var ops []store.Op
	for it.Next() {
		if name := bytes.TrimPrefix(it.Key(), prefix); !known[string(name)] {
			ops = append(ops, store.Op{Key: bytes.Clone(it.Key()), Delete: true})
		}
	}
	err = it.Err()
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	return ops, err
}
