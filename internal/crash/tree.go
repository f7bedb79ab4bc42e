package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// tree is a disk in memory that knows what was synced: the bytes of each file, and the names in each directory. It is
// safe for concurrent use.
type tree struct {
	mu     sync.Mutex
	root   *node
	locked map[string]bool
}

// node is a file or a directory. names is nil for a file.
type node struct {
	data, synced []byte
	names, kept  map[string]*node
}

func newDir() *node { return &node{names: map[string]*node{}, kept: map[string]*node{}} }

func newTree() *tree { return &tree{root: newDir(), locked: map[string]bool{}} }

// cut is what a power cut now leaves. Each block that was not synced, each name, and each end of a file that was not,
// is kept with a probability of percent.
func (t *tree) cut(percent int, rng *rand.Rand) *tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := cutter{percent: percent, rng: rng, block: 4096}
	if rng != nil && rng.IntN(2) == 0 {
		c.block = 512
	}
	return &tree{root: c.node(t.root), locked: map[string]bool{}}
}

type cutter struct {
	percent int
	rng     *rand.Rand
	block   int
}

func (c *cutter) keeps() bool {
	return c.percent == 100 || c.percent > 0 && c.rng.IntN(100) < c.percent
}

func (c *cutter) node(n *node) *node {
	if n.names == nil {
		data := c.file(n)
		return &node{data: data, synced: slices.Clone(data)}
	}
	names := maps.Clone(n.kept)
	for _, name := range slices.Sorted(maps.Keys(n.kept)) {
		if n.names[name] == nil && c.keeps() {
			delete(names, name) // its removal reached the disk
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		if c.keeps() {
			names[name] = n.names[name]
		}
	}
	out := newDir()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out.names[name] = c.node(names[name])
	}
	out.kept = maps.Clone(out.names)
	return out
}

func (c *cutter) file(n *node) []byte {
	out := slices.Clone(n.synced)
	if len(n.data) < len(out) && c.keeps() {
		out = out[:len(n.data)]
	}
	for i := 0; i < len(n.data); i += c.block {
		if !c.keeps() {
			continue
		}
		block := n.data[i:min(i+c.block, len(n.data))]
		if grow := i + len(block) - len(out); grow > 0 {
			out = append(out, make([]byte, grow)...)
		}
		copy(out[i:], block)
	}
	// The length of a file that grew may be any up to there.
	if grown := len(out) - len(n.synced); grown > 0 && !c.keeps() {
		out = out[:len(n.synced)+c.intn(grown+1)]
	}
	return out
}

func (c *cutter) intn(n int) int {
	if c.rng == nil {
		return 0
	}
	return c.rng.IntN(n)
}

// find is the node at a path, nil where there is none.
func (t *tree) find(name string) *node {
	n := t.root
	for _, part := range strings.Split(path.Clean(name), "/") {
		if part == "" || part == "." {
			continue
		}
		if n == nil || n.names == nil {
			return nil
		}
		n = n.names[part]
	}
	return n
}

// file is the bytes of a file, which the caller does not change.
func (t *tree) file(name string) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.find(name); n != nil {
		return n.data
	}
	return nil
}

// treeFS is a tree as logstore uses it. tell hears of each operation that changes it, before it.
type treeFS struct {
	tree *tree
	tell teller
}

var _ logstore.FS = treeFS{}

