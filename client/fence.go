package client

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
)

// FenceError is a writer that was locked out. It matches ErrFencedOut.
type FenceError struct {
	// Installed is the token that stands; "" is none.
	Installed string
	// Resent: an earlier attempt of this batch, before the fence, may have been appended.
	Resent bool
}

func (e *FenceError) Error() string {
	text := fmt.Sprintf("fenced out: the installed token is %q", e.Installed)
	if e.Installed == "" {
		text = "fenced out: no token is installed, and one was presented; Fence installs it"
	}
	if e.Resent {
		text += "; the batch was resent, and an earlier attempt may have been appended"
	}
	return text
}

// Is makes it match ErrFencedOut.
func (e *FenceError) Is(target error) bool { return target == ErrFencedOut }

// Presenting is a view of the client whose one-shots present the token; "" is none. The client itself stays as it is.
func (c *Client) Presenting(token string) *Client {
	view := *c
	view.token = token
	return &view
}

// Fence installs, rotates or, with "", clears the stream's token, and answers the tail. Where the token changes, every record
// below the tail was admitted under earlier tokens, and every other one will have been under this one or a later one. By the time it
// returns, every session that presents another token is superseded. It has no condition, and an equal token changes nothing: then
// the tail is that of some moment after the call, and records below it may have been admitted under this very token. So it may be
// called again after an error that matches ErrOutcomeUnknown, and whoever presents a token that nobody else has still learns where to
// go on.
func (c *Client) Fence(ctx context.Context, addr, token string) (Tail, error) {
	if err := nova.CheckToken(token); err != nil {
		return Tail{}, fmt.Errorf("fence %s: %w", addr, invalid(err))
	}
	ctx, cancel, err := c.writing(ctx)
	defer cancel()
	if err != nil {
		return Tail{}, fmt.Errorf("fence %s: %w", addr, err)
	}
	out, err := c.rpc.Fence(ctx, connect.NewRequest(&novav1.FenceRequest{Addr: addr, FencingToken: token}))
	if err != nil {
		return Tail{}, fmt.Errorf("fence %s: %w", addr, writeError(err, false))
	}
	return tailOf(out.Msg.GetTail()), nil
}

// FencingToken is the installed token; "" is none. It sees every Fence that has returned.
func (c *Client) FencingToken(ctx context.Context, addr string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.timeout)
	defer cancel()
	out, err := c.rpc.FencingToken(ctx, connect.NewRequest(&novav1.FencingTokenRequest{Addr: addr}))
	if err != nil {
		return "", fmt.Errorf("fencing token of %s: %w", addr, readError(err))
	}
	return out.Msg.GetFencingToken(), nil
}
