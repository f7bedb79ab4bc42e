//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package artifact

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// orphanAge is how old a stage is when nobody works on it any more, where no lock tells.
const orphanAge = 24 * time.Hour

// renameFolder gives a folder its name, also where an empty one has it; any other is an error.
func renameFolder(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, to)
}

// flock can't lock here: whoever does not wait has the stage only when it is old.
func flock(f *os.File, wait bool) (got bool, err error) {
	if wait {
		return true, nil
	}
	i, err := f.Stat()
	return err == nil && time.Since(i.ModTime()) > orphanAge, err
}
