// Package objectstest holds the suite that every objects.Store passes.
//
// It re-executes the test binary to have more processes; it does that by the name of the test that calls it, so call it
// from a top-level test and call nothing before it.
package objectstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

// Harness is the store under test.
type Harness struct {
	// Place makes an empty place for objects, and ends it with the test. Only the parent process calls it, so servers are
	// started there.
	Place func(t *testing.T) string
	// Open opens the store at a place. Stores at one place share their objects.
	Open func(ctx context.Context, place string) (objects.Store, error)
	// Processes says that processes can share a place.
	Processes bool
	// Leftovers counts what interrupted uploads have left behind at the place; nil where nothing can be left.
	Leftovers func(ctx context.Context, place string) (int, error)
	// Many is how many objects are listed, more than the store gives in one answer; 0 is 50.
	Many int
}

// waitLimit bounds every wait of the suite, for slow machines; nothing waits that long for luck.
const waitLimit = 2 * time.Minute

// RunConformance checks the contract of the port.
func RunConformance(t *testing.T, h Harness) {
	runChild(h)
	for _, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"objects", (*suite).objects},
		{"odd keys", (*suite).oddKeys},
		{"bad keys", (*suite).badKeys},
		{"many", (*suite).many},
		{"big", (*suite).big},
		{"from the middle", (*suite).fromTheMiddle},
		{"pointer", (*suite).pointer},
		{"self-test", (*suite).selfTest},
		{"one creator", (*suite).oneCreator},
		{"create and delete", (*suite).createAndDelete},
		{"failing reader", (*suite).failingReader},
		{"cancelled upload", (*suite).cancelledUpload},
		{"ended context", (*suite).endedContext},
		{"race", (*suite).race},
		{"killed upload", (*suite).killedUpload},
		{"closed", (*suite).closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			s := &suite{T: t, h: h, ctx: ctx, place: h.Place(t)}
			s.s = s.open()
			c.run(s)
			s.clean()
		})
	}
}

type suite struct {
	*testing.T
	h     Harness
	ctx   context.Context
	place string
	s     objects.Store
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// want checks the kind of an error.
func (s *suite) want(what string, err, kind error) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Fatalf("%s: %v, not %v", what, err, kind)
	}
	var typed *objects.Error
	if kind != nil && !errors.As(err, &typed) {
		s.Fatalf("%s: %v has no operation and key", what, err)
	}
}

func (s *suite) open() objects.Store {
	s.Helper()
	st, err := s.h.Open(s.ctx, s.place)
	s.must(err)
	s.Cleanup(func() {
		if err := st.Close(); err != nil {
			s.Error(err)
		}
	})
	return st
}

func (s *suite) put(key string, data []byte) {
	s.Helper()
	s.must(s.s.Put(s.ctx, key, bytes.NewReader(data)))
}

func (s *suite) get(key string) []byte {
	s.Helper()
	r, info, err := s.s.Get(s.ctx, key)
	s.must(err)
	data, err := io.ReadAll(r)
	s.must(errors.Join(err, r.Close()))
	if info.Size != int64(len(data)) {
		s.Fatalf("%q has %d bytes, and says %d", key, len(data), info.Size)
	}
	if age := time.Since(info.ModTime); age < -time.Hour || age > time.Hour {
		s.Fatalf("%q was modified at %v", key, info.ModTime)
	}
	if there, err := s.s.Stat(s.ctx, key); err != nil || there.Size != info.Size || there.ModTime.Sub(info.ModTime).Abs() > time.Second {
		s.Fatalf("%q is opened as %+v, and is said to be %+v, %v", key, info, there, err)
	}
	return data
}

func (s *suite) keys(prefix string) (keys []string) {
	s.Helper()
	for o, err := range s.s.List(s.ctx, prefix) {
		s.must(err)
		keys = append(keys, o.Key)
	}
	return keys
}

func (s *suite) wantKeys(prefix string, want ...string) {
	s.Helper()
	if got := s.keys(prefix); !slices.Equal(got, want) {
		s.Fatalf("under %q there are %q, not %q", prefix, got, want)
	}
}

