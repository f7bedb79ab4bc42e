package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const hash1 = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" // of no bytes

const wantThree = `{
  "schema_version": 3,
  "backend": "pebble",
  "backend_version": "pebble-24",
  "cursor_hex": "000000000000002a000008030100000000000000",
  "created_at_unix": 1700000000,
  "bucket": "hosts",
  "scope": {
    "Prefixes": [
      "n.",
      "w."
    ]
  },
  "log": {
    "created_unix_nano": "1700000000123456789",
    "age_limit_nano": "3600000000000",
    "samples": [
      {
        "revision": 4,
        "unix_nano": "1700000001000000001"
      }
    ]
  },
  "owed": {
    "why": [
      "identity",
      "markers"
    ],
    "at": 7
  },
  "schemas": {
    "x.v1.Host": "key: n.{id} <&>\n"
  },
  "files": [
    {
      "path": "data/000002.sst",
      "size": 9007199254740993,
      "blake3": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    },
    {
      "path": "data/sub/a",
      "size": 0,
      "blake3": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    }
  ]
}
`

func three(t *testing.T) Manifest {
	t.Helper()
	scope, err := kv.Prefixes("w.", "n.")
	must(t, err)
	h, err := Parse([]byte(wantThree))
	must(t, err)
	return Manifest{
		Backend: "pebble", Format: "pebble-24", Cursor: kv.Cursor{Version: kv.Revision(42), SeenEvicting: true, WrittenAt: 1},
		Created: time.Unix(1_700_000_000, 999), Bucket: "hosts", Scope: scope, HasScope: true, Log: testLog,
		Owed: kv.Owed{Why: kv.OwesIdentity | kv.OwesMarkers, At: 7}, Schemas: map[string]string{"x.v1.Host": "key: n.{id} <&>\n"},
		Files: []File{{Path: "data/sub/a", Hash: h.Files[0].Hash}, {Path: "data/000002.sst", Size: 9007199254740993, Hash: h.Files[0].Hash}},
	}
}

func TestManifestIsWritten(t *testing.T) {
	in := three(t)
	in.Files[0], in.Files[1] = in.Files[1], in.Files[0]
	m, err := in.sealed()
	must(t, err)
	if string(m.Bytes()) != wantThree {
		t.Errorf("wrote\n%s", m.Bytes())
	}
	if d := differs(&m, &in); d != "" || m.Rank() != 42 || m.Size() != 9007199254740993 || !m.Created.Equal(time.Unix(1_700_000_000, 0)) || m.Schema != 3 {
		t.Errorf("%s: %+v", d, m)
	}
	again, err := Parse(bytes.Clone(m.Bytes()))
	if err != nil || again.Hash() != m.Hash() || m.Files[0].Hash.String() != hash1 {
		t.Errorf("hash %v, %v", again.Hash(), err)
	}
	m.raw = append(m.raw, ' ')
	if again.Hash() == m.Hash() {
		t.Error("the hash is not that of the bytes")
	}
}

func TestManifestWithoutWhatIsNotKnown(t *testing.T) {
	in := Manifest{Backend: "append-log", Format: "3", Created: time.Unix(5, 0), Files: []File{{Path: "data/fold.snap"}}}
	m, err := in.sealed()
	must(t, err)
	for _, name := range []string{"scope", "bucket", "log", "owed", "schemas"} {
		if bytes.Contains(m.Bytes(), []byte(`"`+name+`"`)) {
			t.Errorf("%s is written in\n%s", name, m.Bytes())
		}
	}
	if !m.Cursor.IsNone() || m.HasScope || m.Rank() != 0 {
		t.Errorf("%+v", m)
	}
}

// older is a manifest of schema 1 or 2, as the program that its layout comes from writes it.
func older(schema int, scope string) string {
	if scope != "" {
		scope = ",\n  \"scope\": " + scope
	}
	return fmt.Sprintf(`{
  "schema_version": %d,
  "backend": "append-log",
  "backend_version": "2",
  "cursor_hex": "0000000000000007",
  "created_at_unix": 1700000000,
  "files": [
    {
      "path": "data/fold.snap",
      "size": 6,
      "blake3": "%s"
    }
  ]%s
}`, schema, hash1, scope)
}

