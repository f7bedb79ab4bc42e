package kv

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// matches is NATS's own rule, token by token, for filters of literals that may end in ">".
func matches(filter, subject string) bool {
	want, got := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, w := range want {
		if w == ">" {
			return i < len(got)
		}
		if i >= len(got) || got[i] != w {
			return false
		}
	}
	return len(want) == len(got)
}

// overlap reports whether some subject matches both filters.
func overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		if x[i] == ">" || y[i] == ">" {
			return true
		}
		if x[i] != y[i] {
			return false
		}
	}
	return len(x) == len(y)
}

func TestFiltersGolden(t *testing.T) {
	for _, c := range []struct {
		prefixes string
		kept     string
		filters  string
		exact    bool
	}{
		{"a.", "a.", "a.>", true},
		{"a", "a", ">", false},
		{"a.b", "a.b", "a.>", false},
		{"a.b.", "a.b.", "a.b.>", true},
		{"a.b. a.c.", "a.b. a.c.", "a.b.> a.c.>", true},
		{"a.b a.c", "a.b a.c", "a.>", false},
		{"a.b. a.b", "a.b", "a.>", false},
		{"a. a.b. a.", "a.", "a.>", true},
		{"a-.x a.y", "a-.x a.y", "a-.> a.>", false},
		{"a.b- a.b.c", "a.b- a.b.c", "a.>", false},
		{"a.b.c a.b-.d a.b.e.", "a.b-.d a.b.c a.b.e.", "a.b-.> a.b.>", false},
		{"b a.", "a. b", ">", false},
		{"a.b.x a.c", "a.b.x a.c", "a.>", false},
		{"a.b.x a.c.y a.c", "a.b.x a.c", "a.>", false},
	} {
		s, err := Prefixes(strings.Fields(c.prefixes)...)
		if err != nil {
			t.Errorf("%q: %v", c.prefixes, err)
			continue
		}
		filters, exact := s.Filters()
		if got := strings.Join(filters, " "); got != c.filters || exact != c.exact || strings.Join(s.List(), " ") != c.kept {
			t.Errorf("%q: kept %q, filters %q exact %v", c.prefixes, s.List(), got, exact)
		}
	}
	filters, exact := AllKeys().Filters()
	if !slices.Equal(filters, []string{">"}) || !exact || !AllKeys().IsAll() || AllKeys().String() != ">" || AllKeys().List() != nil {
		t.Error("the zero scope is the whole bucket")
	}
	if s, err := Prefixes("a", "", "b"); err != nil || !s.IsAll() {
		t.Errorf("an empty prefix is the whole bucket: %v, %v", s, err)
	}
}

func TestPrefixRefusals(t *testing.T) {
	for _, bad := range []string{".", ".a", "a..", "a..b", "a b", "a*", "a.>", ">", "é", "\x00", "a\n", "a:b", "a,b", "\xff"} {
		if s, err := Prefixes("ok.", bad); !errors.Is(err, ErrInvalidKey) {
			t.Errorf("%q: %v, %v", bad, s, err)
		}
	}
	if _, err := Prefixes(); err == nil {
		t.Error("no prefixes is no scope")
	}
}

// The text of a scope names it, and nothing else reads as one.
func TestScopeText(t *testing.T) {
	for _, c := range []struct{ text, written string }{
		{">", ">"}, {"a.", "a."}, {"b,a.", "a.,b"}, {"a.b.,a.", "a."}, {"all", "all"}, {"", ">"}, {"a,", ">"},
	} {
		s, err := ParseScope(c.text)
		if err != nil || s.String() != c.written {
			t.Errorf("%q is %v, %v", c.text, s, err)
		}
	}
	for _, bad := range []string{">,a", "a.>", ".", " a", "a, b", "a..b", "*"} {
		if s, err := ParseScope(bad); !errors.Is(err, ErrInvalidKey) || !s.IsAll() {
			t.Errorf("%q is %v, %v", bad, s, err)
		}
	}
	all, err := ParseScope("all")
	if err != nil || all.IsAll() {
		t.Errorf(`"all" is a prefix as any other: %v, %v`, all, err)
	}
}

// A list is a copy: changing it leaves the scope alone.
func TestScopeListIsACopy(t *testing.T) {
	s, _ := Prefixes("a.", "b.")
	s.List()[0] = "x."
	if !s.Contains("a.1") || s.String() != "a.,b." {
		t.Fatal(s)
	}
}

