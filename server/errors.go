package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// errBusy is a server that holds as much as it may.
var errBusy = errors.New("the server is busy")

// problem is an error as clients get it, over either protocol.
type problem struct {
	code   connect.Code
	status int
	name   string // of the code, over HTTP
	text   string
	detail proto.Message

	tail, first *nova.Position
	installed   *string
	outcome     string
}

const (
	outcomeNothing = nova.OutcomeIsNothing
	outcomeUnknown = nova.OutcomeIsUnknown
)

// problemOf names an error. What no client can act on is internal, and its text stays in the log.
func problemOf(err error) problem {
	var fenced *sequencer.FencedError
	var missed *sequencer.MissedError
	var away *sequencer.UnavailableError
	var outside *reader.OutOfRangeError
	var tooLarge *http.MaxBytesError
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &away) && away.Indefinite: // before what it wraps: that says why, and not what came of the write
		return problem{
			code: connect.CodeUnavailable, status: http.StatusServiceUnavailable, name: "unavailable", text: away.Error(),
			detail: &novav1.OutcomeUnknown{}, outcome: outcomeUnknown,
		}
	case errors.As(err, &fenced):
		return problem{
			code: connect.CodeFailedPrecondition, status: http.StatusPreconditionFailed, name: "fencing_token_mismatch", text: fenced.Error(),
			detail: &novav1.FencingTokenMismatch{Installed: fenced.Installed}, installed: &fenced.Installed,
		}
	case errors.As(err, &missed):
		return problem{
			code: connect.CodeFailedPrecondition, status: http.StatusPreconditionFailed, name: "seq_num_mismatch", text: missed.Error(),
			detail: &novav1.SequenceMismatch{Tail: positionOf(missed.Tail)}, tail: &missed.Tail,
		}
	case errors.Is(err, nova.ErrInvalid):
		return problem{code: connect.CodeInvalidArgument, status: http.StatusBadRequest, name: "invalid_argument", text: err.Error()}
	case errors.As(err, &tooLarge):
		return problem{code: connect.CodeResourceExhausted, status: http.StatusRequestEntityTooLarge, name: "too_large", text: tooLarge.Error()}
	case errors.Is(err, errNotJSON):
		return problem{code: connect.CodeInvalidArgument, status: http.StatusUnsupportedMediaType, name: "unsupported_media_type", text: err.Error()}
	case errors.Is(err, errUnauthenticated):
		return problem{code: connect.CodeUnauthenticated, status: http.StatusUnauthorized, name: "unauthenticated", text: err.Error()}
	case errors.Is(err, errForbidden):
		return problem{code: connect.CodePermissionDenied, status: http.StatusForbidden, name: "permission_denied", text: err.Error()}
	case errors.Is(err, jslog.ErrNotFound):
		return problem{code: connect.CodeNotFound, status: http.StatusNotFound, name: "not_found", text: jslog.ErrNotFound.Error()}
	case errors.Is(err, jslog.ErrExists):
		return problem{code: connect.CodeAlreadyExists, status: http.StatusConflict, name: "already_exists", text: jslog.ErrExists.Error()}
	case errors.As(err, &outside):
		return problem{
			code: connect.CodeOutOfRange, status: http.StatusRequestedRangeNotSatisfiable, name: "out_of_range", text: outside.Error(),
			detail: &novav1.OutOfRange{First: positionOf(outside.First), Tail: positionOf(outside.Tail)}, first: &outside.First, tail: &outside.Tail,
		}
	case errors.Is(err, errBusy):
		return problem{
			code: connect.CodeResourceExhausted, status: http.StatusTooManyRequests, name: "busy", text: err.Error(),
			detail: &novav1.NothingWritten{}, outcome: outcomeNothing,
		}
	case errors.Is(err, jslog.ErrDamaged), errors.Is(err, frame.ErrCorrupt):
		return problem{code: connect.CodeDataLoss, status: http.StatusInternalServerError, name: "data_loss", text: err.Error()}
	case errors.As(err, &refused) && refused.ErrorCode == codeNoCluster:
		return problem{code: connect.CodeInvalidArgument, status: http.StatusBadRequest, name: "invalid_argument", text: "the log refuses: " + refused.Description}
	case errors.As(err, &away):
		return problem{
			code: connect.CodeUnavailable, status: http.StatusServiceUnavailable, name: "unavailable", text: away.Error(),
			detail: &novav1.NothingWritten{}, outcome: outcomeNothing,
		}
	case errors.Is(err, jslog.ErrNewborn):
		return problem{code: connect.CodeUnavailable, status: http.StatusServiceUnavailable, name: "unavailable", text: err.Error()}
	case awayFromLog(err):
		return problem{code: connect.CodeUnavailable, status: http.StatusServiceUnavailable, name: "unavailable", text: "the log can't be reached"}
	case errors.Is(err, context.Canceled):
		return problem{code: connect.CodeCanceled, status: statusClientClosed, name: "canceled", text: "canceled"}
	case errors.Is(err, context.DeadlineExceeded):
		return problem{code: connect.CodeDeadlineExceeded, status: http.StatusServiceUnavailable, name: "deadline_exceeded", text: "deadline exceeded"}
	}
	return problem{code: connect.CodeInternal, status: http.StatusInternalServerError, name: "internal", text: "internal error"}
}

// awayFromLog reports whether the log's servers did not answer: it may help to ask again, or elsewhere.
func awayFromLog(err error) bool {
	for _, away := range []error{
		nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrTimeout,
		nats.ErrNoResponders, nats.ErrNoServers, jetstream.ErrNoStreamResponse, jetstream.ErrNoHeartbeat, jetstream.ErrConnectionClosed,
	} {
		if errors.Is(err, away) {
			return true
		}
	}
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.Code == http.StatusServiceUnavailable
}

// changing is the error of a call that changes the streams themselves: where the log's answer did not come, what came of the
// change is unknown. Where nobody was there to be asked, it is as it was.
func changing(err error) error {
	lost := awayFromLog(err) && !errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded)
	if !lost || errors.As(err, new(*sequencer.UnavailableError)) {
		return err
	}
	return &sequencer.UnavailableError{Err: fmt.Errorf("the log can't be reached: %w", err), Indefinite: true}
}

// codeNoCluster is the log's refusal of replicas on a server that is alone, whenever it is asked.
const codeNoCluster jetstream.ErrorCode = 10074

// statusClientClosed is what servers log for a client that went away.
const statusClientClosed = 499

// rpc is the problem as a Connect error. What a person may have to look into names the request, as the log does.
func (p problem) rpc(request string) *connect.Error {
	text := p.text
	if request != "" && (p.code == connect.CodeInternal || p.code == connect.CodeUnavailable || p.code == connect.CodeDataLoss) {
		text += " (request " + request + ")"
	}
	e := connect.NewError(p.code, errors.New(text))
	if p.detail != nil {
		if d, err := connect.NewErrorDetail(p.detail); err == nil {
			e.AddDetail(d)
		}
	}
	return e
}

func positionOf(p nova.Position) *novav1.Position {
	return &novav1.Position{SeqNum: p.SeqNum, Timestamp: p.Timestamp}
}
