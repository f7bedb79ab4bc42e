package dst

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// disk is where a store's files are; it outlives the process that has the store open.
type disk interface {
	open() (store.Store, error)
	// clone is another disk with the same files. No store has it open.
	clone() (disk, error)
}

const (
	storeLog    = "logstore"
	storePebble = "pebble"
)

func newDisk(backend string) disk {
	if backend == storePebble {
		return &pebbleDisk{fs: vfs.NewMem()}
	}
	return &logDisk{fs: newFiles()}
}

type logDisk struct{ fs *files }

func (d *logDisk) open() (store.Store, error) {
	s, err := logstore.Open(inMemory+"fold.log", logstore.Options{Durability: logstore.None, FS: d.fs})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (d *logDisk) clone() (disk, error) {
	c := newFiles()
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	for name, f := range d.fs.names {
		f.mu.Lock()
		c.names[name] = &file{data: append([]byte(nil), f.data...)}
		f.mu.Unlock()
	}
	return &logDisk{fs: c}, nil
}

type pebbleDisk struct{ fs *vfs.MemFS }

func (d *pebbleDisk) open() (store.Store, error) {
	s, err := pebblestore.Open("/fold", pebblestore.Options{FS: d.fs, Durability: pebblestore.None, CacheBytes: 1 << 20, MemTableBytes: 64 << 10, MinFreeBytes: -1, BallastBytes: -1})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (d *pebbleDisk) clone() (disk, error) { return copyTo(storePebble, d) }

// copyTo makes a disk of a backend hold what a store on another disk does.
func copyTo(backend string, from disk) (_ disk, err error) {
	src, err := from.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	b, err := everything(src)
	if err != nil {
		return nil, err
	}
	to := newDisk(backend)
	dst, err := to.open()
	if err != nil {
		return nil, err
	}
	if len(b.Ops) > 0 || src.Cursor() != (kv.Cursor{}) {
		err = dst.Apply(context.Background(), b, src.Cursor())
	}
	return to, errors.Join(err, dst.Close())
}

// everything is a batch that makes an empty store hold what another one does, but for its cursor.
func everything(g store.Getter) (*store.Batch, error) {
	it, err := g.Iter(store.IterOptions{})
	if err != nil {
		return nil, err
	}
	b := &store.Batch{}
	for it.Next() {
		v, err := it.Value()
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		if string(it.Key()) != string(store.CursorKey()) {
			b.Ops = append(b.Ops, store.Op{Key: append([]byte(nil), it.Key()...), Value: append([]byte(nil), v...)})
		}
	}
	return b, errors.Join(it.Err(), it.Close())
}

// inMemory begins the names that files keeps; all others are the operating system's, for exports.
const inMemory = "/in-memory/"

// files is a file system in memory, for logstore.
type files struct {
	mu     sync.Mutex
	names  map[string]*file
	locked map[string]bool
}

func newFiles() *files { return &files{names: map[string]*file{}, locked: map[string]bool{}} }

func absent(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

func (m *files) OpenFile(name string, flag int) (logstore.File, error) {
	if !strings.HasPrefix(name, inMemory) {
		f, err := os.OpenFile(name, flag, 0o600)
		if err != nil {
			return nil, err
		}
		return osFile{f}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.names[name]
	if f == nil {
		if flag&os.O_CREATE == 0 {
			return nil, absent("open", name)
		}
		f = &file{}
		m.names[name] = f
	}
	if flag&os.O_TRUNC != 0 {
		f.data = nil
	}
	return f, nil
}

func (m *files) Rename(from, to string) error {
	if !strings.HasPrefix(from, inMemory) {
		return os.Rename(from, to)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.names[from]
	if f == nil {
		return absent("rename", from)
	}
	delete(m.names, from)
	m.names[to] = f
	return nil
}

func (m *files) Remove(name string) error {
	if !strings.HasPrefix(name, inMemory) {
		return os.Remove(name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[name] == nil {
		return absent("remove", name)
	}
	delete(m.names, name)
	return nil
}

func (m *files) MkdirAll(dir string) error {
	if strings.HasPrefix(dir+"/", inMemory) {
		return nil
	}
	return os.MkdirAll(dir, 0o700)
}

func (m *files) ReadDir(dir string) (names []string, err error) {
	if !strings.HasPrefix(dir+"/", inMemory) {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	return names, nil
}

func (m *files) IsDir(name string) (bool, error) {
	if strings.HasPrefix(name+"/", inMemory) {
		return name+"/" == inMemory, nil
	}
	i, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && i.IsDir(), err
}

func (m *files) SyncDir(string) error { return nil }

func (m *files) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, fmt.Errorf("%s: %w", name, store.ErrLocked)
	}
	m.locked[name] = true
	return unlocks{m, name}, nil
}

type unlocks struct {
	m    *files
	name string
}

func (u unlocks) Close() error {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	delete(u.m.locked, u.name)
	return nil
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return nil }

func (f osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

// file is one file of files.
type file struct {
	mu   sync.Mutex
	data []byte
}

func (f *file) ReadAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if short := off + int64(len(b)) - int64(len(f.data)); short > 0 {
		f.data = append(f.data, make([]byte, short)...)
	}
	return copy(f.data[off:], b), nil
}

func (f *file) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size <= int64(len(f.data)) {
		f.data = f.data[:size]
	} else {
		f.data = append(f.data, make([]byte, size-int64(len(f.data)))...)
	}
	return nil
}

func (f *file) Size() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.data)), nil
}

func (f *file) Sync() error  { return nil }
func (f *file) Close() error { return nil }
