package router

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store/pebblestore"

	routesv1 "github.com/typedfold/fold/examples/routes/gen/routes/v1"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
)

// bound is how long a test waits for anything.
const bound = 30 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	return ctx
}

func jetStream(t *testing.T, srv *natstest.Server) jetstream.JetStream {
	t.Helper()
	nc, err := srv.Connect(nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func lazy(t *testing.T, srv *natstest.Server) fold.Bucket {
	t.Helper()
	b, err := natskv.Lazy(jetStream(t, srv), Bucket, natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openRouter(t *testing.T, bucket fold.Bucket, dir string) *Router {
	t.Helper()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(within(t), bucket, s, fold.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err, s.Close())
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// edge is a bucket with a router on it.
type edge struct {
	t      *testing.T
	ctx    context.Context
	bucket *natskv.Bucket
	writer routesv1fold.RouteWriter
	router *Router
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{t: t, ctx: within(t)}
	var err error
	if e.bucket, err = natskv.Open(e.ctx, jetStream(t, natstest.New(t)), Bucket, natskv.BucketConfig{}); err != nil {
		t.Fatal(err)
	}
	e.writer = routesv1fold.NewRouteWriter(e.bucket)
	e.router = openRouter(t, e.bucket, t.TempDir())
	if err := e.router.Fold().WaitHydrated(e.ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

// put writes a route and waits until the router has it.
func (e *edge) put(r *routesv1.Route) routesv1fold.RouteRev {
	e.t.Helper()
	rev, err := e.writer.Put(e.ctx, r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.applied(rev)
	return rev
}

func (e *edge) applied(rev fold.Revision) {
	e.t.Helper()
	if err := e.router.Fold().WaitApplied(e.ctx, rev); err != nil {
		e.t.Fatal(err)
	}
}

// settled waits until the router has all that the bucket has.
func (e *edge) settled() {
	e.t.Helper()
	info, err := e.bucket.Info(e.ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	e.applied(fold.Seq(info.Last))
}

func get(h http.Handler, host, path string) (code int, body string) {
	req := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func origin(t *testing.T, name string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, name+" "+r.Host+r.URL.RequestURI()+" for "+r.Header.Get("X-Forwarded-Host"))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestRoutesRequests(t *testing.T) {
	e := newEdge(t)
	red, blue := origin(t, "red"), origin(t, "blue")
	e.put(&routesv1.Route{Tenant: "acme", Domain: "www.example.com", Origin: red.URL, Enabled: true})
	e.put(&routesv1.Route{Tenant: "acme", Domain: "*.example.com", Origin: strings.TrimPrefix(blue.URL, "http://"), Enabled: true})
	e.put(&routesv1.Route{Tenant: "acme", Domain: "old.example.com", Origin: red.URL})
	e.put(&routesv1.Route{Tenant: "acme", Domain: "broken.example.com", Origin: "ftp://user:secret@x", Enabled: true})
	e.put(&routesv1.Route{Tenant: "acme", Domain: "dead.example.com", Origin: "127.0.0.1:1", Enabled: true})
	for _, c := range []struct {
		host, path string
		code       int
		body       string
	}{
		{"www.example.com", "/a?b=c", 200, "red www.example.com/a?b=c for www.example.com"},
		{"WWW.Example.com.:8080", "/", 200, "red WWW.Example.com.:8080/ for WWW.Example.com.:8080"},
		{"a.b.example.com", "/", 200, "blue a.b.example.com/ for a.b.example.com"},
		{"old.example.com", "/", 503, "this route is disabled"},
		{"broken.example.com", "/", 502, "this route has no usable origin"},
		{"dead.example.com", "/", 502, ""},
		{"example.com", "/", 404, "no route for this host"},
		{"nobody.example", "/", 404, "no route for this host"},
	} {
		if code, body := get(e.router, c.host, c.path); code != c.code || body != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.host, code, body, c.code, c.body)
		}
	}
	// A moved route, then a deleted one.
	k := routesv1fold.RouteKey{Tenant: "acme", Domain: "www.example.com"}
	rev, err := e.writer.Mutate(e.ctx, k, func(r *routesv1.Route, _ bool) (*routesv1.Route, error) {
		r.Origin = blue.URL
		return r, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	e.applied(rev)
	if _, body := get(e.router, "www.example.com", "/"); !strings.HasPrefix(body, "blue") {
		t.Errorf("after the move: %q", body)
	}
	for _, d := range []string{"www.example.com", "*.example.com"} {
		if err := e.writer.Delete(e.ctx, routesv1fold.RouteKey{Tenant: "acme", Domain: d}); err != nil {
			t.Fatal(err)
		}
	}
	e.settled()
	if code, _ := get(e.router, "www.example.com", "/"); code != 404 {
		t.Errorf("after the deletes: %d", code)
	}
}

func TestWeightLeavesTheRestToTheNextRoute(t *testing.T) {
	e := newEdge(t)
	canary, main := origin(t, "canary"), origin(t, "main")
	e.put(&routesv1.Route{Tenant: "acme", Domain: "www.example.com", Origin: canary.URL, Enabled: true, Weight: 25})
	e.put(&routesv1.Route{Tenant: "acme", Domain: "*.example.com", Origin: main.URL, Enabled: true})
	const n = 20_000
	hits := 0
	for range n {
		if e.router.route("www.example.com").GetOrigin() == canary.URL {
			hits++
		}
	}
	if share := float64(hits) / n; share < 0.22 || share > 0.28 { // nine standard deviations
		t.Errorf("share %.3f of a weight of 25", share)
	}
	// Alone, it takes them all.
	if err := e.writer.Delete(e.ctx, routesv1fold.RouteKey{Tenant: "acme", Domain: "*.example.com"}); err != nil {
		t.Fatal(err)
	}
	e.settled()
	for range 100 {
		if e.router.route("www.example.com") == nil {
			t.Fatal("no route")
		}
	}
}

// A row that the matcher names and the table does not have, as between a hook and its commit, is passed over.
func TestMatcherAheadOfTheTable(t *testing.T) {
	e := newEdge(t)
	o := origin(t, "o")
	e.put(&routesv1.Route{Tenant: "acme", Domain: "*.example.com", Origin: o.URL, Enabled: true})
	h := e.router.hooks
	h.current.Store(h.current.Load().with([]change{put(key("acme", "new.example.com"))}))
	if code, _ := get(e.router, "new.example.com", "/"); code != 200 {
		t.Errorf("code %d", code)
	}
}

func TestServesItsDiskWhileNATSIsAway(t *testing.T) {
	ctx := within(t)
	srv := natstest.New(t)
	dir := filepath.Join(t.TempDir(), "fold")
	o := origin(t, "o")
	bucket, err := natskv.Open(ctx, jetStream(t, srv), Bucket, natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	w := routesv1fold.NewRouteWriter(bucket)
	rev, err := w.Create(ctx, &routesv1.Route{Tenant: "acme", Domain: "*.example.com", Origin: o.URL, Enabled: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := Start(ctx, bucket, s, fold.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Fold().WaitApplied(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	srv.Stop()
	r := openRouter(t, lazy(t, srv), dir)
	if code, body := get(r, "www.example.com", "/"); code != 200 {
		t.Errorf("without NATS: %d %q", code, body)
	}
	if code, body := get(r.Health(), "admin", "/readyz"); code != 200 {
		t.Errorf("readyz without NATS, with a fold on disk: %d %q", code, body)
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := r.Fold().WaitHydrated(ctx); err != nil {
		t.Fatal(err)
	}
	bucket, err = natskv.Bind(ctx, jetStream(t, srv), Bucket, natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	rev, err = routesv1fold.NewRouteWriter(bucket).Put(ctx, &routesv1.Route{Tenant: "acme", Domain: "late.example", Origin: o.URL, Enabled: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Fold().WaitApplied(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if code, _ := get(r, "late.example", "/"); code != 200 {
		t.Errorf("a route of after the outage: %d", code)
	}
	if n := r.Fold().Status().Updates; n != 1 {
		t.Errorf("%d updates arrived after the restart, want the one that was new", n)
	}
}

func TestHealth(t *testing.T) {
	srv := natstest.New(t)
	srv.Stop()
	r := openRouter(t, lazy(t, srv), t.TempDir())
	h := r.Health()
	if code, body := get(h, "admin", "/livez"); code != 200 {
		t.Errorf("livez: %d %q", code, body)
	}
	if code, body := get(h, "admin", "/readyz"); code != 503 || !strings.HasPrefix(body, "no routes yet: the fold is") {
		t.Errorf("readyz with neither disk nor NATS: %d %q", code, body)
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := r.Fold().WaitHydrated(within(t)); err != nil {
		t.Fatal(err)
	}
	if code, body := get(h, "admin", "/readyz"); code != 200 || body != "ready" {
		t.Errorf("readyz when hydrated: %d %q", code, body)
	}
	code, body := get(h, "admin", "/statusz")
	var s fold.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != 200 {
		t.Fatalf("statusz: %d %v\n%s", code, err, body)
	}
	if s.Bucket != Bucket || !s.Hydrated || s.State != fold.StateLive {
		t.Errorf("statusz: %+v", s)
	}
	r.Drain()
	if code, body := get(h, "admin", "/readyz"); code != 503 || body != "shutting down" {
		t.Errorf("readyz while draining: %d %q", code, body)
	}
}

func TestValidate(t *testing.T) {
	good := func() *routesv1.Route {
		return &routesv1.Route{Tenant: "acme", Domain: "www.example.com", Origin: "http://127.0.0.1:80", Enabled: true}
	}
	for _, d := range []string{"www.example.com", "*.example.com", "*", "localhost", "10.0.0.1"} {
		r := good()
		r.Domain = d
		if err := Validate(r); err != nil {
			t.Errorf("domain %q: %v", d, err)
		}
	}
	for _, d := range []string{"", "WWW.example.com", "www.example.com:80", "a.*.com", "*example.com", "*.", ".example.com", "www.example.com."} {
		r := good()
		r.Domain = d
		if err := Validate(r); err == nil {
			t.Errorf("domain %q: no error", d)
		}
	}
	for _, o := range []string{"10.0.0.1:80", "https://origin.example", "http://[::1]:80/base"} {
		r := good()
		r.Origin = o
		if err := Validate(r); err != nil {
			t.Errorf("origin %q: %v", o, err)
		}
	}
	for _, o := range []string{"", "ftp://x", "http://", "http://user:secret@:%zz"} {
		r := good()
		r.Origin = o
		if err := Validate(r); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("origin %q: %v", o, err)
		}
	}
	r := good()
	r.Weight = 101
	if Validate(r) == nil {
		t.Error("weight 101: no error")
	}
	r = good()
	r.Tenant = ""
	if Validate(r) == nil {
		t.Error("no tenant: no error")
	}
}

func TestRoutingDoesNotAllocate(t *testing.T) {
	e := newEdge(t)
	e.put(&routesv1.Route{Tenant: "acme", Domain: "*.example.com", Origin: "127.0.0.1:1", Enabled: true})
	if n := testing.AllocsPerRun(100, func() {
		if e.router.route("a.b.example.com") == nil {
			t.Fatal("no route")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNodeHasItsRoutes: the routes of a node are found by the index, and follow what is written.
func TestNodeHasItsRoutes(t *testing.T) {
	e := newEdge(t)
	h := e.router.Health()
	for _, domain := range []string{"a.example", "b.example"} {
		e.put(&routesv1.Route{Tenant: "acme", Domain: domain, Origin: "http://127.0.0.1:1", NodeId: "n1", Enabled: true})
	}
	const a, b = "acme a.example http://127.0.0.1:1", "acme b.example http://127.0.0.1:1"
	if code, body := get(h, "admin", "/nodes/n1"); code != http.StatusOK || body != a+"\n"+b {
		t.Errorf("%d %q", code, body)
	}
	e.put(&routesv1.Route{Tenant: "acme", Domain: "a.example", Origin: "http://127.0.0.1:1", NodeId: "n2", Enabled: true})
	if code, body := get(h, "admin", "/nodes/n1"); code != http.StatusOK || body != b {
		t.Errorf("after a move: %d %q", code, body)
	}
	if code, _ := get(h, "admin", "/nodes/n3"); code != http.StatusNotFound {
		t.Errorf("a node without routes: %d", code)
	}
}
