package logstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/typedfold/fold/runtime/kv"
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
	if s.o.ReadOnly {
		return s.readOnlyError()
	}
	names, err := s.o.FS.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioError("export to", dir, err)
	}
	if len(names) > 0 {
		return fmt.Errorf("logstore: export to %s: the directory holds %d files, it must be empty", dir, len(names))
	}
	if err := makeDir(s.o.FS, dir); err != nil {
		return ioError("export to", dir, err)
	}
	path := filepath.Join(dir, ExportName)
	w := rewriter{fs: s.o.FS, path: path}
	file, size, err := w.run(ctx, v.tree, v.cursor)
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

// Contents is what a log file adds up to.
type Contents struct {
	Format int
	Cursor kv.Cursor
	Keys   int
	// Bytes is the file's size, LiveBytes what a rewritten log of the same state has, about, TornBytes what Open would
	// drop at the end.
	Bytes, LiveBytes, TornBytes int64
}

// Inspect reads a log file of either format as Open does, and refuses what Open refuses, but takes no lock and writes
// nothing. A file that a store is writing to meanwhile may show a torn tail.
func Inspect(path string) (Contents, error) {
	file, err := osFS{}.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return Contents{}, ioError("open", path, err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return Contents{}, ioError("open", path, err)
	}
	l, err := load(path, file, size)
	if err != nil {
		return Contents{}, err
	}
	return Contents{Format: l.format, Cursor: l.cursor, Keys: l.table.tree.Len(), Bytes: size, LiveBytes: l.table.live, TornBytes: l.torn}, nil
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
