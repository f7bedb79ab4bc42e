package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// records is a Getter of records, whose bytes are gone once they are released.
type records struct {
	held map[string][]byte
	err  error
	open int
}

func (r *records) Get(key []byte, v *store.Value) (bool, error) {
	b, ok := r.held[string(key)]
	if !ok || r.err != nil {
		return false, r.err
	}
	r.open++
	lent := slices.Clone(b)
	v.Hold(lent, closeFunc(func() {
		r.open--
		clear(lent)
	}))
	return true, nil
}

func (r *records) Iter(store.IterOptions) (store.Iterator, error) {
	return nil, errors.New("no iterators here")
}

type closeFunc func()

func (f closeFunc) Close() error { f(); return nil }

func recordsOf(name string, b []byte) *records {
	return &records{held: map[string][]byte{string(store.MetaKey(name)): b}}
}

func TestMetaRecords(t *testing.T) {
	log := kv.Incarnation{CreatedUnixNano: 5, Samples: []kv.Sample{{Revision: 300, UnixNano: 4}}}
	r := recordsOf(store.MetaLog, log.AppendBytes(nil))
	if got, err := store.LogOf(r); err != nil || got.CreatedUnixNano != 5 || !slices.Equal(got.Samples, log.Samples) {
		t.Errorf("log %+v, %v", got, err)
	}
	if got, err := store.OwedOf(r); err != nil || got != (kv.Owed{}) {
		t.Errorf("a store without the record owes %v, %v", got, err)
	}
	owed := kv.Owed{Why: kv.OwesMarkers, At: 9}
	r = recordsOf(store.MetaOwed, owed.AppendBytes(nil))
	if got, err := store.OwedOf(r); err != nil || got != owed {
		t.Errorf("owed %v, %v", got, err)
	}
	if got, err := store.LogOf(r); err != nil || got.CreatedUnixNano != 0 || got.Samples != nil {
		t.Errorf("a store without the record is of log %+v, %v", got, err)
	}
	if r.open != 0 {
		t.Errorf("%d values were not released", r.open)
	}
}

// A record is a copy, and an empty one is not an absent one.
func TestMetaIsACopy(t *testing.T) {
	r := recordsOf(store.MetaScope, []byte(">"))
	if b, err := store.Meta(r, store.MetaScope); err != nil || string(b) != ">" || r.open != 0 {
		t.Errorf("%q, %v, %d values were not released", b, err, r.open)
	}
	if b, err := store.Meta(r, store.MetaBucket); err != nil || b != nil {
		t.Errorf("absent: %q, %v", b, err)
	}
	if b, err := store.Meta(recordsOf(store.MetaScope, nil), store.MetaScope); err != nil || b == nil || len(b) != 0 {
		t.Errorf("empty: %q, %v", b, err)
	}
}

func TestDamagedMetaRecordsAreCorrupt(t *testing.T) {
	for _, bad := range []string{"", "\x00", "\x02\x00\x00", "\x01\x00\x00\x00", "\x01\x80\x00", "\x01\xff\x00"} {
		if got, err := store.LogOf(recordsOf(store.MetaLog, []byte(bad))); !errors.Is(err, store.ErrCorrupt) || got.CreatedUnixNano != 0 || got.Samples != nil {
			t.Errorf("log %q: %+v, %v", bad, got, err)
		}
		if got, err := store.OwedOf(recordsOf(store.MetaOwed, []byte(bad))); !errors.Is(err, store.ErrCorrupt) || got != (kv.Owed{}) {
			t.Errorf("owed %q: %v, %v", bad, got, err)
		}
	}
}

func TestUnreadableMetaRecords(t *testing.T) {
	gone := errors.New("gone")
	r := &records{err: gone}
	_, logErr := store.LogOf(r)
	_, owedErr := store.OwedOf(r)
	_, err := store.Meta(r, store.MetaScope)
	for _, err := range []error{logErr, owedErr, err} {
		if !errors.Is(err, gone) || errors.Is(err, store.ErrCorrupt) {
			t.Errorf("got %v", err)
		}
	}
}
