package client

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"connectrpc.com/connect"
)

// once keeps the transport from sending a request a second time, as it does by itself where it holds that to be safe: one
// call is one attempt. Of the client's own transport it notes whether the request has left.
type once struct {
	connect.HTTPClient
	own bool
}

func (c once) Do(q *http.Request) (*http.Response, error) {
	q.GetBody = nil
	if m, ok := q.Context().Value(moreKey{}).(*more); ok {
		q.Body = m.together(q.Body)
	}
	if !c.own {
		return c.HTTPClient.Do(q)
	}
	var begun atomic.Bool // before the first byte of it is written
	q = q.WithContext(httptrace.WithClientTrace(q.Context(), &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { begun.Store(true) },
	}))
	r, err := c.HTTPClient.Do(q)
	if err != nil && !begun.Load() {
		if within := new(url.Error); errors.As(err, &within) {
			err = within.Err // Connect leaves out whatever is around it
		}
		err = &notSentError{err}
	}
	return r, err
}

// notSentError is a request of which nothing was sent.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// notSent reports whether a request has reached nobody. Of a transport that is not the client's own, only a failed dial
// says so.
func notSent(err error) bool {
	var dial *net.OpError
	return errors.As(err, new(*notSentError)) || errors.As(err, &dial) && dial.Op == "dial"
}
