package logstore

import (
	"strconv"

	"github.com/typedfold/fold/runtime/store"
)

// Backend is the store's name in Info and in artifacts.
const Backend = "append-log"

// Kind opens exports of this package's stores, and those of the program that its format 2 comes from.
func Kind() store.Kind {
	return store.Kind{Backend: Backend, Reads: readsFormat, Open: openExport}
}

// Kind is the package's Kind.
func (s *Store) Kind() store.Kind { return Kind() }

func readsFormat(format string) bool {
	return format == strconv.Itoa(versionV2) || format == strconv.Itoa(versionV3)
}

func openExport(dir string) (store.Store, error) {
	s, err := Open(dir, Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return s, nil
}
