package kv

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func version(t testing.TB, hexBytes string) Version {
	t.Helper()
	b, err := hex.DecodeString(hexBytes)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ParseVersion(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCursorGolden(t *testing.T) {
	stamp := version(t, "0102030405060708090a")
	for _, c := range []struct {
		name   string
		cursor Cursor
		bytes  string
		text   string
	}{
		{"none", Cursor{}, "", "none"},
		{"revision", CursorAt(258), "0000000000000102", "258"},
		{"the last revision", CursorAt(1<<64 - 1), "ffffffffffffffff", "18446744073709551615"},
		{"versionstamp", Cursor{Version: stamp}, "0102030405060708090a", "0x0102030405060708090a"},
		{"memo without a cursor", Cursor{SeenEvicting: true}, "0000000000000000000000" + "01", "none+evicting"},
		{"revision with memo", Cursor{Version: Revision(258), SeenEvicting: true}, "00000000000001020000" + "08" + "01", "258+evicting"},
		{"versionstamp with memo", Cursor{Version: stamp, SeenEvicting: true}, "0102030405060708090a" + "0a" + "01", "0x0102030405060708090a+evicting"},
		{"one byte with memo", Cursor{Version: version(t, "7f"), SeenEvicting: true}, "7f000000000000000000" + "01" + "01", "0x7f+evicting"},
		{
			"revision with memo and time", Cursor{Version: Revision(258), SeenEvicting: true, WrittenAt: 0x0102030405060708},
			"00000000000001020000" + "08" + "03" + "0807060504030201", "258+evicting",
		},
		{
			"memo and time without a cursor", Cursor{SeenEvicting: true, WrittenAt: 1},
			"00000000000000000000" + "00" + "03" + "0100000000000000", "none+evicting",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.cursor.AppendBytes([]byte("x"))
			if got := hex.EncodeToString(b[1:]); b[0] != 'x' || got != c.bytes {
				t.Fatalf("bytes %s, want %s", got, c.bytes)
			}
			back, err := ParseCursor(b[1:])
			if err != nil || back != c.cursor {
				t.Fatalf("parsed %+v, %v", back, err)
			}
			if got := c.cursor.String(); got != c.text {
				t.Fatalf("text %q, want %q", got, c.text)
			}
			if c.cursor.IsNone() != (c.cursor.Version.Len() == 0) {
				t.Fatal("none is: no version")
			}
		})
	}
}

// The time is kept only beside the memo, so a cursor without one has the same bytes with any time.
func TestCursorWithoutMemoDropsTime(t *testing.T) {
	b := Cursor{Version: Revision(7), WrittenAt: 99}.AppendBytes(nil)
	if !bytes.Equal(b, CursorAt(7).AppendBytes(nil)) {
		t.Fatalf("%x", b)
	}
}

func TestCursorRefusals(t *testing.T) {
	good := Cursor{Version: Revision(5), SeenEvicting: true, WrittenAt: 9}.AppendBytes(nil)
	edit := func(n int, at int, b byte) []byte {
		out := bytes.Clone(good[:n])
		out[at] = b
		return out
	}
	for name, b := range map[string][]byte{
		"version length 11":            edit(20, 10, 11),
		"version length 255":           edit(20, 10, 255),
		"no flags":                     edit(20, 11, 0),
		"time without memo":            edit(20, 11, 2),
		"unknown flag":                 edit(20, 11, 3|4),
		"high flag":                    edit(20, 11, 3|128),
		"time not flagged, 20 bytes":   edit(20, 11, 1),
		"time flagged, 12 bytes":       edit(12, 11, 3),
		"padding byte 9":               edit(20, 8, 1),
		"padding byte 10":              edit(20, 9, 1),
		"padding after a short":        edit(20, 10, 7),
		"zero time":                    append(bytes.Clone(good[:12]), make([]byte, 8)...),
		"no flags, 12 bytes":           edit(12, 11, 0),
		"memo of no version, not zero": edit(20, 10, 0),
	} {
		if c, err := ParseCursor(b); err == nil {
			t.Errorf("%s: parsed %x as %+v", name, b, c)
		}
	}
	for n := range 64 {
		_, err := ParseCursor(make([]byte, n))
		if plain := n <= MaxVersionLen; plain != (err == nil) {
			t.Errorf("%d zero bytes: %v", n, err)
		}
	}
	for n := range 64 {
		b := append(bytes.Clone(good), make([]byte, 64)...)[:n]
		_, err := ParseCursor(b)
		if want := n <= 10 || n == 20; want != (err == nil) {
			t.Errorf("the first %d bytes of a timed cursor: %v", n, err)
		}
	}
}

func TestCursorTimes(t *testing.T) {
	if !(Cursor{}).Written().IsZero() {
		t.Fatal("no time is the zero time")
	}
	if got := (Cursor{WrittenAt: 1700000000123}).Written(); !got.Equal(time.Date(2023, 11, 14, 22, 13, 20, 123e6, time.UTC)) {
		t.Fatal(got)
	}
}

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		v    Version
		rank uint64
		ok   bool
		text string
	}{
		{Version{}, 0, false, "unknown"},
		{Revision(0), 0, false, "unknown"},
		{Revision(1), 1, true, "1"},
		{Revision(1<<64 - 1), 1<<64 - 1, true, "18446744073709551615"},
		{version(t, "00"), 0, false, "0x00"},
		{version(t, "00000000000001"), 0, false, "0x00000000000001"},
		{version(t, "0000000000000001"), 1, true, "1"},
		{version(t, "0000000000000000"), 0, true, "0"},
		{version(t, "000000000000000001"), 0, false, "0x000000000000000001"},
		{version(t, "0102030405060708090a"), 0, false, "0x0102030405060708090a"},
	} {
		seq, ok := c.v.Uint64()
		if ok != c.ok || ok && seq != c.rank || c.v.Rank() != c.rank || c.v.String() != c.text {
			t.Errorf("%v: %d %v, rank %d", c.v, seq, ok, c.v.Rank())
		}
		if c.v.IsUnknown() != (c.v == Version{}) {
			t.Errorf("%v: unknown is the zero version", c.v)
		}
	}
	if _, err := ParseVersion(make([]byte, MaxVersionLen+1)); err == nil {
		t.Error("a version of 11 bytes was read")
	}
	if version(t, "00") == version(t, "0000") || (version(t, "00") == Version{}) {
		t.Error("versions of other lengths are other versions")
	}
}

func TestVersionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, MaxVersionLen).Draw(t, "bytes")
		v, err := ParseVersion(b)
		if err != nil || v.Len() != len(b) || !bytes.Equal(v.AppendBytes(nil), b) {
			t.Fatalf("%x became %v, %v", b, v, err)
		}
		memo := Cursor{Version: v, SeenEvicting: true, WrittenAt: rapid.Uint64().Draw(t, "ms")}
		back, err := ParseCursor(memo.AppendBytes(nil))
		if err != nil || back != memo {
			t.Fatalf("%+v became %+v, %v", memo, back, err)
		}
	})
}

// Whatever parses is written back byte for byte: there is one encoding of a cursor.
func FuzzParseCursor(f *testing.F) {
	stamp, _ := ParseVersion([]byte("0123456789"))
	for _, c := range []Cursor{{}, CursorAt(1), {Version: stamp}, {SeenEvicting: true}, {Version: stamp, SeenEvicting: true, WrittenAt: 1}} {
		f.Add(c.AppendBytes(nil))
	}
	f.Add(make([]byte, 12))
	f.Add(make([]byte, 20))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCursor(b)
		if err != nil {
			if len(b) <= MaxVersionLen {
				t.Fatalf("%x was refused: %v", b, err)
			}
			if (c != Cursor{}) {
				t.Fatalf("%x was refused, and gave %+v", b, c)
			}
			return
		}
		if got := c.AppendBytes(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x was read as %+v and written as %x", b, c, got)
		}
		if len(b) > MaxVersionLen && !c.SeenEvicting {
			t.Fatalf("%x has no memo", b)
		}
	})
}
