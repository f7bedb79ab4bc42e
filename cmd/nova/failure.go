package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"connectrpc.com/connect"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/nova"
)

// The exit codes of every verb.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3 // the server was not reached, did not let us in, or did not answer in time
	exitLost        = 4 // a lost race, or a fencing token that is not the installed one
)

// codeError ends the program with a code of its own.
type codeError struct {
	code int
	err  error
	hint string
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }
func (e *codeError) Hint() string  { return e.hint }

func usageError(hint, format string, args ...any) error {
	return &codeError{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var coded *codeError
	var bad *client.InvalidError
	var seq *client.SequenceError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &seq), errors.Is(err, client.ErrFencedOut):
		return exitLost
	case errors.As(err, &bad), errors.As(err, new(*inputError)):
		if part := new(partialError); errors.As(err, &part) && part.done.Records > 0 {
			return exitFailed // exitUsage says that nothing was changed
		}
		return exitUsage
	case isUnreachable(err):
		return exitUnreachable
	case strings.HasPrefix(err.Error(), "unknown command "): // cobra's, which has no type
		return exitUsage
	}
	return exitFailed
}

func isUnreachable(err error) bool {
	var said *client.ServerError
	var dial *net.OpError
	switch {
	case errors.Is(err, errInterrupted):
		return false
	case errors.As(err, &said):
		return said.Code == connect.CodeUnauthenticated.String() || said.Code == connect.CodePermissionDenied.String()
	case errors.As(err, &dial):
		return true
	}
	for _, e := range []error{client.ErrUnavailable, client.ErrOutcomeUnknown, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		return true
	}
	return false
}

// notSent reports whether the connection was never made.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// Outcomes of a write that failed.
const (
	outcomeNothing = nova.OutcomeIsNothing
	outcomeUnknown = nova.OutcomeIsUnknown
)

// failure is an error as scripts read it.
type failure struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	Code  int    `json:"code"`
	// Tail is where a lost race stands: its number is the next one to try. Of a read out of range, First is the first record.
	Tail  *position `json:"tail,omitempty"`
	First *position `json:"first,omitempty"`
	// FencingToken is the installed one, when another was presented.
	FencingToken *string `json:"fencing_token,omitempty"`
	// Outcome says of a write whether it may have happened.
	Outcome string `json:"outcome,omitempty"`
	// Appended is what is known to be appended before the error.
	Appended *appended `json:"appended,omitempty"`
}

func failureOf(err error, code int) failure {
	f := failure{Error: err.Error(), Code: code, Hint: hintOf(err)}
	var seq *client.SequenceError
	var fenced *client.FenceError
	var outside *client.RangeError
	var part *partialError
	switch {
	case errors.As(err, &seq):
		f.Tail, f.Outcome = new(positionOf(seq.Tail)), outcomeNothing
		if seq.Resent {
			f.Outcome = outcomeUnknown
		}
	case errors.As(err, &fenced):
		f.FencingToken, f.Outcome = &fenced.Installed, outcomeNothing
		if fenced.Resent {
			f.Outcome = outcomeUnknown
		}
	case errors.As(err, &outside):
		f.First, f.Tail = new(positionOf(outside.First)), new(positionOf(outside.Tail))
	case errors.Is(err, client.ErrOutcomeUnknown):
		f.Outcome = outcomeUnknown
	case errors.Is(err, client.ErrUnavailable), code == exitUsage && errors.As(err, &part):
		f.Outcome = outcomeNothing
	}
	if errors.As(err, &part) && part.done.Records > 0 {
		f.Appended = &part.done
	}
	return f
}

// hintOf is what a person can do about an error; "" when there is nothing to say.
func hintOf(err error) string {
	const longer = "a longer --timeout waits longer"
	hint := hintOfKind(err)
	late := errors.As(err, new(*timeoutError)) || connect.CodeOf(err) == connect.CodeDeadlineExceeded ||
		errors.Is(err, client.ErrUnavailable) && errors.Is(err, context.DeadlineExceeded)
	switch {
	case !late:
		return hint
	case hint == "":
		return longer
	}
	return hint + "; " + longer
}

func hintOfKind(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	var seq *client.SequenceError
	var fenced *client.FenceError
	var said *client.ServerError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "--ca FILE names the authorities that the server's certificate may come from; a certificate that is signed by itself is its own"
	case errors.As(err, new(x509.HostnameError)):
		return "the certificate is for other names than that in the server's URL"
	case errors.As(err, new(tls.AlertError)):
		return "the server may ask for a certificate of the client's, or take no such one: --cert and --key"
	case errors.As(err, new(tls.RecordHeaderError)), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // net/http's, which has no type
		return "the server does not speak TLS: its URL begins with http://"
	case errors.As(err, &seq) && !seq.Resent:
		return fmt.Sprintf("others wrote meanwhile: read what they wrote, and try again with --match-seq-num %d", seq.Tail.SeqNum)
	case errors.As(err, &fenced) && fenced.Installed == "":
		return "nobody owns the stream; nova fence installs your token, and without --fencing-token you append as long as there is none"
	case errors.Is(err, client.ErrFencedOut):
		return "another writer owns the stream; nova token says which token stands, and nova fence with a fresh one takes over"
	case errors.Is(err, client.ErrNotFound):
		return "nova ls lists the streams, nova create makes one"
	case strings.Contains(err.Error(), "not supported in non-clustered mode"): // the log's words, which have no type
		return "copies need a cluster: nova serve --nats"
	case errors.As(err, &said) && said.Code == connect.CodeUnauthenticated.String():
		return "give the bearer token by --token-file or NOVA_TOKEN"
	case errors.As(err, &said) && said.Code == connect.CodePermissionDenied.String():
		return "the server's --auth file says what a bearer token may do in which namespace"
	case notSent(err):
		return "is nova serve running there? --server or NOVA_SERVER says where"
	case errors.Is(err, client.ErrOutcomeUnknown):
		return "it may have happened: read the stream's end before you try again"
	}
	return ""
}
