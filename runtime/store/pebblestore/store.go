// Package pebblestore is the store that a fold uses by default: Pebble, with the cursor as one key of each batch.
//
// # What a full or failing disk does
//
// Apply looks at the free space and refuses with a *DiskFullError, well before the disk is full, while reads go on.
// When the disk fills up between two looks, a ballast file is given back and the write is tried again. When a write
// of Pebble's log or manifest fails all the same, Pebble can't go on: it asks its logger to end the process. This
// store does not, nor does it wait for ever for a flush that fails for ten seconds on end: it refuses all further writes
// with ErrPoisoned and keeps serving reads; the directory stays locked until the process ends, since the rest of Pebble
// may still be at work in it. What is left in Pebble that ends the process is a failure to close or rotate its log, which
// is a panic under a lock.
package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Backend is the store's name in Info and in artifacts.
const Backend = "pebble"

// Format is the generation of the files that this build writes and the newest that it reads.
var Format = formatPrefix + strconv.FormatUint(uint64(formatVersion), 10)

var (
	cursorKey = store.CursorKey()

	_ store.Store    = (*Store)(nil)
	_ store.Snapshot = (*Snapshot)(nil)
	_ store.Iterator = (*Iterator)(nil)
)

// position is a cursor and the number of the batch that led to it, since cursors need not grow.
type position struct {
	n      uint64
	cursor kv.Cursor
}

// Store is a durable fold in a directory. All methods are safe for concurrent use; writers wait for one another.
type Store struct {
	db   *pebble.DB
	dir  string // as it was given
	fs   vfs.FS
	path string // the same directory without symbolic links
	opts Options
	lock *pebble.Lock
	disk *disk
	log  *logger
	refs refs

	write sync.Mutex // held by whoever writes or closes
	batch *pebble.Batch
	bulk  bulk
	// hydrating holds compactions back: the last batch was Bulk.
	hydrating atomic.Bool

	mu      sync.Mutex // guards applied and durable
	applied position
	durable position

	kick    chan struct{}
	stop    context.CancelFunc
	flusher sync.WaitGroup
	closed  atomic.Bool
}

