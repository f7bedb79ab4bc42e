//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dir

import (
	"os"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

const nonblock = 0

// flock refuses: without a lock that goes with its process, a swap is not atomic.
func flock(*os.File) (got bool, err error) { return false, objects.ErrUnsupported }
