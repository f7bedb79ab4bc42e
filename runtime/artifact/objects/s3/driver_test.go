package s3_test

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/typedfold/fold/internal/s3test"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/s3"
)

// between is an S3 server's URL behind a proxy that may answer in its place.
func between(t *testing.T, place string, handle func(w http.ResponseWriter, r *http.Request, pass http.Handler)) string {
	t.Helper()
	u, err := url.Parse(place)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	real, err := url.Parse(q.Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	pass := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.RequestURI = real.Scheme, real.Host, ""
		answer, err := http.DefaultTransport.RoundTrip(out) // the Host header, which is signed, stays
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, pass) }))
	t.Cleanup(server.Close)
	q.Set("endpoint", server.URL)
	u.RawQuery = q.Encode()
	return u.String()
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>m</Message></Error>")
}

func TestAnswers(t *testing.T) {
	server := s3test.New(t)
	t.Run("lost answer", func(t *testing.T) { lostAnswer(t, server) })
	t.Run("conflict of requests", func(t *testing.T) { requestConflict(t, server) })
	t.Run("server that ignores conditions", func(t *testing.T) { ignoredConditions(t, server) })
	t.Run("codes", func(t *testing.T) { answerCodes(t, server) })
	t.Run("larger parts", func(t *testing.T) { largerParts(t, server) })
	t.Run("folder of a URL", func(t *testing.T) { urlFolder(t, server) })
}

// lostAnswer: the first answer to each write is lost after the server has carried it out. The library sends it again
// and is refused, for its own object is there.
func lostAnswer(t *testing.T, server *s3test.Server) {
	var lost atomic.Int64
	place := between(t, server.Bucket(t), func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut && r.Header.Get("If-None-Match")+r.Header.Get("If-Match") != "" && r.Header.Get("Amz-Sdk-Request") == "attempt=1; max=3" {
			lost.Add(1)
			pass.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		pass.ServeHTTP(w, r)
	})
	s, err := open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SwapPointer(t.Context(), "k", []byte("one"), ""); err != nil {
		t.Fatal(err)
	}
	_, token, err := s.ReadPointer(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SwapPointer(t.Context(), "k", []byte("two"), token); err != nil {
		t.Fatal(err)
	}
	if err := s.SwapPointer(t.Context(), "k", []byte("three"), token); !errors.Is(err, objects.ErrConflict) {
		t.Errorf("stale: %v", err)
	}
	if lost.Load() < 2 {
		t.Errorf("%d answers were lost", lost.Load())
	}
}

// requestConflict: 409 says that two requests met, and settles nothing.
func requestConflict(t *testing.T, server *s3test.Server) {
	var refused atomic.Bool
	place := between(t, server.Bucket(t), func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut && !refused.Swap(true) {
			refuse(w, http.StatusConflict, "ConditionalRequestConflict")
			return
		}
		pass.ServeHTTP(w, r)
	})
	s, err := open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SwapPointer(t.Context(), "k", []byte("one"), ""); err != nil || !refused.Load() {
		t.Errorf("%v", err)
	}
}

// ignoredConditions: a server that says yes to what it must refuse.
func ignoredConditions(t *testing.T, server *s3test.Server) {
	place := between(t, server.Bucket(t), func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		if answer.Code == http.StatusPreconditionFailed {
			w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)
			return
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
	s, err := open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.SelfTest(t.Context(), s, "x"); !errors.Is(err, objects.ErrUnsupported) {
		t.Errorf("the self-test of a server that refuses nothing: %v", err)
	}
}

func answerCodes(t *testing.T, server *s3test.Server) {
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{http.StatusForbidden, "AccessDenied", objects.ErrDenied},
		{http.StatusBadRequest, "ExpiredToken", objects.ErrDenied},
		{http.StatusNotFound, "NoSuchBucket", objects.ErrNoBucket},
		{http.StatusNotImplemented, "NotImplemented", objects.ErrUnsupported},
		{http.StatusServiceUnavailable, "SlowDown", objects.ErrUnavailable},
		{http.StatusPreconditionFailed, "PreconditionFailed", objects.ErrConflict},
	} {
		place := between(t, server.Bucket(t), func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Method == http.MethodPut {
				refuse(w, c.status, c.code)
				return
			}
			pass.ServeHTTP(w, r)
		})
		s, err := objects.Openers{"s3": s3.OpenURL}.Open(t.Context(), place, objects.Options{Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SwapPointer(t.Context(), "k", []byte("v"), ""); !errors.Is(err, c.want) {
			t.Errorf("%d %s: %v", c.status, c.code, err)
		}
	}
	missing := strings.Replace(server.Bucket(t), "s3://", "s3://missing-", 1)
	s, err := open(t.Context(), missing)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadPointer(t.Context(), "k"); !errors.Is(err, objects.ErrNoBucket) {
		t.Errorf("missing bucket: %v", err)
	}
	if err := s.SwapPointer(t.Context(), "k", []byte("v"), `"x"`); !errors.Is(err, objects.ErrNoBucket) {
		t.Errorf("missing bucket: %v", err)
	}
}

// largerParts: an object that says it is large is sent in parts that are large enough for it.
func largerParts(t *testing.T, server *s3test.Server) {
	var mu sync.Mutex
	parts := map[string]string{}
	place := between(t, server.Bucket(t), func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if n := r.URL.Query().Get("partNumber"); n != "" {
			mu.Lock()
			parts[n] = cmp.Or(r.Header.Get("X-Amz-Decoded-Content-Length"), r.Header.Get("Content-Length"))
			mu.Unlock()
		}
		pass.ServeHTTP(w, r)
	})
	s, err := open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "k", says{io.LimitReader(zeros{}, 25<<20)}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"1": "12582912", "2": "12582912", "3": "1048576"}; !maps.Equal(parts, want) {
		t.Errorf("sent in parts of %v, not %v", parts, want)
	}
}

// says claims 100 GiB, which takes parts of 12 MiB.
type says struct{ io.Reader }

func (says) Size() int64 { return 100 << 30 }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func urlFolder(t *testing.T, server *s3test.Server) {
	place := server.Bucket(t)
	inside, err := open(t.Context(), strings.Replace(place, "?", "/a/b/?", 1))
	if err != nil {
		t.Fatal(err)
	}
	all, err := open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.Put(t.Context(), "k", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for o, err := range all.List(t.Context(), "") {
		if o.Key != "a/b/k" || err != nil {
			t.Errorf("%v, %v", o, err)
		}
	}
	for _, bad := range []string{
		strings.Replace(place, "s3://", "s3://key:hunter2@", 1), place + "&what=hunter2", place + "&role=maybe",
		strings.Replace(place, "?", "/a//b?", 1),
	} {
		if _, err := open(t.Context(), bad); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}