// Open opens the store in dir, and creates it when dir is missing or holds none. The errors match store.ErrLocked,
// store.ErrCorrupt and store.ErrFormat where they apply.
func Open(dir string, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, opts: o.withDefaults(), kick: make(chan struct{}, 1)}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("pebblestore: open %s: %w", dir, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	if s.opts.Durability == Interval && !s.opts.ReadOnly {
		s.flusher.Go(func() { s.flushLoop(ctx) })
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.opts.ReadOnly {
		s.opts.FS = readOnlyFS{s.opts.FS}
	} else if err := makeDir(s.opts.FS, s.dir); err != nil {
		return err
	}
	if s.path, err = realPath(s.opts.FS, s.dir); err != nil {
		return err
	}
	if s.lock, err = lockDirectory(s.path, s.opts.FS); err != nil {
		return err
	}
	defer func() {
		if err != nil && !s.log.isFatal() {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	s.log = newLogger(s.opts.Logger, s.opts.flushPatience)
	if err := s.prepareDisk(); err != nil {
		return err
	}
	if err := checkManifest(s.fs, s.path); err != nil {
		return err
	}
	p := s.opts.pebbleOptions(s.fs, &s.hydrating)
	p.ReadOnly = s.opts.ReadOnly
	p.Lock, p.Logger, p.EventListener = s.lock, s.log, s.log.events(s.opts.Events)
	if p.Cache = s.opts.Cache; p.Cache == nil {
		p.Cache = pebble.NewCache(s.opts.CacheBytes)
		defer p.Cache.Unref() // the database has its own reference
	}
	p.EnsureDefaults()
	s.log.opening.Store(true)
	// Pebble's Open waits for the compactions that it begins, which takes seconds where a hydrate ended in a hurry.
	s.hydrating.Store(true)
	if err := s.log.guard(func() (err error) { s.db, err = pebble.Open(s.path, p); return err }); err != nil {
		return openError(err)
	}
	s.log.opening.Store(false)
	err = s.releaseCompactions()
	if err == nil {
		err = s.recoverCursor()
	}
	if err != nil {
		// Guarded: once something has poisoned the store, Pebble's Close may wait for a flush that never ends.
		if closed := s.log.guard(s.db.Close); !isPoison(err) {
			err = errors.Join(err, closed)
		}
		return err
	}
	s.batch = s.db.NewBatchWithSize(0, pebble.WithMaxRetainedSizeBytes(batchRetained))
	s.bulk.init(p, formatVersion.MaxTableFormat())
	return nil
}

// prepareDisk removes what a crash left, and watches the space; neither for a store that is only read.
func (s *Store) prepareDisk() (err error) {
	if s.opts.ReadOnly {
		s.fs = s.opts.FS
		return nil
	}
	if err := removeLeftovers(s.opts.FS, s.path); err != nil {
		return err
	}
	if s.disk, err = newDisk(s.opts.FS, s.path, s.opts.MinFreeBytes, s.opts.BallastBytes); err != nil {
		return err
	}
	s.fs = orderedFS{vfs.OnDiskFull(s.opts.FS, s.disk.releaseBallast)}
	return nil
}

// releaseCompactions lets those begin that Open held back. Pebble looks for them when its tables change.
func (s *Store) releaseCompactions() error {
	s.hydrating.Store(false)
	if s.opts.ReadOnly || s.db.Metrics().Levels[0].Sublevels <= 1 {
		return nil
	}
	return s.log.guard(func() error { _, err := s.db.AsyncFlush(); return err })
}

// recoverCursor reads the cursor that the files hold, and refuses them when a batch is missing below it. Pebble flushes
// what it replays before Open returns, so that all of it is durable.
func (s *Store) recoverCursor() error {
	c, found, err := readCursor(s.db)
	if err != nil {
		return err
	}
	if !found {
		if err := s.mustBeEmpty(); err != nil {
			return err
		}
	}
	n, err := s.readChain()
	if err != nil {
		return err
	}
	s.applied = position{n: n, cursor: c}
	s.durable = s.applied
	return nil
}

func (s *Store) mustBeEmpty() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	if it.First() {
		err = fmt.Errorf("%w: a Pebble database without a fold's cursor", store.ErrFormat)
	}
	return errors.Join(err, it.Error(), it.Close())
}

func readCursor(r pebble.Reader) (kv.Cursor, bool, error) {
	v, closer, err := r.Get(cursorKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return kv.Cursor{}, false, nil
	}
	if err != nil {
		return kv.Cursor{}, false, readError("cursor", err)
	}
	c, err := kv.ParseCursor(v)
	if err != nil {
		err = fmt.Errorf("%w: %w", store.ErrFormat, err)
	}
	return c, true, errors.Join(err, closer.Close())
}

// makeDir makes dir and what is missing above it, and syncs the directory that each is entered in: else a power loss
// could take the whole store.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	parent := fsys.PathDir(dir)
	if parent != dir {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	d, err := fsys.OpenDir(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// realPath resolves dir, so that two names of one directory share its lock.
func realPath(fsys vfs.FS, dir string) (string, error) {
	if vfs.Root(fsys) != vfs.Default {
		return dir, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func lockDirectory(path string, fsys vfs.FS) (*pebble.Lock, error) {
	l, err := pebble.LockDirectory(path, fsys)
	var file *fs.PathError
	switch {
	case err == nil:
		return l, nil
	case errors.As(err, &file):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", store.ErrLocked, err)
}

func openError(err error) error {
	switch {
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	case isOtherTable(err):
		return fmt.Errorf("%w: %v", store.ErrCorrupt, err) // and not os.ErrNotExist: there is a store
	case errors.Is(err, pebble.ErrDBDoesNotExist):
		return fmt.Errorf("%w: %w", os.ErrNotExist, err)
	case isOtherFormat(err):
		return fmt.Errorf("%w: this build reads up to %s: %w", store.ErrFormat, Format, err)
	}
	return err
}

// isOtherFormat knows Pebble's refusal of files of a later generation, of one long past, or with another order of keys, which
// have no sentinel; tests hold its words.
func isOtherFormat(err error) bool {
	text := err.Error()
	return strings.Contains(text, "unknown format major version") || strings.Contains(text, "name from options") ||
		strings.Contains(text, "format major version") && strings.Contains(text, "no longer supported")
}

// isOtherTable knows Pebble's refusal of a manifest with tables that are gone, or of another size than it says, which has
// no sentinel; tests hold its words.
func isOtherTable(err error) bool {
	text := err.Error()
	return strings.Contains(text, "unknown to the objstorage provider") || strings.Contains(text, "object size mismatch")
}

// readError names the operation and marks corruption.
func readError(op string, err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("pebblestore: %s: %w: %w", op, store.ErrCorrupt, err)
	}
	return fmt.Errorf("pebblestore: %s: %w", op, err)
}

// Cursor is the cursor of the last Apply.
func (s *Store) Cursor() kv.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied.cursor
}

// Durable is the last cursor that is on disk for good. A bulk batch that was ingested is, whatever the mode.
func (s *Store) Durable() kv.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.durable.cursor
}

// Info names the files' format and place.
func (s *Store) Info() store.Info {
	return store.Info{Backend: Backend, Format: Format, Path: s.dir}
}

// Stats are the engine's figures; zero after Close.
func (s *Store) Stats() store.Stats {
	if s.refs.acquire() != nil {
		return store.Stats{}
	}
	defer s.refs.release()
	m := s.db.Metrics()
	return store.Stats{
		DiskBytes:   m.DiskSpaceUsage(),
		MemoryBytes: m.MemTable.Size + m.MemTable.ZombieSize + uint64(m.BlockCache.Size) + uint64(m.FileCache.Size),
	}
}

// Close makes the cursor durable and closes. Open iterators, snapshots and values make it fail, and the store stays
// open.
func (s *Store) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.closed.Load() {
		return nil
	}
	if err := s.log.fatalError(); err != nil {
		s.stop()
		return fmt.Errorf("pebblestore: close %s: %w", s.dir, err)
	}
	if n := s.refs.close(); n > 0 {
		return fmt.Errorf("pebblestore: close %s: %w: %d iterators, snapshots or values are open", s.dir, store.ErrBusy, n)
	}
	s.closed.Store(true)
	s.stop()
	s.flusher.Wait()
	err := s.log.guard(func() error {
		return errors.Join(s.syncNow(), s.batch.Close(), s.db.Close())
	})
	if !s.log.isFatal() {
		err = errors.Join(err, s.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("pebblestore: close %s: %w", s.dir, err)
	}
	return nil
}

// removeLeftovers removes what a crash in a bulk apply left.
func removeLeftovers(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if ok, _ := filepath.Match(bulkPattern, name); ok {
			if err := fsys.Remove(fsys.PathJoin(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
