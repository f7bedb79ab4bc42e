package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// guard is what every call goes through: who calls, how long it may take, what its error is, and that it is told of.
type guard struct{ s *Server }

func (g guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, q connect.AnyRequest) (connect.AnyResponse, error) {
		var out connect.AnyResponse
		err := g.s.call(ctx, q.Spec().Procedure, q.Header(), func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, g.s.o.UnaryTimeout)
			defer cancel()
			out, err = next(ctx, q)
			return err
		})
		if err != nil {
			return nil, rpcError(ctx, err)
		}
		return out, nil
	}
}

func (g guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (g guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		err := g.s.call(ctx, c.Spec().Procedure, c.RequestHeader(), func(ctx context.Context) error {
			if c.Spec().Procedure == novav1connect.DataPlaneServiceAppendSessionProcedure {
				return next(ctx, c) // it ends by itself, with answers
			}
			ctx, cancel, err := g.s.ending(ctx)
			if err != nil {
				return err
			}
			defer cancel()
			err = next(ctx, c)
			if err != nil && errors.Is(context.Cause(ctx), errEnding) && errors.Is(err, context.Canceled) {
				err = errEnding
			}
			return err
		})
		if err != nil {
			return rpcError(ctx, err)
		}
		return nil
	}
}

func rpcError(ctx context.Context, err error) error {
	var already *connect.Error
	if errors.As(err, &already) {
		return already
	}
	return problemOf(err).rpc(requestID(ctx))
}

// call runs one call for its caller, and tells of it.
func (s *Server) call(ctx context.Context, method string, header http.Header, f func(context.Context) error) error {
	began := time.Now()
	who, err := s.o.Auth.who(header.Get("Authorization"))
	if err == nil && s.ends() {
		err = errEnding
	}
	if err == nil {
		err = ownDeadline(ctx, f(context.WithValue(ctx, callerKey{}, who)))
	}
	c := Call{Method: method, Code: "ok", RequestID: requestID(ctx), Took: time.Since(began)}
	if err != nil {
		p := problemOf(err)
		c.Code, c.Outcome = codeOf(err, p).String(), p.outcome
	}
	if s.o.Events.Call != nil {
		s.o.Events.Call(c)
	}
	level := slog.LevelDebug
	if c.Code == connect.CodeInternal.String() || c.Code == connect.CodeDataLoss.String() {
		level = slog.LevelError
	}
	if s.o.Logger.Enabled(ctx, level) {
		s.o.Logger.Log(ctx, level, "nova: call", "request", c.RequestID, "method", method, "caller", who.name, "code", c.Code, "took", c.Took, "err", logged(err))
	}
	return err
}

// logged is an error as the log has it: without the fencing token that stands, by which any client could append.
func logged(err error) any {
	if errors.As(err, new(*sequencer.FencedError)) {
		return "fenced out"
	}
	return err
}

func codeOf(err error, p problem) connect.Code {
	var already *connect.Error
	if errors.As(err, &already) {
		return already.Code()
	}
	return p.code
}
