package repair

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// keyRange is a half-open range of store keys.
type keyRange struct{ lower, upper []byte }

// ranges are the scope's parts of SpaceData, disjoint and in the order of the store: a scope sorts "-" before ".",
// a store after it.
func ranges(scope kv.Scope) []keyRange {
	if scope.IsAll() {
		return []keyRange{{lower: []byte{byte(store.SpaceData)}, upper: []byte{byte(store.SpaceData) + 1}}}
	}
	var all []keyRange
	for _, prefix := range scope.List() {
		lower := store.AppendKey(nil, store.SpaceData, prefix)
		all = append(all, keyRange{lower: lower, upper: store.PrefixEnd(lower)})
	}
	slices.SortFunc(all, func(a, b keyRange) int { return bytes.Compare(a.lower, b.lower) })
	return all
}

// side is one of the two folds that are compared, at one of its rows.
type side struct {
	it     store.Iterator
	has    bool
	record store.Record
}

func openSide(g store.Getter, in keyRange) (*side, error) {
	it, err := g.Iter(store.IterOptions{Lower: in.lower, Upper: in.upper})
	if err != nil {
		return nil, err
	}
	s := &side{it: it}
	if err := s.next(); err != nil {
		return nil, errors.Join(err, it.Close())
	}
	return s, nil
}

func (s *side) next() error {
	if s.has = s.it.Next(); !s.has {
		return s.it.Err()
	}
	b, err := s.it.Value()
	if err != nil {
		return err
	}
	s.record, err = store.ParseRecord(b)
	return err
}

// rowStream walks the rows of several ranges, one after the other.
type rowStream struct {
	g    store.Getter
	left []keyRange
	at   *side
}

func (s *rowStream) key() []byte { return s.at.it.Key()[1:] }

// next moves to the next row; false at the end.
func (s *rowStream) next() (bool, error) {
	err := error(nil)
	if s.at != nil {
		err = s.at.next()
	}
	for err == nil && (s.at == nil || !s.at.has) {
		if err = s.close(); err != nil || len(s.left) == 0 {
			break
		}
		in := s.left[0]
		s.left = s.left[1:]
		s.at, err = openSide(s.g, in)
	}
	if err != nil {
		return false, fmt.Errorf("read the fold: %w", err)
	}
	return s.at != nil, nil
}

func (s *rowStream) close() error {
	if s.at == nil {
		return nil
	}
	at := s.at
	s.at = nil
	return at.it.Close()
}

// dataKey is the store key of a key in ordered form.
func dataKey(ordered []byte) []byte { return append([]byte{byte(store.SpaceData)}, ordered...) }
