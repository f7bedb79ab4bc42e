//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package logstore

import (
	"errors"
	"fmt"
	"io"
)

// lockFile refuses: without a lock that goes with its process, two writers could share a log. These systems may also
// not rename over an open file, which a rewrite does.
func lockFile(name string) (io.Closer, error) {
	return nil, fmt.Errorf("lock %s: %w; give Options.FS with a Lock", name, errors.ErrUnsupported)
}
