package pebblestore

import (
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// orderedFS makes the names in a directory durable before a marker joins them. Pebble makes a manifest, then a marker
// that names it, and then syncs the directory once for both; a file system that keeps no order among names could have
// the marker alone after a loss of power, and the store would not open.
type orderedFS struct{ vfs.FS }

const markerPrefix = "marker."

func (f orderedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(f.PathBase(name), markerPrefix) {
		if err := f.syncDir(f.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return f.FS.Create(name, c)
}

func (f orderedFS) syncDir(name string) error {
	d, err := f.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Unwrap is the file system below.
func (f orderedFS) Unwrap() vfs.FS { return f.FS }