func TestOlderManifests(t *testing.T) {
	for _, c := range []struct{ text, scope string }{
		{older(1, ""), "not recorded"},
		{older(1, "null"), "not recorded"},
		{older(2, `"All"`), ">"},
		{older(2, `{"Prefix": "n."}`), "n."},
		{older(2, `{"Prefixes": ["w.", "n."]}`), "n.,w."},
		{older(3, ""), "not recorded"},
		{older(3, `{"Prefix":""}`), ">"},
	} {
		m, err := Parse([]byte(c.text))
		if err != nil {
			t.Errorf("%v in %s", err, c.text)
			continue
		}
		if scopeText(&m) != c.scope || m.Rank() != 7 || m.Backend != "append-log" || m.Format != "2" || len(m.Files) != 1 || m.Files[0].Size != 6 {
			t.Errorf("%+v of %s", m, c.text)
		}
	}
}

// replaced is wantThree with one thing otherwise.
func replaced(t *testing.T, from, to string) string {
	t.Helper()
	if !strings.Contains(wantThree, from) {
		t.Fatalf("there is no %q", from)
	}
	return strings.Replace(wantThree, from, to, 1)
}

func TestManifestsRefused(t *testing.T) {
	file := func(p string) string { return replaced(t, `data/sub/a`, p) }
	for what, text := range map[string]string{
		"nothing": "", "no object": "[]", "null": "null", "cut": wantThree[:len(wantThree)-3], "more": wantThree + "{}",
		"not UTF-8":           replaced(t, "hosts", "\xff"),
		"unknown":             replaced(t, `"bucket"`, `"bukket"`),
		"another case":        replaced(t, `"bucket"`, `"Bucket"`),
		"twice":               replaced(t, `"bucket": "hosts",`, `"bucket": "hosts", "bucket": "hosts",`),
		"twice, escaped":      replaced(t, `"bucket": "hosts",`, `"bucket": "hosts", "bucke\u0074": "hosts",`),
		"schema twice":        replaced(t, `"schema_version": 3,`, `"schema_version": 3, "schema_version": 2,`),
		"schema in capitals":  replaced(t, `"schema_version": 3,`, `"schema_version": 3, "SCHEMA_VERSION": 2,`),
		"unknown in a file":   replaced(t, `"size": 0`, `"size": 0, "mode": 1`),
		"twice in a file":     replaced(t, `"size": 0`, `"size": 0, "size": 0`),
		"no size":             replaced(t, `"size": 0,`, ``),
		"size as text":        replaced(t, `"size": 0`, `"size": "0"`),
		"fraction":            replaced(t, `"size": 0`, `"size": 0.0`),
		"exponent":            replaced(t, `"size": 0`, `"size": 1e1`),
		"minus zero":          replaced(t, `"size": 0`, `"size": -0`),
		"negative":            replaced(t, `"size": 0`, `"size": -1`),
		"too large a size":    replaced(t, `"size": 0`, `"size": 9223372036854775808`),
		"sum too large":       replaced(t, `"size": 0`, `"size": 9223372036854775807`),
		"size null":           replaced(t, `"size": 0`, `"size": null`),
		"files null":          `{"schema_version":1,"backend":"x","backend_version":"1","cursor_hex":"","created_at_unix":0,"files":null}`,
		"no files":            `{"schema_version":1,"backend":"x","backend_version":"1","cursor_hex":"","created_at_unix":0,"files":[]}`,
		"no backend":          replaced(t, `"backend": "pebble"`, `"backend": ""`),
		"backend missing":     replaced(t, `"backend": "pebble",`, ``),
		"hash cut":            replaced(t, hash1, hash1[2:]),
		"hash too long":       replaced(t, hash1, hash1+"00"),
		"hash in capitals":    replaced(t, hash1, strings.ToUpper(hash1)),
		"hash not hex":        replaced(t, hash1, "g"+hash1[1:]),
		"cursor too long":     replaced(t, `"cursor_hex": "`, `"cursor_hex": "00`),
		"cursor in capitals":  replaced(t, `2a0000`, `2A0000`),
		"cursor null":         replaced(t, `"cursor_hex": "000000000000002a000008030100000000000000"`, `"cursor_hex": null`),
		"time negative":       replaced(t, `1700000000,`, `-1,`),
		"time too late":       replaced(t, `1700000000,`, `253402300800,`),
		"schema 0":            older(0, ""),
		"schema negative":     older(-1, ""),
		"schema as text":      replaced(t, `"schema_version": 3`, `"schema_version": "3"`),
		"schema 1 with scope": older(1, `"All"`),
		"schema 2 without":    older(2, ""), "schema 2 with null": older(2, "null"),
		"schema 2, bucket": strings.Replace(older(2, `"All"`), `"backend":`, `"bucket": "b", "backend":`, 1),
		"scope unknown":    older(2, `"Everything"`), "scope in small letters": older(2, `"all"`),
		"scope of nothing": older(2, `{"Prefixes":[]}`), "scope with two forms": older(2, `{"Prefix":"a","Prefixes":["b"]}`),
		"scope without a form": older(2, `{}`), "scope of no key": older(2, `{"Prefix":"a..b"}`), "scope, list": older(2, `["n."]`),
		"scope, text":         older(2, `{"Prefixes":"n."}`),
		"owed unknown":        replaced(t, `"markers"`, `"money"`),
		"owed twice":          replaced(t, `"markers"`, `"identity"`),
		"log time as number":  replaced(t, `"1700000000123456789"`, `1700000000123456789`),
		"no age limit":        replaced(t, `"3600000000000"`, `"0"`),
		"sample without time": replaced(t, `"unix_nano": "1700000001000000001"`, `"revision": 4`),
		"too many samples":    replaced(t, `"samples": [`, `"samples": [`+strings.Repeat(`{"revision":1,"unix_nano":"1"},`, maxSamples)),
		"schema record twice": replaced(t, `"x.v1.Host":`, `"x.v1.Host": "", "x.v1.Host":`),
		"record as a number":  replaced(t, `"key: n.{id} <&>\n"`, `1`),

		"absolute": file(`/data/sub/a`), "traversal": file(`data/../a`), "out": file(`../data/a`), "dot": file(`data/./a`),
		"elsewhere": file(`dato/a`), "not below": file(`data`), "the folder": file(`data/`), "double slash": file(`data//a`),
		"the manifest": file(ManifestName), "backslash": file(`data\\a`), "backslash inside": file(`data/a\\..\\..\\b`),
		"control": file(`data/a\u0000b`), "line": file(`data/a\nb`), "colon": file(`data/c:x`), "too long": file("data/" + strings.Repeat("a", MaxPath)),
		"the same path": file(`data/000002.sst`), "a folder too": file(`data/000002.sst/a`), "empty": file(``), "up at the end": file(`data/..`),
	} {
		m, err := Parse([]byte(text))
		var bad *InvalidError
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &bad) || bad.Hint() == "" {
			t.Errorf("%s: %v of %+v", what, err, m)
		}
	}
	if _, err := Parse([]byte(replaced(t, `"schema_version": 3`, `"schema_version": 4, "news": {}`))); !errors.Is(err, store.ErrFormat) || !errors.Is(err, ErrInvalid) {
		t.Errorf("schema 4: %v", err)
	}
}

