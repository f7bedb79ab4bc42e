package client

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
)

// Sentinels; typed errors below match them.
var (
	// ErrFencedOut: another writer owns the stream. Only another Fence changes that, so don't try again.
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
	// back to decide. When it is false, nothing was appended.
	Resent bool
}

func (e *SequenceError) Error() string {
	if e.Resent {
		return fmt.Sprintf("the tail is %d; the batch was resent, and an earlier attempt may have been appended", e.Tail.SeqNum)
	}
	return fmt.Sprintf("the tail is %d; nothing was appended", e.Tail.SeqNum)
}

// FenceError is a writer that was locked out. It matches ErrFencedOut.
type FenceError struct {
	// Installed is the token that stands; "" is none.
	Installed string
	// Resent: an earlier attempt of this batch, before the fence, may have been appended.
	Resent bool
}

func (e *FenceError) Error() string {
	text := fmt.Sprintf("fenced out: the installed token is %q", e.Installed)
	if e.Installed == "" {
		text = "fenced out: no token is installed"
	}
	if e.Resent {
		text += "; the batch was resent, and an earlier attempt may have been appended"
	}
	return text
}

// Is makes it match ErrFencedOut.
func (e *FenceError) Is(target error) bool { return target == ErrFencedOut }

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

// told is what a server's error says.
type told struct {
	err connect.Code
	// nothing: the server vouches that nothing was written.
	nothing   bool
	tail      *Tail
	installed *string
	outside   *RangeError
	message   string
}

func tellOf(err error) (t told, ok bool) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return t, false
	}
	t.err, t.message = e.Code(), e.Message()
	for _, d := range e.Details() {
		v, err := d.Value()
		if err != nil {
			continue
		}
		switch v := v.(type) {
		case *novav1.SequenceMismatch:
			t.tail = new(tailOf(v.GetTail()))
		case *novav1.FencingTokenMismatch:
			t.installed = new(v.GetInstalled())
		case *novav1.NothingWritten:
			t.nothing = true
		case *novav1.OutOfRange:
			t.outside = &RangeError{First: tailOf(v.GetFirst()), Tail: tailOf(v.GetTail())}
		}
	}
	return t, true
}

// writeError is what a failed write means. What was never sent, and what the server says of itself, counts as "nothing was
// written"; everything else that is no refusal leaves the outcome open.
func writeError(err error, resent bool) error {
	t, ok := tellOf(err)
	switch {
	case notSent(err) && !resent:
		return said(ErrUnavailable, nova.NothingWritten+": "+reason(err), err)
	case !ok:
		return unknown(err)
	case t.tail != nil:
		return &SequenceError{Tail: *t.tail, Resent: resent}
	case t.installed != nil:
		return &FenceError{Installed: *t.installed, Resent: resent}
	case t.nothing && !resent:
		return said(ErrUnavailable, t.message, err)
	case connect.IsWireError(err):
		if refused := refusal(t); refused != nil {
			return refused
		}
	}
	return unknown(err)
}

func unknown(err error) error {
	return said(ErrOutcomeUnknown, strings.TrimPrefix(reason(err), nova.OutcomeUnknown+": "), err)
}

// saidError is an error of a kind, in the words of whoever tells it.
type saidError struct {
	kind, cause error
	text        string
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.cause}
}

// said is an error of a kind; words that name the kind themselves stand alone.
func said(kind error, words string, cause error) error {
	name := kind.Error()
	if words != "" && !strings.HasPrefix(words, name) {
		words = name + ": " + words
	}
	return &saidError{kind: kind, cause: cause, text: cmp.Or(words, name)}
}

// reason is what an error says without the name of its code.
func reason(err error) string {
	if e := new(connect.Error); errors.As(err, &e) {
		return e.Message()
	}
	return err.Error()
}

// refusal is an answer by which the server refuses to do anything; nil for others.
func refusal(t told) error {
	switch t.err {
	case connect.CodeInvalidArgument:
		return &InvalidError{Err: errors.New(t.message)}
	case connect.CodeNotFound:
		return said(ErrNotFound, t.message, nil)
	case connect.CodeAlreadyExists:
		return said(ErrExists, t.message, nil)
	case connect.CodePermissionDenied, connect.CodeUnauthenticated, connect.CodeUnimplemented, connect.CodeResourceExhausted:
		return &ServerError{Code: t.err.String(), Message: t.message}
	}
	return nil
}

// readError is what a failed question means.
func readError(err error) error {
	t, ok := tellOf(err)
	if !ok {
		return err
	}
	if t.outside != nil {
		return t.outside
	}
	if connect.IsWireError(err) {
		if refused := refusal(t); refused != nil {
			return refused
		}
	}
	if t.err == connect.CodeUnavailable || notSent(err) {
		return said(ErrUnavailable, strings.TrimPrefix(reason(err), nova.NothingWritten+": "), err)
	}
	return err
}
