// Package nova holds what client and server of the stream plane share: addresses, limits, and the rules of tokens.
package nova

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of the plane. MaxBatchBytes is counted as BatchBytes does.
const (
	MaxTokenBytes   = 36
	MaxBatchRecords = 1000
	MaxBatchBytes   = 1 << 20
	MaxNameBytes    = 64
)

// ErrInvalid is input that no retry makes valid; every error of this package matches it.
var ErrInvalid = errors.New("invalid argument")

// Outcomes of a write that failed, in JSON.
const (
	OutcomeIsNothing = "nothing_written"
	OutcomeIsUnknown = "unknown"
)

// What errors begin with that say what came of a write.
const (
	NothingWritten = "nothing was written"
	OutcomeUnknown = "the outcome is unknown"
)

// Addr names a stream.
type Addr struct{ Namespace, Stream string }

const scheme = "nova://"

// ParseAddr reads nova://<namespace>/<stream>.
func ParseAddr(s string) (Addr, error) {
	rest, ok := strings.CutPrefix(s, scheme)
	if !ok {
		return Addr{}, fmt.Errorf("%w: address %q does not begin with %s", ErrInvalid, s, scheme)
	}
	namespace, stream, ok := strings.Cut(rest, "/")
	if !ok {
		return Addr{}, fmt.Errorf("%w: address %q names no stream; write nova://<namespace>/<stream>", ErrInvalid, s)
	}
	a := Addr{Namespace: namespace, Stream: stream}
	if err := a.Validate(); err != nil {
		return Addr{}, fmt.Errorf("address %q: %w", s, err)
	}
	return a, nil
}

// String is nova://<namespace>/<stream>.
func (a Addr) String() string { return scheme + a.Namespace + "/" + a.Stream }

// Validate checks both names.
func (a Addr) Validate() error {
	if err := CheckName("namespace", a.Namespace); err != nil {
		return err
	}
	return CheckName("stream", a.Stream)
}

// CheckName checks the name of a namespace or a stream: 1 to 64 characters of A-Z a-z 0-9 - and _.
func CheckName(what, name string) error {
	if name == "" || len(name) > MaxNameBytes {
		return fmt.Errorf("%w: the name of a %s has 1 to %d characters, not %d", ErrInvalid, what, MaxNameBytes, len(name))
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return fmt.Errorf("%w: %s %q has %q; allowed are A-Z a-z 0-9 - _", ErrInvalid, what, name, c)
		}
	}
	return nil
}

// CheckToken checks a fencing token: at most 36 bytes of UTF-8. The empty one stands for none.
func CheckToken(token string) error {
	switch {
	case len(token) > MaxTokenBytes:
		return fmt.Errorf("%w: the fencing token has %d bytes, at most %d are allowed", ErrInvalid, len(token), MaxTokenBytes)
	case !utf8.ValidString(token):
		return fmt.Errorf("%w: the fencing token is not UTF-8", ErrInvalid)
	}
	return nil
}
