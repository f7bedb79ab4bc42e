package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/examples/internal/exampletest"
	routesv1 "github.com/typedfold/fold/examples/routes/gen/routes/v1"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
	"github.com/typedfold/fold/examples/routes/router"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// The bucket is an ordinary KV bucket: another client reads what the writer writes, and its writes reach the router,
// good or bad.
func TestTheNATSToolOnTheSameBucket(t *testing.T) {
	srv := natstest.New(t)
	nats := exampletest.NewNATS(t, srv.URL()) // before the clock runs: it may have to be compiled
	ctx, cancel := context.WithTimeout(t.Context(), 4*exampletest.Bound)
	defer cancel()
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := natskv.Open(ctx, js, router.Bucket, natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := router.Start(ctx, bucket, s, fold.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	// applied waits until the router has all that was written, by whomever.
	applied := func() {
		t.Helper()
		info, err := bucket.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Fold().WaitApplied(ctx, fold.Seq(info.Last)); err != nil {
			t.Fatal(err)
		}
	}
	request := func(host string) (int, string) {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://"+host+"/", nil))
		return w.Code, w.Body.String()
	}
	origins := map[string]string{}
	for _, name := range []string{"red", "blue"} {
		o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		defer o.Close()
		origins[name] = o.URL
	}

	watch := nats.Lines("kv", "watch", router.Bucket)

	// It reads what the writer wrote, byte for byte.
	route := &routesv1.Route{Tenant: "acme", Domain: "www.example.com", Origin: origins["red"], Enabled: true}
	if _, err := routesv1fold.NewRouteWriter(bucket).Create(ctx, route); err != nil {
		t.Fatal(err)
	}
	key, err := routesv1fold.RouteKeyOf(route)
	if err != nil {
		t.Fatal(err)
	}
	nats.Await(watch, "PUT edge > "+key.String())
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(route)
	if err != nil {
		t.Fatal(err)
	}
	if got := nats.Run(nil, "kv", "get", router.Bucket, key.String(), "--raw"); !bytes.Equal(got, want) {
		t.Errorf("kv get: %q, want %q", got, want)
	}
	if got := strings.Fields(string(nats.Run(nil, "kv", "ls", router.Bucket))); len(got) != 1 || got[0] != key.String() {
		t.Errorf("kv ls: %q", got)
	}
	applied()
	if code, body := request("www.example.com"); code != 200 || body != "red" {
		t.Errorf("the writer's route: %d %q", code, body)
	}

	// It writes a value, and the router serves it.
	route.Origin = origins["blue"]
	value, err := proto.Marshal(route)
	if err != nil {
		t.Fatal(err)
	}
	nats.Run(value, "kv", "put", router.Bucket, key.String())
	applied()
	if code, body := request("www.example.com"); code != 200 || body != "blue" {
		t.Errorf("the tool's route: %d %q", code, body)
	}

	// It writes what is no route: the old one is served still, and the table says what it refused and why.
	for _, bad := range []struct {
		value []byte
		code  fold.RejectCode
	}{
		{[]byte("\x0a\xffgarbage"), fold.ValueDecode},
		{mustMarshal(t, &routesv1.Route{Tenant: "mallory", Domain: "www.example.com", Origin: "127.0.0.1:1"}), fold.KeyValueMismatch},
	} {
		nats.Run(bad.value, "kv", "put", router.Bucket, key.String())
		applied()
		if code, body := request("www.example.com"); code != 200 || body != "blue" {
			t.Errorf("after a bad value: %d %q", code, body)
		}
		rejections := rejected(ctx, t, r)
		if len(rejections) != 1 || rejections[0].Code != bad.code || rejections[0].Key != key.String() {
			t.Errorf("rejections %v, want one %v", rejections, bad.code)
		}
		row, ok, err := r.Routes().GetRow(ctx, key)
		if err != nil || !ok || row.Stale == nil || row.Value.GetOrigin() != origins["blue"] {
			t.Errorf("row %+v %t %v", row, ok, err)
		}
	}
	if s := r.Fold().Status(); s.RejectedKeys != 1 || s.Rejections != 2 {
		t.Errorf("status: %d rejected keys of %d rejections", s.RejectedKeys, s.Rejections)
	}

	// It writes keys that are of no table, and one that is of no encoding.
	nats.Run([]byte("x"), "kv", "put", router.Bucket, "settings.color")
	nats.Run([]byte("x"), "kv", "put", router.Bucket, "route.acme") // too short for a route
	nats.Run([]byte("x"), "kv", "put", router.Bucket, "route.acme.my_zone")
	applied()
	if s := r.Fold().Status(); s.Unmatched["settings"] != 1 || s.Unmatched["route"] != 1 || s.RejectedKeys != 2 {
		t.Errorf("status: unmatched %v, %d rejected keys", s.Unmatched, s.RejectedKeys)
	}
	if s := r.Fold().Status(); s.State != fold.StateLive || s.Error != "" {
		t.Errorf("status: %s %q", s.State, s.Error)
	}

	// A good value ends the rejection, and its delete ends the route.
	nats.Run(value, "kv", "put", router.Bucket, key.String())
	applied()
	if got := rejected(ctx, t, r); len(got) != 1 || got[0].Key != "route.acme.my_zone" {
		t.Errorf("rejections after a good value: %v", got)
	}
	nats.Run(nil, "kv", "del", router.Bucket, key.String(), "-f")
	applied()
	if code, _ := request("www.example.com"); code != 404 {
		t.Errorf("after kv del: %d", code)
	}
	nats.Await(watch, "DELETE edge > "+key.String())

	// And the writer's delete is one for the tool.
	if _, err := routesv1fold.NewRouteWriter(bucket).Create(ctx, route); err != nil {
		t.Fatal(err)
	}
	nats.Await(watch, "PUT edge > "+key.String())
	if err := routesv1fold.NewRouteWriter(bucket).Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	nats.Await(watch, "DELETE edge > "+key.String())
	if out, err := nats.Try(nil, "kv", "get", router.Bucket, key.String(), "--raw"); err == nil {
		t.Errorf("kv get of a deleted key: %q", out)
	}
}

func mustMarshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rejected(ctx context.Context, t *testing.T, r *router.Router) (found []*fold.Rejection) {
	t.Helper()
	for rej, err := range r.Routes().Rejected(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, rej)
	}
	return found
}
