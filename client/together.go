package client

import (
	"io"
	"sync/atomic"
)

// more says that behind the message that a session writes another one is sent at once. A transport that is handed message by
// message makes a packet of each.
type more struct{ atomic.Bool }

type moreKey struct{}

// together is the body of a session, whose reads give as many messages as are sent at once. The body has to be a pipe, which
// is closed when the session's writer ends, so that no read waits for a message that does not come.
func (m *more) together(body io.ReadCloser) io.ReadCloser { return &joined{body, m} }

type joined struct {
	io.ReadCloser
	more *more
}

func (j *joined) Read(b []byte) (n int, err error) {
	for n < len(b) && err == nil && (n == 0 || j.more.Load()) {
		var got int
		got, err = j.ReadCloser.Read(b[n:])
		n += got
	}
	return n, err
}
