//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dir

import (
	"fmt"
	"os"
	"syscall"
)

const nonblock = syscall.O_NONBLOCK

// flock takes an exclusive lock without waiting. It goes with the open file, however its process ends.
func flock(f *os.File) (got bool, err error) {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case nil:
			return true, nil
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return false, nil
		default:
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}
