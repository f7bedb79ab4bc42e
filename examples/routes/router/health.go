package router

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Health serves /livez, /readyz and /statusz, and the routes of one node under /nodes/. It belongs on an address of its own, since every host of the other one
// is a tenant's.
func (r *Router) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "live") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ok, why := r.ready(); !ok {
			writeText(w, http.StatusServiceUnavailable, why)
			return
		}
		writeText(w, http.StatusOK, "ready")
	})
	mux.HandleFunc("GET /statusz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(r.fold.Status()) // a client that went away
	})
	mux.HandleFunc("GET /nodes/{id}", r.node)
	return mux
}

// node tells which routes go to a node, from the index by_node.
func (r *Router) node(w http.ResponseWriter, req *http.Request) {
	var lines []string
	for row, err := range r.routes.ListByNode(req.Context(), req.PathValue("id")) {
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error())
			return
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", row.Key.Tenant, row.Key.Domain, row.Value.GetOrigin()))
	}
	if len(lines) == 0 {
		writeText(w, http.StatusNotFound, "no routes")
		return
	}
	writeText(w, http.StatusOK, strings.Join(lines, "\n"))
}

// ready: old routes are better than none, so a node with a fold on disk serves while NATS is away, and after its fold
// has stopped; /statusz says how old they are.
func (r *Router) ready() (ok bool, why string) {
	switch {
	case r.draining.Load():
		return false, "shutting down"
	case r.local:
		return true, ""
	}
	if s := r.fold.Status(); !s.Hydrated {
		return false, "no routes yet: the fold is " + string(s.State)
	}
	return true, ""
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // a client that went away
}
