package nova

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseAddr(t *testing.T) {
	long := strings.Repeat("n", MaxNameBytes)
	for s, want := range map[string]Addr{
		"nova://demo/events":           {"demo", "events"},
		"nova://A-z_0/9":               {"A-z_0", "9"},
		"nova://" + long + "/" + long:  {long, long},
		"":                             {},
		"demo/events":                  {},
		"Nova://demo/events":           {},
		"nova:///events":               {},
		"nova://demo":                  {},
		"nova://demo/":                 {},
		"nova://demo/events/":          {},
		"nova://demo/a.b":              {},
		"nova://de*mo/events":          {},
		"nova://demo/>":                {},
		"nova://demo/eve nts":          {},
		"nova://demo/evènts":           {},
		"nova://demo/events?x":         {},
		"nova://" + long + "n/events":  {},
		"nova://demo/events\n":         {},
		"nova://user:pass@demo/events": {},
	} {
		got, err := ParseAddr(s)
		if got != want || (err == nil) != (want != Addr{}) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q is %+v, %v; want %+v", s, got, err, want)
		}
	}
}

// FuzzParseAddr: an address that is taken is written in one way, and its names are one token of a subject each.
func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{"nova://demo/events", "nova://a/b/c", "nova://*/>", "nova://a.b/c", "nova://\x00/\xff", "http://demo/events"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddr(s)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || a != (Addr{}) {
				t.Fatalf("%q: %+v, %v", s, a, err)
			}
			return
		}
		if a.String() != s || a.Validate() != nil {
			t.Fatalf("%q is written %q", s, a)
		}
		if strings.ContainsAny(a.Namespace+a.Stream, ".*>=/ \t\r\n\x00") || len(a.Namespace) > MaxNameBytes || len(a.Stream) > MaxNameBytes {
			t.Fatalf("%+v can't be part of a subject", a)
		}
	})
}

// FuzzCheckToken: what is taken is short and UTF-8, and nothing else is refused.
func FuzzCheckToken(f *testing.F) {
	for _, s := range []string{"", "gen-1", strings.Repeat("x", 36), strings.Repeat("x", 37), strings.Repeat("ü", 18), strings.Repeat("ü", 19), "\xff", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		want := len(token) <= 36 && utf8.ValidString(token)
		if err := CheckToken(token); (err == nil) != want || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q: %v", token, err)
		}
	})
}
