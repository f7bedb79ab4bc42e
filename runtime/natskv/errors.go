package natskv

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// OutcomeUnknownError is a write whose answer did not come. It matches kv.ErrOutcomeUnknown and its cause.
type OutcomeUnknownError struct {
	Op  string
	Key string
	Err error
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%s %q: outcome unknown, it may or may not be stored: %v", e.Op, e.Key, e.Err)
}

func (e *OutcomeUnknownError) Is(target error) bool { return target == kv.ErrOutcomeUnknown }

func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *OutcomeUnknownError) Hint() string {
	return "read the key's entry and compare its revision before writing again"
}

// APIError is a refusal by the JetStream API. Code is the HTTP-like class, ErrCode the server's own number.
type APIError struct {
	Code        int    `json:"code"`
	ErrCode     uint16 `json:"err_code"`
	Description string `json:"description"`
}

func (e *APIError) Error() string {
	return fmt.Sprintf("%s (%d, %d)", e.Description, e.Code, e.ErrCode)
}

// JetStream's error numbers that this package acts on.
const (
	codeStreamExists         = 10058
	codeStreamNotFound       = 10059
	codeConsumerNotFound     = 10014
	codeNoMessage            = 10037
	codeWrongLastSeq         = 10071
	codeLastSeqNotReady      = 10163
	codeWrongLastSeqConstant = 10164
	codeInsufficient         = 10023
	codeMessageTooLarge      = 10054
	codeStoreFailed          = 10077
	codeRollupRefused        = 10111
	codeMaxBytesRequired     = 10113
	codeTTLInvalid           = 10165
	codeTTLDisabled          = 10166
	codeBatchesOff           = 10174
	codeBatchIncomplete      = 10176
	codeBatchTooLarge        = 10199
	codeTooManyBatches       = 10210
)

func apiCode(err error) uint16 {
	var api *APIError
	if errors.As(err, &api) {
		return api.ErrCode
	}
	return 0
}

// asBucketError makes "no such stream" the port's sentinel.
func asBucketError(bucket string, err error) error {
	if apiCode(err) == codeStreamNotFound {
		return fmt.Errorf("bucket %q: %w", bucket, kv.ErrBucketNotFound)
	}
	return fmt.Errorf("bucket %q: %w", bucket, err)
}

// isNoAnswer reports whether err leaves open what the server did.
func isNoAnswer(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrDisconnected)
}

// lostError is the end of one watch for a reason that a new one may not have.
type lostError struct {
	bucket string
	why    string
	err    error
}

func (e *lostError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("bucket %q: watch lost: %s: %v", e.bucket, e.why, e.err)
	}
	return fmt.Sprintf("bucket %q: watch lost: %s", e.bucket, e.why)
}

func (e *lostError) Is(target error) bool { return target == kv.ErrWatchLost }

func (e *lostError) Unwrap() error { return e.err }
