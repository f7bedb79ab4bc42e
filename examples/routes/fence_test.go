package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/examples/internal/exampletest"
	"github.com/typedfold/fold/examples/routes/router"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
)

// TestFencingToken: each command that writes presents the token that it is given, and none without; a refusal says what
// to do in the shell, and nothing was written.
func TestFencingToken(t *testing.T) {
	srv := natstest.New(t)
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
	fence := func(token string) {
		t.Helper()
		if _, err := fold.Fence(ctx, bucket, token); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() string {
		t.Helper()
		return must(t, "list", "--server", srv.URL())
	}
	// each runs all that writes: first what needs no route, then what needs one.
	each := func(token string, judge func(args []string, err error)) {
		t.Helper()
		for _, args := range [][]string{
			{"put", "acme", "www.example.com", "127.0.0.1:9000"}, {"put", "--create", "acme", "new.example.com", "127.0.0.1:9000"},
			{"move", "acme", "www.example.com", "127.0.0.1:9001"}, {"delete", "acme", "new.example.com"},
		} {
			all := append([]string{args[0], "--server", srv.URL()}, args[1:]...)
			if token != "" {
				all = append([]string{args[0], "--fencing-token", token}, all[1:]...)
			}
			_, err := command(t, all...)
			judge(all, err)
		}
	}
	written := func(args []string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	refused := func(kind error, hint string) func([]string, error) {
		before := listed()
		return func(args []string, err error) {
			t.Helper()
			if !errors.Is(err, kind) || !strings.HasPrefix(err.Error(), "nothing was written: ") || !strings.Contains(fold.Hint(err), hint) {
				t.Errorf("%q: %v, hint %q", args, err, fold.Hint(err))
			}
			if now := listed(); now != before {
				t.Errorf("%q: the bucket had\n%s\nand has\n%s", args, before, now)
			}
		}
	}

	each("", written)
	must(t, "put", "--server", srv.URL(), "acme", "new.example.com", "127.0.0.1:9000")
	each("gen-1", refused(fold.ErrNoFence, "fold fence edge installs the token"))

	fence("gen-1")
	must(t, "delete", "--server", srv.URL(), "--fencing-token", "gen-1", "acme", "new.example.com")
	each("gen-1", written)
	must(t, "put", "--server", srv.URL(), "--fencing-token", "gen-1", "acme", "new.example.com", "127.0.0.1:9000")
	each("", refused(fold.ErrFencedOut, "who owns the bucket presents its token"))
	each("gen-0", refused(fold.ErrFencedOut, "another writer has taken over"))
	var out *fold.FencedError
	if _, err := command(t, "put", "--server", srv.URL(), "--fencing-token", "gen-0", "acme", "www.example.com", "127.0.0.1:1"); !errors.As(err, &out) ||
		out.Presented != "gen-0" || out.Installed != "gen-1" {
		t.Errorf("%v", err)
	}

	fence("")
	each("gen-1", refused(fold.ErrFencedOut, "leave out --fencing-token"))
	must(t, "delete", "--server", srv.URL(), "acme", "new.example.com")
	each("", written)

	long := strings.Repeat("x", fold.MaxFencingToken+1)
	if _, err := command(t, "put", "--server", srv.URL(), "--fencing-token", long, "acme", "www.example.com", "127.0.0.1:1"); !errors.Is(err, fold.ErrFencingToken) {
		t.Errorf("a token of %d bytes: %v", len(long), err)
	}
}
