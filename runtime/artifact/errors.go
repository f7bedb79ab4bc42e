package artifact

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/typedfold/fold/runtime/store"
)

// Sentinels; an *InvalidError matches ErrInvalid, and one of the others where that is the reason.
var (
	// ErrInvalid: the artifact is not what its manifest says, or can't be used here. Another one may.
	ErrInvalid = errors.New("artifact invalid")
	// ErrUnexpected: it is of another bucket, scope or log than the one that is wanted.
	ErrUnexpected = errors.New("artifact of something else")
	// ErrTooLarge: it says that it is larger than what was allowed.
	ErrTooLarge = errors.New("artifact too large")
)

// InvalidError says what was refused, and why. It matches ErrInvalid.
type InvalidError struct {
	// What is the artifact, or the file in it.
	What   string
	Reason string
	// Err is the cause; nil where Reason says all.
	Err error
}

func (e *InvalidError) Error() string {
	s := fmt.Sprintf("%s: %v: %s", e.What, ErrInvalid, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func (e *InvalidError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *InvalidError) Hint() string {
	switch {
	case errors.Is(e.Err, ErrUnexpected):
		return "choose an artifact of this bucket, scope and log"
	case errors.Is(e.Err, ErrTooLarge):
		return "raise the limit if the artifact's origin is trusted"
	case errors.Is(e.Err, store.ErrFormat):
		return "a build that is as new as the exporter's reads it"
	}
	return "don't use it: take another artifact, or export again"
}

func invalid(what, format string, args ...any) error {
	return &InvalidError{What: what, Reason: fmt.Sprintf(format, args...)}
}

func invalidFor(cause error, what, format string, args ...any) error {
	return &InvalidError{What: what, Reason: fmt.Sprintf(format, args...), Err: cause}
}

// told adds that the disk is full, where it is.
func told(err error) error {
	if (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && !errors.Is(err, store.ErrDiskFull) {
		return fmt.Errorf("%w: %w", store.ErrDiskFull, err)
	}
	return err
}

// short reports whether this machine is short of something: what does not open for it says nothing of the artifact.
func short(err error) bool {
	for _, s := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}
