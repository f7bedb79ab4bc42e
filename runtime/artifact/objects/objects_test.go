package objects_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/mem"
)

func TestRedactURL(t *testing.T) {
	for in, want := range map[string]string{
		"s3://bucket/a/b?region=eu-1&secret=x":       "s3://bucket/a/b?region=eu-1&secret=***",
		"https://me:pw@host:9/p":                     "https://***@host:9/p",
		"https://token@host/p#frag":                  "https://***@host/p",
		"https://h/c/b?sv=1&sig=abc%2F":              "https://h/c/b?sv=***&sig=***",
		"s3://b?endpoint=http%3A%2F%2Fu%3Ap%40h%3A1": "s3://b?endpoint=http://***@h:1",
		"https://h/p?":                               "https://h/p",
		"https://h/%zz?sig=s":                        "https://***",
		"https://h/p?region=%zz":                     "https://h/p?region=***",
		"file:///var/lib/x":                          "file:///var/lib/x",
		"azblob:me:pw@host/where":                    "azblob:***",
	} {
		if got := objects.RedactURL(in); got != want && !(strings.HasPrefix(in, "azblob:") && !strings.Contains(got, "pw")) {
			t.Errorf("%s becomes %s, not %s", in, got, want)
		}
	}
}

func TestErrorsShowNoSecrets(t *testing.T) {
	cause := &url.Error{Op: "Put", URL: "https://acc.blob.example/c/k?se=1&sig=SECRET", Err: errors.New(`see https://u:SECRET@h/x?t=SECRET, "wss://SECRET@h"`)}
	err := error(&objects.Error{Op: "put", Store: "azblob://c", Key: "k", Err: fmt.Errorf("%w: %w", objects.ErrUnavailable, cause)})
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%v", fmt.Errorf("more: %w", err))} {
		if strings.Contains(text, "SECRET") || !strings.Contains(text, "acc.blob.example/c/k") || !strings.Contains(text, `put "k" in azblob://c`) {
			t.Error(text)
		}
	}
	if !errors.Is(err, objects.ErrUnavailable) || !errors.As(err, &cause) {
		t.Error("the error hides its kind or its cause")
	}
}

func TestOpeners(t *testing.T) {
	var opened string
	openers := objects.Openers{"mem": func(_ context.Context, u *url.URL, o objects.Options) (objects.Store, error) {
		if opened = u.Host; opened == "bad" {
			return nil, errors.New("no: mem://bad?sig=SECRET")
		}
		return mem.Open(o)
	}}
	if s, err := openers.Open(t.Context(), "mem://x?a=b", objects.Options{}); s == nil || err != nil || opened != "x" {
		t.Errorf("%v, %v, opened %q", s, err, opened)
	}
	for _, c := range []struct {
		url, says string
		o         objects.Options
	}{
		{"s3://me:SECRET@b?sig=SECRET", `["mem"]`, objects.Options{}},
		{"nothing", `["mem"]`, objects.Options{}},
		{"mem://SECRET:SECRET@x\x7f?sig=SECRET", "not a URL", objects.Options{}},
		{"mem://bad?sig=SECRET", "no: mem://bad?sig=***", objects.Options{}},
		{"mem://x", "attempts -1", objects.Options{Attempts: -1}},
	} {
		_, err := openers.Open(t.Context(), c.url, c.o)
		if err == nil || strings.Contains(err.Error(), "SECRET") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.url, err)
		}
	}
}

func TestUnder(t *testing.T) {
	_, g := newRig(t, objects.Options{})
	ctx := t.Context()
	s, err := objects.Under(g, "/a/b/")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Put(ctx, "a/bc", strings.NewReader("x")), s.Put(ctx, "k", strings.NewReader("x")), s.SwapPointer(ctx, "p", []byte("v"), "")); err != nil {
		t.Fatal(err)
	}
	list := func(s objects.Store) (keys string) {
		for o, err := range s.List(ctx, "") {
			keys += fmt.Sprintf(" %s:%d", o.Key, o.Size)
			if err != nil {
				t.Fatal(err)
			}
		}
		return keys
	}
	if got := list(s) + list(g); got != " k:1 p:1 a/b/k:1 a/b/p:1 a/bc:1" {
		t.Errorf("listed%s", got)
	}
	if value, _, err := s.ReadPointer(ctx, "p"); string(value) != "v" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	if _, info, err := s.Get(ctx, "k"); info.Size != 1 || err != nil {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := s.Stat(ctx, "k"); info.Size != 1 || err != nil {
		t.Errorf("%v, %v", info, err)
	}
	if err := s.CleanUploads(ctx, "", 0); err != nil {
		t.Error(err)
	}
	if err := s.Delete(ctx, "k"); err != nil || list(g) != " a/b/p:1 a/bc:1" {
		t.Errorf("%v, left%s", err, list(g))
	}
	if same, err := objects.Under(g, "/"); same != objects.Store(g) || err != nil {
		t.Errorf("%v, %v", same, err)
	}
	if _, err := objects.Under(g, "a/../b"); !errors.Is(err, objects.ErrBadKey) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := g.Delete(ctx, "k"); !errors.Is(err, objects.ErrClosed) {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, bad := range []objects.Options{
		{Timeout: -1}, {Stall: -1}, {Attempts: -1}, {Backoff: -1}, {MaxBackoff: -1}, {MaxPointer: -1},
		{Backoff: time.Second, MaxBackoff: time.Millisecond},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
		if _, err := mem.Open(bad); err == nil {
			t.Errorf("a store opens with %+v", bad)
		}
	}
	if err := (objects.Options{Backoff: time.Hour}).Validate(); err != nil {
		t.Error(err)
	}
}
