package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// facts are what a store says of itself, and a manifest repeats.
func facts(s store.Store) (Manifest, error) {
	m := Manifest{Backend: s.Info().Backend, Format: s.Info().Format, Cursor: s.Cursor()}
	bucket, err := store.Meta(s, store.MetaBucket)
	if err != nil {
		return m, err
	}
	m.Bucket = string(bucket)
	scope, err := store.Meta(s, store.MetaScope)
	if err != nil {
		return m, err
	}
	if m.HasScope = scope != nil; m.HasScope {
		if m.Scope, err = kv.ParseScope(string(scope)); err != nil {
			return m, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
	}
	if m.Log, err = store.LogOf(s); err != nil {
		return m, err
	}
	if m.Owed, err = store.OwedOf(s); err != nil {
		return m, err
	}
	m.Schemas, err = schemasOf(s)
	return m, err
}

func schemasOf(s store.Store) (_ map[string]string, err error) {
	prefix := store.MetaKey(store.MetaSchema)
	it, err := s.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	all := map[string]string{}
	for it.Next() {
		v, err := it.Value()
		if err != nil {
			return nil, err
		}
		all[string(bytes.TrimPrefix(it.Key(), prefix))] = string(v)
	}
	return all, it.Err()
}

// differs is what a store says otherwise than its manifest; "" for nothing. Before schema 3 a manifest says nothing but
// the cursor and perhaps the scope, and the stores that it is of have no records of the others.
func differs(m, has *Manifest) string {
	scope := m.HasScope
	if m.Schema < 3 && !has.HasScope {
		scope = false
	}
	switch {
	case has.Backend != m.Backend:
		return fmt.Sprintf("a store of %q opened, its manifest says %q", has.Backend, m.Backend)
	case has.Cursor != m.Cursor:
		return fmt.Sprintf("it opened at cursor %v, its manifest says %v", has.Cursor, m.Cursor)
	case has.Bucket != m.Bucket:
		return fmt.Sprintf("it is a fold of bucket %q, its manifest says %q", has.Bucket, m.Bucket)
	case has.HasScope != scope, has.HasScope && has.Scope.String() != m.Scope.String():
		return fmt.Sprintf("it is a fold of scope %v, its manifest says %v", scopeText(has), scopeText(m))
	case has.Log.CreatedUnixNano != m.Log.CreatedUnixNano, has.Log.AgeLimit != m.Log.AgeLimit, !slices.Equal(has.Log.Samples, m.Log.Samples):
		return fmt.Sprintf("it is of a log created at %d, its manifest says %d, or has another age limit or other samples", has.Log.CreatedUnixNano, m.Log.CreatedUnixNano)
	case has.Owed != m.Owed:
		return fmt.Sprintf("it owes an audit for %v, its manifest says %v", has.Owed, m.Owed)
	case !maps.Equal(has.Schemas, m.Schemas):
		return "its schema records are not those of its manifest"
	}
	return ""
}

func scopeText(m *Manifest) string {
	if !m.HasScope {
		return "not recorded"
	}
	return m.Scope.String()
}