func (f treeFS) told(op, name string) error {
	if f.tell == nil {
		return nil
	}
	if err := f.tell(op, name); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// in runs do with the directory that name is in.
func (f treeFS) in(op, name string, do func(dir *node, base string) error) error {
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	dir := f.tree.find(path.Dir(name))
	if dir == nil || dir.names == nil {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return do(dir, path.Base(name))
}

func (f treeFS) OpenFile(name string, flag int) (logstore.File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := f.told("create", name); err != nil {
			return nil, err
		}
	}
	var out *treeFile
	err := f.in("open", name, func(dir *node, base string) error {
		n := dir.names[base]
		switch {
		case n != nil && n.names != nil:
			return &fs.PathError{Op: "open", Path: name, Err: errors.New("is a directory")}
		case n == nil && flag&os.O_CREATE == 0:
			return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		case n == nil:
			n = &node{}
			dir.names[base] = n
		case flag&os.O_TRUNC != 0:
			n.data = nil
		}
		out = &treeFile{fs: f, n: n, name: name, writes: flag&(os.O_RDWR|os.O_WRONLY) != 0}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (f treeFS) Rename(from, to string) error {
	if err := f.told("rename", from); err != nil {
		return err
	}
	var n *node
	err := f.in("rename", from, func(dir *node, base string) error {
		if n = dir.names[base]; n == nil {
			return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
		}
		delete(dir.names, base)
		return nil
	})
	if err != nil {
		return err
	}
	return f.in("rename", to, func(dir *node, base string) error {
		dir.names[base] = n
		return nil
	})
}

func (f treeFS) Remove(name string) error {
	if err := f.told("remove", name); err != nil {
		return err
	}
	return f.in("remove", name, func(dir *node, base string) error {
		if dir.names[base] == nil {
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
		}
		delete(dir.names, base)
		return nil
	})
}

func (f treeFS) MkdirAll(name string) error {
	if err := f.told("mkdir", name); err != nil {
		return err
	}
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	n := f.tree.root
	for _, part := range strings.Split(path.Clean(name), "/") {
		if part == "" || part == "." {
			continue
		}
		if n.names == nil {
			return &fs.PathError{Op: "mkdir", Path: name, Err: errors.New("not a directory")}
		}
		if n.names[part] == nil {
			n.names[part] = newDir()
		}
		n = n.names[part]
	}
	return nil
}

func (f treeFS) ReadDir(dir string) ([]string, error) {
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	n := f.tree.find(dir)
	if n == nil || n.names == nil {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: fs.ErrNotExist}
	}
	return slices.Sorted(maps.Keys(n.names)), nil
}

func (f treeFS) IsDir(name string) (bool, error) {
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	n := f.tree.find(name)
	return n != nil && n.names != nil, nil
}

func (f treeFS) SyncDir(dir string) error {
	if err := f.told(opSync, dir); err != nil {
		return err
	}
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	n := f.tree.find(dir)
	if n == nil || n.names == nil {
		return &fs.PathError{Op: opSync, Path: dir, Err: fs.ErrNotExist}
	}
	n.kept = maps.Clone(n.names)
	return nil
}

func (f treeFS) Lock(name string) (io.Closer, error) {
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	if f.tree.locked[name] {
		return nil, fmt.Errorf("%w: %s", store.ErrLocked, name)
	}
	f.tree.locked[name] = true
	return treeLock{f.tree, name}, nil
}

type treeLock struct {
	tree *tree
	name string
}

func (l treeLock) Close() error {
	l.tree.mu.Lock()
	defer l.tree.mu.Unlock()
	delete(l.tree.locked, l.name)
	return nil
}

// treeFile is an open file. One goroutine closes it.
type treeFile struct {
	fs     treeFS
	n      *node
	name   string
	writes bool
}

func (f *treeFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.tree.mu.Lock()
	defer f.fs.tree.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *treeFile) change(op string, do func()) error {
	if !f.writes {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrPermission}
	}
	if err := f.fs.told(op, f.name); err != nil {
		return err
	}
	f.fs.tree.mu.Lock()
	defer f.fs.tree.mu.Unlock()
	do()
	return nil
}

func (f *treeFile) WriteAt(b []byte, off int64) (int, error) {
	err := f.change("write", func() {
		if grow := int(off) + len(b) - len(f.n.data); grow > 0 {
			f.n.data = append(f.n.data, make([]byte, grow)...)
		}
		copy(f.n.data[off:], b)
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *treeFile) Truncate(size int64) error {
	return f.change("truncate", func() { f.n.data = f.n.data[:size:size] })
}

func (f *treeFile) Sync() error {
	return f.change(opSync, func() { f.n.synced = slices.Clone(f.n.data) })
}

func (f *treeFile) Size() (int64, error) {
	f.fs.tree.mu.Lock()
	defer f.fs.tree.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *treeFile) Close() error { return nil }
