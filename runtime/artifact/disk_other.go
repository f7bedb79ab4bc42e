//go:build !(darwin || dragonfly || freebsd || linux)

package artifact

// diskFree is not known here.
func diskFree(string) (free uint64, ok bool) { return 0, false }
