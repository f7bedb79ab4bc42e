package logstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Store is a fold in one append-only file and in RAM. It is safe for concurrent use; writes take turns. What is read
// changes only after the write that changes it is in the file.
type Store struct {
	name string // as it was given to Open
	path string // of the log
	o    Options
	lock io.Closer
	rec  Recovery

	// write is held by whoever changes the log: Apply, Settle, Close. It orders before syncing, that before mu.
	write   sync.Mutex
	group   groupWriter
	retryAt int64 // the log's size at which a failed rewrite is tried again

	// syncing is held while the file is synced or replaced.
	syncing sync.Mutex

	mu      sync.RWMutex
	file    File
	size    int64 // of the log's whole groups
	synced  int64 // how much of it is durable
	base    int64 // of the log when it was last rewritten
	format  int
	table   table
	cursor  kv.Cursor
	durable kv.Cursor
	current *view // of table and cursor, while they have not changed since
	readers int   // open snapshots and iterators
	flush   *time.Timer
	broken  error // why writes are refused
	closed  bool
}

// Recovery is what Open found.
type Recovery struct {
	// Created: there was no file.
	Created bool
	// Format is the file's format.
	Format int
	// TornBytes is the length of the torn tail that was dropped, or is not read when the store is read-only; 0 for a file
	// that ended cleanly.
	TornBytes int64
}

var _ store.Store = (*Store)(nil)

// Open opens the log file at path, or creates it and its directory. If path is a directory, as Export leaves it, the
// log is ExportName in there. A symbolic link stands for what it leads to. One store at a time has it open: another process,
// or another Open, gets store.ErrLocked. A damaged file is refused with a *FileError and left as it is; a torn tail is
// cut off.
func Open(path string, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o, name := o.withDefaults(), path
	if dir, err := o.FS.IsDir(path); err != nil {
		return nil, ioError("open", path, err)
	} else if dir {
		if o.FS == (osFS{}) {
			if err := checkFolder(path); err != nil {
				return nil, err
			}
		}
		path = filepath.Join(path, ExportName)
	}
	if o.FS == (osFS{}) {
		path = realPath(path)
	}
	lock, err := o.lock(path)
	if err != nil {
		return nil, err
	}
	s := &Store{name: name, path: path, o: o, lock: lock}
	s.group.write = s.writeFrame
	open := s.open
	if o.ReadOnly {
		open = s.openReadOnly
	}
	if err := open(); err != nil {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

func (s *Store) open() error {
	if err := s.o.FS.Remove(s.path + tempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioError("remove", s.path+tempSuffix, err)
	}
	file, err := s.o.FS.OpenFile(s.path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		s.rec = Recovery{Created: true, Format: versionV3}
		return s.create()
	}
	if err != nil {
		return ioError("open", s.path, err)
	}
	s.file = file
	l, size, err := s.load()
	if err != nil {
		return err
	}
	if l.good < size {
		if err := file.Truncate(l.good); err != nil {
			return ioError("truncate", s.path, err)
		}
	}
	if err := file.Sync(); err != nil {
		return ioError("sync", s.path, err)
	}
	s.adopt(l)
	return nil
}

// load reads the open file.
func (s *Store) load() (*loaded, int64, error) {
	size, err := s.file.Size()
	if err != nil {
		return nil, 0, ioError("open", s.path, err)
	}
	l, err := load(s.path, s.file, size)
	return l, size, err
}

// adopt makes what was loaded the store's state.
func (s *Store) adopt(l *loaded) {
	s.rec = Recovery{Format: l.format, TornBytes: l.torn}
	s.table, s.cursor, s.durable = l.table, l.cursor, l.cursor
	s.size, s.synced, s.base, s.format = l.good, l.good, l.base, l.format
}

func (s *Store) create() error {
	s.table, s.format = newTable(), versionV3
	w := rewriter{fs: s.o.FS, path: s.path}
	file, size, err := w.run(context.Background(), s.table.tree, kv.Cursor{})
	s.file, s.size, s.synced, s.base = file, size, size, size
	return err
}

// Recovery is what Open found.
func (s *Store) Recovery() Recovery { return s.rec }

// Cursor is the cursor of the last Apply.
func (s *Store) Cursor() kv.Cursor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cursor
}

// Durable is the cursor that survives a loss of power; see Durability.
func (s *Store) Durable() kv.Cursor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.durable
}

// Info describes the store. Format is the file's, so it is "2" until the first write to such a file.
func (s *Store) Info() store.Info {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return store.Info{Backend: Backend, Format: strconv.Itoa(s.format), Path: s.name}
}

// entryOverhead is what a key costs in RAM beside its bytes: its place in a tree node that is two thirds full, and
// the allocator's rounding.
const entryOverhead = 56

// Stats are the log's size, and an estimate of the map's.
func (s *Store) Stats() store.Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return store.Stats{
		DiskBytes:   uint64(s.size),
		MemoryBytes: uint64(s.table.live) + uint64(s.table.tree.Len())*entryOverhead,
	}
}

// Sync makes Cursor durable. A sync that fails poisons the store: what the file holds of the last writes is unknown.
func (s *Store) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("logstore: sync %s: %w", s.path, err)
	}
	return s.syncFile()
}

func (s *Store) syncFile() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.RLock()
	file, size, c, err := s.file, s.size, s.cursor, s.writableLocked()
	done := size == s.synced
	s.mu.RUnlock()
	if err != nil || done {
		return err
	}
	if err := file.Sync(); err != nil {
		return s.poison(ioError("sync", s.path, err))
	}
	s.mu.Lock()
	s.durable, s.synced = c, size
	s.mu.Unlock()
	return nil
}

// flushLater arms the background sync of Interval.
func (s *Store) flushLater() {
	if s.o.Durability != Interval || s.flush != nil {
		return
	}
	s.flush = time.AfterFunc(s.o.FlushInterval, func() {
		s.mu.Lock()
		s.flush = nil
		s.mu.Unlock()
		_ = s.syncFile() // a failure poisons the store, and the next write returns it
	})
}

// poison makes cause the reason why writes are refused from now on, and returns it as such.
func (s *Store) poison(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = poisoned(s.path, cause)
	}
	return s.broken
}

func (s *Store) writableLocked() error {
	if s.closed {
		return s.closedError()
	}
	if s.o.ReadOnly {
		return s.readOnlyError()
	}
	return s.broken
}

func (s *Store) closedError() error { return fmt.Errorf("logstore: %s: %w", s.path, store.ErrClosed) }

// Close syncs and closes the store, and gives its lock back. It refuses, and changes nothing, while snapshots or
// iterators are open. A store that can't be synced is closed all the same, and the error says so.
func (s *Store) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if s.closed || s.readers > 0 {
		defer s.mu.Unlock()
		if s.closed {
			return s.closedError()
		}
		return fmt.Errorf("logstore: close %s: %w: %d snapshots or iterators are open", s.path, store.ErrBusy, s.readers)
	}
	if s.flush != nil {
		s.flush.Stop()
	}
	s.mu.Unlock()
	var err error
	if !s.o.ReadOnly {
		err = s.syncFile()
	}

	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.current, s.table = nil, newTable()
	return errors.Join(err, s.file.Close(), s.lock.Close())
}
