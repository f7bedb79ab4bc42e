package fold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

// applier is a WatchApplied on a goroutine of its own. It leaves out values that begin with '!', and panics in parse on
// those that begin with '?'.
type applier struct {
	mu      sync.Mutex
	batches []string
	flushed []uint64 // cursors that were reported
	last    fold.Applied
	before  func(batch string) error
	cancel  context.CancelFunc
	done    chan struct{}
	cursor  fold.Cursor
	err     error
}

func apply(c fold.WatchConfig, before func(batch string) error) *applier {
	ctx, cancel := context.WithCancel(context.Background())
	a := &applier{before: before, cancel: cancel, done: make(chan struct{})}
	c.Logger = quiet
	c.OnApplied = func(x fold.Applied) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.flushed = append(a.flushed, x.Cursor.Revision())
		a.last = x
	}
	go func() {
		defer close(a.done)
		a.cursor, a.err = fold.WatchApplied(ctx, c, parseText, a.apply)
	}()
	return a
}

func parseText(u *kv.Update) (string, bool) {
	text := string(u.Value)
	if strings.HasPrefix(text, "?") {
		panic("cannot parse " + text)
	}
	if u.Op != kv.OpPut {
		text = u.Op.String()
	}
	return fmt.Sprintf("%v:%s=%s", u.Version, u.Key, text), !strings.HasPrefix(text, "!")
}

func (a *applier) apply(_ context.Context, items []string) error {
	batch := strings.Join(items, " ")
	if a.before != nil {
		if err := a.before(batch); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.batches = append(a.batches, batch)
	return nil
}

func (a *applier) seen() string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.batches, " | ")
}

func (a *applier) reported() string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint(a.flushed)
}

func (a *applier) stop() (fold.Cursor, error) {
	a.cancel()
	<-a.done
	return a.cursor, a.err
}

func put(rev uint64, key, value string) kv.Update {
	return kv.Update{Key: key, Value: []byte(value), Version: kv.Revision(rev), Op: kv.OpPut, Reason: kv.ReasonUser, UnixNano: int64(rev)}
}

// withAndWithoutStore runs f in a bubble, without a store and with each kind of one.
func withAndWithoutStore(t *testing.T, f func(t *testing.T, c fold.WatchConfig)) {
	t.Run("no store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, fold.WatchConfig{}) })
	})
	t.Run("store", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			s := openStore(t, backends[0], dir)
			f(t, fold.WatchConfig{Store: s})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

func checkEnd(t *testing.T, a *applier, c fold.WatchConfig, cursor uint64, want error) {
	t.Helper()
	got, err := a.stop()
	if got != kv.CursorAt(cursor) || !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("ended at %v with %v, want %d and %v", got, err, cursor, want)
	}
	if c.Store != nil && c.Store.Cursor() != got {
		t.Errorf("the store is at %v", c.Store.Cursor())
	}
}
