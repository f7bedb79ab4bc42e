// Package dir is a store in a local directory. Every process of one host may share it: a pointer is swapped under a
// lock that goes with its holder, and all that is written is synced before it gets its name.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

// Options shape a store. The zero value is good.
type Options struct {
	objects.Options
	// AllowNetwork takes a directory on a network file system, which Open refuses elsewise, where it can tell: locks and
	// syncs must then hold between all hosts that publish there.
	AllowNetwork bool
}

// ErrNetwork: the directory is on a network file system.
var ErrNetwork = errors.New("a network file system")

// Open opens the store in the directory at name, and makes the directory where it is missing. A key that is the folder
// of another key can't be stored beside it. Files that begin with objects.Reserved are the store's own.
func Open(name string, o Options) (*objects.Guarded, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("dir: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("dir: %w", err)
	}
	if kind := network(abs); kind != "" && !o.AllowNetwork {
		return nil, fmt.Errorf("dir: %s is on %w (%s), whose locks and syncs may not hold; use a local disk, or set AllowNetwork", abs, ErrNetwork, kind)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("dir: %w", err)
	}
	g, err := objects.Guard(&store{root: root, name: abs}, "file://"+filepath.ToSlash(abs), o.Options)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return g, nil
}

// OpenURL opens the store that file:///path names. The parameter allow_network=true is Options.AllowNetwork.
func OpenURL(_ context.Context, u *url.URL, o objects.Options) (objects.Store, error) {
	opts := Options{Options: o}
	for name, values := range u.Query() {
		if name != "allow_network" || len(values) != 1 || values[0] != "true" {
			return nil, fmt.Errorf("dir: unknown parameter %q; there is allow_network=true", name)
		}
		opts.AllowNetwork = true
	}
	if u.Host != "" && u.Host != "localhost" || u.Path == "" || u.User != nil {
		return nil, fmt.Errorf("dir: %s must be file:///path", objects.RedactURL(u.String()))
	}
	return Open(filepath.FromSlash(u.Path), opts)
}

type store struct {
	root *os.Root
	name string
}

func (s *store) Close() error { return s.root.Close() }

// plain takes the path of the root out of the way: the guard names the key and the store.
func plain(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", objects.ErrNotFound, err)
	}
	return err
}

func (s *store) Put(ctx context.Context, key string, r io.Reader) error {
	return s.write(ctx, key, r)
}

func (s *store) Get(ctx context.Context, key string) (io.ReadCloser, objects.Info, error) {
	return s.GetFrom(ctx, key, 0)
}

func (s *store) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, objects.Info, error) {
	if ctx.Err() != nil {
		return nil, objects.Info{}, context.Cause(ctx)
	}
	f, info, err := s.open(key)
	if err != nil {
		return nil, objects.Info{}, plain(err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, objects.Info{}, errors.Join(err, f.Close())
	}
	return f, objects.Info{Size: info.Size(), ModTime: info.ModTime()}, nil
}

func (s *store) Stat(ctx context.Context, key string) (objects.Info, error) {
	f, info, err := s.Get(ctx, key)
	if err != nil {
		return objects.Info{}, err
	}
	return info, f.Close()
}

// open opens a regular file. It doesn't wait for the other end of a pipe.
func (s *store) open(key string) (*os.File, fs.FileInfo, error) {
	f, err := s.root.OpenFile(filepath.FromSlash(key), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err == nil && info.IsDir():
		err = fmt.Errorf("%w: it is a folder", fs.ErrNotExist)
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("not a regular file: %v", info.Mode())
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objects.Object, error] {
	return func(yield func(objects.Object, error) bool) {
		w := walk{ctx: ctx, fs: s.root.FS(), prefix: prefix, yield: yield}
		if err := w.folder("."); err != nil && !w.stopped {
			yield(objects.Object{}, err)
		}
	}
}

// walk yields the regular files under a prefix, in the order of their keys.
type walk struct {
	ctx     context.Context
	fs      fs.FS
	prefix  string
	yield   func(objects.Object, error) bool
	stopped bool
}

var errStopped = errors.New("stopped")

func (w *walk) folder(name string) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	entries, err := fs.ReadDir(w.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	sortByKey(entries)
	for _, e := range entries {
		key := path.Join(name, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), objects.Reserved) || !fs.ValidPath(key):
		case e.IsDir() && mayHold(key+"/", w.prefix):
			err = w.folder(key)
		case e.Type().IsRegular() && strings.HasPrefix(key, w.prefix):
			err = w.file(key, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayHold reports whether keys in the folder can have the prefix.
func mayHold(folder, prefix string) bool {
	return strings.HasPrefix(folder, prefix) || strings.HasPrefix(prefix, folder)
}

func (w *walk) file(key string, e fs.DirEntry) error {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	if !w.yield(objects.Object{Key: key, Size: info.Size(), ModTime: info.ModTime()}, nil) {
		w.stopped = true
		return errStopped
	}
	return nil
}

// CleanUploads removes temporary files that nobody wrote to since.
func (s *store) CleanUploads(ctx context.Context, prefix string, olderThan time.Duration) error {
	var failed error
	err := fs.WalkDir(s.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir():
			if name != "." && !mayHold(name+"/", prefix) {
				return fs.SkipDir
			}
			return nil
		}
		target, ok := tempOf(name)
		if !ok || !strings.HasPrefix(target, prefix) {
			return nil
		}
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) >= olderThan {
			err = s.root.Remove(filepath.FromSlash(name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		return nil
	})
	return errors.Join(err, failed)
}
