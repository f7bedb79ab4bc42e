package fold

import (
	"bytes"
	"context"
	"fmt"

	"github.com/typedfold/fold/runtime/store"
)

// ScopeError is a store that was filled under another scope: what lies in only one of the two would be wrong.
type ScopeError struct{ Path, Stored, Want string }

func (e *ScopeError) Error() string {
	return fmt.Sprintf("store %s was folded under scope %q, this fold has scope %q", e.Path, e.Stored, e.Want)
}

// Hint says what a person can do.
func (e *ScopeError) Hint() string { return "start an empty store directory for the new scope" }

// checkStore refuses a store of another bucket, scope or schema, notes what is new in it, and has rows judged again where
// the schema that they were judged by is another one.
func (b *Builder) checkStore(ctx context.Context) error {
	s, batch := b.store, store.Batch{}
	err := checkMeta(s, &batch, store.MetaBucket, b.bucket.Name(), func(stored string) error {
		return &BucketError{What: "store " + s.Info().Path, Has: stored, Want: b.bucket.Name(), hint: hintStore}
	})
	if err != nil {
		return err
	}
	err = checkMeta(s, &batch, store.MetaScope, b.o.Scope.String(), func(stored string) error {
		return &ScopeError{Path: s.Info().Path, Stored: stored, Want: b.o.Scope.String()}
	})
	if err != nil {
		return err
	}
	evolution := evolution{store: s, tables: b.tables, log: b.o.Logger, told: b.o.Events.Rebuild, rows: b.refoldRows}
	plans, err := evolution.plan(ctx)
	if err != nil {
		return err
	}
	records, err := evolution.ops(plans)
	if err != nil {
		return err
	}
	stale, err := staleCounts(s, b.tables)
	if err != nil {
		return err
	}
	if batch.Ops = append(append(batch.Ops, records...), stale...); len(batch.Ops) > 0 {
		if err := s.Apply(ctx, &batch, s.Cursor()); err != nil {
			return err
		}
	}
	return evolution.refold(ctx, plans)
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

// staleCounts removes the row counts of tables that this fold does not have: it would not keep them up to date.
func staleCounts(s store.Store, tables []anyTable) ([]store.Op, error) {
	known := map[string]bool{}
	for _, t := range tables {
		known[string(t.base().c.table.Message)] = true
	}
	prefix := store.MetaKey(metaCount)
	var ops []store.Op
	err := eachKey(s, prefix, func(key, _ []byte) {
		if name := bytes.TrimPrefix(key, prefix); !known[string(name)] {
			ops = append(ops, store.Op{Key: bytes.Clone(key), Delete: true})
		}
	})
	return ops, err
}
