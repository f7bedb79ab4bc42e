package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
)

// What an error is to a caller, in one word; "" is none of them.
func nameOf(err error) string {
	var server *ServerError
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.As(err, new(*SequenceError)):
		return fmt.Sprint("missed ", err.(*SequenceError).Resent)
	case errors.As(err, new(*FenceError)):
		return fmt.Sprint("fenced ", err.(*FenceError).Resent)
	case errors.As(err, new(*RangeError)):
		return "range"
	case errors.As(err, new(*InvalidError)):
		return "invalid"
	case errors.Is(err, ErrNotFound):
		return "not found"
	case errors.Is(err, ErrExists):
		return "exists"
	case errors.As(err, &server):
		return server.Code
	case errors.As(err, new(*protocolError)):
		return "broken"
	}
	return ""
}

// TestWhatErrorsMean: each error, of a write, of one that was sent before, of a question, of a session that is opened; and
// whether a read goes on behind it, and a producer ends by it.
func TestWhatErrorsMean(t *testing.T) {
	wire := func(code connect.Code, detail proto.Message) error {
		e := connect.NewWireError(code, errors.New("why"))
		if detail != nil {
			d, err := connect.NewErrorDetail(detail)
			if err != nil {
				t.Fatal(err)
			}
			e.AddDetail(d)
		}
		return fmt.Errorf("call: %w", e)
	}
	for name, c := range map[string]struct {
		err                         error
		write, resent, read, opened string
		again, ends                 bool
	}{
		"a miss":     {wire(connect.CodeFailedPrecondition, &novav1.SequenceMismatch{}), "missed false", "missed true", "", "unavailable", false, false},
		"a fence":    {wire(connect.CodeFailedPrecondition, &novav1.FencingTokenMismatch{}), "fenced false", "fenced true", "", "fenced false", false, true},
		"a range":    {wire(connect.CodeOutOfRange, &novav1.OutOfRange{}), "range", "unknown", "range", "unavailable", false, false},
		"invalid":    {wire(connect.CodeInvalidArgument, nil), "invalid", "unknown", "invalid", "invalid", false, true},
		"not found":  {wire(connect.CodeNotFound, nil), "not found", "unknown", "not found", "not found", false, true},
		"exists":     {wire(connect.CodeAlreadyExists, nil), "exists", "unknown", "exists", "exists", false, true},
		"forbidden":  {wire(connect.CodePermissionDenied, nil), "permission_denied", "unknown", "permission_denied", "permission_denied", false, true},
		"nobody":     {wire(connect.CodeUnauthenticated, nil), "unauthenticated", "unknown", "unauthenticated", "unauthenticated", false, true},
		"an old one": {wire(connect.CodeUnimplemented, nil), "unimplemented", "unknown", "unimplemented", "unimplemented", false, true},
		"damaged":    {wire(connect.CodeDataLoss, nil), "data_loss", "unknown", "data_loss", "data_loss", false, true},
		"busy":       {wire(connect.CodeResourceExhausted, &novav1.NothingWritten{}), "unavailable", "unknown", "unavailable", "unavailable", true, false},
		"a limit":    {wire(connect.CodeResourceExhausted, nil), "unavailable", "unknown", "unavailable", "unavailable", true, false},
		"nothing":    {wire(connect.CodeUnavailable, &novav1.NothingWritten{}), "unavailable", "unknown", "unavailable", "unavailable", true, false},
		"unknown":    {wire(connect.CodeUnavailable, &novav1.OutcomeUnknown{}), "unknown", "unknown", "unavailable", "unavailable", true, false},
		"a proxy's":  {wire(connect.CodeUnavailable, nil), "unknown", "unknown", "unavailable", "unavailable", true, false},
		"too late":   {wire(connect.CodeDeadlineExceeded, nil), "unknown", "unknown", "unavailable", "unavailable", true, false},
		"a fault":    {wire(connect.CodeInternal, nil), "unknown", "unknown", "", "unavailable", false, false},
		"not sent":   {connect.NewError(connect.CodeUnavailable, &notSentError{errors.New("why")}), "unavailable", "unknown", "unavailable", "unavailable", true, false},
		"lost":       {connect.NewError(connect.CodeUnavailable, errors.New("why")), "unknown", "unknown", "unavailable", "unavailable", true, false},
		"cut":        {connect.NewError(connect.CodeInternal, io.ErrUnexpectedEOF), "unknown", "unknown", "", "unavailable", true, false},
		"a deadline": {connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), "unknown", "unknown", "", "unavailable", true, false},
		"garbage":    {connect.NewError(connect.CodeInvalidArgument, errors.New("why")), "unknown", "unknown", "", "", false, true},
		"no message": {connect.NewError(connect.CodeInternal, fmt.Errorf("marshal message: %w", invalid(errors.New("why")))), "invalid", "unknown", "invalid", "invalid", false, true},
		"nonsense":   {&protocolError{"why"}, "unknown", "unknown", "broken", "broken", false, true},
		"the end":    {io.EOF, "unknown", "unknown", "", "unavailable", false, false},
	} {
		opened := openError(c.err)
		for what, is := range map[string][2]string{
			"write":  {nameOf(writeError(c.err, false)), c.write},
			"resent": {nameOf(writeError(c.err, true)), c.resent},
			"read":   {nameOf(readError(c.err)), c.read},
			"open":   {nameOf(opened), c.opened},
		} {
			if is[0] != is[1] {
				t.Errorf("%s: %s is %q, not %q", name, what, is[0], is[1])
			}
		}
		if again(c.err) != c.again || permanent(opened) != c.ends {
			t.Errorf("%s: again %v, ends %v", name, again(c.err), permanent(opened))
		}
	}
}
