package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/typedfold/fold/runtime/store"
)

// lock takes the log's lock, and makes its directory. A store that is read-only makes nothing: it takes the lock where
// there is one to take, since whoever writes has made its file.
func (o *Options) lock(path string) (io.Closer, error) {
	if o.ReadOnly {
		switch file, err := o.FS.OpenFile(path+lockSuffix, os.O_RDONLY); {
		case errors.Is(err, fs.ErrNotExist):
			return noLock{}, nil
		case err != nil:
			return nil, ioError("open", path+lockSuffix, err)
		default:
			_ = file.Close() // nothing was written
		}
	} else if err := makeDir(o.FS, filepath.Dir(path)); err != nil {
		return nil, ioError("create the directory of", path, err)
	}
	lock, err := o.FS.Lock(path + lockSuffix)
	if err != nil {
		return nil, fmt.Errorf("logstore: open %s: %w", path, err)
	}
	return lock, nil
}

type noLock struct{}

func (noLock) Close() error { return nil }

func (s *Store) openReadOnly() error {
	file, err := s.o.FS.OpenFile(s.path, os.O_RDONLY)
	if err != nil {
		return ioError("open", s.path, err)
	}
	s.file = file
	l, _, err := s.load()
	if err != nil {
		return err
	}
	s.adopt(l)
	return nil
}

func (s *Store) readOnlyError() error {
	return fmt.Errorf("logstore: %s: %w", s.path, store.ErrReadOnly)
}
