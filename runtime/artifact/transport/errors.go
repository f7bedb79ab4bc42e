package transport

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrGone: the artifact was pruned meanwhile, or never published. List again and take a newer one.
	ErrGone = errors.New("artifact is gone")
	// ErrLost: what was uploaded of an artifact is not there any more, so it was not published.
	ErrLost = errors.New("what was uploaded is not there any more")
	// ErrForeign: the pointer is that of another fold, which would lose it.
	ErrForeign = errors.New("the key is another fold's")
	// ErrContended: the pointer was replaced by others at each try. The next round tries again.
	ErrContended = errors.New("the artifact pointer is contended")
	// ErrNoneUsable: no published artifact is good for the log as it is now.
	ErrNoneUsable = errors.New("no artifact is usable")
)

// GoneError says which artifact is not there any more. It matches ErrGone.
type GoneError struct {
	Name string
	// Err is what the store said; nil where it just did not list it.
	Err error
}

func (e *GoneError) Error() string {
	s := fmt.Sprintf("artifact %q: %v", e.Name, ErrGone)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is ErrGone.
func (e *GoneError) Is(target error) bool { return target == ErrGone }

func (e *GoneError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *GoneError) Hint() string {
	return "a newer one was published while this one was read: try again; if it happens again and again, raise the lease's TTL, which the pruning grace follows"
}

// LostError says what of an upload is missing. It matches ErrLost.
type LostError struct {
	Name string
	// What is "payload" or "manifest", Want its size in bytes, and Have that of what is there; -1 is nothing.
	What       string
	Want, Have int64
}

func (e *LostError) Error() string {
	if e.Have < 0 {
		return fmt.Sprintf("artifact %q: %v: its %s of %d bytes is gone", e.Name, ErrLost, e.What, e.Want)
	}
	return fmt.Sprintf("artifact %q: %v: its %s has %d bytes, not %d", e.Name, ErrLost, e.What, e.Have, e.Want)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Hint says what a person can do.
func (e *LostError) Hint() string {
	return "publish again; if it happens again, raise the lease's TTL, which the pruning grace follows, so that an export and its upload end well within it, and see that nothing but a prune deletes under the key"
}

// ForeignError says whose pointer stands under a key. It matches ErrForeign.
type ForeignError struct {
	Key string
	// Name is the artifact that the pointer names. What is "bucket" or "scope", Has that of the pointer, and Want that of
	// the artifact that was to take its place.
	Name, What, Has, Want string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%v: %q has %q of %s %q, and this artifact is of %s %q", ErrForeign, e.Key, e.Name, e.What, e.Has, e.What, e.Want)
}

// Is reports whether target is ErrForeign.
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// Hint says what a person can do.
func (e *ForeignError) Hint() string {
	if e.What == "scope" {
		return "give each scope a key of its own; a fold takes the place of one whose scope it covers"
	}
	return "give each bucket a key of its own"
}

// Refusal is why one artifact is not usable.
type Refusal struct {
	Name string
	Why  string
	// Err is the cause, where there is one.
	Err error
}

func (r Refusal) String() string {
	s := fmt.Sprintf("%q %s", r.Name, r.Why)
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// UnusableError says why each of the artifacts under a key is not usable. It matches ErrNoneUsable.
type UnusableError struct {
	Key         string
	First, Last uint64 // of the log
	Refused     []Refusal
}

func (e *UnusableError) Error() string {
	if len(e.Refused) == 0 {
		return fmt.Sprintf("%v: %q has none", ErrNoneUsable, e.Key)
	}
	texts := make([]string, len(e.Refused))
	for i, r := range e.Refused {
		texts[i] = r.String()
	}
	return fmt.Sprintf("%v under %q for a log of revisions %d to %d: %s", ErrNoneUsable, e.Key, e.First, e.Last, strings.Join(texts, "; "))
}

// Is reports whether target is ErrNoneUsable.
func (e *UnusableError) Is(target error) bool { return target == ErrNoneUsable }

// Hint says what a person can do.
func (e *UnusableError) Hint() string {
	return "have a node that is caught up publish an artifact; one is good while the log holds all that came after its cursor"
}
