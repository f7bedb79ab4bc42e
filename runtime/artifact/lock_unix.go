//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package artifact

import (
	"fmt"
	"os"
	"syscall"
)

// renameFolder gives a folder its name, also where an empty one has it; any other is an error.
func renameFolder(from, to string) error {
	if err := syscall.Rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// flock takes an exclusive lock, which goes with the process, however it ends. Without wait it reports whether it got it.
func flock(f *os.File, wait bool) (got bool, err error) {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how); err {
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
