package logstore

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/typedfold/fold/runtime/store"
)

// FileError says where and why a file was refused. It matches store.ErrCorrupt or store.ErrFormat. The file is as it
// was before.
type FileError struct {
	Path string
	// Offset is where the header, frame or record that was refused begins.
	Offset int64
	Reason string
	kind   error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("logstore: %s: %v at offset %d: %s", e.Path, e.kind, e.Offset, e.Reason)
}

func (e *FileError) Unwrap() error { return e.kind }

// Hint says what a person can do.
func (e *FileError) Hint() string {
	if e.kind == store.ErrFormat {
		return "the file was written by another version, or is no fold at all: check the path, or start a new file, into which a fold reads the whole bucket"
	}
	return "keep the file for inspection and start a new one: a fold then reads the whole bucket, which is complete if the bucket never evicted a value"
}

func corrupt(path string, off int64, format string, args ...any) error {
	return &FileError{Path: path, Offset: off, Reason: fmt.Sprintf(format, args...), kind: store.ErrCorrupt}
}

func badFormat(path string, off int64, format string, args ...any) error {
	return &FileError{Path: path, Offset: off, Reason: fmt.Sprintf(format, args...), kind: store.ErrFormat}
}

// ErrTooLarge: a key or a value is over the format's limit. Nothing was written.
var ErrTooLarge = errors.New("too large for the log")

// SizeError is a key or a value over the limit. It matches ErrTooLarge.
type SizeError struct {
	Key   string
	What  string // "key", "value" or "content type"
	Size  int
	Limit int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("logstore: %s of %.64q has %d bytes, the limit is %d", e.What, e.Key, e.Size, e.Limit)
}

func (e *SizeError) Is(target error) bool { return target == ErrTooLarge }

// Hint says what a person can do.
func (e *SizeError) Hint() string { return "use pebblestore for keys or values of this size" }

// ioError wraps a failed file operation, and says so where the disk is full.
func ioError(op, path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("logstore: %s %s: %w: %w", op, path, store.ErrDiskFull, err)
	}
	return fmt.Errorf("logstore: %s %s: %w", op, path, err)
}

// poisoned is the error of every write after one that failed half-way.
func poisoned(path string, cause error) error {
	return fmt.Errorf("logstore: %s: %w: %w", path, store.ErrPoisoned, cause)
}
