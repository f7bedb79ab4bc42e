package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/typedfold/fold/server"
	"github.com/typedfold/fold/server/novametrics"
)

// metricsPage answers GET /metrics on a listener of its own. A nil one is none.
type metricsPage struct {
	metrics *novametrics.Metrics
	l       net.Listener
	at      string
	srv     *http.Server
	ended   chan error
}

// metricsPage listens on --metrics. Beyond the loopback it needs --auth, as the server does, and then a bearer token from the
// table.
func (f *serveFlags) metricsPage(o server.Options) (*metricsPage, error) {
	if f.metrics == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", f.metrics)
	if err != nil {
		return nil, &codeError{code: exitFailed, err: err, hint: "--metrics takes another address"}
	}
	beyond := !onLoopback(l)
	if beyond && o.Auth == nil {
		return nil, errors.Join(usageError("--auth FILE says whose bearer token may read them", "without --auth metrics are on the loopback only, and %s is beyond", f.metrics), l.Close())
	}
	m := &metricsPage{metrics: novametrics.New(), l: l, at: urlOf(l, o.TLS != nil) + "/metrics", ended: make(chan error, 1)}
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{m.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector()} {
		if err := registry.Register(c); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	errorLog := slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn)
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: errorLog, EnableOpenMetrics: true})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, q *http.Request) {
		if beyond && !o.Auth.Knows(q.Header.Get("Authorization")) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a known bearer token is needed", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, q)
	})
	m.srv = &http.Server{
		Handler: mux, TLSConfig: o.TLS.Clone(), ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	return m, nil
}

// begin answers, with the figures of a server.
func (m *metricsPage) begin(s *server.Server) {
	m.metrics.Watch(s)
	go func() {
		if m.srv.TLSConfig != nil {
			m.ended <- m.srv.ServeTLS(m.l, "", "")
		} else {
			m.ended <- m.srv.Serve(m.l)
		}
	}()
}

// end ends what begin has begun.
func (m *metricsPage) end(ctx context.Context) error {
	err := m.srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, m.srv.Close())
	}
	if e := <-m.ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

func onLoopback(l net.Listener) bool {
	at, ok := l.Addr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

func urlOf(l net.Listener, secure bool) string {
	if secure {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}
