package logstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/typedfold/fold/runtime/store"
)

// ExportName is the name of the log in a directory of its own.
const ExportName = "fold.snap"

// Export writes the fold as a rewritten log to ExportName in dir, which must not exist or be empty, and reads it back:
// it is kept only if it holds exactly Cursor and as many keys. Open(dir) opens it.
func (s *Store) Export(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("logstore: export to %s: %w", dir, err)
	}
	v, err := s.hold()
	if err != nil {
		return err
	}
	defer s.release()
	names, err := s.o.FS.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioError("export to", dir, err)
	}
	if len(names) > 0 {
		return fmt.Errorf("logstore: export to %s: the directory holds %d files, it must be empty", dir, len(names))
	}
	if err := s.o.FS.MkdirAll(dir); err != nil {
		return ioError("export to", dir, err)
	}
	path := filepath.Join(dir, ExportName)
	w := rewriter{fs: s.o.FS, path: path}
	file, size, err := w.run(v.tree, v.cursor)
	if err == nil {
		err = verify(path, file, size, v)
	}
	if file != nil {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, s.o.FS.Remove(path))
		}
	}
	return err
}

// verify reads an exported file back.
func verify(path string, file File, size int64, v *view) error {
	l, err := load(path, file, size)
	if err != nil {
		return err
	}
	if l.cursor != v.cursor || l.table.tree.Len() != v.tree.Len() || l.torn != 0 {
		return fmt.Errorf("logstore: export to %s: %w: wrote cursor %v and %d keys, read back %v and %d",
			path, store.ErrCorrupt, v.cursor, v.tree.Len(), l.cursor, l.table.tree.Len())
	}
	return nil
}
