package logstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// The parts of a format 2 file, byte by byte; the checksums were computed by another program.
const (
	v2Header  = "50475353 0200"
	v2PutAB   = "0bc957e2 01 0300 612e62 02000000 6869 08 0000000000000007" // a.b = "hi" at 7
	v2PutZ    = "d701cc6e 01 0100 7a 00000000 0a 30313233343536373839"      // z = "" at a versionstamp
	v2DeleteQ = "2a7b0558 02 0100 71 08 0000000000000008"                   // q, at 8
	v2Cursor9 = "c9c9b9ca 03 08 0000000000000009"                           // cursor 9
)

func raw(t *testing.T, parts ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// recV2 is a record by the format's text: checksum from the type byte on, type, payload.
func recV2(kind byte, payload ...[]byte) []byte {
	body := slices.Concat(append([][]byte{{kind}}, payload...)...)
	return append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(body)), body...)
}

func rev(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{8}, n) }

func le16(n int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(n)) }
func le32(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

func putV2(key, value string, version []byte) []byte {
	return recV2(1, le16(len(key)), []byte(key), le32(len(value)), []byte(value), version)
}

func deleteV2(key string, version []byte) []byte {
	return recV2(2, le16(len(key)), []byte(key), version)
}

func cursorV2(c []byte) []byte { return recV2(3, []byte{byte(len(c))}, c) }

func stamp(t *testing.T) kv.Version {
	t.Helper()
	v, err := kv.ParseVersion([]byte("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestReadV2Golden(t *testing.T) {
	b := slices.Concat(raw(t, v2Header, v2PutZ), putV2("q", "gone", rev(5)), raw(t, v2PutAB, v2DeleteQ, v2Cursor9))
	f, err := parseV2("f", b)
	if err != nil {
		t.Fatal(err)
	}
	want := []EntryV2{{Key: "a.b", Value: []byte("hi"), Version: kv.Revision(7)}, {Key: "z", Value: []byte{}, Version: stamp(t)}}
	if f.Cursor != kv.CursorAt(9) || f.Compact || f.Torn != 0 || !sameEntries(f.Entries, want) {
		t.Fatalf("read %+v", f)
	}
	if !bytes.Equal(recV2(1, le16(3), []byte("a.b"), le32(2), []byte("hi"), rev(7)), raw(t, v2PutAB)) {
		t.Fatal("the test's own encoder differs from the golden bytes")
	}
}

func sameEntries(a, b []EntryV2) bool {
	return slices.EqualFunc(a, b, func(a, b EntryV2) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && a.Version == b.Version
	})
}

// TestV2RoundTripsByteForByte: a compacted file comes back as it was, through ReadV2, an import and an open store.
func TestV2RoundTripsByteForByte(t *testing.T) {
	memo := kv.Cursor{Version: kv.Revision(9), SeenEvicting: true, WrittenAt: 1700000000123}
	// '-' sorts before '.', while the store's own order has it the other way round.
	sorted := slices.Concat(putV2("a-b", "1", rev(1)), putV2("a.b", "2", rev(2)), putV2("ab", "3", []byte{0}), putV2("é", "\x00", rev(4)))
	for name, want := range map[string][]byte{
		"golden":    raw(t, v2Header, v2PutAB, v2PutZ, v2Cursor9),
		"no cursor": raw(t, v2Header, v2PutAB, hex.EncodeToString(cursorV2(nil))),
		"empty":     slices.Concat(raw(t, v2Header), cursorV2(nil)),
		"sorted":    slices.Concat(raw(t, v2Header), sorted, cursorV2(memo.AppendBytes(nil))),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			src, own := filepath.Join(dir, "src"), filepath.Join(dir, "store", "log")
			writeFile(t, src, want)
			f, err := ReadV2(src)
			if err != nil {
				t.Fatal(err)
			}
			if !f.Compact {
				t.Error("it is not called compact")
			}
			again := filepath.Join(dir, "again")
			if err := f.WriteV2(again); err != nil {
				t.Fatal(err)
			}
			sameFile(t, again, want)

			if err := ImportV2(src, own); err != nil {
				t.Fatal(err)
			}
			if err := ImportV2(src, own); !errors.Is(err, os.ErrExist) {
				t.Errorf("a second import: %v", err)
			}
			sameFile(t, src, want)
			exported(t, own, filepath.Join(dir, "imported"), want, "3")
			exported(t, src, filepath.Join(dir, "opened"), want, "2")
			sameFile(t, src, want) // to read a file is not to change it
		})
	}
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func sameFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s is\n%x, want\n%x", path, got, want)
	}
}

