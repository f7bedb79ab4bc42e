package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/typedfold/fold/runtime/protocol"
)

// MaxFencingToken is how long a fencing token may be, in bytes.
const MaxFencingToken = 36

const (
	reservedToken  = "_fold"
	fencePrefix    = reservedToken + ".fence."
	checkKeyPrefix = reservedToken + ".check."
)

var (
	// ErrFencingToken: a fencing token is UTF-8 of at most MaxFencingToken bytes.
	ErrFencingToken = errors.New("invalid fencing token")
	// ErrFenceMoved: a write asked for a fence record that stands no more.
	ErrFenceMoved = errors.New("fence record moved")
	// ErrFenceRecord: a bucket's fence record can't be read.
	ErrFenceRecord = errors.New("unreadable fence record")
	// ErrNotWritten: a log refused a write again and again, though all that the write asked for was as it asked.
	ErrNotWritten = errors.New("not written")
)

// Reserved reports whether a key belongs to this library: its first token is "_fold". Such keys are messages of a bucket's
// log, so watches deliver them and LastVersions lists them. Keys and Scan leave them out, a fold passes them over, and a
// Writer refuses them.
func Reserved(key string) bool {
	return strings.HasPrefix(key, reservedToken) && (len(key) == len(reservedToken) || key[len(reservedToken)] == '.')
}

// FenceKey is the ith of the keys of a bucket's fence record, of which there are protocol.FenceKeys.
func FenceKey(i int) string { return fencePrefix + strconv.Itoa(i) }

// CheckKey is the ith of the keys that are written when a write has nothing to say but that a fence record stands.
func CheckKey(i int) string { return checkKeyPrefix + strconv.Itoa(i) }

// FenceRecord is what a bucket's fence record says.
type FenceRecord struct {
	// Token is the installed one; "" is none.
	Token string
	// Revision is that of FenceKey(0). The others follow it.
	Revision uint64
}

// Fencer fences a bucket. A Bucket that can do so has it too; where it has, its writes and its batches take the Fence of
// their options. Fence in package fold is the way to use it.
type Fencer interface {
	// FenceRecord reads the record from the leader. A bucket that never had one gives ErrKeyNotFound, one that can't be read
	// a *FenceRecordError. A read proves nothing; see ProveFence.
	FenceRecord(ctx context.Context) (FenceRecord, error)
	// InstallFence writes the record, whatever stands, and gives the log's last revision after it. A bucket that could lose
	// the record is an *UnsupportedError. Unless an error matches ErrOutcomeUnknown, nothing was written.
	InstallFence(ctx context.Context, token string) (Version, error)
	// ProveFence writes nothing but that the record of this revision stands, and gives the log's last revision then: else a
	// *FenceMovedError.
	ProveFence(ctx context.Context, revision uint64) (Version, error)
}

type fenceValue struct {
	Format int    `json:"format"`
	Token  string `json:"token"`
	Keys   int    `json:"keys"`
}

// fenceFormat is the format of the record that is written, and the only one that is read.
const fenceFormat = 1

// FenceValue is what each of the record's keys holds.
func FenceValue(token string) ([]byte, error) {
	if err := ValidFencingToken(token); err != nil {
		return nil, err
	}
	return json.Marshal(fenceValue{Format: fenceFormat, Token: token, Keys: protocol.FenceKeys})
}

// ReadFenceRecord is the record that the last message of FenceKey(0) says.
func ReadFenceRecord(bucket string, e *Entry) (FenceRecord, error) {
	bad := func(err error) (FenceRecord, error) {
		return FenceRecord{}, &FenceRecordError{Bucket: bucket, Revision: e.Version.Rank(), Err: err}
	}
	var v fenceValue
	if e.IsTombstone() {
		return bad(errors.New("it was deleted"))
	}
	if err := json.Unmarshal(e.Value, &v); err != nil {
		return bad(err)
	}
	if v.Format != fenceFormat || v.Keys != protocol.FenceKeys {
		return bad(fmt.Errorf("format %d on %d keys; known is %d on %d", v.Format, v.Keys, fenceFormat, protocol.FenceKeys))
	}
	if err := ValidFencingToken(v.Token); err != nil {
		return bad(err)
	}
	return FenceRecord{Token: v.Token, Revision: e.Version.Rank()}, nil
}

// ValidFencingToken is a *FencingTokenError unless the token is UTF-8 of at most MaxFencingToken bytes; the empty one is
// valid, and is none.
func ValidFencingToken(token string) error {
	switch {
	case len(token) > MaxFencingToken:
		return &FencingTokenError{Detail: fmt.Sprintf("%d bytes, at most %d", len(token), MaxFencingToken)}
	case !utf8.ValidString(token):
		return &FencingTokenError{Detail: "not UTF-8"}
	}
	return nil
}

// FencingTokenError is a token that none can be. It matches ErrFencingToken.
type FencingTokenError struct{ Detail string }

func (e *FencingTokenError) Error() string { return "fencing token: " + e.Detail }

func (e *FencingTokenError) Is(target error) bool { return target == ErrFencingToken }

// FenceMovedError is a write that asked for a fence record that stands no more. Nothing was written. It matches
// ErrFenceMoved.
type FenceMovedError struct {
	Bucket string
	// Key was checked. Want is the revision that it was to have, Got the one that it has; 0 for none.
	Key       string
	Want, Got uint64
}

func (e *FenceMovedError) Error() string {
	return fmt.Sprintf("bucket %q: fence key %q was to be at revision %d, is at %d", e.Bucket, e.Key, e.Want, e.Got)
}

func (e *FenceMovedError) Is(target error) bool { return target == ErrFenceMoved }

// FenceRecordError is a fence record that can't be read. It matches ErrFenceRecord.
type FenceRecordError struct {
	Bucket   string
	Revision uint64
	Err      error
}

func (e *FenceRecordError) Error() string {
	return fmt.Sprintf("bucket %q: unreadable fence record at revision %d: %v", e.Bucket, e.Revision, e.Err)
}

func (e *FenceRecordError) Is(target error) bool { return target == ErrFenceRecord }

func (e *FenceRecordError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *FenceRecordError) Hint() string {
	return "something other than fold.Fence wrote to the keys _fold.fence.*, or a later version of it; install a token with fold.Fence, which writes them all anew"
}

// NotWrittenError is a write that a log refused again and again, though all that it asked for was as it asked: a spurious
// conflict. Nothing was written, and the same write may be done again. It matches ErrNotWritten.
type NotWrittenError struct {
	Op string
	// Key is the write's; "" for a batch.
	Key string
	// Attempts is how often it was sent.
	Attempts int
	// Err is the last refusal.
	Err error
}

func (e *NotWrittenError) Error() string {
	what := e.Op
	if e.Key != "" {
		what += fmt.Sprintf(" %q", e.Key)
	}
	return fmt.Sprintf("%s: nothing stored after %d attempts: %v", what, e.Attempts, e.Err)
}

func (e *NotWrittenError) Is(target error) bool { return target == ErrNotWritten }

func (e *NotWrittenError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *NotWrittenError) Hint() string {
	return "do the same write again: nothing of it was stored, and nothing that it asked for had moved"
}
