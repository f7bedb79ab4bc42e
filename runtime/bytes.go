package fold

import "unsafe"

// bytesAsString is b as a string without a copy: only for calls that read it and keep nothing of it.
func bytesAsString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
