package pebblestore

import (
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/typedfold/fold/runtime/store"
)

// readOnlyFS refuses whatever would change a file, so that no path of Pebble does.
type readOnlyFS struct{ vfs.FS }

func (readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, store.ErrReadOnly
}

func (readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, store.ErrReadOnly
}

func (readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, store.ErrReadOnly
}

func (readOnlyFS) Link(string, string) error          { return store.ErrReadOnly }
func (readOnlyFS) Remove(string) error                { return store.ErrReadOnly }
func (readOnlyFS) RemoveAll(string) error             { return store.ErrReadOnly }
func (readOnlyFS) Rename(string, string) error        { return store.ErrReadOnly }
func (readOnlyFS) MkdirAll(string, os.FileMode) error { return store.ErrReadOnly }

// Lock takes the lock where there is one to take: whoever writes has made its file.
func (f readOnlyFS) Lock(name string) (io.Closer, error) {
	if _, err := f.Stat(name); errors.Is(err, os.ErrNotExist) {
		return noLock{}, nil
	}
	return f.FS.Lock(name)
}

// Unwrap is the file system that is read.
func (f readOnlyFS) Unwrap() vfs.FS { return f.FS }

type noLock struct{}

func (noLock) Close() error { return nil }
