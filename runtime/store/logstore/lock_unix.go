//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package logstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/typedfold/fold/runtime/store"
)

// lockFile takes an exclusive flock, which goes with the process, however it ends.
func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s", store.ErrLocked, name)
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}
