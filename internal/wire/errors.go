package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

var (
	// ErrUncheckable says that decoding is the only way to find out. Compile
	// returns it for a type that can never be checked, Check for a single
	// value: one that holds a registered extension, or a nested message that
	// lacks a required field which a later occurrence may supply.
	ErrUncheckable = errors.New("not checkable on the wire")
	// ErrMalformed says that the bytes are not an encoding of the type.
	ErrMalformed = errors.New("malformed message")
	// ErrInvalidUTF8 says that a string field holds invalid UTF-8.
	ErrInvalidUTF8 = errors.New("string field holds invalid utf-8")
	// ErrTooDeep says that messages are nested beyond the recursion limit.
	ErrTooDeep = errors.New("messages nested too deep")
	// ErrRequired says that a required field is missing.
	ErrRequired = errors.New("required field missing")
	// ErrPath says that a key path does not lead to a field that has one value.
	ErrPath = errors.New("invalid key path")
	// ErrKeys says that the slice for the keys has the wrong length.
	ErrKeys = errors.New("wrong number of key fields")
)

// CheckError is the error of a refused value. It wraps one of the sentinel
// errors of this package.
type CheckError struct {
	Message protoreflect.FullName // the type that was checked
	Offset  int                   // the byte at or before which the check stopped
	Size    int                   // bytes in the value
	Err     error                 // a sentinel
	Detail  string                // what was wrong; may be empty
}

func (e *CheckError) Error() string {
	detail := e.Detail
	if detail != "" {
		detail = ": " + detail
	}
	return fmt.Sprintf("check %s: %v%s at byte %d of %d", e.Message, e.Err, detail, e.Offset, e.Size)
}

func (e *CheckError) Unwrap() error { return e.Err }

// Hint says what a person can do about the error.
func (e *CheckError) Hint() string {
	switch e.Err {
	case ErrUncheckable:
		return "decode the value to learn whether it is valid"
	case ErrRequired:
		return "the writer must set every required field of " + string(e.Message)
	case ErrInvalidUTF8:
		return "the writer must send valid utf-8, or the field's type must be bytes"
	default:
		return "the writer encoded another message type, or the bytes were damaged; compare it with " + string(e.Message)
	}
}

type status uint8

const (
	statusOK status = iota
	statusVarint
	statusTag
	statusTruncated
	statusGroup
	statusUnknown
	statusPacked
	statusUTF8
	statusDepth
	statusRequired
	statusUndecided
	statusEnd // of a group; never leaves the package's inner loop
)

var statusErrors = [...]struct {
	err    error
	detail string
}{
	statusVarint:    {ErrMalformed, "varint truncated or too long"},
	statusTag:       {ErrMalformed, "illegal field number"},
	statusTruncated: {ErrMalformed, "field runs past the end"},
	statusGroup:     {ErrMalformed, "group start and end do not match"},
	statusUnknown:   {ErrMalformed, "unknown field is not well-formed"},
	statusPacked:    {ErrMalformed, "packed field is not a whole number of elements"},
	statusUTF8:      {ErrInvalidUTF8, ""},
	statusDepth:     {ErrTooDeep, ""},
	statusRequired:  {ErrRequired, ""},
	statusUndecided: {ErrUncheckable, ""},
}
