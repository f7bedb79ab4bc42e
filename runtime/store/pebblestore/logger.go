package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/typedfold/fold/runtime/store"
)

// logger is Pebble's logger over slog. Pebble calls Fatalf where it can't go on and expects the process to end there;
// this one ends only the goroutine, and poisons the store.
type logger struct {
	slog *slog.Logger
	// opening: a flush that fails ends the opening. Pebble would try it again, without a pause and for ever, and not
	// return from Open before it succeeds.
	opening atomic.Bool
	// manifest: Pebble has written one since the store was opened.
	manifest atomic.Bool
	// patience is how long flushes may fail, one after the other, before they poison the store.
	patience time.Duration

	mu    sync.Mutex
	fatal error
	died  chan struct{} // closed with fatal set
}

func newLogger(l *slog.Logger, patience time.Duration) *logger {
	return &logger{slog: l, patience: patience, died: make(chan struct{})}
}

// Infof is Pebble's account of what it does; debugging matter to anyone else.
func (l *logger) Infof(format string, args ...any) { l.write(slog.LevelDebug, format, args) }

// Errorf is something that Pebble went past.
func (l *logger) Errorf(format string, args ...any) { l.write(slog.LevelError, format, args) }

// Fatalf poisons the store and ends the calling goroutine, with its deferred calls.
func (l *logger) Fatalf(format string, args ...any) {
	l.write(slog.LevelError, format, args)
	l.poison(fmt.Errorf("%w: %s", store.ErrPoisoned, fmt.Sprintf(format, args...)))
	runtime.Goexit()
}

func (l *logger) write(level slog.Level, format string, args []any) {
	if l.slog.Enabled(context.Background(), level) {
		l.slog.Log(context.Background(), level, strings.TrimSpace(fmt.Sprintf(format, args...)), "component", Backend)
	}
}

func (l *logger) poison(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = err
		close(l.died)
	}
	return l.fatal
}

// fatalError is what poisoned the store, nil when nothing did.
func (l *logger) fatalError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *logger) isFatal() bool { return l != nil && l.fatalError() != nil }

// guard runs fn, which writes to Pebble, on a goroutine of its own, so that Fatalf can end it. When anything poisons
// the store meanwhile, fn is given up: it may wait for a flush that never comes.
func (l *logger) guard(fn func() error) error {
	if err := l.fatalError(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		returned := false
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = l.poison(fmt.Errorf("%w: pebble panicked: %v", store.ErrPoisoned, p))
			} else if !returned {
				err = l.fatalError()
			}
			done <- err
		}()
		err = fn()
		returned = true
	}()
	select {
	case err := <-done:
		if fatal := l.fatalError(); fatal != nil {
			return fatal
		}
		return err
	case <-l.died:
		return l.fatalError()
	}
}

// isDiskFull: a full disk has room again some day, and meanwhile Apply refuses before anything waits.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// events is the caller's listener with what Pebble would end the process for taken out: a read that meets corruption
// returns it.
func (l *logger) events(user *pebble.EventListener) *pebble.EventListener {
	var flushed atomic.Pointer[error]     // of the last flush; a flush of nothing has one too, which is no background error
	var failing atomic.Pointer[time.Time] // since when flushes fail; nil while they don't
	own := &pebble.EventListener{
		BackgroundError: func(err error) {
			l.Errorf("background: %v", err)
			if last := flushed.Load(); last == nil || !errors.Is(err, *last) {
				return
			}
			if l.opening.Load() {
				l.poison(fmt.Errorf("flush what the log holds: %w", err))
				runtime.Goexit()
			}
			now := time.Now()
			failing.CompareAndSwap(nil, &now)
			if since := failing.Load(); since != nil && now.Sub(*since) >= l.patience && !isDiskFull(err) {
				l.poison(fmt.Errorf("%w: flushes have failed for %v: %w", store.ErrPoisoned, now.Sub(*since).Round(time.Millisecond), err))
				runtime.Goexit()
			}
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) { l.Errorf("corruption: %v", i) },
		ManifestCreated: func(i pebble.ManifestCreateInfo) {
			if i.Err == nil {
				l.manifest.Store(true)
			}
		},
		FlushEnd: func(i pebble.FlushInfo) {
			if i.Err != nil {
				flushed.Store(&i.Err)
			} else {
				failing.Store(nil)
			}
		},
	}
	if user == nil {
		return own
	}
	tee := pebble.TeeEventListener(*own, *user)
	return &tee
}
