package server_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestPagesOfOtherOriginsWriteNothing: what a browser sends for any page, without asking, is refused.
func TestPagesOfOtherOriginsWriteNothing(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.create(ctx)
	one := `{"records":[{}]}`
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "", "application/json,text/plain", "text/plain; a=application/json"} {
		r.want(ctx, 415, `{"code":"unsupported_media_type"`, "POST", records, one, "Content-Type", kind)
	}
	r.want(ctx, 415, "", "PUT", "/v1/demo/events/fence", `{"fencing_token":"t"}`, "Content-Type", "text/plain")
	for _, from := range [][]string{{"Origin", "http://elsewhere.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
		r.want(ctx, 403, `{"code":"permission_denied"`, "POST", records, one, from...)
		r.want(ctx, 403, "", "DELETE", "/v1/demo/events", "", from...)
		r.want(ctx, 403, "", "POST", "/nova.v1.DataPlaneService/Tail", `{"addr":"nova://demo/events"}`, from...)
		r.want(ctx, 200, `"seq_num":0`, "GET", "/v1/demo/events/tail", "", from...)
	}
	r.want(ctx, 200, `"start":{"seq_num":0,`, "POST", records, one, "Content-Type", "application/json; charset=utf-8")
	r.want(ctx, 200, `"start":{"seq_num":1,`, "POST", records, one, "Origin", r.at, "Sec-Fetch-Site", "same-origin")
}

// TestWhatNoRouteIsFor is told as all problems are.
func TestWhatNoRouteIsFor(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	for _, path := range []string{"/", "/v2", "/v1/demo/events/nothing", "/v1/demo/events/records/7", "/V1"} {
		r.want(ctx, 404, `{"code":"not_found","message":"there is no such path"`, "GET", path, "")
		r.want(ctx, 404, `{"code":"not_found"`, "POST", path, "{}")
	}
	for path, allow := range map[string]string{
		records: "GET, HEAD, POST, DELETE", "/v1/demo/events": "GET, HEAD, PUT, DELETE", "/v1": "GET, HEAD", "/openapi.yaml": "GET, HEAD",
	} {
		r.want(ctx, 405, `{"code":"method_not_allowed","message":"the path has no method PATCH"`, "PATCH", path, "")
		q, err := http.NewRequestWithContext(ctx, "PATCH", r.at+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if got := a.Header.Get("Allow"); got != allow {
			t.Errorf("%s allows %q, not %q", path, got, allow)
		}
	}
}

// TestReadsAreBounded: one read too many is refused, over every protocol, and one that ends makes room.
func TestReadsAreBounded(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{Reads: 1})
	r.create(ctx)
	open, err := r.rpc().Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr, Follow: true}))
	if err != nil || !open.Receive() {
		t.Fatal(err, open.Err())
	}
	second, err := r.rpc(connect.WithGRPC()).Read(ctx, connect.NewRequest(&novav1.ReadRequest{Addr: addr}))
	if err != nil {
		t.Fatal(err)
	}
	if second.Receive() || connect.CodeOf(second.Err()) != connect.CodeResourceExhausted {
		t.Errorf("a read too many: %v", second.Err())
	}
	r.want(ctx, 429, `{"code":"busy","message":"the server is busy: 1 reads are open"`, "GET", records, "")
	r.want(ctx, 429, `{"code":"busy"`, "GET", records, "", "Accept", "text/event-stream")
	r.want(ctx, 200, "", "GET", "/v1/demo/events/tail", "")
	_ = open.Close()
	for {
		if status, _ := r.do(ctx, "GET", records, ""); status == 200 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("a read that has ended makes no room")
		}
	}
}

// TestEventsTakeNoLimitsOfJSON: what would not be kept to is refused.
func TestEventsTakeNoLimitsOfJSON(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.create(ctx)
	for _, query := range []string{"?bytes=10", "?wait=1", "?wait="} {
		r.want(ctx, 400, `bytes and wait are for JSON`, "GET", records+query, "", "Accept", "text/event-stream")
	}
}
