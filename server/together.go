package server

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
)

// compressFrom is the size in bytes from which on answers are compressed, for who accepts that: an acknowledgment never is.
const compressFrom = 4 << 10

// together has append sessions read and write many messages at once. By itself each answer would be a packet.
func together(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != novav1connect.DataPlaneServiceAppendSessionProcedure {
			next.ServeHTTP(w, q)
			return
		}
		h := &held{ResponseWriter: w, c: http.NewResponseController(w)}
		q = q.WithContext(context.WithValue(q.Context(), heldKey{}, h))
		q.Body = struct {
			io.Reader
			io.Closer
		}{bufio.NewReaderSize(q.Body, 16<<10), q.Body}
		next.ServeHTTP(h, q)
	})
}

type heldKey struct{}

// held is a response that is sent when its buffer is full, when the handler ends, and on send.
type held struct {
	http.ResponseWriter
	c       *http.ResponseController
	waiting bool // something was flushed since send
}

// Flush only notes that there is something to send.
func (h *held) Flush() { h.waiting = true }

func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// send sends what was written. It is called by the goroutine that writes.
func (h *held) send() {
	if h == nil || !h.waiting {
		return
	}
	h.waiting = false
	_ = h.c.Flush() // of a connection that is lost the request's context ends
}

// heldOf is the response of a session's context; nil when it is not held.
func heldOf(ctx context.Context) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}
