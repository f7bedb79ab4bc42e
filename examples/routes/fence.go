package main

import (
	"errors"

	"github.com/typedfold/fold/examples/routes/router"
	fold "github.com/typedfold/fold/runtime"
)

// fenceError is a write that the bucket's fence refused, with what to do about it in the shell.
type fenceError struct {
	err  error
	hint string
}

func (e *fenceError) Error() string { return "nothing was written: " + e.err.Error() }
func (e *fenceError) Unwrap() error { return e.err }
func (e *fenceError) Hint() string  { return e.hint }

// withFenceHint is err, and where a fence is what refused the write, a *fenceError of it.
func withFenceHint(err error) error {
	const takeOver = "fold fence " + router.Bucket + " with a fresh token takes over, and --fencing-token presents it"
	var out *fold.FencedError
	switch {
	case errors.As(err, &out) && out.Installed == "":
		return &fenceError{err, "nobody owns the bucket: leave out --fencing-token, or own it: " + takeOver}
	case errors.As(err, &out) && out.Presented == "":
		return &fenceError{err, "who owns the bucket presents its token by --fencing-token; anybody else has to take over: " + takeOver}
	case errors.As(err, &out):
		return &fenceError{err, "another writer has taken over; to take it back: " + takeOver}
	case errors.Is(err, fold.ErrNoFence):
		return &fenceError{err, "fold fence " + router.Bucket + " installs the token, which has to be there before the first write"}
	}
	return err
}