// exported opens the log, of the given format, and checks what it exports.
func exported(t *testing.T, log, to string, want []byte, format string) {
	t.Helper()
	s, err := Open(log, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Info().Format; got != format {
		t.Errorf("format %s, want %s", got, format)
	}
	if err := s.ExportV2(log); !errors.Is(err, os.ErrExist) {
		t.Errorf("an export over the log itself: %v", err)
	}
	if err := errors.Join(s.ExportV2(to), s.Close()); err != nil {
		t.Fatal(err)
	}
	sameFile(t, to, want)
}

func TestV2BecomesV3AtTheFirstWrite(t *testing.T) {
	v2 := slices.Concat(raw(t, v2Header, v2PutAB, v2Cursor9), []byte("torn"))
	m := fsWith(v2)
	s := mustOpen(t, m, Options{})
	if s.Cursor() != kv.CursorAt(9) || s.Durable() != s.Cursor() || s.Recovery() != (Recovery{Format: 2, TornBytes: 4}) {
		t.Fatalf("cursor %v, durable %v, %+v", s.Cursor(), s.Durable(), s.Recovery())
	}
	if !bytes.Equal(m.names[testPath].data, v2) {
		t.Fatal("an open changed the file")
	}
	next := &store.Batch{Updates: []kv.Update{put("c", "new", 10)}}
	m.failAt, m.sticky = m.calls+1, true
	if err := s.Apply(t.Context(), next, kv.CursorAt(10)); !errors.Is(err, errInjected) || errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("a rewrite that fails: %v", err)
	}
	if m.failAt = 0; !bytes.Equal(m.names[testPath].data, v2) || s.Cursor() != kv.CursorAt(9) {
		t.Fatal("a failed rewrite changed something")
	}
	if err := s.Apply(t.Context(), next, kv.CursorAt(10)); err != nil {
		t.Fatal(err)
	}
	if got := s.Info().Format; got != "3" {
		t.Fatalf("format %s", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, m, Options{})
	for _, key := range []string{"a.b", "c"} {
		var v store.Value
		if ok, err := s.Get(store.AppendKey(nil, store.SpaceData, key), &v); !ok || err != nil {
			t.Errorf("%s: %v, %v", key, ok, err)
		}
	}
	if s.Cursor() != kv.CursorAt(10) || s.Recovery().Format != 3 {
		t.Fatalf("cursor %v, %+v", s.Cursor(), s.Recovery())
	}
}

// TestV2LastWriteWins: whatever follows, the last record of a key counts, and a purge is a delete.
func TestV2LastWriteWins(t *testing.T) {
	b := slices.Concat(raw(t, v2Header),
		putV2("a", "1", rev(1)), putV2("a", "2", rev(2)), putV2("b", "1", rev(3)), deleteV2("b", rev(4)), deleteV2("never", rev(5)),
		cursorV2(rev(5)[1:]), putV2("b", "2", rev(6)), cursorV2(rev(6)[1:]), putV2("ahead", "x", rev(7)))
	f, err := parseV2("f", b)
	if err != nil {
		t.Fatal(err)
	}
	want := []EntryV2{{"a", []byte("2"), kv.Revision(2)}, {"ahead", []byte("x"), kv.Revision(7)}, {"b", []byte("2"), kv.Revision(6)}}
	if !sameEntries(f.Entries, want) || f.Cursor != kv.CursorAt(6) || f.Compact {
		t.Fatalf("read %+v", f)
	}
	for name, more := range map[string][]byte{
		"a key twice":    slices.Concat(putV2("a", "1", rev(1)), putV2("a", "1", rev(1)), cursorV2(nil)),
		"a delete":       slices.Concat(deleteV2("a", rev(1)), cursorV2(nil)),
		"a cursor twice": slices.Concat(cursorV2(nil), cursorV2(nil)),
		"a torn tail":    {1},
	} {
		if f, err := parseV2("f", append(raw(t, v2Header), more...)); err != nil || f.Compact {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestV2Refusals(t *testing.T) {
	good := raw(t, v2Header, v2PutAB, v2Cursor9)
	at := int64(len(good))
	with := func(more ...[]byte) []byte { return slices.Concat(append([][]byte{good}, more...)...) }
	flip := func(b []byte, i int) []byte { b = slices.Clone(b); b[i] ^= 1; return b }
	huge := recV2(1, le16(1), []byte("k"), le32(MaxValue+1), make([]byte, MaxValue+1), rev(1))
	for name, c := range map[string]struct {
		data []byte
		kind error
		at   int64
	}{
		"nothing":                    {nil, store.ErrCorrupt, 0},
		"half a header":              {good[:5], store.ErrCorrupt, 0},
		"another file":               {[]byte("SQLite format 3\x00"), store.ErrFormat, 0},
		"version 1":                  {raw(t, "50475353 0100", v2PutAB), store.ErrFormat, 0},
		"version 4":                  {raw(t, "50475353 0400", v2PutAB), store.ErrFormat, 0},
		"checksum in the middle":     {flip(good, headerV2Len+9), store.ErrCorrupt, headerV2Len},
		"checksum before a record":   {with(flip(putV2("c", "1", rev(1)), 7), cursorV2(nil)), store.ErrCorrupt, at},
		"unknown type":               {with(recV2(4, []byte("future"))), store.ErrFormat, at},
		"zero type, some checksum":   {with([]byte{1, 2, 3, 4, 0, 0}), store.ErrFormat, at},
		"hole of zeros":              {with(make([]byte, 40), putV2("c", "1", rev(1))), store.ErrCorrupt, at},
		"hole, then a byte":          {with(make([]byte, 40), []byte{1}), store.ErrCorrupt, at},
		"value over the limit":       {with(huge), store.ErrCorrupt, at},
		"length over the limit":      {with(huge[:40]), store.ErrCorrupt, at},
		"long version":               {with(putV2("c", "1", append([]byte{11}, make([]byte, 11)...))), store.ErrCorrupt, at},
		"cursor of unknown flags":    {with(cursorV2(append(make([]byte, 11), 4))), store.ErrCorrupt, at},
		"cursor of a strange length": {with(cursorV2(make([]byte, 13))), store.ErrCorrupt, at},
		"key with a zero byte":       {with(putV2("a\x00b", "1", rev(1))), store.ErrCorrupt, at},
	} {
		_, err := parseV2("f", c.data)
		var fe *FileError
		if !errors.Is(err, c.kind) || !errors.As(err, &fe) || fe.Offset != c.at {
			t.Errorf("%s: %v, want %v at %d", name, err, c.kind, c.at)
		}
		if len(c.data) < 1000 {
			refused(t, fsWith(c.data), c.data)
		}
	}
}

// TestV2TornTails: what a write that was cut short leaves is dropped, also when it is all that there is.
func TestV2TornTails(t *testing.T) {
	good := raw(t, v2Header, v2PutAB, v2Cursor9)
	next := putV2("torn", "value", rev(10))
	tails := map[string][]byte{"zeros": make([]byte, 4096), "six zeros": make([]byte, 6), "a zero": {0}}
	for n := 1; n < len(next); n++ {
		tails["cut at "+hex.EncodeToString([]byte{byte(n)})] = next[:n]
	}
	flipped := slices.Clone(next)
	flipped[len(next)-3] ^= 1
	tails["damaged at the end"] = flipped
	tails["damaged, then less than a record"] = append(slices.Clone(flipped), 1, 2, 3, 4, 5)
	long := slices.Clone(next)
	long[5+2+4+1] = 0x7F // the value's length now points past the end
	tails["length past the end"] = long
	for name, tail := range tails {
		f, err := parseV2("f", slices.Concat(good, tail))
		if err != nil || f.Cursor != kv.CursorAt(9) || len(f.Entries) != 1 || f.Torn != int64(len(tail)) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
		junk := slices.Concat(raw(t, v2Header), tail)
		m := fsWith(junk)
		s := mustOpen(t, m, Options{})
		b := &store.Batch{Updates: []kv.Update{put("later", "1", 1)}}
		if err := errors.Join(s.Apply(t.Context(), b, kv.CursorAt(1)), s.Close()); err != nil {
			t.Errorf("%s alone: %v", name, err)
		}
		if s = mustOpen(t, m, Options{}); s.Cursor() != kv.CursorAt(1) || s.table.tree.Len() != 1 {
			t.Errorf("%s alone, then written to: cursor %v, %d keys", name, s.Cursor(), s.table.tree.Len())
		}
	}
}

// TestV2EveryBit: a damaged file is refused, or reads as a prefix of its records, or lies in the one way that the
// format has: a length that points past the end.
func TestV2EveryBit(t *testing.T) {
	data := slices.Concat(raw(t, v2Header, v2PutAB, v2Cursor9), putV2("c", "1", rev(10)), cursorV2(rev(10)[1:]))
	prefixes := map[string]bool{}
	for n := headerV2Len; n <= len(data); n++ {
		f, err := parseV2("f", data[:n])
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		prefixes[f.print()] = true
	}
	for i := range data {
		for bit := range 8 {
			b := slices.Clone(data)
			b[i] ^= 1 << bit
			f, err := parseV2("f", b)
			if err == nil && !prefixes[f.print()] {
				t.Errorf("bit %d of byte %d: read %+v", bit, i, f)
			}
			if err == nil && f.Torn == 0 {
				t.Errorf("bit %d of byte %d went unseen", bit, i)
			}
		}
	}
}

func (f *FileV2) print() string {
	b := appendCursorV2(nil, f.Cursor)
	for i := range f.Entries {
		b = appendPutV2(b, &f.Entries[i])
	}
	return string(b)
}

// TestV3IsNoV2: no damage to its version makes a format 3 file pass for one of format 2.
func TestV3IsNoV2(t *testing.T) {
	w := write(t, smallBatches()...)
	for _, data := range [][]byte{w.data, w.data[:headerV3Len], w.data[:w.ends[0]]} {
		data = slices.Clone(data)
		data[4] = 2
		refused(t, fsWith(data), data)
	}
	if _, err := parseV2("f", w.data); !errors.Is(err, store.ErrFormat) {
		t.Errorf("read as format 2: %v", err)
	}
}

func TestExportV2LeavesOutTheRest(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(filepath.Join(dir, "log"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := smallBatches()[0]
	b.Ops = append(b.Ops, store.Op{Key: []byte("ix")}, store.Op{Key: []byte("ax"), Value: []byte("x")})
	out := filepath.Join(dir, "out")
	if err := errors.Join(s.Apply(t.Context(), b, kv.CursorAt(2)), s.ExportV2(out), s.Close()); err != nil {
		t.Fatal(err)
	}
	sameFile(t, out, slices.Concat(raw(t, v2Header), putV2("a.b", "value", rev(2)), putV2("a.c", "", rev(2)), cursorV2(rev(2)[1:])))
}