// lostBeginnings is how many uploads of one step may be left behind: one whose beginning was asked for and whose answer
// came after the end can't be taken back by whoever asked. A store that leaves what it knows of leaves more.
const lostBeginnings = 2

// clean checks that no step left anything of an upload that it knew of, and that a cleaning takes the rest.
func (s *suite) clean() {
	s.Helper()
	if s.h.Leftovers == nil {
		return
	}
	n, err := s.h.Leftovers(s.ctx, s.place)
	s.must(err)
	if n > lostBeginnings {
		s.Fatalf("%d leftovers of uploads", n)
	}
	if n == 0 {
		return
	}
	s.must(s.open().CleanUploads(s.ctx, "", 0))
	n, err = s.h.Leftovers(s.ctx, s.place)
	s.must(err)
	if n != 0 {
		s.Fatalf("%d leftovers of uploads after a cleaning", n)
	}
}

func (s *suite) objects() {
	_, _, err := s.s.Get(s.ctx, "a/b")
	s.want("get of nothing", err, objects.ErrNotFound)
	_, err = s.s.Stat(s.ctx, "a/b")
	s.want("stat of nothing", err, objects.ErrNotFound)
	s.must(s.s.Delete(s.ctx, "a/b"))
	s.wantKeys("")
	s.put("a/b", []byte("one"))
	s.put("a/c.d", nil)
	s.put("a-b", []byte("two"))
	s.put("a/b", []byte("three"))
	if got := string(s.get("a/b")); got != "three" {
		s.Fatalf("a/b holds %q", got)
	}
	if got := s.get("a/c.d"); len(got) != 0 {
		s.Fatalf("a/c.d holds %q", got)
	}
	s.wantKeys("", "a-b", "a/b", "a/c.d")
	s.wantKeys("a/", "a/b", "a/c.d")
	s.wantKeys("a/c", "a/c.d")
	s.wantKeys("b")
	s.wantKeys("a/b/")
	for o, err := range s.s.List(s.ctx, "a/b") {
		s.must(err)
		if o.Size != 5 || time.Since(o.ModTime).Abs() > time.Hour {
			s.Fatalf("listed %+v", o)
		}
	}
	for range s.s.List(s.ctx, "") {
		break // an iterator that is left must not be called on
	}
	_, _, err = s.s.Get(s.ctx, "a")
	s.want("get of a folder", err, objects.ErrNotFound)
	_, err = s.s.Stat(s.ctx, "a")
	s.want("stat of a folder", err, objects.ErrNotFound)
	s.must(s.s.Delete(s.ctx, "a"))
	s.must(s.s.Delete(s.ctx, "a/b"))
	s.must(s.s.Delete(s.ctx, "a/b"))
	s.wantKeys("", "a-b", "a/c.d")
}

// oddKeys are legal, and ask for escapes somewhere.
var oddKeys = []string{
	" ", "+", "a b/c  d", "a&b=c", "a'b", "a*b", "a:b", "a@b", "a~b", "a|b", ".hidden",
	"...", "..a/b..", "[x]{y}", "<z>", "`", "$HOME", "grüße/日本語/😀", "-", "_", "a;b", "a,b", "a!b", "a^b",
	"s/" + strings.Repeat("x", objects.MaxSegment),
	strings.Repeat(strings.Repeat("k", 99)+"/", 8) + strings.Repeat("k", 100), // 900 bytes
}

func (s *suite) oddKeys() {
	for _, key := range oddKeys {
		s.must(objects.CheckKey(key))
		s.put(key, []byte(key))
	}
	for _, key := range oddKeys {
		if got := string(s.get(key)); got != key {
			s.Fatalf("%q holds %q", key, got)
		}
		s.wantKeys(key, s.having(key)...)
	}
	s.wantKeys("", s.having("")...)
	for i, key := range oddKeys {
		s.must(s.s.Delete(s.ctx, key))
		if got := s.keys(""); len(got) != len(oddKeys)-i-1 {
			s.Fatalf("after the deletion of %q: %q", key, got)
		}
		s.must(s.s.SwapPointer(s.ctx, key, []byte(key), ""))
		value, _, err := s.s.ReadPointer(s.ctx, key)
		s.must(err)
		if string(value) != key {
			s.Fatalf("pointer %q holds %q", key, value)
		}
		s.must(s.s.Delete(s.ctx, key))
	}
}

