package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

const records = "/v1/demo/events/records"

// TestHTTP goes through every route; R16, R20 and R39 are among it.
func TestHTTP(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.want(ctx, 404, `{"code":"not_found"`, "GET", "/v1/demo/events/tail", "")
	r.want(ctx, 404, `{"code":"not_found"`, "POST", records, `{"records":[{}]}`)
	r.want(ctx, 201, `{"addr":"nova://demo/events"}`, "PUT", "/v1/demo/events", `{"memory":true,"retention":{"max_age":"72h"}}`)
	r.want(ctx, 409, `{"code":"already_exists"`, "PUT", "/v1/demo/events", "")
	r.want(ctx, 200, `{"streams":[{"addr":"nova://demo/events"`, "GET", "/v1/demo", "")
	r.want(ctx, 200, `"retention":{"max_age":"72h0m0s"}`, "GET", "/v1", "")
	r.want(ctx, 200, `"start":{"seq_num":0,`, "POST", records, `{"records":[{"body":"YQ=="},{"body":"Yg==","headers":[{"name":"n","value":"dg=="}]}]}`)
	r.want(ctx, 200, `"start":{"seq_num":2,`, "POST", records, `{"records":[{"body":"Yw=="}],"match_seq_num":2}`)
	// R16: a miss is 412, with the tail
	r.want(ctx, 412, `"tail":{"seq_num":3,`, "POST", records, `{"records":[{"body":"eA=="}],"match_seq_num":0}`)
	r.want(ctx, 412, `{"code":"seq_num_mismatch","message":"match_seq_num 9 missed: the tail is 3"`, "POST", records, `{"records":[{"body":"eA=="}],"match_seq_num":9}`)
	r.want(ctx, 200, `{"tail":{"seq_num":3,`, "GET", "/v1/demo/events/tail", "")
	r.want(ctx, 200, `{"fencing_token":""}`, "GET", "/v1/demo/events/fence", "")
	r.want(ctx, 200, `{"tail":{"seq_num":3,`, "PUT", "/v1/demo/events/fence", `{"fencing_token":"gen-42"}`)
	r.want(ctx, 200, `{"fencing_token":"gen-42"}`, "GET", "/v1/demo/events/fence", "")
	// R39: a mismatch is 412, with the installed token
	mismatch := `{"code":"fencing_token_mismatch","message":"fenced out: the installed fencing token is \"gen-42\"","fencing_token":"gen-42"`
	r.want(ctx, 412, mismatch, "POST", records, `{"records":[{}]}`)
	r.want(ctx, 412, mismatch, "POST", records, `{"records":[{}],"fencing_token":"x","match_seq_num":77}`)
	r.want(ctx, 200, `"start":{"seq_num":3,`, "POST", records, `{"records":[{}],"fencing_token":"gen-42"}`)
	// R20: the limits of a token
	r.want(ctx, 400, `{"code":"invalid_argument"`, "PUT", "/v1/demo/events/fence", fmt.Sprintf(`{"fencing_token":%q}`, strings.Repeat("é", 18)+"a"))
	r.want(ctx, 400, `{"code":"invalid_argument"`, "POST", records, fmt.Sprintf(`{"records":[{}],"fencing_token":%q}`, strings.Repeat("a", 37)))
	r.want(ctx, 200, `{"tail"`, "PUT", "/v1/demo/events/fence", fmt.Sprintf(`{"fencing_token":%q}`, strings.Repeat("é", 18)))
	r.want(ctx, 400, `DELETE clears the token`, "PUT", "/v1/demo/events/fence", `{}`)
	r.want(ctx, 200, `{"tail":{"seq_num":4,`, "DELETE", "/v1/demo/events/fence", "")
	r.want(ctx, 200, `"fencing_token":"","leader":"`, "GET", "/v1/demo/events", "")
	r.want(ctx, 413, `{"code":"too_large"`, "POST", records, `{"records":[{"body":"`+strings.Repeat("A", 9<<20)+`"}]}`)
	r.want(ctx, 400, `at most 1048576 are allowed`, "POST", records, `{"records":[{"body":"`+strings.Repeat("A", 2<<20)+`"}]}`)
	r.want(ctx, 400, `a batch has 1 to 1000 records`, "POST", records, `{"records":[]}`)
	r.want(ctx, 200, `{"first":{"seq_num":`, "DELETE", records+"?before=2", "")
	r.want(ctx, 400, `before is`, "DELETE", records, "")
	r.want(ctx, 200, `openapi: 3.1.0`, "GET", "/openapi.yaml", "")
	r.want(ctx, 204, "", "DELETE", "/v1/demo/events", "")
	r.want(ctx, 404, `{"code":"not_found"`, "DELETE", "/v1/demo/events", "")
}

