package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/typedfold/fold/runtime/natskv"

	"github.com/typedfold/fold/examples/internal/quickstart"
	routesv1 "github.com/typedfold/fold/examples/routes/gen/routes/v1"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
	"github.com/typedfold/fold/examples/routes/router"
)

// sample is what the embedded server is filled with: two origins inside the process, and routes to them.
type sample struct{ origins []*httptest.Server }

var noOrigins = &sample{}

func startSample(ctx context.Context, session *quickstart.Session) (*sample, error) {
	s := &sample{}
	for _, name := range []string{"red", "blue"} {
		s.origins = append(s.origins, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "origin %s: %s%s\n", name, r.Host, r.URL.Path)
		})))
	}
	js, err := session.JetStream()
	if err != nil {
		return s, err
	}
	bucket, err := natskv.Open(ctx, js, router.Bucket, natskv.BucketConfig{})
	if err != nil {
		return s, err
	}
	w := routesv1fold.NewRouteWriter(bucket)
	for _, r := range []*routesv1.Route{
		{Tenant: "acme", Domain: "www.example.com", Origin: s.origins[0].URL, Enabled: true, NodeId: "red"},
		{Tenant: "acme", Domain: "*.example.com", Origin: s.origins[1].URL, Enabled: true, NodeId: "blue"},
		{Tenant: "acme", Domain: "old.example.com", Origin: s.origins[1].URL, NodeId: "blue"},
	} {
		if _, err := w.Create(ctx, r); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *sample) close() {
	for _, o := range s.origins {
		o.Close()
	}
}

// explain says what to try.
func (s *sample) explain(w io.Writer, nats, front, admin string) {
	if len(s.origins) == 0 {
		return
	}
	fmt.Fprintf(w, `
An embedded NATS server is on %[1]s

Try:

  curl -H 'Host: www.example.com' http://%[2]s/           # its own route
  curl -H 'Host: any.thing.example.com' http://%[2]s/     # the wildcard *.example.com
  curl -i -H 'Host: old.example.com' http://%[2]s/        # disabled: 503
  curl -i -H 'Host: nobody.example' http://%[2]s/         # no route: 404
  go run ./examples/routes list --server %[1]s
  go run ./examples/routes move --server %[1]s acme www.example.com %[4]s
  go run ./examples/routes delete --server %[1]s acme www.example.com
  curl http://%[3]s/nodes/blue                            # what one node serves, by an index
  curl http://%[3]s/statusz

Ctrl-C ends it.
`, nats, front, admin, s.origins[1].URL)
}
