package sequencer

import (
	"errors"
	"fmt"

	"github.com/typedfold/fold/internal/nova"
)

// FencedError is a writer that another one has locked out, or a session that a fence has ended.
type FencedError struct {
	// Installed is the token that stands; "" is none.
	Installed string
}

func (e *FencedError) Error() string {
	if e.Installed == "" {
		return "fenced out: no fencing token is installed"
	}
	return fmt.Sprintf("fenced out: the installed fencing token is %q", e.Installed)
}

// MissedError is a conditional batch whose first record would have got another number. Nothing of it was appended.
type MissedError struct {
	Match uint64
	// Tail is the committed tail: its number is the next one to try.
	Tail nova.Position
}

func (e *MissedError) Error() string {
	return fmt.Sprintf("match_seq_num %d missed: the tail is %d", e.Match, e.Tail.SeqNum)
}

// UnavailableError is a request that this node can't decide, or whose outcome it can't tell.
type UnavailableError struct {
	Err error
	// Indefinite: the batch may be in the log, or come to be.
	Indefinite bool
}

func (e *UnavailableError) Error() string {
	if e.Indefinite {
		return fmt.Sprintf("%s: %v", nova.OutcomeUnknown, e.Err)
	}
	return fmt.Sprintf("%s: %v", nova.NothingWritten, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

var (
	// ErrSuperseded: another node leads the stream.
	ErrSuperseded = errors.New("another node leads the stream")
	// ErrStopped: this leader was asked to stop.
	ErrStopped = errors.New("leader stopped")
	// ErrUnproved: what the log acknowledged was sent before the question came.
	ErrUnproved = errors.New("the lead is not proved")
	// ErrTimeout: the log did not answer.
	ErrTimeout = errors.New("no answer from the log")
)