func TestHTTPReads(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.create(ctx)
	for _, body := range []string{`{"records":[{"body":"a"}]}`, `{"records":[{"body":"{\"b\":1}"},{"body":"c"}]}`} {
		r.want(ctx, 200, "", "POST", records+"?format=text", body)
	}
	r.want(ctx, 200, "", "POST", records, `{"records":[{"body":"/w=="}]}`)
	numbers := func(path string) string {
		t.Helper()
		status, body := r.do(ctx, "GET", records+path, "")
		var out struct {
			Records []struct {
				SeqNum     uint64 `json:"seq_num"`
				Body       any    `json:"body"`
				BodyBase64 string `json:"body_base64"`
			} `json:"records"`
			Next struct {
				SeqNum uint64 `json:"seq_num"`
			} `json:"next"`
		}
		if err := json.Unmarshal([]byte(body), &out); err != nil || status != 200 {
			t.Fatalf("%s: %d %s: %v", path, status, body, err)
		}
		text := ""
		for _, rec := range out.Records {
			text += fmt.Sprintf("%d=%v%s ", rec.SeqNum, rec.Body, rec.BodyBase64)
		}
		return fmt.Sprintf("%snext %d", text, out.Next.SeqNum)
	}
	for path, want := range map[string]string{
		"":                           "0=YQ== 1=eyJiIjoxfQ== 2=Yw== 3=/w== next 4",
		"?format=text&seq_num=1":     `1={"b":1} 2=c 3=<nil>/w== next 4`,
		"?format=json&count=2":       "0=<nil>YQ== 1=map[b:1] next 2",
		"?tail_offset=1":             "3=/w== next 4",
		"?tail_offset=99&count=1":    "0=YQ== next 1",
		"?timestamp=1&count=1":       "0=YQ== next 1",
		"?seq_num=4":                 "next 4",
		"?seq_num=99&clamp":          "next 4",
		"?seq_num=3&wait=60":         "3=/w== next 4",
		"?bytes=1&seq_num=1":         "1=eyJiIjoxfQ== next 2",
		"?seq_num=4&wait=1":          "next 4",
		"?seq_num=1&wait=60&count=1": "1=eyJiIjoxfQ== next 2",
	} {
		if got := numbers(path); got != want {
			t.Errorf("%s: %s, not %s", path, got, want)
		}
	}
	r.want(ctx, 416, `"first":{"seq_num":0,`, "GET", records+"?seq_num=5", "")
	for _, bad := range []string{"?seq_num=x", "?seq_num=-1", "?seq_num=1&tail_offset=1", "?format=xml", "?clamp=maybe", "?count=1e3"} {
		r.want(ctx, 400, `{"code":"invalid_argument"`, "GET", records+bad, "")
	}
	polled := make(chan string)
	go func() { polled <- numbers("?seq_num=4&wait=60&format=text") }()
	r.want(ctx, 200, "", "POST", records+"?format=text", `{"records":[{"body":"new"}]}`)
	if got := <-polled; got != "4=new next 5" {
		t.Fatal(got)
	}
	r.want(ctx, 200, "", "POST", records+"?format=text", `{"records":[{"body":"r"}`+strings.Repeat(`,{"body":"r"}`, 99)+`]}`)
	if got := numbers("?seq_num=5&wait=60&format=text"); strings.Count(got, "=r") != 100 || !strings.HasSuffix(got, "next 105") {
		t.Errorf("a batch of 100 is polled as %s", got)
	}
}

func TestServerSentEvents(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.create(ctx)
	events := func(last string) (*bufio.Scanner, func()) {
		t.Helper()
		q, err := http.NewRequestWithContext(ctx, "GET", r.at+records+"?format=text&seq_num=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", "text/event-stream")
		q.Header.Set("Last-Event-ID", last)
		transport := &http.Transport{}
		a, err := transport.RoundTrip(q) // the stream is empty at first: the answer begins all the same
		if err != nil || a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%+v, %v", a, err)
		}
		return bufio.NewScanner(a.Body), func() { _ = a.Body.Close(); transport.CloseIdleConnections() }
	}
	next := func(s *bufio.Scanner, id, body string) {
		t.Helper()
		var lines []string
		for s.Scan() && s.Text() != "" {
			lines = append(lines, s.Text())
		}
		if len(lines) != 2 || lines[0] != "id: "+id || !strings.Contains(lines[1], body) {
			t.Fatalf("%q, not event %s with %s", lines, id, body)
		}
	}
	s, stop := events("")
	for i := range 3 {
		r.want(ctx, 200, "", "POST", records+"?format=text", fmt.Sprintf(`{"records":[{"body":"r%d"}]}`, i))
		next(s, fmt.Sprint(i+1), fmt.Sprintf(`"body":"r%d"`, i))
	}
	stop()
	s, stop = events("2")
	defer stop()
	next(s, "3", `"body":"r2"`)
	r.shutdown()
	if s.Scan() {
		t.Fatalf("%q after the end", s.Text())
	}
}

func FuzzHTTP(f *testing.F) {
	for _, body := range []string{`{"records":[{}]}`, `{"records":[{"body":"%%"}]}`, `{"records":null}`, `[]`, `{"records":[{"body":5}]}`, `{"x":1}`, `{"records":[{}]}{}`, "\x00", `{"match_seq_num":-1}`, `{"fencing_token":"\ud800"}`} {
		f.Add("demo/events/records", body)
	}
	for _, path := range []string{"", "a", "a/b/c/d", "%2e%2e/x/records", "A B/ä/records", "demo/events/records?format=\x00", "demo/*/records", "demo/>/tail", strings.Repeat("a", 300) + "/b/records"} {
		f.Add(path, `{"records":[{"body":"YQ=="}]}`)
	}
	s, err := natstest.Start(natstest.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Shutdown() })
	h := fuzzed(f, s)
	f.Fuzz(func(t *testing.T, path, body string) {
		for _, method := range []string{"POST", "GET", "PUT", "DELETE"} {
			status, answer := h(method, path, body)
			if status >= 500 {
				t.Fatalf("%s %q %q: %d %s", method, path, body, status, answer)
			}
		}
	})
}
