// Package mem is a store in memory, for tests and for what need not outlive its process.
package mem

import (
	"bytes"
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

// Open makes an empty store.
func Open(o objects.Options) (*objects.Guarded, error) {
	return objects.Guard(&store{files: map[string]file{}}, "mem", o)
}

type store struct {
	mu    sync.Mutex
	last  uint64
	files map[string]file
}

// file is one version of an object; its data is never changed.
type file struct {
	data    []byte
	version uint64
	at      time.Time
}

func (f file) token() objects.Token {
	if f.version == 0 {
		return ""
	}
	return objects.Token(strconv.FormatUint(f.version, 10))
}

func (f file) info() objects.Info {
	return objects.Info{Size: int64(len(f.data)), ModTime: f.at, Version: string(f.token())}
}

func (s *store) Put(ctx context.Context, key string, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.set(key, data)
	return nil
}

func (s *store) set(key string, data []byte) {
	s.last++
	s.files[key] = file{data: data, version: s.last, at: time.Now()}
}

func (s *store) file(ctx context.Context, key string) (file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.files[key]
	switch {
	case ctx.Err() != nil:
		return file{}, context.Cause(ctx)
	case !ok:
		return file{}, objects.ErrNotFound
	}
	return f, nil
}

func (s *store) Get(ctx context.Context, key string) (io.ReadCloser, objects.Info, error) {
	return s.GetFrom(ctx, key, 0)
}

func (s *store) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, objects.Info, error) {
	f, err := s.file(ctx, key)
	return io.NopCloser(bytes.NewReader(f.data[min(offset, int64(len(f.data))):])), f.info(), err
}

func (s *store) Stat(ctx context.Context, key string) (objects.Info, error) {
	f, err := s.file(ctx, key)
	return f.info(), err
}

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objects.Object, error] {
	return func(yield func(objects.Object, error) bool) {
		s.mu.Lock()
		files := maps.Clone(s.files)
		s.mu.Unlock()
		for _, key := range slices.Sorted(maps.Keys(files)) {
			if ctx.Err() != nil {
				yield(objects.Object{}, context.Cause(ctx))
				return
			}
			f := files[key]
			if strings.HasPrefix(key, prefix) && !yield(objects.Object{Key: key, Size: int64(len(f.data)), ModTime: f.at}, nil) {
				return
			}
		}
	}
}

func (s *store) Delete(ctx context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	delete(s.files, key)
	return nil
}

func (s *store) ReadPointer(ctx context.Context, key string) ([]byte, objects.Token, error) {
	f, err := s.file(ctx, key)
	return bytes.Clone(f.data), f.token(), err
}

func (s *store) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.files[key].token() != old {
		return objects.ErrConflict
	}
	s.set(key, bytes.Clone(value))
	return nil
}

func (s *store) CleanUploads(ctx context.Context, _ string, _ time.Duration) error {
	return context.Cause(ctx)
}

func (s *store) Close() error { return nil }
