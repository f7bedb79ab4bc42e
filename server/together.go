package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
)

// compressFrom is the size in bytes from which on answers are compressed, for who accepts that: an acknowledgment never is.
const compressFrom = 4 << 10

// together has append sessions read and write many messages at once, since by itself each answer would be a packet, and lets
// reads write whole messages.
func together(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case novav1connect.DataPlaneServiceAppendSessionProcedure:
		case novav1connect.DataPlaneServiceReadProcedure:
			d := &direct{w: w, c: http.NewResponseController(w)}
			next.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), directKey{}, d)))
			return
		default:
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

type directKey struct{}

// direct is the response of a read, to which messages are written as they are on the wire: in Connect, in gRPC and in gRPC-Web each has
// the same five bytes before it. The library writes the first message, and with it the response's head, and whatever comes at the end; in
// between it would copy each message twice, and send each as two.
type direct struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// directOf is that of a read's context; nil where there is none.
func directOf(ctx context.Context) *direct {
	d, _ := ctx.Value(directKey{}).(*direct)
	return d
}

// envelope is how many bytes stand before a message.
const envelope = 5

// write sends a message that has room for its envelope before it.
func (d *direct) write(message []byte) error {
	message[0] = 0 // not compressed
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-envelope))
	_, err := d.w.Write(message)
	if err == nil {
		err = d.c.Flush()
	}
	if err != nil { // the client is gone
		return connect.NewError(connect.CodeCanceled, fmt.Errorf("write a message: %w", err))
	}
	return nil
}
