package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

const (
	tempMark = objects.Reserved + "tmp-"
	lockMark = objects.Reserved + "lock-"
	tempRand = 26 // characters of rand.Text
)

// tempName is a temporary file beside the key's file, so that a rename is atomic.
func tempName(key string) string {
	return path.Join(path.Dir(key), tempMark+rand.Text()+"-"+path.Base(key))
}

// tempOf is the key that a temporary file was for.
func tempOf(name string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path.Base(name), tempMark)
	if !ok || len(rest) <= tempRand+1 {
		return "", false
	}
	return path.Join(path.Dir(name), rest[tempRand+1:]), true
}

func lockName(key string) string { return path.Join(path.Dir(key), lockMark+path.Base(key)) }

// sortByKey puts folders where the keys in them belong: "a.b" comes before "a/b", though "a" comes before "a.b".
func sortByKey(entries []fs.DirEntry) {
	key := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(key(a), key(b)) })
}

const copyBuffer = 1 << 20

// write fills a temporary file, syncs it, gives it the key's name and syncs the folder.
func (s *store) write(ctx context.Context, key string, r io.Reader) (err error) {
	if err := s.makeFolder(path.Dir(key)); err != nil {
		return err
	}
	temp := filepath.FromSlash(tempName(key))
	f, err := s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	b := &behind{f: f}
	_, err = io.CopyBuffer(b, r, make([]byte, copyBuffer))
	if err = errors.Join(err, b.wait()); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = s.root.Rename(temp, filepath.FromSlash(key))
	}
	if err != nil {
		return errors.Join(err, s.root.Remove(temp))
	}
	return s.syncFolder(path.Dir(key))
}

// syncEvery is how many bytes are written before the disk is asked for them.
const syncEvery = 16 << 20

// behind is a file that is synced while more is written to it, so that the last sync finds little to do. It has no ReadFrom,
// which would not use the buffer.
type behind struct {
	f     *os.File
	since int64      // bytes since a sync began
	done  chan error // of the sync that is under way; nil when none is
}

func (b *behind) Write(p []byte) (int, error) {
	n, err := b.f.Write(p)
	if b.since += int64(n); err != nil || b.since < syncEvery || len(b.done) < cap(b.done) {
		return n, err
	}
	if err := b.wait(); err != nil {
		return n, err
	}
	b.since, b.done = 0, make(chan error, 1)
	go func(done chan error) { done <- b.f.Sync() }(b.done)
	return n, nil
}

// wait ends the sync that is under way. What it failed with, no other sync would tell again.
func (b *behind) wait() error {
	if b.done == nil {
		return nil
	}
	err := <-b.done
	b.done = nil
	return err
}

// makeFolder makes a folder and those above it, and syncs each that got a new entry.
func (s *store) makeFolder(name string) error {
	if name == "." {
		return nil
	}
	info, err := s.root.Stat(filepath.FromSlash(name))
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%w: %q is an object, not a folder", objects.ErrBadKey, name)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	above := path.Dir(name)
	if err := s.makeFolder(above); err != nil {
		return err
	}
	if err := s.root.Mkdir(filepath.FromSlash(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return s.syncFolder(above)
}

func (s *store) syncFolder(name string) error {
	f, err := s.root.Open(filepath.FromSlash(name))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Delete takes the pointer's lock, since the key may be a pointer's.
func (s *store) Delete(ctx context.Context, key string) error {
	if _, err := s.root.Lstat(filepath.FromSlash(path.Dir(key))); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.locked(ctx, key, func() error {
		err := s.removeFile(filepath.FromSlash(key))
		// Under the lock its file may go: who waits for it looks whether the file that it locked is still the one there.
		gone := s.root.Remove(filepath.FromSlash(lockName(key)))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, gone, s.syncFolder(path.Dir(key)))
	})
}

// removeFile leaves folders alone: they are no objects.
func (s *store) removeFile(name string) error {
	if info, err := s.root.Lstat(name); err != nil || info.IsDir() {
		return err
	}
	return s.root.Remove(name)
}

func (s *store) ReadPointer(ctx context.Context, key string) ([]byte, objects.Token, error) {
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	f, _, err := s.open(key)
	if err != nil {
		return nil, "", plain(err)
	}
	value, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, "", err
	}
	return value, tokenOf(value), nil
}

func tokenOf(value []byte) objects.Token {
	sum := sha256.Sum256(value)
	return objects.Token(hex.EncodeToString(sum[:]))
}

// SwapPointer compares and writes under the pointer's lock. Readers take none: a rename is atomic.
func (s *store) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	if err := s.makeFolder(path.Dir(key)); err != nil {
		return err
	}
	return s.locked(ctx, key, func() error {
		_, now, err := s.ReadPointer(ctx, key)
		if err != nil && !errors.Is(err, objects.ErrNotFound) {
			return err
		}
		if now != old {
			return objects.ErrConflict
		}
		return s.write(ctx, key, bytes.NewReader(value))
	})
}

// locked runs f while this process and goroutine alone holds the key's lock. It waits for it until ctx ends.
func (s *store) locked(ctx context.Context, key string, f func() error) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		lock, err := s.tryLock(lockName(key))
		if err != nil {
			return err
		}
		if lock != nil {
			return errors.Join(f(), lock.Close())
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// tryLock returns the locked file, or nil when another holds the lock or took the file away meanwhile.
func (s *store) tryLock(name string) (*os.File, error) {
	name = filepath.FromSlash(name)
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	got, err := s.claim(f, name)
	if err != nil || !got {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// claim locks an open file, and reports whether it is the one that has the name.
func (s *store) claim(f *os.File, name string) (bool, error) {
	got, err := flock(f)
	if err != nil || !got {
		return false, err
	}
	held, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := s.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, there), err
}