func TestValidKey(t *testing.T) {
	for _, key := range []string{"a", "Z9", "a.b", "a/b", "-_/=", "a.-", "=", strings.Repeat("k.", 100) + "k"} {
		if err := ValidKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{"", ".", "..", ".a", "a.", "a..b", "a b", "a*b", ">", "a.>", "*", "é", "a\x00", "a:b", "a,b", "a@", "a[", "a`", "a{", "a+"} {
		err := ValidKey(key)
		if !errors.Is(err, ErrInvalidKey) {
			t.Errorf("%q: %v", key, err)
		}
		var k *KeyError
		if !errors.As(err, &k) || k.Key != key || k.Detail == "" {
			t.Errorf("%q: %#v", key, err)
		}
	}
	for c := range 256 {
		allowed := strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/=", rune(c))
		if got := ValidKey(string([]byte{byte(c)})) == nil; got != allowed {
			t.Errorf("byte %#x alone: valid %v", c, got)
		}
		if got := ValidKey("a"+string([]byte{byte(c)})+"b") == nil; got != (allowed || c == '.') {
			t.Errorf("byte %#x inside: valid %v", c, got)
		}
	}
}

// Few letters, so that prefixes meet often; '-' and '/' sort on either side of '.'.
var (
	anyPrefix = rapid.StringMatching(`[ab\-/]{0,2}(\.[ab\-/]{1,2}){0,2}\.?`)
	dotted    = rapid.StringMatching(`[ab\-]\.([ab\-/]{1,2}\.){0,2}[ab\-/]{0,1}`)
	keyGen    = rapid.StringMatching(`[ab\-/]{1,3}(\.[ab\-/]{1,3}){0,3}`)
)

func TestScopeAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A prefix without a dot makes the filter ">", so most cases have none.
		gen := rapid.SampledFrom([]*rapid.Generator[string]{dotted, dotted, rapid.OneOf(dotted, anyPrefix)}).Draw(t, "kind")
		prefixes := rapid.SliceOfN(gen, 1, 6).Draw(t, "prefixes")
		keys := rapid.SliceOfN(keyGen, 1, 20).Draw(t, "keys")
		// Keys beside the prefixes themselves are the interesting ones.
		for _, p := range prefixes {
			keys = append(keys, p, p+"a", strings.TrimRight(p, "."), p+".b", p+"-.a")
		}
		checkScope(t, prefixes, keys)
	})
}

// Every two scopes of a few prefixes: one covers the other exactly when it has all of its keys.
func TestScopeCovers(t *testing.T) {
	prefixes := []string{"a", "a.", "a.b", "a.b.", "ab", "b", "b.a"}
	var keys []string
	for _, p := range prefixes {
		for _, end := range []string{"", "a", "b", "-", ".a", ".b", "a.a"} {
			if key := p + end; ValidKey(key) == nil {
				keys = append(keys, key)
			}
		}
	}
	keys = append(keys, "c")
	scopes := []Scope{AllKeys()}
	for set := 1; set < 1<<len(prefixes); set++ {
		var chosen []string
		for i, p := range prefixes {
			if set>>i&1 == 1 {
				chosen = append(chosen, p)
			}
		}
		s, err := Prefixes(chosen...)
		if err != nil {
			t.Fatal(err)
		}
		scopes = append(scopes, s)
	}
	for _, s := range scopes {
		if back, err := ParseScope(s.String()); err != nil || !back.Covers(s) || !s.Covers(back) || back.String() != s.String() {
			t.Fatalf("%v became %v, %v", s, back, err)
		}
		for _, other := range scopes {
			outside := slices.IndexFunc(keys, func(key string) bool { return other.Contains(key) && !s.Contains(key) })
			if got := s.Covers(other); got != (outside < 0) {
				t.Fatalf("%v covers %v: %v", s, other, got)
			}
		}
	}
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

func checkScope(t failer, prefixes, keys []string) {
	t.Helper()
	s, err := Prefixes(prefixes...)
	if refused := refusedBySpec(prefixes); refused != (err != nil) {
		t.Fatalf("%q: refused %v: %v", prefixes, refused, err)
	}
	if err != nil {
		return
	}
	if back, err := ParseScope(s.String()); err != nil || !slices.Equal(back.List(), s.List()) {
		t.Fatalf("%q: text %q became %v, %v", prefixes, s, back, err)
	}
	filters, exact := s.Filters()
	for i, a := range filters {
		for _, b := range filters[i+1:] {
			if overlap(a, b) {
				t.Fatalf("%q: filters %q and %q overlap", prefixes, a, b)
			}
		}
	}
	if !slices.IsSorted(filters) || len(filters) == 0 {
		t.Fatalf("%q: filters %q", prefixes, filters)
	}
	for _, key := range keys {
		if ValidKey(key) != nil {
			continue
		}
		in := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
		if s.Contains(key) != in {
			t.Fatalf("%q: contains %q is %v", prefixes, key, !in)
		}
		matched := slices.ContainsFunc(filters, func(f string) bool { return matches(f, key) })
		if in && !matched {
			t.Fatalf("%q: filters %q miss key %q", prefixes, filters, key)
		}
		if exact && matched && !in {
			t.Fatalf("%q: filters %q are exact and match %q", prefixes, filters, key)
		}
	}
}

// refusedBySpec: some prefix begins no key at all, and no prefix is the whole bucket.
func refusedBySpec(prefixes []string) bool {
	if slices.Contains(prefixes, "") {
		return false
	}
	return slices.ContainsFunc(prefixes, func(p string) bool { return ValidKey(p) != nil && ValidKey(p+"a") != nil })
}

func FuzzScope(f *testing.F) {
	f.Add("a.b a.", "a.b.c a-")
	f.Add("a. a.- a/.", "a.b a-.b a")
	f.Add(".", "a")
	f.Add("a..b", "a..b")
	f.Fuzz(func(t *testing.T, prefixes, keys string) {
		if list := strings.Split(prefixes, " "); len(list) < 20 {
			checkScope(t, list, append(strings.Split(keys, " "), list...))
		}
	})
}
