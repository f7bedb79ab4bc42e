package logstore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is what the store needs of an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
}

// FS is what the store needs of a file system; nil in Options is the operating system's.
type FS interface {
	// OpenFile opens as os.OpenFile does; an absent file is fs.ErrNotExist.
	OpenFile(name string, flag int) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(dir string) error
	// ReadDir lists the names in dir; an absent dir is fs.ErrNotExist.
	ReadDir(dir string) ([]string, error)
	// IsDir reports whether name is a directory; false if there is nothing.
	IsDir(name string) (bool, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Lock takes the lock file for this process, or fails with store.ErrLocked; closing it gives it back.
	Lock(name string) (io.Closer, error)
}

// makeDir makes dir and what is missing above it, and syncs the directory that each is entered in: else a loss of power
// could take the whole log.
func makeDir(fsys FS, dir string) error {
	if there, err := fsys.IsDir(dir); there || err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return fsys.MkdirAll(dir)
	}
	if err := makeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !i.Mode().IsRegular() {
		return 0, &fs.PathError{Op: "stat", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	return i.Size(), nil
}

func (osFS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o700) }

func (osFS) ReadDir(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) IsDir(name string) (bool, error) {
	i, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && i.IsDir(), err
}

// checkFolder refuses a directory that holds something else, such as another store, and no log.
func checkFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ioError("read", dir, err)
	}
	ours := func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ExportName) }
	if len(entries) == 0 || slices.ContainsFunc(entries, ours) {
		return nil
	}
	return badFormat(dir, 0, "the directory has %s and no %s", entries[0].Name(), ExportName)
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(name string) (io.Closer, error) { return lockFile(name) }

// realPath follows the symbolic links at name, to a file that need not exist: by whatever name a log is opened, it has
// one lock, and a rewrite replaces the file and not a link to it.
func realPath(name string) string {
	for range 40 { // as many as the kernel follows
		to, err := os.Readlink(name)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		name = to
	}
	return name
}
