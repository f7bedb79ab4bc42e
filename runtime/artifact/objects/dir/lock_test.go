package dir

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

func openStore(t *testing.T) *store {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &store{root: root}
}

// TestLockOfAFileThatIsGone: who opened a lock file before its pointer was deleted does not hold the pointer's lock.
func TestLockOfAFileThatIsGone(t *testing.T) {
	s := openStore(t)
	name := lockName("k")
	early, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.claim(early, name); got || err != nil {
		t.Errorf("a lock on no file: %v, %v", got, err)
	}
	late, err := s.tryLock(name)
	if late == nil || err != nil {
		t.Fatalf("%v, %v", late, err)
	}
	defer late.Close()
	if got, err := s.claim(early, name); got || err != nil {
		t.Errorf("a second lock beside a held one: %v, %v", got, err)
	}
	if again, err := s.tryLock(name); again != nil || err != nil {
		t.Errorf("a held lock is taken: %v, %v", again, err)
	}
}

// TestNothingOutside: links don't lead out of the store, and what is no regular file is no object.
func TestNothingOutside(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	place := t.TempDir()
	if err := errors.Join(
		os.Symlink(outside, filepath.Join(place, "out")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(place, "link")),
	); err != nil {
		t.Fatal(err)
	}
	s, err := Open(place, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, key := range []string{"out/secret", "link"} {
		if r, _, err := s.Get(t.Context(), key); err == nil {
			_ = r.Close()
			t.Errorf("%s is read", key)
		}
	}
	if s.Put(t.Context(), "out/new", strings.NewReader("x")) == nil || s.SwapPointer(t.Context(), "out/new", nil, "") == nil {
		t.Error("a file is written outside")
	}
	if err := s.Put(t.Context(), "link", strings.NewReader("mine")); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(outside, "secret")); string(got) != "x" || err != nil {
		t.Errorf("outside there is %q, %v", got, err)
	}
	for o, err := range s.List(t.Context(), "") {
		if o.Key != "link" || err != nil {
			t.Errorf("listed %v, %v", o, err)
		}
	}
	entries, err := os.ReadDir(outside)
	if len(entries) != 1 || err != nil {
		t.Errorf("outside there are %v, %v", entries, err)
	}
}

func TestOpenURL(t *testing.T) {
	place := t.TempDir()
	for raw, ok := range map[string]bool{
		"file://" + place: true, "file://localhost" + place + "/new": true, "file://" + place + "?allow_network=true": true,
		"file://" + place + "?allow_network=yes": false, "file://" + place + "?x=true": false, "file://host" + place: false,
		"file:": false, "file://me@" + place: false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		s, err := OpenURL(t.Context(), u, objects.Options{})
		if (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}
