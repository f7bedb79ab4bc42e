package logstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/tidwall/btree"

	"github.com/typedfold/fold/runtime/kv"
)

const (
	lockSuffix = ".lock"
	tempSuffix = ".tmp"
)

// rewriter replaces the file at path by a new one.
type rewriter struct {
	fs   FS
	path string
}

// appendFile writes a new file from its beginning.
type appendFile struct {
	File
	size int64
}

func (f *appendFile) write(b []byte) error {
	if _, err := f.WriteAt(b, f.size); err != nil {
		return err
	}
	f.size += int64(len(b))
	return nil
}

// renamedError is a failure after the new file took its name: it is in place, but may not outlive a loss of power.
type renamedError struct{ err error }

func (e *renamedError) Error() string { return e.err.Error() }
func (e *renamedError) Unwrap() error { return e.err }

// replace fills a temporary file beside path, syncs it, renames it to path and syncs the directory. It returns the
// open file. On an error the old file is what it was and the temporary one is gone, but for a renamedError, with which
// the open file comes too.
func (w *rewriter) replace(fill func(*appendFile) error) (*appendFile, error) {
	temp := w.path + tempSuffix
	file, err := w.fs.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, ioError("create", temp, err)
	}
	out := &appendFile{File: file}
	if err = fill(out); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = w.fs.Rename(temp, w.path)
	}
	if err != nil {
		return nil, errors.Join(ioError("write", temp, err), file.Close(), w.fs.Remove(temp))
	}
	if err := w.fs.SyncDir(filepath.Dir(w.path)); err != nil {
		return out, &renamedError{ioError("sync the directory of", w.path, err)}
	}
	return out, nil
}

// run writes the tree and the cursor as a format 3 file that is nothing but a base, and returns it and the base's end.
// The end of ctx ends it before the file has its name.
func (w *rewriter) run(ctx context.Context, tree *btree.BTreeG[entry], c kv.Cursor) (File, int64, error) {
	out, err := w.replace(func(out *appendFile) error {
		if err := out.write(appendHeaderV3(nil)); err != nil {
			return err
		}
		g := groupWriter{write: func(b []byte, _ int64) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return out.write(b)
		}}
		g.begin(kindBase, out.size, false)
		tree.Scan(func(e entry) bool {
			g.put(e.key(), e.value())
			return g.err == nil
		})
		_, err := g.end(c)
		return err
	})
	if out == nil {
		return nil, 0, err
	}
	return out.File, out.size, err
}

// closeFile closes the file, if there is one, after a rewrite that ended with err.
func closeFile(f File, err error) error {
	if f == nil {
		return err
	}
	return errors.Join(err, f.Close())
}
