package client

import (
	"cmp"
	"errors"
	"strings"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
)

// kind is what an error says, whatever was asked.
type kind int

const (
	// kindLost is no answer: the connection is lost, or what came can't be understood. It is what is none of the others.
	kindLost kind = iota
	// kindEnded is the caller's context, or the call's own time.
	kindEnded
	// kindBroken is a server that breaks the protocol.
	kindBroken
	// kindNothing is that nothing was written, and that it may help to try again: the request never left, or the server
	// vouches for it.
	kindNothing
	// kindAway is that the server can't answer, or not in time; it may have written something.
	kindAway
	kindMissed
	kindFenced
	kindRange
	// kindRefused is any other answer that no retry changes, or what can't even be sent.
	kindRefused
)

// meaning is an error with what it says. It is the one place that judges errors of the transport and of servers.
type meaning struct {
	kind      kind
	err       error
	tail      Tail        // of a miss
	installed string      // of a fence
	outside   *RangeError // of a place out of range
	refused   error       // of a refusal
}

func meaningOf(err error) meaning {
	m := meaning{err: err}
	var server *connect.Error
	var input *InvalidError
	switch {
	case errors.As(err, new(*protocolError)):
		m.kind = kindBroken
	case errors.As(err, &input): // it was not sent
		m.kind, m.refused = kindRefused, input
	case notSent(err):
		m.kind = kindNothing
	case !errors.As(err, &server):
	case !connect.IsWireError(err):
		m.local(server)
	default:
		m.answer(server)
	}
	return m
}

// local is an error that no server has sent.
func (m *meaning) local(e *connect.Error) {
	switch e.Code() {
	case connect.CodeCanceled, connect.CodeDeadlineExceeded:
		m.kind = kindEnded
	case connect.CodeInvalidArgument: // an answer that can't be read
		m.kind = kindBroken
	}
}

// answer is an error that a server has sent. Its details say more than its code.
func (m *meaning) answer(e *connect.Error) {
	for _, d := range e.Details() {
		v, err := d.Value()
		if err != nil {
			continue
		}
		switch v := v.(type) {
		case *novav1.SequenceMismatch:
			m.kind, m.tail = kindMissed, tailOf(v.GetTail())
			return
		case *novav1.FencingTokenMismatch:
			m.kind, m.installed = kindFenced, v.GetInstalled()
			return
		case *novav1.OutOfRange:
			m.kind, m.outside = kindRange, &RangeError{First: tailOf(v.GetFirst()), Tail: tailOf(v.GetTail())}
			return
		case *novav1.NothingWritten:
			m.kind = kindNothing
			return
		}
	}
	switch e.Code() {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		m.kind = kindAway
	case connect.CodeResourceExhausted:
		m.kind = kindNothing
	case connect.CodeInvalidArgument:
		m.kind, m.refused = kindRefused, &InvalidError{Err: errors.New(e.Message())}
	case connect.CodeNotFound:
		m.kind, m.refused = kindRefused, said(ErrNotFound, e.Message(), nil)
	case connect.CodeAlreadyExists:
		m.kind, m.refused = kindRefused, said(ErrExists, e.Message(), nil)
	case connect.CodePermissionDenied, connect.CodeUnauthenticated, connect.CodeUnimplemented, connect.CodeDataLoss:
		m.kind, m.refused = kindRefused, &ServerError{Code: e.Code().String(), Message: e.Message()}
	}
}

// writeError is what a failed write means. What was never sent, and what the server says of itself, counts as "nothing was
// written"; everything else that is no refusal leaves the outcome open. So does a refusal of what was sent before: it says
// nothing of the attempt before.
func writeError(err error, resent bool) error {
	m := meaningOf(err)
	switch {
	case m.kind == kindMissed:
		return &SequenceError{Tail: m.tail, Resent: resent}
	case m.kind == kindFenced:
		return &FenceError{Installed: m.installed, Resent: resent}
	case resent:
	case m.kind == kindNothing && notSent(err):
		return said(ErrUnavailable, nova.NothingWritten+": "+reason(err), err)
	case m.kind == kindNothing:
		return said(ErrUnavailable, reason(err), err)
	case m.kind == kindRange:
		return m.outside
	case m.kind == kindRefused:
		return m.refused
	}
	return said(ErrOutcomeUnknown, strings.TrimPrefix(reason(err), nova.OutcomeUnknown+": "), err)
}

// readError is what a failed question means.
func readError(err error) error {
	switch m := meaningOf(err); m.kind {
	case kindRange:
		return m.outside
	case kindRefused:
		return m.refused
	case kindNothing, kindAway:
		return unavailable(err)
	case kindLost:
		if connect.CodeOf(err) == connect.CodeUnavailable {
			return unavailable(err)
		}
	}
	return err
}

// again reports whether a read that ended like this can go on over another connection.
func again(err error) bool {
	switch m := meaningOf(err); m.kind {
	case kindNothing, kindAway, kindEnded:
		return true
	case kindLost:
		return errors.As(err, new(*connect.Error)) && !connect.IsWireError(err)
	}
	return false
}

// openError is what a failed opening, or a session's end, means: by itself it wrote nothing. It is ErrUnavailable where another
// attempt may help, and of nothing else.
func openError(err error) error {
	switch m := meaningOf(err); m.kind {
	case kindBroken:
		return err
	case kindFenced:
		return &FenceError{Installed: m.installed}
	case kindRefused:
		return m.refused
	}
	return unavailable(err)
}

// permanent reports of what openError gives whether reconnecting is of no use.
func permanent(err error) bool { return !errors.Is(err, ErrUnavailable) }

// unavailable leaves out of the server's words what came of a write, since there was none.
func unavailable(err error) error {
	words := strings.TrimPrefix(reason(err), nova.NothingWritten+": ")
	return said(ErrUnavailable, strings.TrimPrefix(words, nova.OutcomeUnknown+": "), err)
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
