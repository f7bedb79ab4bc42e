package client

import (
	"errors"
	"fmt"
)

// Sentinels; typed errors below match them.
var (
	// ErrFencedOut: another writer owns the stream, or none does and a token was presented. Only another Fence changes that, so don't
	// try again.
	ErrFencedOut = errors.New("fenced out")
	// ErrOutcomeUnknown: the write may have happened.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnavailable: nothing was written, and trying again may help.
	ErrUnavailable = errors.New("unavailable")
	// ErrNotFound: there is no such stream. ErrExists: there is one already.
	ErrNotFound = errors.New("stream not found")
	ErrExists   = errors.New("stream exists already")
)

// SequenceError is a conditional batch whose first record would have got another number.
type SequenceError struct {
	// Tail is the committed tail: Tail.SeqNum is the next number to try.
	Tail Tail
	// Resent: the batch was sent again after the connection was lost, and an earlier attempt may have been appended. Read
	// back to decide, by a Read that does not follow. When it is false, nothing was appended.
	Resent bool
}

func (e *SequenceError) Error() string {
	if e.Resent {
		return fmt.Sprintf("the tail is %d; the batch was resent, and an earlier attempt may have been appended", e.Tail.SeqNum)
	}
	return fmt.Sprintf("the tail is %d; nothing was appended", e.Tail.SeqNum)
}

// InvalidError is input that no retry makes valid.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(err error) error { return &InvalidError{Err: err} }

// RangeError is a read that begins where there is no record, or where one was removed.
type RangeError struct {
	// First is the first record that is kept.
	First, Tail Tail
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("out of range: the stream has records from %d on, and its tail is %d", e.First.SeqNum, e.Tail.SeqNum)
}

// ServerError is any other answer of a server.
type ServerError struct {
	// Code is the name of the Connect code, such as "permission_denied".
	Code    string
	Message string
}

func (e *ServerError) Error() string { return e.Code + ": " + e.Message }