// having are the odd keys with the prefix, sorted.
func (s *suite) having(prefix string) (keys []string) {
	for _, key := range oddKeys {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (s *suite) badKeys() {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/./b", "a\\b", "a../b", "%", "a%2Fb", "a#b", "a?b", "a\"b", "a\x00b", "a\nb", "a\x7f", "\xff",
		"a__0x2f__b", objects.Reserved + "tmp-x", "a/" + objects.Reserved + "lock-b",
		strings.Repeat("x", objects.MaxSegment+1), strings.Repeat("k/", objects.MaxKey/2) + "k",
	} {
		s.want("put", s.s.Put(s.ctx, key, strings.NewReader("x")), objects.ErrBadKey)
		_, _, err := s.s.Get(s.ctx, key)
		s.want("get", err, objects.ErrBadKey)
		_, err = s.s.Stat(s.ctx, key)
		s.want("stat", err, objects.ErrBadKey)
		s.want("delete", s.s.Delete(s.ctx, key), objects.ErrBadKey)
		s.want("swap", s.s.SwapPointer(s.ctx, key, nil, ""), objects.ErrBadKey)
		_, _, err = s.s.ReadPointer(s.ctx, key)
		s.want("read", err, objects.ErrBadKey)
	}
	s.wantKeys("")
}

func (s *suite) many() {
	n := s.h.Many
	if n == 0 {
		n = 50
	}
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprintf("many/%05d", i)
	}
	s.together(16, func(part int) error {
		for i := part; i < n; i += 16 {
			if err := s.s.Put(s.ctx, want[i], strings.NewReader("x")); err != nil {
				return err
			}
		}
		return nil
	})
	s.wantKeys("many/", want...)
	s.wantKeys("many/00011", "many/00011")
}

// together runs f n times at once.
func (s *suite) together(n int, f func(i int) error) {
	s.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	s.must(errors.Join(errs...))
}

// random is n bytes that no run length makes small.
func random(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	return data
}

func (s *suite) big() {
	data := random(25<<20 + 12345)
	s.must(s.s.Put(s.ctx, "big", struct{ io.Reader }{bytes.NewReader(data)}))
	if got := s.get("big"); sha256.Sum256(got) != sha256.Sum256(data) {
		s.Fatalf("read back %d bytes that differ", len(got))
	}
	r, _, err := s.s.Get(s.ctx, "big")
	s.must(err)
	if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
		s.Fatal(err)
	}
	s.must(r.Close()) // an object may be left half read
}

// fromTheMiddle: what is opened at an offset is the rest of the object, and says the same of the whole.
func (s *suite) fromTheMiddle() {
	ranged, ok := s.s.(objects.Ranged)
	if !ok {
		s.Fatalf("%T opens objects at their beginning only", s.s)
	}
	_, _, err := ranged.GetFrom(s.ctx, "a/b", 1)
	s.want("nothing from the middle", err, objects.ErrNotFound)
	data := random(9<<20 + 321)
	s.put("a/b", data)
	whole, first, err := s.s.Get(s.ctx, "a/b")
	s.must(err)
	s.must(whole.Close())
	for _, at := range []int64{0, 1, 8 << 20, 9 << 20, int64(len(data)) - 1} {
		r, info, err := ranged.GetFrom(s.ctx, "a/b", at)
		s.must(err)
		got, err := io.ReadAll(r)
		s.must(errors.Join(err, r.Close()))
		if !bytes.Equal(got, data[at:]) {
			s.Fatalf("from byte %d there are %d bytes, not the last %d", at, len(got), int64(len(data))-at)
		}
		if info.Size != first.Size || !info.ModTime.Equal(first.ModTime) || info.Version != first.Version {
			s.Fatalf("from byte %d it is %+v, from its beginning %+v", at, info, first)
		}
	}
	s.put("a/b", data[1:])
	r, info, err := ranged.GetFrom(s.ctx, "a/b", 1)
	s.must(err)
	s.must(r.Close())
	if info == first {
		s.Fatalf("two objects are both %+v", info)
	}
}

