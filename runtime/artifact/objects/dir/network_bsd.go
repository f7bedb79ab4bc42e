//go:build darwin || freebsd

package dir

import "syscall"

const mntLocal = 0x1000

// network is not "" where the directory is on a file system of another host.
func network(name string) string {
	var s syscall.Statfs_t
	if syscall.Statfs(name, &s) != nil || uint64(s.Flags)&mntLocal != 0 {
		return ""
	}
	return "mounted from another host"
}
