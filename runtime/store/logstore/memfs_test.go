package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/typedfold/fold/runtime/store"
)

var errInjected = errors.New("injected")

// memFS is a file system in memory that fails on demand and knows what a loss of power would leave. Its directories
// are those of its file names.
type memFS struct {
	mu     sync.Mutex
	names  map[string]*memNode
	onDisk map[string]*memNode // the names after a loss of power
	locked map[string]bool

	calls  int
	failAt int  // the call that fails; 0 is none
	sticky bool // and all after it
	tear   int  // a write that fails leaves that many of its bytes
	failed []string
	log    []string // of the calls that can fail
}

type memNode struct{ data, synced []byte }

func newMemFS() *memFS {
	return &memFS{names: map[string]*memNode{}, onDisk: map[string]*memNode{}, locked: map[string]bool{}}
}

// call counts a call that may fail.
func (m *memFS) call(op, name string) error {
	m.calls++
	m.log = append(m.log, op)
	if m.failAt != 0 && (m.calls == m.failAt || m.sticky && m.calls > m.failAt) {
		m.failed = append(m.failed, op)
		return &fs.PathError{Op: op, Path: name, Err: errInjected}
	}
	return nil
}

func (m *memFS) OpenFile(name string, flag int) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("open", name); err != nil {
		return nil, err
	}
	n := m.names[name]
	if n == nil {
		if flag&os.O_CREATE == 0 {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		n = &memNode{}
		m.names[name] = n
	}
	if flag&os.O_TRUNC != 0 {
		n.data = nil
	}
	return &memFile{m: m, n: n, name: name}, nil
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("rename", from); err != nil {
		return err
	}
	m.names[to] = m.names[from]
	delete(m.names, from)
	return nil
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("remove", name); err != nil {
		return err
	}
	if m.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.names, name)
	return nil
}

func (m *memFS) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.call("mkdir", dir)
}

func (m *memFS) IsDir(name string) (bool, error) { return false, nil }

func (m *memFS) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	return names, nil
}

func (m *memFS) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("syncdir", dir); err != nil {
		return err
	}
	m.onDisk = maps.Clone(m.names)
	return nil
}

func (m *memFS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, fmt.Errorf("%w: %s", store.ErrLocked, name)
	}
	m.locked[name] = true
	return memLock{m, name}, nil
}

type memLock struct {
	m    *memFS
	name string
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locked, l.name)
	return nil
}

type memFile struct {
	m      *memFS
	n      *memNode
	name   string
	closed bool
}

func (f *memFile) enter(op string) (func(), error) {
	f.m.mu.Lock()
	if f.closed {
		f.m.mu.Unlock()
		return nil, fs.ErrClosed
	}
	if err := f.m.call(op, f.name); err != nil {
		return f.m.mu.Unlock, err
	}
	return f.m.mu.Unlock, nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if off > int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	leave, err := f.enter("write")
	if leave == nil {
		return 0, err
	}
	defer leave()
	if err != nil {
		b = b[:min(f.m.tear, len(b))]
	}
	if end := int(off) + len(b); end > len(f.n.data) && len(b) > 0 {
		f.n.data = append(f.n.data, make([]byte, end-len(f.n.data))...)
	}
	return copy(f.n.data[min(int(off), len(f.n.data)):], b), err
}

func (f *memFile) Truncate(size int64) error {
	leave, err := f.enter("truncate")
	if leave == nil {
		return err
	}
	defer leave()
	if err == nil {
		f.n.data = f.n.data[:size]
	}
	return err
}

func (f *memFile) Sync() error {
	leave, err := f.enter("sync")
	if leave == nil {
		return err
	}
	defer leave()
	if err == nil {
		f.n.synced = slices.Clone(f.n.data)
	}
	return err
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}

// restart is the file system that another process finds: without faults, locks or open files, nothing lost.
func (m *memFS) restart() *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := newMemFS()
	for name, n := range m.names {
		next.names[name] = &memNode{data: slices.Clone(n.data), synced: slices.Clone(n.synced)}
	}
	next.onDisk = maps.Clone(next.names)
	return next
}

// tail is what a loss of power leaves of the bytes that were not synced.
type tail int

const (
	tailGone tail = iota
	tailHalf
	tailZero     // the file has its length, the bytes are zero
	tailHalfZero // the first half, then zeros
	tails
)

// powerLoss is the file system after a loss of power. renamed says that names which were not synced survived.
func (m *memFS) powerLoss(t tail, renamed bool) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, names := newMemFS(), m.onDisk
	if renamed {
		names = m.names
	}
	for name, n := range names {
		data := slices.Clone(n.synced)
		if rest := n.data[min(len(data), len(n.data)):]; strings.HasPrefix(string(n.data), string(n.synced)) {
			half := len(rest) / 2
			switch t {
			case tailHalf:
				data = append(data, rest[:half]...)
			case tailZero:
				data = append(data, make([]byte, len(rest))...)
			case tailHalfZero:
				data = append(append(data, rest[:half]...), make([]byte, len(rest)-half)...)
			}
		}
		next.names[name] = &memNode{data: data, synced: slices.Clone(data)}
	}
	next.onDisk = maps.Clone(next.names)
	return next
}
