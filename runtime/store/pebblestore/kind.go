package pebblestore

import (
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/typedfold/fold/runtime/store"
)

const formatPrefix = "pebble-"

// exportCacheBytes is the block cache of a store that is opened for a look: most of it is read once, in order.
const exportCacheBytes = 8 << 20

// Kind opens exports of this package's stores.
func Kind() store.Kind {
	return store.Kind{Backend: Backend, Reads: readsFormat, Open: openExport}
}

// Kind is the package's Kind.
func (s *Store) Kind() store.Kind { return Kind() }

func readsFormat(format string) bool {
	digits, ok := strings.CutPrefix(format, formatPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return ok && err == nil && n >= uint64(pebble.FormatMinSupported) && n <= uint64(formatVersion) &&
		digits == strconv.FormatUint(n, 10)
}

func openExport(dir string) (store.Store, error) {
	s, err := Open(dir, Options{ReadOnly: true, CacheBytes: exportCacheBytes})
	if err != nil {
		return nil, err
	}
	return s, nil
}
