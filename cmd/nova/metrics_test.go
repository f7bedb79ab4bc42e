package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scrape reads a page of metrics.
func scrape(t *testing.T, url, bearer string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(bounded(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		q.Header.Set("Authorization", "Bearer "+bearer)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	a, err := transport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// TestServeMetrics: what was appended is on the page, and nothing else is served there.
func TestServeMetrics(t *testing.T) {
	w := serve(t, "--metrics", "127.0.0.1:0")
	at := w.served.printed(t, `metrics: (\S+)\n`)[1]
	w.ok(t, "", "create", addr)
	w.ok(t, "a\nb\n", "append", addr, "--match-seq-num", "0")
	w.fails(t, exitLost, "x\n", "append", addr, "--match-seq-num", "0")
	status, page := scrape(t, at, "")
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, page)
	}
	holds(t, page, `nova_append_records_total{namespace="demo"} 2`, `nova_misses_total{namespace="demo"} 2`, "nova_streams_led 1", "go_goroutines", "nova_request_duration_seconds_bucket")
	if strings.Contains(page, "events") {
		t.Error("the page names a stream")
	}
	if status, _ := scrape(t, strings.TrimSuffix(at, "metrics")+"v1", ""); status != http.StatusNotFound {
		t.Errorf("beside the metrics: %d", status)
	}
	if code := w.served.end(t); code != exitOK || w.served.err.String() != "" {
		t.Errorf("code %d: %s", code, &w.served.err)
	}
	if quiet := serve(t); strings.Contains(quiet.served.out.String(), "metrics") {
		t.Errorf("it has a page: %s", &quiet.served.out)
	}
}

// TestServeMetricsBeyondTheLoopback: only with a table of tokens, and for who has one of them.
func TestServeMetricsBeyondTheLoopback(t *testing.T) {
	w := &world{env: map[string]string{}}
	w.fails(t, exitUsage, "", "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--metrics", "0.0.0.0:0")
	auth := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(auth, []byte(`{"grants":[{"name":"prometheus","token":"t-scrape","namespaces":{}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--auth", auth, "--metrics", "0.0.0.0:0")
	_, port, _ := strings.Cut(r.printed(t, `metrics: http://(\S+)/metrics\n`)[1], "]:")
	at := "http://127.0.0.1:" + port + "/metrics"
	for token, want := range map[string]int{"": http.StatusUnauthorized, "other": http.StatusUnauthorized, "t-scrape": http.StatusOK} {
		status, page := scrape(t, at, token)
		if status != want || strings.Contains(page, "nova_sessions") != (want == http.StatusOK) {
			t.Errorf("with token %q: %d", token, status)
		}
	}
}
