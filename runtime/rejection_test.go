package fold

import (
	"encoding"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/typedfold/fold/runtime/store"
)

var (
	_ error                    = (*Rejection)(nil)
	_ encoding.BinaryAppender  = (*Rejection)(nil)
	_ encoding.TextMarshaler   = RejectCode(0)
	_ encoding.TextUnmarshaler = (*RejectCode)(nil)
)

// The numbers are on disks; the names are in other people's dashboards.
func TestRejectCodesAreFixed(t *testing.T) {
	for i, want := range []string{"KEY_NO_PATTERN", "KEY_SEGMENT", "KEY_NOT_CANONICAL", "KEY_FIELD_UNSET", "KEY_TOO_LONG",
		"KEY_VALUE_MISMATCH", "VALUE_DECODE", "VALUE_TOO_LARGE", "VALIDATION", "HOOK"} {
		c := RejectCode(i + 1)
		if c.String() != want {
			t.Errorf("code %d: %s, want %s", i+1, c, want)
		}
		text, err := json.Marshal(map[RejectCode]RejectCode{c: c})
		if err != nil || string(text) != `{"`+want+`":"`+want+`"}` {
			t.Errorf("code %d: %s, %v", i+1, text, err)
		}
		var back map[RejectCode]RejectCode
		if err := json.Unmarshal(text, &back); err != nil || back[c] != c {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	for _, c := range []RejectCode{0, Hook + 1, 255} {
		if _, err := c.MarshalText(); err == nil || !strings.HasPrefix(c.String(), "REJECT_CODE(") {
			t.Errorf("code %d has a name", uint8(c))
		}
		if _, err := (&Rejection{Code: c}).AppendBinary(nil); err == nil {
			t.Errorf("code %d is stored", uint8(c))
		}
	}
	var c RejectCode
	for _, s := range []string{"", "HOOKS", "hook"} {
		if err := c.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q is a code", s)
		}
	}
}

func TestRejectionText(t *testing.T) {
	cause := errors.New("no such thing")
	for _, c := range []struct {
		r    Rejection
		want string
	}{
		{Rejection{Code: KeyFieldUnset, Field: "tenant"}, "field tenant: KEY_FIELD_UNSET"},
		{Rejection{Code: ValueDecode, Table: "Route", Key: "route.a.b", Revision: 7, Err: cause},
			`table Route: key "route.a.b": revision 7: VALUE_DECODE: no such thing`},
	} {
		if got := c.r.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if !errors.Is(&Rejection{Code: Hook, Err: cause}, cause) {
		t.Error("the cause is hidden")
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRejectionStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Rejection{
			Code:     RejectCode(rapid.IntRange(1, int(Hook)).Draw(t, "code")),
			Table:    rapid.String().Draw(t, "table"),
			Key:      rapid.String().Draw(t, "key"),
			Field:    rapid.String().Draw(t, "field"),
			Revision: rapid.Uint64().Draw(t, "revision"),
		}
		if s := rapid.String().Draw(t, "err"); s != "" {
			r.Err = errors.New(s)
		}
		b, err := r.AppendBinary([]byte("x"))
		if err != nil || b[0] != 'x' {
			t.Fatal(err)
		}
		b = b[1:]
		got, err := parseRejection(b)
		if err != nil {
			t.Fatal(err)
		}
		if got.Error() != r.Error() || text(got.Err) != text(r.Err) || got.Code != r.Code || got.Table != r.Table ||
			got.Key != r.Key || got.Field != r.Field || got.Revision != r.Revision {
			t.Fatalf("%+v, want %+v", got, r)
		}
		for n := range b {
			if _, err := parseRejection(b[:n]); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
		if _, err := parseRejection(append(b, 0)); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("a byte more: %v", err)
		}
	})
}

func TestRejectionTextIsBounded(t *testing.T) {
	r := &Rejection{Code: Validation, Err: errors.New("a" + strings.Repeat("é", maxRejectionText))}
	b, err := r.AppendBinary(nil)
	if err != nil || len(b) > maxRejectionText+16 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	got, err := parseRejection(b)
	if err != nil || len(got.Err.Error()) != maxRejectionText-1 || !utf8.ValidString(got.Err.Error()) {
		t.Errorf("%v", err)
	}
}

func FuzzParseRejection(f *testing.F) {
	b, err := (&Rejection{Code: Hook, Table: "T", Key: "k", Field: "f", Revision: 1 << 40, Err: errors.New("e")}).AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{rejectionFormat, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRejection(b)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if _, err := r.AppendBinary(nil); err != nil {
			t.Fatal(err)
		}
	})
}