// TestManifestOfALargeFold: no size of a fold that there is makes a manifest that can't be read.
func TestManifestOfALargeFold(t *testing.T) {
	in := three(t)
	in.Files = nil
	for i := range MaxFiles {
		in.Files = append(in.Files, File{Path: fmt.Sprintf("data/%06d.sst", i), Size: 128 << 20})
	}
	m, err := in.sealed()
	must(t, err)
	if len(m.Files) != MaxFiles || m.Size() != MaxFiles*128<<20 {
		t.Errorf("%d files of %d bytes", len(m.Files), m.Size())
	}
	in.Files = append(in.Files, File{Path: "data/one.sst"})
	if _, err := in.sealed(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one file too many: %v", err)
	}
	if _, err := Parse(append(bytes.Repeat([]byte(" "), MaxManifest), wantThree...)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many bytes: %v", err)
	}
	if _, err := Parse(append(bytes.Repeat([]byte(" "), MaxManifest-len(wantThree)), wantThree...)); err != nil {
		t.Errorf("as many bytes as there may be: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{wantThree, older(1, ""), older(2, `"All"`), older(2, `{"Prefix":"n."}`), older(2, `{"Prefixes":["a","b"]}`), "{}", ""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, file := range m.Files {
			if badPath(file.Path) != "" || file.Size < 0 {
				t.Fatalf("took file %+v", file)
			}
		}
		if !bytes.Equal(m.Bytes(), b) || m.Size() < 0 || !json.Valid(b) {
			t.Fatalf("took %q", b)
		}
		again, err := m.sealed()
		if err != nil {
			t.Fatalf("can't write what was read: %v", err)
		}
		same := m
		same.Schema = Schema
		if d := differs(&again, &same); d != "" || again.Size() != m.Size() || len(again.Files) != len(m.Files) || !again.Created.Equal(m.Created) {
			t.Fatalf("written anew it differs: %s", d)
		}
	})
}
