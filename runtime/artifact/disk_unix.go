//go:build darwin || dragonfly || freebsd || linux

package artifact

import "syscall"

// diskFree is how many bytes a user may still write to the file system that dir is on; ok is false where that is unknown.
func diskFree(dir string) (free uint64, ok bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil || int64(s.Bavail) < 0 {
		return 0, false
	}
	return uint64(s.Bavail) * uint64(s.Bsize), true
}