func (s *suite) pointer() {
	_, _, err := s.s.ReadPointer(s.ctx, "p/x.json")
	s.want("read of nothing", err, objects.ErrNotFound)
	s.must(s.s.SwapPointer(s.ctx, "p/x.json", []byte("one"), ""))
	s.want("second creation", s.s.SwapPointer(s.ctx, "p/x.json", []byte("two"), ""), objects.ErrConflict)
	first := s.token("p/x.json", "one")
	s.must(s.s.SwapPointer(s.ctx, "p/x.json", []byte("three"), first))
	s.want("stale swap", s.s.SwapPointer(s.ctx, "p/x.json", []byte("four"), first), objects.ErrConflict)
	second := s.token("p/x.json", "three")
	if first == second {
		s.Fatalf("two values have the token %q", first)
	}
	s.must(s.s.SwapPointer(s.ctx, "p/x.json", []byte("three"), first)) // it is there: a lost answer's second try
	large := random(17 << 20)
	s.must(s.s.SwapPointer(s.ctx, "p/x.json", large, second))
	third := s.token("p/x.json", string(large))
	s.want("stale large swap", s.s.SwapPointer(s.ctx, "p/x.json", large[1:], second), objects.ErrConflict)
	s.must(s.s.Delete(s.ctx, "p/x.json"))
	s.want("swap of a deleted one", s.s.SwapPointer(s.ctx, "p/x.json", []byte("five"), third), objects.ErrConflict)
	_, _, err = s.s.ReadPointer(s.ctx, "p/x.json")
	s.want("read of a deleted one", err, objects.ErrNotFound)
	s.must(s.s.SwapPointer(s.ctx, "p/x.json", []byte("six"), ""))
	s.wantKeys("", "p/x.json")
	if got := string(s.get("p/x.json")); got != "six" {
		s.Fatalf("as an object the pointer holds %q", got)
	}
	s.put("p/x.json", []byte("seven")) // an object may be put over a pointer
	s.token("p/x.json", "seven")
}

func (s *suite) token(key, want string) objects.Token {
	s.Helper()
	value, token, err := s.s.ReadPointer(s.ctx, key)
	s.must(err)
	if string(value) != want || token == "" {
		s.Fatalf("%q holds %.40q with token %q, not %.40q", key, value, token, want)
	}
	return token
}

func (s *suite) selfTest() {
	s.must(objects.SelfTest(s.ctx, s.s, "artifacts/x."))
	got, err := objects.ForPublishing(s.ctx, s.s, "", true)
	s.must(err)
	if got != s.s {
		s.Fatal("a store that passes was wrapped")
	}
	s.wantKeys("")
}

func (s *suite) closed() {
	st, err := s.h.Open(s.ctx, s.place)
	s.must(err)
	s.must(st.Close())
	s.must(st.Close())
	s.want("put", st.Put(s.ctx, "a", strings.NewReader("x")), objects.ErrClosed)
	_, _, err = st.Get(s.ctx, "a")
	s.want("get", err, objects.ErrClosed)
	_, err = st.Stat(s.ctx, "a")
	s.want("stat", err, objects.ErrClosed)
	s.want("delete", st.Delete(s.ctx, "a"), objects.ErrClosed)
	s.want("swap", st.SwapPointer(s.ctx, "a", nil, ""), objects.ErrClosed)
	_, _, err = st.ReadPointer(s.ctx, "a")
	s.want("read pointer", err, objects.ErrClosed)
	s.want("clean", st.CleanUploads(s.ctx, "a", 0), objects.ErrClosed)
	for _, err := range st.List(s.ctx, "") {
		s.want("list", err, objects.ErrClosed)
	}
}
