package client

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
)

// TestWords: an error names its kind once, and says why.
func TestWords(t *testing.T) {
	server := func(code connect.Code, text string, detail proto.Message) error {
		e := connect.NewWireError(code, errors.New(text))
		if detail != nil {
			d, err := connect.NewErrorDetail(detail)
			if err != nil {
				t.Fatal(err)
			}
			e.AddDetail(d)
		}
		return e
	}
	for want, err := range map[string]error{
		"stream not found":      writeError(server(connect.CodeNotFound, "stream not found", nil), false),
		"stream exists already": writeError(server(connect.CodeAlreadyExists, "stream exists already", nil), false),
		"unavailable: nothing was written: leader stopped": writeError(
			server(connect.CodeUnavailable, "nothing was written: leader stopped", &novav1.NothingWritten{}), false),
		"outcome unknown: no answer from the log within 5s": writeError(
			server(connect.CodeUnavailable, "the outcome is unknown: no answer from the log within 5s", &novav1.OutcomeUnknown{}), false),
		"outcome unknown: the connection is lost": writeError(connect.NewError(connect.CodeUnavailable, errors.New("the connection is lost")), false),
		"unavailable: leader stopped":             readError(server(connect.CodeUnavailable, "nothing was written: leader stopped", &novav1.NothingWritten{})),
		"unavailable: nothing was written: no way there": writeError(
			connect.NewError(connect.CodeUnavailable, &notSentError{errors.New("no way there")}), false),
		"outcome unknown: no way there": writeError(connect.NewError(connect.CodeUnavailable, &notSentError{errors.New("no way there")}), true),
		"unavailable":                   said(ErrUnavailable, "", nil),
	} {
		if err.Error() != want {
			t.Errorf("%q, not %q", err, want)
		}
	}
	late := writeError(connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), false)
	if !errors.Is(late, ErrOutcomeUnknown) || !errors.Is(late, context.DeadlineExceeded) {
		t.Errorf("the cause of %q is not kept", late)
	}
}
