package server

import (
	"context"
	"net/http"

	"github.com/nats-io/nuid"
)

// RequestIDHeader names a request: of the client's choice if that has 1 to 64 characters of A-Z a-z 0-9 . _ - : / + =, else of
// the server's. It is in the answer's header, in the log, and in the text of errors that a person may have to look into.
const RequestIDHeader = "X-Request-Id"

const maxRequestID = 64

type requestIDKey struct{}

// identified gives each request its name.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		id := q.Header.Get(RequestIDHeader)
		if !isRequestID(id) {
			id = nuid.Next()
		}
		w.Header().Set(RequestIDHeader, id)
		next.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), requestIDKey{}, id)))
	})
}

// requestID is the name of a context's request; "" where there is none.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// isRequestID reports whether a name is fit for a log line and a header.
func isRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '_', c == '-', c == ':', c == '/', c == '+', c == '=':
		default:
			return false
		}
	}
	return true
}
