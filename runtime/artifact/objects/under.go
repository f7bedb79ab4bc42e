package objects

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

// Under is the part of s whose keys begin with the folder, without that beginning. Closing it closes s. An empty folder
// is s itself.
func Under(s Store, folder string) (Store, error) {
	folder = strings.Trim(folder, "/")
	if folder == "" {
		return s, nil
	}
	if err := CheckKey(folder); err != nil {
		return nil, err
	}
	return &under{s: s, prefix: folder + "/"}, nil
}

type under struct {
	s      Store
	prefix string
}

func (u *under) Put(ctx context.Context, key string, r io.Reader) error {
	return u.s.Put(ctx, u.prefix+key, r)
}

func (u *under) Get(ctx context.Context, key string) (io.ReadCloser, Info, error) {
	return u.s.Get(ctx, u.prefix+key)
}

// GetFrom implements Ranged, where the store does.
func (u *under) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, Info, error) {
	return getFrom(ctx, u.s, u.prefix+key, offset)
}

// getFrom is ErrNoRanges for a store that is no Ranged.
func getFrom(ctx context.Context, s Store, key string, offset int64) (io.ReadCloser, Info, error) {
	if r, ok := s.(Ranged); ok {
		return r.GetFrom(ctx, key, offset)
	}
	return nil, Info{}, fmt.Errorf("get %q from byte %d: %w", key, offset, ErrNoRanges)
}

func (u *under) Stat(ctx context.Context, key string) (Info, error) {
	return u.s.Stat(ctx, u.prefix+key)
}

func (u *under) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for object, err := range u.s.List(ctx, u.prefix+prefix) {
			object.Key = strings.TrimPrefix(object.Key, u.prefix)
			if !yield(object, err) {
				return
			}
		}
	}
}

func (u *under) Delete(ctx context.Context, key string) error { return u.s.Delete(ctx, u.prefix+key) }

func (u *under) ReadPointer(ctx context.Context, key string) ([]byte, Token, error) {
	return u.s.ReadPointer(ctx, u.prefix+key)
}

func (u *under) SwapPointer(ctx context.Context, key string, value []byte, old Token) error {
	return u.s.SwapPointer(ctx, u.prefix+key, value, old)
}

func (u *under) CleanUploads(ctx context.Context, prefix string, olderThan time.Duration) error {
	return u.s.CleanUploads(ctx, u.prefix+prefix, olderThan)
}

func (u *under) Close() error { return u.s.Close() }
