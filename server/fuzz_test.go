package server_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// fuzzed gives a function that asks a server's handler. What no HTTP client could send is 400.
func fuzzed(f *testing.F, s *natstest.Server) func(method, path, body string) (int, string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	srv, err := server.Open(ctx, server.Config{URL: s.URL()}, server.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			f.Error(err)
		}
	})
	h := srv.Handler()
	return func(method, path, body string) (int, string) {
		u, err := url.ParseRequestURI("/v1/" + path)
		if err != nil {
			return http.StatusBadRequest, ""
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
		if err != nil {
			return http.StatusBadRequest, ""
		}
		q.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		return w.Code, w.Body.String()
	}
}
