package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// documented are the operations of openapi.yaml, as "METHOD /path", with their statuses. The document keeps to one form:
// paths at two blanks, methods at four, statuses at eight.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	path, method := regexp.MustCompile(`^  (/\S*):$`), regexp.MustCompile(`^    (get|put|post|delete):$`)
	status := regexp.MustCompile(`^        "(\d{3})":`)
	operations := map[string][]string{}
	var at, operation string
	for line := range strings.SplitSeq(string(openAPI), "\n") {
		if m := path.FindStringSubmatch(line); m != nil {
			at = m[1]
		} else if m := method.FindStringSubmatch(line); m != nil {
			operation = strings.ToUpper(m[1]) + " " + at
			operations[operation] = nil
		} else if m := status.FindStringSubmatch(line); m != nil {
			operations[operation] = append(operations[operation], m[1])
		}
	}
	return operations
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	want := slices.Sorted(maps.Keys(newServer(nil, Options{}).handlers()))
	if got := slices.Sorted(maps.Keys(documented(t))); !slices.Equal(got, want) {
		t.Fatalf("the document has %q, the server %q", got, want)
	}
}

// TestOpenAPIHasEveryStatus compares the statuses of problems, apart from that of a client that is gone, with the document.
func TestOpenAPIHasEveryStatus(t *testing.T) {
	statuses := map[string]bool{}
	for _, err := range []error{
		&sequencer.FencedError{}, &sequencer.MissedError{}, &sequencer.UnavailableError{}, &sequencer.UnavailableError{Indefinite: true},
		nova.ErrInvalid, &http.MaxBytesError{}, errNotJSON, errUnauthenticated, errForbidden, jslog.ErrNotFound, jslog.ErrExists,
		&reader.OutOfRangeError{}, errBusy, jslog.ErrDamaged, nats.ErrTimeout, context.DeadlineExceeded, errors.New("any"),
	} {
		p := problemOf(err)
		statuses[fmt.Sprint(p.status)] = true
		if !strings.Contains(string(openAPI), p.name) {
			t.Errorf("the document does not name code %s", p.name)
		}
	}
	inDocument := map[string]bool{}
	for operation, list := range documented(t) {
		for _, s := range list {
			if s >= "400" {
				inDocument[s] = true
			}
		}
		if !slices.ContainsFunc(list, func(s string) bool { return s < "300" }) {
			t.Errorf("%s has no success", operation)
		}
	}
	if !maps.Equal(statuses, inDocument) {
		t.Fatalf("problems have %v, the document has %v", statuses, inDocument)
	}
}

// TestProblems is what errors look like over HTTP.
func TestProblems(t *testing.T) {
	at := nova.Position{SeqNum: 7, Timestamp: 9}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&sequencer.MissedError{Match: 3, Tail: at}, `412 {"code":"seq_num_mismatch","message":"match_seq_num 3 missed: the tail is 7","tail":{"seq_num":7,"timestamp":9}}`},
		{&sequencer.FencedError{Installed: "t"}, `412 {"code":"fencing_token_mismatch","message":"fenced out: the installed fencing token is \"t\"","fencing_token":"t"}`},
		{&sequencer.FencedError{}, `412 {"code":"fencing_token_mismatch","message":"fenced out: no fencing token is installed","fencing_token":""}`},
		{
			&reader.OutOfRangeError{SeqNum: 9, First: nova.Position{SeqNum: 2, Timestamp: 1}, Tail: at},
			`416 {"code":"out_of_range","message":"record 9 is out of range: the stream has records from 2 on, and its tail is 7","tail":{"seq_num":7,"timestamp":9},"first":{"seq_num":2,"timestamp":1}}`,
		},
		{&sequencer.UnavailableError{Err: sequencer.ErrTimeout, Indefinite: true}, `503 {"code":"unavailable","message":"the outcome is unknown: no answer from the log","outcome":"unknown"}`},
		{&sequencer.UnavailableError{Err: sequencer.ErrStopped}, `503 {"code":"unavailable","message":"nothing was written: leader stopped","outcome":"nothing_written"}`},
		{
			&sequencer.UnavailableError{Err: fmt.Errorf("append: %w", jslog.ErrNotFound), Indefinite: true},
			`503 {"code":"unavailable","message":"the outcome is unknown: append: stream not found","outcome":"unknown"}`,
		},
		{&sequencer.UnavailableError{Err: nova.ErrInvalid, Indefinite: true}, `503 {"code":"unavailable","message":"the outcome is unknown: invalid argument","outcome":"unknown"}`},
		{&sequencer.UnavailableError{Err: jslog.ErrDamaged}, `500 {"code":"data_loss","message":"wrapped: nothing was written: stream damaged"}`},
		{&sequencer.UnavailableError{Err: jslog.ErrDamaged, Indefinite: true}, `503 {"code":"unavailable","message":"the outcome is unknown: stream damaged","outcome":"unknown"}`},
		{fmt.Errorf("frame 1: %w", frame.ErrCorrupt), `500 {"code":"data_loss","message":"wrapped: frame 1: corrupt frame"}`},
		{errBusy, `429 {"code":"busy","message":"wrapped: the server is busy","outcome":"nothing_written"}`},
		{fmt.Errorf("frame 1: %w", nats.ErrReconnectBufExceeded), `503 {"code":"unavailable","message":"the log can't be reached"}`},
		{changing(fmt.Errorf("purge: %w", nats.ErrTimeout)), `503 {"code":"unavailable","message":"the outcome is unknown: the log can't be reached: purge: nats: timeout","outcome":"unknown"}`},
		{changing(context.DeadlineExceeded), `503 {"code":"unavailable","message":"the outcome is unknown: the log can't be reached: context deadline exceeded","outcome":"unknown"}`},
		{changing(nats.ErrNoResponders), `503 {"code":"unavailable","message":"the log can't be reached"}`},
		{changing(&sequencer.UnavailableError{Err: nats.ErrTimeout}), `503 {"code":"unavailable","message":"nothing was written: nats: timeout","outcome":"nothing_written"}`},
		{changing(jslog.ErrNotFound), `404 {"code":"not_found","message":"stream not found"}`},
		{errors.New("secret"), `500 {"code":"internal","message":"internal error"}`},
		{errUnauthenticated, `401 {"code":"unauthenticated","message":"wrapped: a known bearer token is needed"}`},
		{errForbidden, `403 {"code":"permission_denied","message":"wrapped: the bearer token does not allow this"}`},
	} {
		w := httptest.NewRecorder()
		writeProblem(w, problemOf(fmt.Errorf("wrapped: %w", c.err)))
		if got := fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String())); got != c.want {
			t.Errorf("%s\nnot\n%s", got, c.want)
		}
	}
}
