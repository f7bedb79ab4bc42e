// Package router is an HTTP reverse proxy whose routing table is a fold of the bucket "edge": it serves from memory,
// restarts from its own disk, and follows the bucket as it changes.
package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	fold "github.com/typedfold/fold/runtime"

	routesv1 "github.com/typedfold/fold/examples/routes/gen/routes/v1"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
)

// Bucket is the logical bucket of the routes, as their schema names it.
const Bucket = "edge"

// Router proxies each request to the origin of its host's route. It is safe for concurrent use.
type Router struct {
	fold     *fold.Fold
	routes   routesv1fold.RouteTable
	hooks    *hooks
	proxy    *httputil.ReverseProxy
	local    bool // there was a fold on disk at the start
	draining atomic.Bool
}

// Start starts the fold and returns when the routes on disk can be served, whether or not NATS can be reached. The
// store is the router's from then on.
func Start(ctx context.Context, bucket fold.Bucket, store fold.Store, o fold.Options) (*Router, error) {
	log := o.Logger
	if log == nil {
		log = slog.Default()
	}
	r := &Router{hooks: &hooks{}, proxy: newProxy(log), local: !store.Cursor().IsNone()}
	b := fold.NewBuilder(bucket, store, o)
	var err error
	// Resident, since every request reads it: Peek costs a map look-up, Get a read of the store and a decode.
	if r.routes, err = routesv1fold.RegisterRoute(b, fold.Resident(), routesv1fold.WithRouteHooks(r.hooks)); err != nil {
		return nil, err
	}
	if r.fold, err = b.Start(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Fold is the fold under the router.
func (r *Router) Fold() *fold.Fold { return r.fold }

// Routes is the table, for reads beside those of requests.
func (r *Router) Routes() routesv1fold.RouteTable { return r.routes }

// Drain has /readyz refuse from now on, so that a load balancer stops sending before the listener closes.
func (r *Router) Drain() { r.draining.Store(true) }

// Close commits what the fold has received, and closes its store.
func (r *Router) Close() error { return r.fold.Close() }

type targetKey struct{}

// ServeHTTP answers 404 for a host without a route, and 503 for one whose route is disabled.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	route := r.route(hostname(req.Host))
	switch {
	case route == nil:
		http.Error(w, "no route for this host", http.StatusNotFound)
		return
	case !route.GetEnabled():
		http.Error(w, "this route is disabled", http.StatusServiceUnavailable)
		return
	}
	target, err := originURL(route.GetOrigin())
	if err != nil {
		http.Error(w, "this route has no usable origin", http.StatusBadGateway)
		return
	}
	r.proxy.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), targetKey{}, target)))
}

// route is the route for a host: the most specific one, but for the share of requests that its weight leaves to the
// next. Without a next one it takes them all.
func (r *Router) route(host string) *routesv1.Route {
	var passedOver *routesv1.Route
	for key := range r.hooks.current.Load().match(host) {
		// The hook runs before the commit that Peek sees, so a key may have no row yet, or none any more.
		route, ok := r.routes.Peek(key)
		if !ok {
			continue
		}
		if w := route.GetWeight(); w == 0 || rand.Uint32N(100) < w {
			return route
		}
		if passedOver == nil {
			passedOver = route
		}
	}
	return passedOver
}

// hostname is a Host header without port and final dot, in lower case, as the domains of routes are.
func hostname(host string) string {
	u := url.URL{Host: host}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

var errOrigin = errors.New("an origin is an http or https URL, or host:port")

func originURL(origin string) (*url.URL, error) {
	if !strings.Contains(origin, "://") {
		origin = "http://" + origin
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errOrigin // without the parser's own text, which may quote a password
	}
	return u, nil
}

// Validate says why a route can't be served. The router itself only skips such a route, since it may be anyone's; a
// writer should ask.
func Validate(route *routesv1.Route) error {
	domain := route.GetDomain()
	host := strings.TrimPrefix(domain, "*.")
	switch {
	case route.GetTenant() == "":
		return errors.New("a route has a tenant")
	case domain == "*":
	case host == "" || strings.Contains(host, "*") || host != hostname(host) || strings.HasPrefix(host, "."):
		return fmt.Errorf("domain %q: want a lower-case host name without a port, *.name for all under it, or * for any", domain)
	case route.GetWeight() > 100:
		return fmt.Errorf("weight %d: it is in parts of 100, and 0 means all", route.GetWeight())
	}
	_, err := originURL(route.GetOrigin())
	return err
}

func newProxy(log *slog.Logger) *httputil.ReverseProxy {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // an edge router takes no proxy from its environment
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 4096, 64
	transport.ResponseHeaderTimeout = 30 * time.Second
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(p.In.Context().Value(targetKey{}).(*url.URL))
			p.Out.Host = p.In.Host // the origin sees the host that the client asked for
			p.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if req.Context().Err() == nil {
				log.Warn("router: origin failed", "host", req.Host, "err", err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}
