package server

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"connectrpc.com/connect"
)

// A browser sends what any page has it send, also to the loopback. So a body has to be called JSON, which a page of another
// origin may not do unasked, and what changes something is refused where the browser says that it comes from one.
var (
	errNotJSON     = errors.New("the body has to have Content-Type: application/json")
	errCrossOrigin = problem{
		code: connect.CodePermissionDenied, status: http.StatusForbidden, name: "permission_denied", text: "a page of another origin sends this",
	}
)

// asJSON checks what a request says of its body.
func asJSON(q *http.Request) error {
	if q.ContentLength == 0 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(q.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errNotJSON
	}
	return nil
}

// sameOrigin refuses what pages of other origins send, but for reads, whose answers a browser keeps from them.
func sameOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeProblem(w, errCrossOrigin) }))
	return p.Handler(next)
}

// unknown answers what no route of the mux is for.
func unknown(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
			other := q.WithContext(q.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != anyPath && pattern != "" {
				allowed = append(allowed, method)
			}
		}
		p := problem{code: connect.CodeUnimplemented, status: http.StatusNotFound, name: "not_found", text: "there is no such path"}
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			p.status, p.name, p.text = http.StatusMethodNotAllowed, "method_not_allowed", "the path has no method "+q.Method
		}
		writeProblem(w, p)
	})
}

// anyPath is the pattern of what no other one takes.
const anyPath = "/"
