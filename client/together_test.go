package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// script is a body whose reads give one text after the other; a "+" behind one says that another one follows at once.
type script struct {
	more  *more
	texts []string
	left  string
}

func (s *script) Read(b []byte) (int, error) {
	if s.left == "" {
		if len(s.texts) == 0 {
			return 0, io.EOF
		}
		var more bool
		s.left, more = strings.CutSuffix(s.texts[0], "+")
		s.texts = s.texts[1:]
		s.more.Store(more)
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *script) Close() error { return nil }

// TestReadsGiveWhatIsSentAtOnce: a read goes on behind a message that another one follows at once, and waits for no other.
func TestReadsGiveWhatIsSentAtOnce(t *testing.T) {
	m := &more{}
	body := m.together(&script{more: m, texts: []string{"a+", "bc+", "d", "e", "fgh+", "ij", "k+"}})
	for i, want := range []string{"abcd", "e", "fghi", "j", "k"} {
		b := make([]byte, 4)
		n, err := body.Read(b)
		if string(b[:n]) != want {
			t.Errorf("read %d gave %q, want %q", i, b[:n], want)
		}
		if last := want == "k"; last != errors.Is(err, io.EOF) || !last && err != nil {
			t.Errorf("read %d: %v", i, err)
		}
	}
}

// asked notes what a request asks for.
type asked struct{ header http.Header }

func (a *asked) Do(q *http.Request) (*http.Response, error) {
	a.header = q.Header.Clone()
	return nil, errors.New("the connection is lost")
}

// TestNothingIsCompressed: gzip costs more than all the rest of an acknowledgment, and of a read.
func TestNothingIsCompressed(t *testing.T) {
	a := &asked{}
	c, err := New("http://nowhere", WithHTTPClient(a))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tail(t.Context(), "nova://a/b"); err == nil || a.header == nil {
		t.Fatalf("%v, %v", err, a.header)
	}
	_, _ = c.OpenStream(t.Context(), "nova://a/b")
	for _, name := range []string{"Accept-Encoding", "Connect-Accept-Encoding", "Connect-Content-Encoding", "Content-Encoding"} {
		if got := a.header.Get(name); got != "" && got != "identity" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
